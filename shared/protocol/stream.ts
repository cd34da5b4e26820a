// A data stream: one WebSocket per byte stream as a Node Duplex, with backpressure both ways and a real half-close.
//
// Wire: binary messages are bytes in order, their borders mean nothing; the text message `eof` ends the sender's direction; a close
// before `eof` is an abort. No pings of ours: a paused reader would not answer them. Liveness is TCP's and the control link's business.
import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { messageOf } from '../errors.ts';
import { STREAM_CLOSE_MS_MAX } from '../limits.ts';
import { acceptOf, frameHeader, OPCODE, openFrameReader, type Opcode } from './websocket.ts';

const EOF_MESSAGE = Buffer.from('eof');
const NORMAL_CLOSURE = Buffer.from([0x03, 0xe8]);
const BUFFER_BYTES = 256 * 1024;
const JOINED_BYTES_MAX = 16 * 1024;
/** Sixteen bytes in base64. */
const HANDSHAKE_KEY = /^[A-Za-z0-9+/]{22}==$/;

/** The connection under a stream, a `net.Socket` or `tls.TLSSocket` after its upgrade; `shared` itself opens none. */
export interface StreamSocket extends Duplex {
  setTimeout(timeoutMs: number, onTimeout: () => void): unknown;
}

export interface StreamEnd {
  /** Whether this end has dialled, and so masks what it sends. */
  dialled: boolean;
  /** Bytes that came together with the handshake. */
  head: Buffer;
}

/** Answers the handshake of a stream that has come in; undefined, and nothing is answered, where it is none. */
export function acceptStream(request: IncomingMessage, socket: StreamSocket, head: Buffer): Duplex | undefined {
  const { upgrade = '', 'sec-websocket-key': key, 'sec-websocket-version': version } = request.headers;
  const isHandshake = request.method === 'GET' && upgrade.toLowerCase() === 'websocket' && version === '13';
  if (!isHandshake || key === undefined || !HANDSHAKE_KEY.test(key)) return undefined;
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${acceptOf(key)}\r\n\r\n`,
  );
  return streamDuplex(socket, { dialled: false, head });
}

/**
 * Wraps a connection whose upgrade is done. Reading pauses it when the consumer is slow; writing waits until the connection has taken
 * what was written before. `end()` sends EOF and leaves the other direction open. A peer that vanishes destroys the stream with an
 * error, which nobody has to listen for.
 */
export function streamDuplex(socket: StreamSocket, { dialled, head }: StreamEnd): Duplex {
  let eofReceived = false;
  let eofSent = false;

  const send = openSender(socket, dialled);
  const duplex = new Duplex({
    allowHalfOpen: true,
    readableHighWaterMark: BUFFER_BYTES,
    writableHighWaterMark: BUFFER_BYTES,
    write: (chunk: Buffer, _encoding, done) => send(OPCODE.binary, [chunk], done),
    writev: (chunks, done) => send(OPCODE.binary, piecesOf(chunks), done),
    final(done) {
      eofSent = true;
      send(OPCODE.text, [EOF_MESSAGE], done);
    },
    read() {
      socket.resume();
    },
    destroy(error, done) {
      if (error === null && eofSent && eofReceived) closeInOrder(socket, send);
      else socket.destroy();
      done(error);
    },
  });

  const onGone = (): void => {
    if (eofReceived && eofSent) return;
    const destroy = (): void => void duplex.destroy(new Error('the peer closed the stream before its end'));
    // What it said is whole, and is still read to its end; only what we say goes nowhere.
    if (eofReceived && !duplex.readableEnded) duplex.once('end', destroy);
    else destroy();
  };

  const feed = openFrameReader(!dialled, {
    onBytes: (bytes) => {
      if (eofReceived) throw new Error('it went on after its end');
      if (!duplex.push(bytes)) socket.pause();
    },
    onWord: (opcode, bytes) => {
      // Proxies may ask. One that asks faster than it reads is not answered, or the answers would pile up here.
      if (opcode === OPCODE.ping && !socket.writableNeedDrain) send(OPCODE.pong, [bytes]);
      if (opcode === OPCODE.ping || opcode === OPCODE.pong) return;
      if (opcode === OPCODE.close) return onGone();
      if (!bytes.equals(EOF_MESSAGE)) throw new Error('an unknown text message');
      eofReceived = true;
      duplex.push(null);
    },
  });

  const onData = (chunk: Buffer): void => {
    if (duplex.destroyed) return;
    try {
      feed(chunk);
    } catch (error) {
      duplex.destroy(new Error(`the stream is broken: ${messageOf(error)}`));
    }
  };
  socket.on('data', onData);
  socket.on('end', onGone);
  socket.on('close', onGone);
  socket.on('error', () => duplex.destroy(new Error('the stream connection failed')));
  // A peer may break it in the very turn in which it opens, before its user listens: that must not end our process. Who uses it later
  // hears of it all the same.
  duplex.on('error', () => undefined);
  if (head.length > 0) onData(head);
  return duplex;
}

type Send = (opcode: Opcode, pieces: readonly Buffer[], done?: (error?: Error | null) => void) => void;

/** Sends the pieces as one message. */
function openSender(socket: StreamSocket, masked: boolean): Send {
  return (opcode, pieces, done) => {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const frame = [frameHeader(opcode, length, masked), ...pieces];
    // Of little, a copy costs less than a second write; of much, the writes leave together and nothing is copied.
    if (length <= JOINED_BYTES_MAX) return void socket.write(Buffer.concat(frame), done);
    socket.cork();
    for (const piece of frame.slice(0, -1)) socket.write(piece);
    socket.write(frame.at(-1), done);
    socket.uncork();
  };
}

function piecesOf(chunks: readonly { chunk: Buffer }[]): Buffer[] {
  return chunks.map(({ chunk }) => chunk);
}

/** Both ends are done: what is under way arrives, and a peer that then does not close is not waited for. */
function closeInOrder(socket: StreamSocket, send: Send): void {
  send(OPCODE.close, [NORMAL_CLOSURE]);
  socket.end();
  socket.resume();
  socket.setTimeout(STREAM_CLOSE_MS_MAX, () => socket.destroy());
}

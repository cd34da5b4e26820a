// The stream wire: carries one byte stream between a holder and the control plane over one WebSocket, as a Node Duplex.
//
// A TCP connection has two directions, and each ends by itself (half-close). A WebSocket has only one close for both. So this wire adds a
// message for the end of a direction:
//
//     binary message   bytes of the stream, in order. The borders between messages have no meaning: "ab" + "c" equals "a" + "bc".
//     text `eof`       the sender's direction has ended. The other direction stays open.
//     close            in order after `eof` in both directions; an abort if anything before that.
//     ping             answered with a pong, because proxies may send pings. This side sends none.
//
// Example: `echo hi | ssh host cat`. The client has sent everything, and the answer still comes:
//
//     client side                              holder side
//       binary "hi\n"    ───────────────────>
//       text   "eof"     ───────────────────>   `cat` reads the end of its input
//                        <───────────────────   binary "hi\n"
//                        <───────────────────   text "eof"
//       close 1000       ───────────────────>   (or from the other side: whoever is done first)
//
// States of one end: open ─eof sent─> half-closed ─eof received─> closing ─> closed, or with the two events in the other order.
//   From every state before `closing`, a close, a lost connection or a malformed message destroys the stream with an error. Bytes
//   before a received `eof` are still read to their end. In `closing`, the peer has STREAM_CLOSE_MS_MAX to close its connection.
//
// Backpressure, with no buffer that grows:
//   reading   if the consumer is slow, `push` returns false and the socket is paused. TCP then slows the peer down. At most
//             BUFFER_BYTES (256 KiB) wait here, plus the kernel's buffers. A waiting piece costs some hundred bytes beside its own, so
//             small messages that arrive together are joined. A peer that sends messages of one byte costs no more than others.
//   writing   the next chunk is accepted only after the socket has taken the one before.
//
// Why this side sends no pings: a paused socket reads nothing, so it would not see the pong of a healthy peer. A dead peer is noticed
// by TCP keep-alive and by the control link.
//
// What must never happen: a consumer mistakes an abort for an end (half a file would look whole), or a peer that does not read makes
// this process keep its bytes.
import type { IncomingMessage } from 'node:http';
import { Duplex } from 'node:stream';
import { messageOf } from '../errors.ts';
import { STREAM_CLOSE_MS_MAX } from '../limits.ts';
import { acceptOf, frameHeader, OPCODE, openFrameReader, type Opcode } from './websocket.ts';

const EOF_MESSAGE = Buffer.from('eof');
const NORMAL_CLOSURE = Buffer.from([0x03, 0xe8]);
const BUFFER_BYTES = 256 * 1024;
const JOINED_BYTES_MAX = 16 * 1024;
/** Pieces of one chunk are joined if they are smaller on average. */
const PIECE_BYTES_MIN = 4 * 1024;
/** What a peer may send after both ends are done: the frame that closes has at most 131 bytes. */
const LATE_BYTES_MAX = 1024;
/** Sixteen bytes in base64. */
const HANDSHAKE_KEY = /^[A-Za-z0-9+/]{22}==$/;

/** The connection under a stream: a `net.Socket` or `tls.TLSSocket` after its upgrade. `shared` itself opens none. */
export interface StreamSocket extends Duplex {
  setTimeout(timeoutMs: number, onTimeout: () => void): unknown;
}

export interface StreamEnd {
  /** Whether this end has dialled. The end that dials masks its frames. */
  dialled: boolean;
  /** Bytes that have arrived together with the handshake. */
  head: Buffer;
}

/** Answers the handshake of an incoming stream. Returns undefined and answers nothing if the request is not a handshake. */
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
 * Wraps a connection after its upgrade. `end()` sends `eof` and leaves the other direction open. If the peer disappears, the stream is
 * destroyed with an error; a listener for it is not required.
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
    // The peer's direction is complete and is read to its end first. Only our direction is lost.
    if (eofReceived && !duplex.readableEnded) duplex.once('end', destroy);
    else destroy();
  };

  const pieces = openPieces((bytes) => pushOrPause(duplex, bytes, socket));
  const feed = openFrameReader(!dialled, {
    onBytes: (bytes) => {
      if (eofReceived) throw new Error('bytes came after the end');
      pieces.add(bytes);
    },
    onShort: (opcode, bytes) => {
      // Proxies may send pings. If a peer sends pings and reads no pongs, they are not answered: the pongs would pile up here.
      if (opcode === OPCODE.ping && !socket.writableNeedDrain) send(OPCODE.pong, [bytes]);
      if (opcode === OPCODE.ping || opcode === OPCODE.pong) return;
      pieces.passOn();
      if (opcode === OPCODE.close) return onGone();
      if (!bytes.equals(EOF_MESSAGE)) throw new Error('an unknown text message');
      eofReceived = true;
      duplex.push(null);
    },
  });

  const takeLate = openLateReader(socket);
  const onData = (chunk: Buffer): void => {
    if (duplex.destroyed) return takeLate(chunk);
    try {
      pieces.passOnAfter(() => feed(chunk));
    } catch (error) {
      duplex.destroy(new Error(`the stream is broken: ${messageOf(error)}`));
    }
  };
  socket.on('data', onData);
  socket.on('end', onGone);
  socket.on('close', onGone);
  socket.on('error', () => duplex.destroy(new Error('the stream connection failed')));
  // A peer may break the stream before its user adds a listener, and an error without a listener would end the process. Later reads and
  // writes still fail.
  duplex.on('error', () => undefined);
  if (head.length > 0) onData(head);
  return duplex;
}

/** Drops what comes after both ends are done. A few bytes now and then would keep the connection from being idle, so that it would never be cut. */
function openLateReader(socket: StreamSocket): (chunk: Buffer) => void {
  let bytes = 0;
  return (chunk) => {
    bytes += chunk.length;
    if (bytes > LATE_BYTES_MAX) socket.destroy();
  };
}

type Send = (opcode: Opcode, pieces: readonly Buffer[], done?: (error?: Error | null) => void) => void;

/** Sends the pieces as one message. */
function openSender(socket: StreamSocket, masked: boolean): Send {
  return (opcode, pieces, done) => {
    const length = pieces.reduce((sum, piece) => sum + piece.length, 0);
    const frame = [frameHeader(opcode, length, masked), ...pieces];
    // A copy of few bytes is cheaper than a second write. Many bytes are not copied; cork sends the writes together.
    if (length <= JOINED_BYTES_MAX) return void socket.write(Buffer.concat(frame), done);
    socket.cork();
    for (const piece of frame.slice(0, -1)) socket.write(piece);
    socket.write(frame.at(-1), done);
    socket.uncork();
  };
}

/** Gives bytes to the reader. A slow reader pauses the connection, and `read` resumes it. */
function pushOrPause(duplex: Duplex, bytes: Buffer, socket: StreamSocket): void {
  if (!duplex.push(bytes)) socket.pause();
}

interface Pieces {
  add(bytes: Buffer): void;
  passOn(): void;
  /** Passes on what `work` adds, also if it throws. */
  passOnAfter(work: () => void): void;
}

/** Keeps the pieces of one chunk until all are there, and joins small ones. */
function openPieces(push: (bytes: Buffer) => void): Pieces {
  let waiting: Buffer[] = [];
  const passOn = (): void => {
    const all = waiting;
    waiting = [];
    const bytes = all.reduce((sum, piece) => sum + piece.length, 0);
    // A copy of few large pieces would cost more than it saves. If an honest peer sends much, its messages are large.
    if (all.length < 2 || bytes >= all.length * PIECE_BYTES_MIN) for (const piece of all) push(piece);
    else push(Buffer.concat(all, bytes));
  };
  return {
    add: (bytes) => void waiting.push(bytes),
    passOn,
    passOnAfter: (work) => {
      try {
        work();
      } finally {
        passOn();
      }
    },
  };
}

function piecesOf(chunks: readonly { chunk: Buffer }[]): Buffer[] {
  return chunks.map(({ chunk }) => chunk);
}

/** Closes after `eof` in both directions. Bytes on their way still arrive; a peer that does not close in time is cut. */
function closeInOrder(socket: StreamSocket, send: Send): void {
  send(OPCODE.close, [NORMAL_CLOSURE]);
  socket.end();
  socket.resume();
  socket.setTimeout(STREAM_CLOSE_MS_MAX, () => socket.destroy());
}

// A data stream: one WebSocket per byte stream as a Node Duplex, with backpressure both ways and a real half-close.
//
// Wire: binary messages are bytes in order; the text message `eof` ends the sender's direction; a close before `eof` is an abort.
// No pings here: a paused reader would not answer them. Liveness is TCP's and the control link's business.
import { Duplex } from 'node:stream';
import { STREAM_BUFFER_BYTES_HIGH } from '../limits.ts';

const EOF_MESSAGE = 'eof';

/** The part of a `ws` WebSocket that a stream needs; `shared` itself does no I/O. */
export interface StreamSocket {
  readonly bufferedAmount: number;
  send(data: Uint8Array | string, options: { binary: boolean }, done: (error?: Error | null) => void): void;
  pause(): void;
  resume(): void;
  close(): void;
  terminate(): void;
  on(event: 'message', listener: (data: Buffer, isBinary: boolean) => void): unknown;
  on(event: 'close' | 'error', listener: () => void): unknown;
}

/**
 * Socket options that both ends must use: no compression, no fragments, no text check on bytes. The mask is zero, which ws takes as
 * nothing to do: masks keep web pages from fooling proxies that look into plain HTTP, and cost us half the throughput.
 */
export const STREAM_SOCKET_OPTIONS = {
  perMessageDeflate: false,
  skipUTF8Validation: true,
  maxFragments: 16,
  generateMask: (mask: Buffer): void => void mask.fill(0),
} as const;

/**
 * Wraps an open socket. Reading pauses the socket when the consumer is slow; writing waits once `STREAM_BUFFER_BYTES_HIGH`
 * bytes are unsent. `end()` sends EOF and leaves the other direction open. A peer that vanishes destroys it with an error, which nobody
 * has to listen for.
 */
export function streamDuplex(socket: StreamSocket): Duplex {
  let eofReceived = false;
  let eofSent = false;
  let closed = false;

  const send = (data: Uint8Array | string, binary: boolean, done: (error?: Error | null) => void): void => {
    if (closed) return done(new Error('the stream is closed'));
    socket.send(data, { binary }, done);
  };

  const duplex = new Duplex({
    allowHalfOpen: true,
    readableHighWaterMark: 256 * 1024,
    writableHighWaterMark: 256 * 1024,
    write(chunk: Buffer, _encoding, done) {
      if (socket.bufferedAmount + chunk.length > STREAM_BUFFER_BYTES_HIGH) return send(chunk, true, done);
      send(chunk, true, (error) => {
        if (error) duplex.destroy(error);
      });
      done();
    },
    final(done) {
      eofSent = true;
      send(EOF_MESSAGE, false, done);
    },
    read() {
      if (!closed) socket.resume();
    },
    destroy(error, done) {
      if (error === null && eofSent && eofReceived) socket.close();
      else socket.terminate();
      done(error);
    },
  });

  socket.on('message', (data, isBinary) => {
    if (eofReceived || duplex.destroyed) return;
    if (isBinary) {
      if (!duplex.push(data)) socket.pause();
    } else if (data.toString() === EOF_MESSAGE) {
      eofReceived = true;
      duplex.push(null);
    } else {
      duplex.destroy(new Error('a stream carried an unknown text message'));
    }
  });
  socket.on('close', () => {
    closed = true;
    // Both ends of an orderly stream have said that they are done; a reader that left while we had nothing to say has not waited.
    if (!eofReceived || !eofSent) duplex.destroy(new Error('the peer closed the stream before its end'));
  });
  socket.on('error', () => {
    duplex.destroy(new Error('the stream connection failed'));
  });
  // A peer may break it in the very turn in which it opens, before its user listens: that must not end our process. Who uses it later
  // hears of it all the same.
  duplex.on('error', () => undefined);
  return duplex;
}

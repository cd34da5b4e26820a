// Moves bytes between a session's connection to the holder and its program inside, no faster than the receiver reads.
import type { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendFrame, type FrameType } from '../wire/frames.ts';

/** Sends output to the holder. A slow holder slows the source down. After the end of the session, output is dropped. */
export function pump(source: Readable, socket: Socket, type: FrameType): void {
  source.on('data', (chunk: Buffer) => {
    if (socket.destroyed) return;
    let ready = false;
    sendFrame(socket, type, chunk, () => {
      ready = true;
      if (source.isPaused()) source.resume();
    });
    if (!ready) source.pause();
  });
  // The holder reads no more, so the source must not stay paused.
  socket.once('close', () => source.resume());
}

/**
 * Passes input from the holder to a program. A slow program slows the holder down. `onEof` is called after the client's EOF. If the
 * holder has left, the session is closed once the program has read the last byte.
 */
export async function feed(socket: Socket, sink: Writable, onEof: () => void): Promise<void> {
  const write = (payload: Buffer): Promise<void> | undefined => {
    if (sink.destroyed || !sink.writable || sink.write(payload)) return undefined;
    return new Promise((resolve) => {
      const done = (): void => {
        sink.off('drain', done);
        sink.off('close', done);
        resolve();
      };
      sink.once('drain', done);
      sink.once('close', done);
    });
  };
  await eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
    if (type === FRAME.eof) onEof();
    return type === FRAME.data ? write(payload) : undefined;
  }).catch(() => undefined);
  socket.destroy();
}

// Bytes between a session's connection to the holder and what it leads to inside, no faster than either side takes them.
import type { Socket } from 'node:net';
import type { Readable, Writable } from 'node:stream';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendFrame, type FrameType } from '../wire/frames.ts';

/** Output to the holder; a holder that is slow to take it slows the source. Once the session is over it is dropped. */
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
  // What waits for the holder to read waits for nobody now.
  socket.once('close', () => source.resume());
}

/**
 * Input from the holder; a program that is slow to take it slows the holder. `onEof`: the client has said its last word. Closes the
 * session once the last byte of a holder that has left is taken.
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

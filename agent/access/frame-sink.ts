// Bytes for a session inside the container, as the frames that its guest reads.
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import { FRAME, sendFrame } from './guest/frames.ts';

/** What is written goes to the guest, and the end of it as a frame: the other direction stays open. */
export function frameSink(socket: Socket): Writable {
  const sink = new Writable({
    write: (chunk: Buffer, _encoding, done) => {
      if (socket.writable) sendFrame(socket, FRAME.data, chunk, done);
      else done();
    },
    final: (done) => {
      if (socket.writable) sendFrame(socket, FRAME.eof, Buffer.alloc(0));
      done();
    },
  });
  socket.once('close', () => sink.destroy());
  return sink;
}

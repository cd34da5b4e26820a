// Sends a client's bytes to a session inside the container, as the frames that the guest reads.
import type { Socket } from 'node:net';
import { Writable } from 'node:stream';
import type { Clock } from '../../shared/clock.ts';
import { SESSION_LINGER_MS } from '../../shared/limits.ts';
import { FRAME, sendFrame } from '../wire/frames.ts';

/** A stream whose bytes go to the guest as data frames, and whose end becomes an EOF frame. The other direction stays open. */
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

/** Call after a client has sent its EOF and left. Bytes still on their way to `sink` arrive inside, for at most SESSION_LINGER_MS. */
export function leaveSession(socket: Socket, sink: Writable, clock: Clock): void {
  const giveUp = clock.after(SESSION_LINGER_MS, () => socket.destroy());
  socket.once('close', giveUp);
  if (sink.writableFinished) socket.end();
  else sink.once('finish', () => socket.end());
}

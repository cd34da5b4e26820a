// Writes to SSH channels no faster than the client reads. ssh2 ignores the socket's backpressure: if a client grants a huge window and
// does not read, all output would pile up in our memory.
import type { Duplex, Writable } from 'node:stream';

export interface Pace {
  /** Resolves when the bytes are sent and the connection can take more, or when the channel or the connection is gone. */
  write(target: Writable, bytes: Buffer, closed: AbortSignal): Promise<void>;
}

/** One per connection; `stream` carries the connection's bytes. */
export function createPace(stream: Duplex): Pace {
  const waiting = new Set<() => void>();
  const wakeAll = (): void => {
    for (const wake of waiting) wake();
    waiting.clear();
  };
  stream.on('drain', wakeAll);
  stream.once('close', wakeAll);

  const until = (closed: AbortSignal, begin: (done: () => void) => void): Promise<void> =>
    new Promise((resolve) => {
      const done = (): void => {
        closed.removeEventListener('abort', done);
        resolve();
      };
      if (closed.aborted) return resolve();
      closed.addEventListener('abort', done);
      begin(done);
    });

  return {
    write: async (target, bytes, closed) => {
      if (!target.writable) return;
      await until(closed, (done) => target.write(bytes, () => done()));
      if (stream.writableNeedDrain && !stream.destroyed) await until(closed, (done) => waiting.add(done));
    },
  };
}

// Bounds the memory of the SSH connections of one holder, because ssh2 does not. It accepts two megabytes per channel, even if nobody reads
// them. And it ignores the socket's backpressure: if a client grants a huge window and does not read, all output would pile up in our memory.
import type { Connection } from 'ssh2';
import type { Duplex, Writable } from 'node:stream';
import { SSH_BUFFERED_BYTES_MAX } from '../../shared/limits.ts';

export interface BufferBudget {
  /** Counts a connection until it closes. `measure` returns its buffered bytes, for the container or for the client. */
  enter(stream: Duplex, measure: () => number): void;
  /** Called after bytes have arrived on `stream`. Above the bound, the connection with the most buffered bytes is cut. */
  grown(stream: Duplex): void;
}

export function createBufferBudget(): BufferBudget {
  const measures = new Map<Duplex, () => number>();
  /** The last measurements. They are repeated only if their sum is too large. */
  const known = new Map<Duplex, number>();
  let total = 0;
  const note = (stream: Duplex, bytes: number): void => {
    total += bytes - (known.get(stream) ?? 0);
    known.set(stream, bytes);
  };
  const largest = (): Duplex | undefined => [...known].toSorted(([, a], [, b]) => b - a)[0]?.[0];
  const leave = (stream: Duplex): void => {
    note(stream, 0);
    known.delete(stream);
    measures.delete(stream);
  };
  return {
    enter: (stream, measure) => {
      measures.set(stream, measure);
      stream.once('close', () => leave(stream));
    },
    grown: (stream) => {
      note(stream, measures.get(stream)?.() ?? 0);
      if (total <= SSH_BUFFERED_BYTES_MAX) return;
      for (const [each, measure] of measures) note(each, measure());
      while (total > SSH_BUFFERED_BYTES_MAX) {
        const cut = largest();
        if (cut === undefined) return;
        leave(cut);
        cut.destroy();
      }
    },
  };
}

export interface Pace {
  /** Resolves when the bytes are sent and the connection can take more, or when the channel or the connection is gone. */
  write(target: Writable, bytes: Buffer, closed: AbortSignal): Promise<void>;
}

/** The part of ssh2's protocol that knows whether keys are being exchanged. */
interface Protocol {
  _kexinit: unknown;
}

/** One per connection; `stream` carries the connection's bytes. */
export function createPace(stream: Duplex, client: Connection): Pace {
  const protocol = protocolOf(client);
  const waiting = new Set<() => void>();
  const wakeAll = (): void => {
    for (const wake of waiting) wake();
    waiting.clear();
  };
  stream.on('drain', wakeAll);
  stream.once('close', wakeAll);
  client.on('rekey', wakeAll);
  // ssh2 keeps what is written during an exchange of keys until its end, which a client may never let come.
  const isFull = (): boolean => !stream.destroyed && (stream.writableNeedDrain || protocol._kexinit !== undefined);

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
  const untilRoom = async (closed: AbortSignal): Promise<void> => {
    while (isFull() && !closed.aborted) await until(closed, (done) => waiting.add(done));
  };

  return {
    write: async (target, bytes, closed) => {
      await untilRoom(closed);
      if (!target.writable) return;
      await until(closed, (done) => target.write(bytes, () => done()));
      await untilRoom(closed);
    },
  };
}

function protocolOf(client: Connection): Protocol {
  const { _protocol: protocol } = client as Connection & { _protocol?: Protocol };
  if (protocol === undefined || !('_kexinit' in protocol))
    throw new Error('ssh2 changed: it does not show whether keys are being exchanged');
  return protocol;
}

// Bounds the memory of all SSH connections of one holder. ssh2 accepts two megabytes per channel, even if nobody reads them.
import type { Duplex } from 'node:stream';
import { SSH_BUFFERED_BYTES_MAX } from '../../shared/limits.ts';

export interface BufferBudget {
  /** Counts a connection until it closes. `measure` returns its buffered bytes, for the container or for the client. */
  enter(stream: Duplex, measure: () => number): void;
  /** Called after bytes have arrived on it. Above the bound, the connection with the most buffered bytes is cut. */
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

// Writes server-sent events to a caller, no faster than it reads, with a ping while there is no event.
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { STREAM_PING_MS } from '../../../shared/limits.ts';

export interface EventWriter {
  /** The stream that the caller reads. */
  readonly stream: Readable;
  /** Writes objects as JSON and texts unchanged, in one write. Resolves when the caller can take more, or when the signal aborts. */
  send(events: readonly (object | string)[], signal: AbortSignal): Promise<void>;
  /** Ends the stream. A caller that has not read the rest within a minute is cut off. */
  end(): void;
}

const LINGER_MS = 60_000;

/** With one line end only, because some clients take an empty line for an event without data. */
const PING = ': ping\n';

export function openEventWriter({ clock }: { clock: Clock }): EventWriter {
  const stream = new PassThrough();
  // The signal reports a caller that has left.
  stream.on('error', () => undefined);
  let cancel = (): void => undefined;
  const arm = (): void => {
    cancel();
    cancel = clock.after(STREAM_PING_MS, () => {
      if (!stream.writableNeedDrain && stream.writable) stream.write(PING);
      arm();
    });
  };
  arm();
  return {
    stream,
    send: async (events, signal) => {
      if (events.length === 0 || !stream.writable) return;
      arm();
      const text = events.map((event) => `data: ${typeof event === 'string' ? event : JSON.stringify(event)}\n\n`);
      if (stream.write(text.join('')) || signal.aborted) return;
      await once(stream, 'drain', { signal }).catch(() => undefined);
    },
    end: () => {
      cancel();
      stream.end();
      stream.once(
        'close',
        clock.after(LINGER_MS, () => stream.destroy()),
      );
    },
  };
}

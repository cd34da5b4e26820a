// Writes server-sent events to a caller: no faster than it reads, and with a sign of life while there is nothing to say.
import { once } from 'node:events';
import { PassThrough, type Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { STREAM_PING_MS } from '../../../shared/limits.ts';

export interface EventWriter {
  /** What the caller reads. */
  readonly stream: Readable;
  /** Each as JSON, or a text as it is; one write for all. Resolves once the caller takes more, or the signal aborts. */
  send(events: readonly (object | string)[], signal: AbortSignal): Promise<void>;
  /** A caller that has not read all of it within a minute is cut off. */
  end(): void;
}

const LINGER_MS = 60_000;

/** One line end: an empty line would be an event without data for some clients. */
const PING = ': ping\n';

export function openEventWriter({ clock }: { clock: Clock }): EventWriter {
  const stream = new PassThrough();
  // A caller that is gone is told by the signal.
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

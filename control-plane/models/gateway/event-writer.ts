// Writes server-sent events to a caller, no faster than it reads, with a ping while there is no event.
import { Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { STREAM_PING_MS } from '../../../shared/limits.ts';

export interface EventWriter {
  /** The stream that the caller reads. */
  readonly stream: Readable;
  /**
   * Writes the events, which are texts made by `eventOf`, in one piece. Resolves when the caller can take more, or when the signal aborts.
   * Undefined if the caller can take more at once.
   */
  send(events: string, signal: AbortSignal): Promise<void> | undefined;
  /** Writes the last events and ends the stream. A caller that has not read the rest within a minute is cut off. */
  end(events?: string): void;
}

const LINGER_MS = 60_000;

/** A comment that keeps the stream alive. It has one line end only, because some clients take an empty line for an event without data. */
export const PING = ': ping\n';

/** Sends its last events in one packet with the end of the response. Node would send that end in a further packet. */
class Events extends Readable {
  last = '';
  isPiped = false;

  override pipe<T extends NodeJS.WritableStream>(response: T): T {
    this.isPiped = true;
    this.once('end', () => response.end(this.last));
    return super.pipe(response, { end: false });
  }
}

/** One event: an object as JSON, or a text unchanged. */
export function eventOf(data: object | string): string {
  return `data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`;
}

export function openEventWriter({ clock }: { clock: Clock }): EventWriter {
  let isFull = false;
  let isOver = false;
  let drained: (() => void) | undefined;
  const stream = new Events({
    read: () => {
      isFull = false;
      drained?.();
      // `drained` is called once. A later read must not call it again.
      drained = undefined;
    },
  });
  // The error is ignored: the signal already reports a caller that has left.
  stream.on('error', () => undefined);
  let lastMs = clock.monotonicMs();
  // One timer serves the whole stream. When it fires, it checks the time of the last event. A new timer for each event would cost more than the
  // event.
  const watch = (ms: number): (() => void) =>
    clock.after(ms, () => {
      const leftMs = lastMs + STREAM_PING_MS - clock.monotonicMs();
      if (leftMs <= 0 && !isFull && !stream.destroyed) isFull = !stream.push(PING);
      cancel = watch(leftMs > 0 ? leftMs : STREAM_PING_MS);
    });
  let cancel = watch(STREAM_PING_MS);
  return {
    stream,
    send: (events, signal) => {
      if (events === '' || isOver || stream.destroyed) return undefined;
      lastMs = clock.monotonicMs();
      isFull = !stream.push(events);
      return isFull && !signal.aborted ? untilDrained(signal, (done) => (drained = done)) : undefined;
    },
    end: (events = '') => {
      if (isOver) return;
      isOver = true;
      cancel();
      if (stream.isPiped) stream.last = events;
      else stream.push(events);
      stream.push(null);
      stream.once(
        'close',
        clock.after(LINGER_MS, () => stream.destroy()),
      );
    },
  };
}

function untilDrained(signal: AbortSignal, onDrain: (done: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      signal.removeEventListener('abort', done);
      resolve();
    };
    signal.addEventListener('abort', done);
    onDrain(done);
  });
}

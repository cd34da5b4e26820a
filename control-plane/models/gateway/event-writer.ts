// Writes server-sent events to a caller, no faster than it reads, with a ping while there is no event.
import { Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { STREAM_STALLED_MS_MAX, STREAM_PING_MS } from '../../../shared/limits.ts';

export interface EventWriter {
  /** The stream that the caller reads. */
  readonly stream: Readable;
  /**
   * Writes the events, which are texts made by `eventOf`, in one piece. Resolves when the caller can take more, or when the signal aborts. A
   * caller that takes nothing for STREAM_STALLED_MS_MAX is cut off.
   * Undefined if the caller can take more at once.
   */
  send(events: string, signal: AbortSignal): Promise<void> | undefined;
  /** Writes the last events and ends the stream. A caller that has not read the rest within STREAM_STALLED_MS_MAX is cut off. */
  end(events?: string): void;
}

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
  let fullSinceMs = 0;
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
  const push = (events: string): void => {
    isFull = !stream.push(events);
    if (isFull) fullSinceMs = clock.monotonicMs();
  };
  // One timer serves the whole stream. When it fires, it checks the time of the last event. A new timer for each event would cost more than the
  // event.
  const watch = (ms: number): (() => void) =>
    clock.after(ms, () => {
      const leftMs = lastMs + STREAM_PING_MS - clock.monotonicMs();
      if (leftMs <= 0 && !isFull && !stream.destroyed) push(PING);
      // Until the caller reads, the stream keeps a place of its model server.
      else if (isFull && clock.monotonicMs() - fullSinceMs >= STREAM_STALLED_MS_MAX) return void stream.destroy();
      cancel = watch(leftMs > 0 ? leftMs : STREAM_PING_MS);
    });
  let cancel = watch(STREAM_PING_MS);
  return {
    stream,
    send: (events, signal) => {
      if (events === '' || isOver || stream.destroyed) return undefined;
      lastMs = clock.monotonicMs();
      push(events);
      if (!isFull || signal.aborted) return undefined;
      return untilDrained(signal, (done) => (drained = done));
    },
    end: (events = '') => {
      if (isOver) return;
      isOver = true;
      cancel();
      if (stream.destroyed) return;
      if (stream.isPiped) stream.last = events;
      else stream.push(events);
      stream.push(null);
      stream.once(
        'close',
        clock.after(STREAM_STALLED_MS_MAX, () => stream.destroy()),
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

// Server-sent events: a text stream, kept alive while there is no event.
import { PassThrough, type Readable } from 'node:stream';
import { once } from 'node:events';
import type { Clock } from '../../../shared/clock.ts';

export interface ServerSentEvent {
  /** The event type, `message` by default. */
  event?: string;
  id?: string;
  /** Sent as JSON. */
  data: unknown;
}

/** Proxies close connections that are silent for a minute. */
const KEEP_ALIVE_MS = 15_000;

export const EVENT_STREAM_HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache',
  // Tells nginx not to buffer the events.
  'x-accel-buffering': 'no',
};

/** Reads `events` as fast as the client takes them. If the client leaves, the iteration ends. If the iteration throws, the stream ends. */
export function eventStream(events: AsyncIterable<ServerSentEvent>, clock: Clock): Readable {
  const out = new PassThrough();
  let cancel = (): void => undefined;
  const keepAlive = (): void => {
    cancel = clock.after(KEEP_ALIVE_MS, () => {
      if (out.destroyed) return;
      out.write(': keep-alive\n\n');
      keepAlive();
    });
  };
  // The client gets its headers with the first byte, so it knows at once that the stream is open.
  out.write(': open\n\n');
  const iterator = events[Symbol.asyncIterator]();
  out.once('close', () => {
    cancel();
    void iterator.return?.();
  });
  const pump = async (): Promise<void> => {
    for (let next = await iterator.next(); next.done !== true; next = await iterator.next()) {
      // A reader that has left closed the stream before. A timer that begins after that would never end.
      if (out.destroyed) return;
      cancel();
      keepAlive();
      if (!out.write(textOf(next.value))) await once(out, 'drain');
    }
    // The reader may take longer for the last events than a comment waits, and a comment after the end would break the stream.
    cancel();
    out.end();
  };
  keepAlive();
  pump().catch((error: unknown) => out.destroy(error instanceof Error ? error : new Error(String(error))));
  return out;
}

function textOf({ event, id, data }: ServerSentEvent): string {
  const lines = [
    ...(event === undefined ? [] : [`event: ${event}`]),
    ...(id === undefined ? [] : [`id: ${id}`]),
    `data: ${JSON.stringify(data)}`,
  ];
  return `${lines.join('\n')}\n\n`;
}

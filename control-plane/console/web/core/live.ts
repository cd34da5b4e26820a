// The live stream of the organisation. All tabs of a browser share one stream: a browser opens at most six connections to a host over HTTP/1.1,
// and a seventh tab would hang. One tab holds a lock, reads the stream and sends the events to the others over a channel. When this tab closes,
// another tab gets the lock and continues after the last event that it has received. Before the first event it continues after the position at
// which the stream has begun. The first stream of a page begins some seconds before the page: what changed after the page has read it, and before
// the stream was open, comes too.
import { signal } from '@preact/signals';
import type { LiveEvent } from '../../../../shared/api/event.ts';
import { events } from './api.ts';
import { serviceNow } from './clock.ts';

const RETRY_MS_MIN = 1_000;
const RETRY_MS_MAX = 30_000;
/** More than the time of the service can be wrong here (`serviceNow`). An event that comes although it was read before does no harm. */
const BEFORE_MS = 5_000;

type Message =
  | { kind: 'event'; event: LiveEvent }
  | { kind: 'resync'; id: string | undefined }
  | { kind: 'state'; isLive: boolean; id?: string | undefined }
  | { kind: 'join' };
type Listener = (event: LiveEvent | 'resync') => void;

/** Whether changes arrive as they happen. */
export const isLive = signal(false);

const listeners: { all: Listener[] } = { all: [] };

/** `listener` gets each change. If changes may be missing, it gets `resync` and must read its data again. The returned function stops it. */
export function onLive(listener: Listener): () => void {
  listeners.all = [...listeners.all, listener];
  return () => {
    listeners.all = listeners.all.filter((each) => each !== listener);
  };
}

/** Joins the other tabs of this browser with the same session. Ends when `signal` aborts. */
export function startLive(sessionId: string, stop: AbortSignal): void {
  const channel = new BroadcastChannel(`svc-live-${sessionId}`);
  const begun = `at_${serviceNow() - BEFORE_MS}`;
  let last: string | undefined;
  let isReading = false;
  const take = (message: Message): void => {
    if (message.kind === 'join') {
      if (isReading) channel.postMessage({ kind: 'state', isLive: isLive.peek(), id: last } satisfies Message);
    } else if (message.kind === 'state') {
      isLive.value = message.isLive;
      last ??= message.id;
    } else {
      last = (message.kind === 'event' ? message.event.id : message.id) ?? last;
      isLive.value = true;
      for (const listener of listeners.all) listener(message.kind === 'event' ? message.event : 'resync');
    }
  };
  const tell = (message: Message): void => {
    take(message);
    channel.postMessage(message);
  };
  channel.addEventListener('message', ({ data }: MessageEvent<Message>) => take(data));
  stop.addEventListener('abort', () => channel.close());
  // A tab that opens late asks for the position, because it may read the stream next.
  channel.postMessage({ kind: 'join' } satisfies Message);
  const lead = (): Promise<void> => {
    isReading = true;
    return readStream(() => last ?? begun, tell, stop);
  };
  void navigator.locks.request(`svc-live-${sessionId}`, { signal: stop }, lead).catch(() => undefined);
}

/** Reads the stream until `stop` aborts. After a lost connection it continues after the last event. */
async function readStream(last: () => string, tell: (message: Message) => void, stop: AbortSignal): Promise<void> {
  let waitMs = RETRY_MS_MIN;
  while (!stop.aborted) {
    try {
      for await (const { type, id, data } of events('/v1/events', { signal: stop, lastEventId: last() })) {
        waitMs = RETRY_MS_MIN;
        if (type === 'ready') tell({ kind: 'state', isLive: true, id });
        else if (type === 'resync') tell({ kind: 'resync', id });
        else tell({ kind: 'event', event: data as LiveEvent });
      }
    } catch {
      // The stream is opened again. If the session is over, the page signs out, and `stop` aborts.
    }
    tell({ kind: 'state', isLive: false });
    await pause(waitMs, stop);
    waitMs = Math.min(waitMs * 2, RETRY_MS_MAX);
  }
}

function pause(ms: number, stop: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stop.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });
}

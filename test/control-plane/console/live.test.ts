// The live stream of the console: what a tab asks for after a lost connection, and after the tab that has read the stream is closed.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

type Live = { startLive(sessionId: string, stop: AbortSignal): void };

/** The sources of the console are typed for a browser, so they are loaded by name. */
const LIVE_FILE: string = '../../../control-plane/console/web/core/live.ts';
const { startLive } = (await import(LIVE_FILE)) as Live;

interface Opened {
  /** The position that the request names. */
  after: string | undefined;
  send(event: string, id: string): void;
  breakOff(): void;
}

/** The streams that were opened, in order. */
let opened: Opened[];
let tabs: AbortController[];

beforeEach(() => {
  opened = [];
  tabs = [];
  vi.stubGlobal('fetch', async (_path: string, { headers, signal }: RequestInit) => {
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const writer = writable.getWriter();
    const breakOff = (): void => void writer.abort(new TypeError('network error')).catch(() => undefined);
    signal?.addEventListener('abort', breakOff);
    opened.push({
      after: (headers as Record<string, string>)['last-event-id'],
      send: (event, id) => {
        void writer.write(new TextEncoder().encode(`event: ${event}\nid: ${id}\ndata: {"id":"${id}"}\n\n`));
      },
      breakOff,
    });
    return new Response(readable);
  });
});
afterEach(() => {
  for (const tab of tabs) tab.abort();
  vi.unstubAllGlobals();
});

/** Opens a tab of the session. Its end is the close of the tab. */
function openTab(sessionId: string): AbortController {
  const tab = new AbortController();
  tabs.push(tab);
  startLive(sessionId, tab.signal);
  return tab;
}

const stream = async (index: number): Promise<Opened> => vi.waitUntil(() => opened[index], { timeout: 5_000 });

/** The stream and the channel deliver in later turns of the loop. */
const delivered = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 100));

test('a stream that breaks off before its first event continues after the position at which it has begun', async () => {
  openTab('ses_quiet');
  const first = await stream(0);
  first.send('ready', 'at_1000');
  await delivered();
  first.breakOff();
  expect((await stream(1)).after).toBe('at_1000');
});

test('the first stream of a page begins before the page, so it has what changed while the page was read', async () => {
  const beforeMs = Date.now();
  openTab('ses_new');
  const { after = '' } = await stream(0);
  const beginsMs = Number(after.replace('at_', ''));
  expect(beginsMs).toBeGreaterThanOrEqual(beforeMs - 5_000);
  expect(beginsMs).toBeLessThanOrEqual(Date.now() - 5_000);
});

test('a stream that breaks off after an event continues after the event, also if a later stream has begun', async () => {
  openTab('ses_busy');
  const first = await stream(0);
  first.send('ready', 'at_1000');
  first.send('instance.running', 'evt_1');
  await delivered();
  first.breakOff();
  const second = await stream(1);
  expect(second.after).toBe('evt_1');
  second.send('ready', 'evt_1');
  await delivered();
  second.breakOff();
  expect((await stream(2)).after).toBe('evt_1');
});

test('a tab that opened late continues after the position of the tab before it', async () => {
  const reader = openTab('ses_tabs');
  (await stream(0)).send('ready', 'at_1000');
  await delivered();
  openTab('ses_tabs');
  await delivered();
  expect(opened).toHaveLength(1);
  reader.abort();
  expect((await stream(1)).after).toBe('at_1000');
});

// The console's website and its terminals, with a real WebSocket client. The test plays the guest.
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as sendRequest } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { duplexPair } from 'node:stream';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, test } from 'vitest';
import WebSocket from 'ws';
import type { GuestSession, Guests, SessionEvents } from '../../../agent/holder/guest-connection.ts';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX } from '../../../agent/wire/frames.ts';
import type { SessionRequest } from '../../../agent/wire/guest-messages.ts';
import { openTerminalServer } from '../../../agent/holder/terminal-target.ts';
import { createIds } from '../../../shared/ids.ts';
import { seededRng } from '../../../shared/rng.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';

const HALF_HOUR_MS = 30 * 60_000;
const PING_MS = 25_000;

/** A shell as the guest shows it. */
interface Shell {
  request: SessionRequest;
  events: SessionEvents;
  sizes: string[];
  typed: string;
  ended: boolean;
}

let dir: string;
let clock: VirtualClock;
let shells: Shell[];
let refusal: Error | undefined;
/** The guest starts no shell before it resolves. */
let mayStart: Promise<void>;
let target: ReturnType<typeof openTerminalServer>;
let server: Server;
let port: number;
let pages: Page[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'console-'));
  writeFileSync(join(dir, 'index.html'), '<!doctype html>');
  clock = virtualClock(1_000_000);
  shells = [];
  pages = [];
  refusal = undefined;
  mayStart = Promise.resolve();
  const open: Guests['open'] = async (request, events) => {
    await mayStart;
    return startShell(request, events);
  };
  const guests = { open } as Pick<Guests, 'open'> as Guests;
  target = openTerminalServer({ clock, ids: createIds(clock, seededRng(1)), guests, folder: dir });
  server = createServer((socket) => target.serve(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  ({ port } = server.address() as AddressInfo);
});

afterEach(() => {
  for (const { socket } of pages) socket.terminate();
  server.close();
  rmSync(dir, { recursive: true });
});

function startShell(request: SessionRequest, events: SessionEvents): GuestSession {
  if (refusal !== undefined) throw refusal;
  const [near, far] = duplexPair();
  const shell: Shell = { request, events, sizes: [], typed: '', ended: false };
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  far.on('data', (chunk: Buffer) => {
    for (const { type, payload } of decode(chunk)) if (type === FRAME.data) shell.typed += payload.toString();
  });
  near.once('close', () => (shell.ended = true));
  shells.push(shell);
  return {
    socket: near as Socket,
    resize: (cols, rows) => void shell.sizes.push(`${cols}x${rows}`),
    signal: () => undefined,
  };
}

interface Page {
  socket: WebSocket;
  /** Words and bytes in the order in which they came. */
  heard: string[];
  closed: Promise<number>;
  until(text: string): Promise<void>;
  session(): string;
}

async function openPage(query = 'cols=90&rows=30'): Promise<Page> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/session?${query}`);
  const heard: string[] = [];
  const closed = new Promise<number>((resolve) => socket.once('close', resolve));
  socket.on('message', (data: Buffer, isBinary) => heard.push(isBinary ? `<${data.toString()}>` : data.toString()));
  const page: Page = {
    socket,
    heard,
    closed,
    until: async (wanted) => {
      while (!heard.join('').includes(wanted)) await once(socket, 'message');
    },
    session: () => (JSON.parse(heard[0] ?? '{}') as { session?: string }).session ?? '',
  };
  pages.push(page);
  await once(socket, 'open');
  return page;
}

const shellOf = (index: number): Shell => shells[index] ?? expect.unreachable('there is no such shell');
const write = (index: number, bytes: string): Promise<void> | undefined =>
  shellOf(index).events.onData('stdout', Buffer.from(bytes));
/** The holder notices the end of a page a moment later. Until then the program waits as for a slow page. */
async function untilAlone(index: number): Promise<void> {
  await expect.poll(() => write(index, 'x'.repeat(100_001))).toBeUndefined();
}
const begun = async (query?: string): Promise<Page> => {
  const page = await openPage(query);
  await page.until('"begin"');
  return page;
};

test('the page is served with its security headers, and any other path is 404', async () => {
  const get = async (path: string): Promise<{ status: number | undefined; csp: unknown; body: string }> => {
    const request = sendRequest({ port, host: '127.0.0.1', path }).end();
    const [answer] = await once(request, 'response');
    return { status: answer.statusCode, csp: answer.headers['content-security-policy'], body: await text(answer) };
  };
  expect(await get('/')).toMatchObject({ status: 200, body: '<!doctype html>' });
  expect((await get('/')).csp).toContain("default-src 'none'; script-src 'self'; connect-src 'self'");
  // The content security policy allows the icon of the real page.
  const real = readFileSync(join(import.meta.dirname, '../../../agent/holder/page/index.html'), 'utf8');
  const scheme = /<link rel="icon" href="([a-z]+:)/.exec(real)?.[1] ?? 'none';
  expect((await get('/')).csp).toMatch(new RegExp(`img-src [^;]*${scheme}`));
  expect((await get('/../../etc/passwd')).status).toBe(404);
});

test('sixty-four connections are served at a time, and one more is refused', async () => {
  const connections = Array.from({ length: 64 }, () => duplexPair()[0]);
  for (const connection of connections) target.serve(connection);
  const more = duplexPair()[0];
  expect(() => target.serve(more)).toThrow('too many connections to the console of this instance');
  const [first] = connections;
  first?.destroy();
  await clock.nextTurn();
  target.serve(more);
  for (const connection of [...connections, more]) connection.destroy();
});

test('a page gets a login shell of its size, the output, and the exit', async () => {
  const page = await begun();
  expect(shellOf(0).request).toMatchObject({
    kind: 'exec',
    command: null,
    pty: { term: 'xterm-256color', cols: 90, rows: 30 },
  });
  void write(0, 'hello');
  await page.until('<hello>');
  page.socket.send(Buffer.from('ls\r'));
  page.socket.send(JSON.stringify({ kind: 'resize', cols: 100, rows: 40 }));
  await expect.poll(() => [shellOf(0).typed, shellOf(0).sizes.at(-1)]).toEqual(['ls\r', '100x40']);
  shellOf(0).events.onEnd({ code: 3, signal: null });
  await page.until('{"kind":"exit","code":3,"signal":null}');
  expect(await page.closed).toBe(4000);
});

test('a page that returns gets exactly the bytes that it has missed', async () => {
  const first = await begun();
  void write(0, 'before');
  await first.until('<before>');
  first.socket.terminate();
  void write(0, ' while away');
  const again = await begun(`session=${first.session()}&place=6&cols=90&rows=30`);
  expect(again.session()).toBe(first.session());
  await again.until('< while away>');
  expect(again.heard.slice(1)).toEqual(['< while away>']);
  expect(shells).toHaveLength(1);
});

test('a reloaded page gets the history and the place at which it ends', async () => {
  const first = await begun();
  void write(0, 'the past');
  await first.until('<the past>');
  first.socket.terminate();
  const again = await begun(`session=${first.session()}&place=0&cols=90&rows=30`);
  expect(JSON.parse(again.heard[0] ?? '')).toMatchObject({ kind: 'begin', place: 0, end: 8 });
  await again.until('<the past>');
  // A change of size makes a full-screen program draw its screen again.
  await expect.poll(() => shellOf(0).sizes).toEqual(expect.arrayContaining(['90x29', '90x30']));
});

test('if the ring no longer has the missed bytes, the page is sent the position where the rest begins', async () => {
  const first = await begun();
  first.socket.terminate();
  await first.closed;
  for (let i = 0; i < 20; i += 1) await write(0, 'x'.repeat(64 * 1024));
  const again = await begun(`session=${first.session()}&place=7&cols=90&rows=30`);
  expect(JSON.parse(again.heard[0] ?? '')).toMatchObject({ place: 20 * 65_536 - 1024 ** 2, end: 20 * 65_536 });
});

test('a second page takes the terminal over', async () => {
  const first = await begun();
  const second = await begun(`session=${first.session()}&place=0&cols=80&rows=24`);
  expect(await first.closed).toBe(4001);
  void write(0, 'for the second');
  await second.until('<for the second>');
});

test('a program waits while the page does not show its output, and goes on when the page shows it or has gone', async () => {
  const page = await begun();
  expect(write(0, 'x'.repeat(100_000))).toBeUndefined();
  const waiting = write(0, 'y');
  expect(waiting).toBeInstanceOf(Promise);
  page.socket.send(JSON.stringify({ kind: 'shown', bytes: 95_001 }));
  await waiting;
  const more = write(0, 'z'.repeat(100_000));
  expect(more).toBeInstanceOf(Promise);
  page.socket.terminate();
  await more;
});

test('a ninth terminal replaces the one that was left longest ago, or is refused', async () => {
  const open: Page[] = [];
  for (let i = 0; i < 8; i += 1) open.push(await begun());
  const refused = await openPage();
  await refused.until('8 terminals are open already');
  expect(await refused.closed).toBe(4000);
  for (const index of [5, 2]) {
    open[index]?.socket.terminate();
    await untilAlone(index);
    clock.jump(1000);
  }
  await begun();
  expect(shells.map((shell) => shell.ended)).toEqual([false, false, false, false, false, true, false, false, false]);
});

test('a terminal to which no page returns ends after half an hour', async () => {
  const left = await begun();
  left.socket.terminate();
  await untilAlone(0);
  clock.jump(HALF_HOUR_MS - 1);
  expect(shellOf(0).ended).toBe(false);
  clock.jump(1);
  await expect.poll(() => shellOf(0).ended).toBe(true);
});

test('a terminal that is shown does not end as long as its page answers', async () => {
  const page = await begun();
  for (let ms = 0; ms <= 2 * HALF_HOUR_MS; ms += PING_MS) {
    const pinged = once(page.socket, 'ping');
    clock.jump(PING_MS);
    await pinged;
    // The answer to the ping has arrived when the answer to this one is there.
    page.socket.ping();
    await once(page.socket, 'pong');
  }
  expect(shellOf(0).ended).toBe(false);
  clock.jump(PING_MS);
  clock.jump(PING_MS);
  expect(await page.closed).toBe(1006);
});

test('an image without a shell is reported to the page', async () => {
  refusal = new Error('this image has no shell');
  const page = await openPage();
  await page.until('{"kind":"failed","detail":"this image has no shell"}');
  expect(await page.closed).toBe(4000);
});

test.each(['{"kind":"resize","cols":0,"rows":1}', 'nonsense'])('a page that sends %s is cut off', async (word) => {
  const page = await begun();
  page.socket.send(word);
  expect(await page.closed).toBe(1006);
});

test('a page that breaks the protocol before its shell has started is cut off, and others are served', async () => {
  const starting = Promise.withResolvers<void>();
  mayStart = starting.promise;
  const page = await openPage();
  // The bits are of an extension that nobody has asked for.
  (page.socket as WebSocket & { _socket: Socket })._socket.write(Buffer.from([0xf2, 0x80, 0, 0, 0, 0]));
  const code = await page.closed;
  starting.resolve();
  await begun();
  expect(code).toBe(1002);
});

// Sessions of the guest: every byte before an EOF arrives, whichever side leaves first.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createFrameDecoder, FRAME, FRAME_BYTES_MAX, sendFrame } from '../../../agent/wire/frames.ts';
import { createListeners } from '../../../agent/guest/connections.ts';
import { startSession, type GuestSession } from '../../../agent/guest/sessions.ts';
import type { SessionMessage, SessionRequest } from '../../../agent/wire/guest-messages.ts';
import { SESSION_LINGER_MS } from '../../../shared/limits.ts';
import { eventually } from '../../kit/processes.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';

/** More than the kernel buffers for a connection, so some bytes wait in the guest. */
const MUCH = 16 * 1024 * 1024;
/** Several of these wait in a stream before it says that it is full. */
const CHUNK_BYTES = 16 * 1024;
let dir: string;
/** The holder's end of the session, and the guest's. */
let holder: Socket;
let guest: Socket;
let session: GuestSession;
let clock: VirtualClock;
let closing: (() => void)[];

beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'guest-'));
  clock = virtualClock(1_000_000);
  closing = [];
});
afterEach(() => {
  for (const close of closing) close();
  rmSync(dir, { recursive: true });
});

async function start(request: SessionRequest): Promise<void> {
  expect(await ask(request)).toMatchObject({ kind: 'started' });
}

/** Resolves with the first word of the guest about the session. */
async function ask(request: SessionRequest): Promise<SessionMessage | undefined> {
  const news: SessionMessage[] = [];
  const path = join(dir, `run-${closing.length}`);
  const run = createServer().listen(path);
  await once(run, 'listening');
  guest = connect(path);
  [holder] = await once(run, 'connection');
  holder.on('error', () => undefined);
  closing.push(
    () => run.close(),
    () => holder.destroy(),
    () => guest.destroy(),
  );
  const decode = createFrameDecoder(FRAME_BYTES_MAX);
  holder.on('data', (chunk: Buffer) => {
    for (const frame of decode(chunk)) if (frame.type === FRAME.json) news.push(JSON.parse(frame.payload.toString()));
  });
  const deps = { clock, env: { PATH: process.env['PATH'] ?? '', HOME: dir }, ptyModule: '' };
  session = startSession(guest, request, { ...deps, listeners: createListeners(clock) }, () => undefined);
  return eventually('a first word', 5_000, () => Promise.resolve(news[0]));
}

/** A program inside that listens, and what connects to it. */
async function listening(): Promise<{ port: number; accepted: Promise<Socket> }> {
  const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => server.close());
  const accepted = once(server, 'connection').then(([socket]: Socket[]) => {
    if (socket === undefined) throw new Error('no connection');
    socket.on('error', () => undefined);
    closing.push(() => socket.destroy());
    return socket;
  });
  return { port: (server.address() as AddressInfo).port, accepted };
}

/** Sends all bytes and, if `whole`, the EOF; then leaves. */
function upload(bytes: number, whole = true): void {
  const chunk = Buffer.alloc(CHUNK_BYTES, 'x');
  for (let sent = 0; sent < bytes; sent += chunk.length) sendFrame(holder, FRAME.data, chunk);
  if (whole) sendFrame(holder, FRAME.eof, Buffer.alloc(0));
  holder.end();
}

/** Reads only when the guest is blocked. Resolves with the number of bytes, and whether they ended in order. */
async function readLate(socket: Socket): Promise<{ bytes: number; ended: boolean }> {
  let bytes = 0;
  let ended = false;
  let before = -1;
  const step = (): void => {
    if (guest.bytesRead === before || guest.closed) return void socket.resume();
    before = guest.bytesRead;
    setImmediate(step);
  };
  socket.once('end', () => (ended = true));
  socket.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    socket.pause();
    setImmediate(step);
  });
  step();
  await new Promise((resolve) => void socket.once('end', resolve).once('close', resolve));
  return { bytes, ended };
}

test('a session that only a newer holder knows is refused at once, because a guest stays as old as its container', async () => {
  const request = { kind: 'of_a_later_version' } as unknown as SessionRequest;
  expect(await ask(request)).toEqual({ kind: 'failed', detail: 'the helper inside the container is too old for this' });
  expect(() => session.resize(80, 24)).not.toThrow();
});

describe('a connection', () => {
  test('whose client has left after its EOF delivers all bytes to the program inside', async () => {
    const { port, accepted } = await listening();
    await start({ kind: 'dial', host: '127.0.0.1', port });
    const program = await accepted;
    upload(MUCH);
    expect(await readLate(program)).toEqual({ bytes: MUCH, ended: true });
  });

  test('delivers all bytes even if the program answers a client that has left', async () => {
    const { port, accepted } = await listening();
    await start({ kind: 'dial', host: '127.0.0.1', port });
    const program = await accepted;
    upload(MUCH);
    const got = readLate(program);
    await once(guest, 'close');
    program.end(Buffer.alloc(MUCH));
    expect(await got).toEqual({ bytes: MUCH, ended: true });
    await once(program, 'close');
  });

  test('is closed if the program does not read in time', async () => {
    const { port, accepted } = await listening();
    await start({ kind: 'dial', host: '127.0.0.1', port });
    const program = await accepted;
    upload(64 * 1024);
    await once(guest, 'close');
    await readLate(program);
    clock.jump(SESSION_LINGER_MS - 1);
    expect(await answers(program)).toBe(true);
    clock.jump(1);
    await eventually('a closed connection', 5_000, async () => ((await answers(program)) ? undefined : true));
  });

  test('whose client breaks off is closed at once', async () => {
    const { port, accepted } = await listening();
    await start({ kind: 'dial', host: '127.0.0.1', port });
    const program = await accepted;
    upload(64 * 1024, false);
    await readLate(program);
    await eventually('a closed connection', 5_000, async () => ((await answers(program)) ? undefined : true));
  });

  test('carries out the bytes that a program sent before it broke off', async () => {
    const { port, accepted } = await listening();
    await start({ kind: 'dial', host: '127.0.0.1', port });
    const program = await accepted;
    holder.pause();
    program.write(Buffer.alloc(512 * 1024));
    await eventually('bytes that wait', 5_000, async () => guest.writableNeedDrain || undefined);
    const broken = once(program, 'close');
    program.resetAndDestroy();
    await broken;
    sendFrame(holder, FRAME.data, Buffer.from('x'));
    await eventually('an error inside', 5_000, async () => guest.writableEnded || guest.destroyed || undefined);
    holder.resume();
    await once(holder, 'close');
    expect(holder.bytesRead).toBe(guest.bytesWritten);
  });
});

describe('a command', () => {
  test('whose client has left after its EOF gets all bytes before its hang-up', async () => {
    // The kernel decides how many chunks still wait in the guest. With these counts, each possible number of them occurs.
    for (let chunks = 4; chunks <= 24; chunks += 1) {
      const [go, got] = [join(dir, `go-${chunks}`), join(dir, `got-${chunks}`)];
      execFileSync('mkfifo', [go]);
      await start({ kind: 'exec', command: `trap '' HUP; read x < ${go}; wc -c > ${got}`, env: {}, pty: null });
      upload(chunks * CHUNK_BYTES);
      for (let turn = 0; turn < 30 && !guest.closed; turn += 1) await new Promise((resolve) => setImmediate(resolve));
      writeFileSync(go, 'x\n');
      const count = await eventually('the end of the command', 5_000, async () => textOf(got));
      expect(Number(count)).toBe(chunks * CHUNK_BYTES);
    }
  });

  test('gets a hang-up when its client leaves, although it reads nothing', async () => {
    const file = join(dir, 'hung-up');
    const command = `trap 'echo yes > ${file}; exit' HUP; sleep 600 & wait`;
    await start({ kind: 'exec', command, env: {}, pty: null });
    upload(MUCH, false);
    await eventually('a guest that is stuck', 5_000, async () => (guest.bytesRead > 256 * 1024 ? true : undefined));
    holder.destroy();
    session.cut();
    await eventually('a hang-up', 5_000, async () => textOf(file));
  });
});

async function answers(program: Socket): Promise<boolean> {
  for (let turn = 0; turn < 10 && !program.destroyed; turn += 1) {
    program.write('?');
    await new Promise((resolve) => setImmediate(resolve));
  }
  return !program.destroyed;
}

function textOf(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8') || undefined;
  } catch {
    return undefined;
  }
}

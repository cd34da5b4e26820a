// How fast a holder reads from a container that sends as much as it can: on a virtual clock, and with a real hostile guest.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FRAME, FRAME_BYTES_MAX, type Frame } from '../../../agent/wire/frames.ts';
import { createGuestPace, sendOpen, sendOrder, UNREAD_ORDERS_BYTES_MAX } from '../../../agent/holder/guest-frames.ts';
import { openGuests, type Guests, type GuestSession } from '../../../agent/holder/guest-connection.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { eventually, startProgram, type Program } from '../../kit/processes.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

/** The audit's flood took six minutes. Whoever runs that has other work too, and a probe has ten seconds. */
const IS_SOAK = process.env['SOAK'] === '1';
const FLOOD_MS = IS_SOAK ? 6 * 60_000 : 0;
const LAG_MS_MAX = IS_SOAK ? 5_000 : 2_000;

const SMALL: Frame = { type: FRAME.data, payload: Buffer.from('x') };

describe('frames of a container', () => {
  test('give the event loop back after sixteen of one connection', () => {
    const rest = createGuestPace(virtualClock(1_000_000))();
    const rested = Array.from({ length: 32 }, () => rest(SMALL) !== undefined);
    expect(rested.flatMap((pause, at) => (pause ? [at] : []))).toEqual([15, 31]);
  });

  test.each([
    ['small frames', SMALL, 20_000, 24_000],
    ['words', { type: FRAME.json, payload: Buffer.from('{}') }, 2_000, 2_400],
    ['large frames', { type: FRAME.data, payload: Buffer.alloc(512 * 1024) }, 1_900, 2_300],
  ] as const)('are taken at a bounded rate, from all connections together: %s', async (_kind, frame, least, most) => {
    const clock = virtualClock(1_000_000);
    const pace = createGuestPace(clock);
    let taken = 0;
    const listen = async (): Promise<void> => {
      const rest = pace();
      while (clock.now() < 1_001_000) {
        taken += 1;
        await rest(frame);
      }
    };
    const all = Promise.all([listen(), listen(), listen()]);
    let isOver = false;
    void all.then(() => (isOver = true));
    while (!isOver) {
      // Time moves only when everything waits for the clock.
      for (let turn = 0; turn < 300; turn += 1) await clock.nextTurn();
      clock.jump(10);
    }
    expect(taken).toBeGreaterThan(least);
    expect(taken).toBeLessThan(most);
  });
});

describe('orders to a guest', () => {
  const open = (command: string): Parameters<typeof sendOpen>[1] => ({
    kind: 'open',
    token: 't',
    request: { kind: 'exec', command, env: {}, pty: null },
  });
  /** A connection whose other end reads nothing, with `bytes` that wait. */
  const unread = (bytes: number): Socket => {
    const connection = new Duplex({ read: () => undefined, write: () => undefined });
    connection.write(Buffer.alloc(bytes));
    return connection as Socket;
  };

  test('open a session while 1 MiB of orders is unread, and no session above that', () => {
    expect(UNREAD_ORDERS_BYTES_MAX).toBe(1024 ** 2);
    const [full, over] = [unread(UNREAD_ORDERS_BYTES_MAX), unread(UNREAD_ORDERS_BYTES_MAX + 1)];
    sendOpen(full, open('x'));
    expect(full.writableLength).toBeGreaterThan(UNREAD_ORDERS_BYTES_MAX);
    expect(() => sendOpen(over, open('x'))).toThrow('the helper inside the container does not read its orders');
    expect(over.writableLength).toBe(UNREAD_ORDERS_BYTES_MAX + 1);
  });

  test.each([
    ['a resize is lost', { kind: 'resize', token: 't', cols: 1, rows: 1 }],
    ['a signal is lost', { kind: 'signal', token: 't', signal: 'INT' }],
    ['the end of a session is sent', { kind: 'cut', token: 't' }],
  ] as const)('above that, %s', (_what, order) => {
    const [full, over] = [unread(UNREAD_ORDERS_BYTES_MAX), unread(UNREAD_ORDERS_BYTES_MAX + 1)];
    sendOrder(full, order);
    sendOrder(over, order);
    const sentBytes = 5 + JSON.stringify(order).length;
    expect(full.writableLength - UNREAD_ORDERS_BYTES_MAX).toBe(sentBytes);
    expect(over.writableLength - UNREAD_ORDERS_BYTES_MAX - 1).toBe(order.kind === 'cut' ? sentBytes : 0);
  });

  test('are never larger than the frame that a guest accepts', () => {
    const connection = unread(0);
    const around = JSON.stringify(open('')).length;
    sendOpen(connection, open('x'.repeat(FRAME_BYTES_MAX - around)));
    const sentBytes = connection.writableLength;
    expect(sentBytes).toBe(FRAME_BYTES_MAX + 5);
    expect(() => sendOpen(connection, open('x'.repeat(FRAME_BYTES_MAX - around + 1)))).toThrow(
      'the request for this session is too long',
    );
    expect(connection.writableLength).toBe(sentBytes);
  });
});

describe('a holder whose guest floods sixty sessions', () => {
  let dir: string;
  let guests: Guests;
  let flood: Program | undefined;
  const clock = systemClock();
  beforeEach(async () => {
    dir = mkdtempSync(join(tmpdir(), 'flood-'));
    guests = await openGuests(join(dir, 's'), {
      clock,
      ids: createIds(clock, seededRng(1)),
      log: createLog('test', 'silent'),
      onChange: () => undefined,
    });
  });
  afterEach(async () => {
    await flood?.stop('SIGKILL');
    await guests.close();
    rmSync(dir, { recursive: true });
  });

  /** Costs about as much per byte as the encryption in a real holder. */
  const work = (bytes: Buffer): undefined => {
    for (let round = 0; round < 5; round += 1) createHash('sha256').update(bytes).digest();
    return undefined;
  };
  const begin = async (kind: string, onData: (bytes: Buffer) => undefined): Promise<GuestSession[]> => {
    const program = join(import.meta.dirname, '../../attacks/frame-flood.ts');
    flood = startProgram({ command: process.execPath, args: [program, join(dir, 's'), kind] });
    await eventually('guest', 10_000, async () => guests.connected() || undefined);
    const events = { onData: (_type: string, bytes: Buffer) => onData(bytes), onEof: () => {}, onEnd: () => {} };
    return Promise.all(Array.from({ length: 60 }, () => guests.open({ kind: 'sftp' }, events)));
  };

  test('serves its other callers all the time', async () => {
    let taken = 0;
    const delay = monitorEventLoopDelay({ resolution: 5 });
    delay.enable();
    await begin('small', (bytes) => {
      taken += 1;
      return work(bytes);
    });
    const startedMs = performance.now();
    await eventually('a flood', 20_000 + FLOOD_MS, async () => {
      const isLong = performance.now() - startedMs >= FLOOD_MS;
      return (isLong && taken > 30_000) || undefined;
    });
    expect(delay.max / 1e6).toBeLessThan(LAG_MS_MAX);
  });

  test('cuts a session that sends empty frames again and again', async () => {
    const sessions = await begin('empty', work);
    await eventually('their ends', 10_000, async () => sessions.every(({ socket }) => socket.destroyed) || undefined);
  });
});

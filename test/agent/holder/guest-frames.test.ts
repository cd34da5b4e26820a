// How fast a holder reads from a container that sends as much as it can: on a virtual clock, and with a real hostile guest.
import { createHash } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { FRAME, type Frame } from '../../../agent/wire/frames.ts';
import { createGuestPace } from '../../../agent/holder/guest-frames.ts';
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

// The engine that drives due rows: what it keeps about rows that failed, and how many rows of each driver it handles at once.
import { afterEach, expect, test } from 'vitest';
import { type Engine, startEngine } from '../../../../control-plane/base/operations/engine.ts';
import { createLog } from '../../../../shared/log.ts';
import { seededRng } from '../../../../shared/rng.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

let engine: Engine | undefined;
afterEach(() => engine?.stop());

test('rows that failed and are not due any more are forgotten, so that the queries for due rows stay small', async () => {
  const clock = virtualClock();
  let due = Array.from({ length: 50 }, (_, i) => `row-${i}`);
  let limit = 0;
  const tries = new Map<string, number>();
  const driver = {
    name: 'test',
    due: async (_nowMs: number, max: number) => ((limit = max), due),
    drive: async (id: string) => {
      tries.set(id, (tries.get(id) ?? 0) + 1);
      throw new Error('a planted failure');
    },
  };
  engine = startEngine([driver], { clock, log: createLog('test', 'silent'), rng: seededRng(1) });
  await clock.advance(10_000);
  expect(limit).toBe(64 + 50);
  due = ['row-0'];
  await clock.advance(10 * 60_000);
  expect(limit).toBe(64 + 1);
  // A row that stays due is retried at least every thirty seconds and is not forgotten, so its wait does not begin anew.
  const before = tries.get('row-0') ?? 0;
  await clock.advance(10 * 60_000);
  expect((tries.get('row-0') ?? 0) - before).toBeLessThan(80);
});

test('a driver whose rows all hang keeps no row of another driver waiting, and handles 64 at once', async () => {
  const clock = virtualClock();
  const released = Promise.withResolvers<void>();
  const driven: string[] = [];
  const rows = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}-${i}`);
  const driverOf = (name: string, ids: string[], wait: Promise<void>) => ({
    name,
    due: async () => ids,
    drive: async (id: string) => {
      driven.push(id);
      ids.splice(ids.indexOf(id), 1);
      await wait;
    },
  });
  const slow = driverOf('slow', rows('slow', 100), released.promise);
  const quick = driverOf('quick', rows('quick', 100), Promise.resolve());
  engine = startEngine([slow, quick], { clock, log: createLog('test', 'silent'), rng: seededRng(1) });
  await clock.advance(5_000);
  const count = (name: string): number => driven.filter((id) => id.startsWith(name)).length;
  expect([count('slow'), count('quick')]).toEqual([64, 100]);
  released.resolve();
  await clock.advance(2_000);
  expect(count('slow')).toBe(100);
});

test('a driver whose due rows cannot be read keeps no row of another driver waiting, and its failure is shown', async () => {
  const clock = virtualClock();
  const due = ['row'];
  const broken = {
    name: 'broken',
    due: async () => Promise.reject(new Error('the table is locked')),
    drive: async () => undefined,
  };
  const sound = { name: 'sound', due: async () => due, drive: async () => void due.pop() };
  engine = startEngine([broken, sound], { clock, log: createLog('test', 'silent'), rng: seededRng(1) });
  await clock.advance(2_000);
  expect(due).toEqual([]);
  expect(engine.loop.status()).toMatchObject({ last_error: 'the table is locked', last_success_ms: null });
});

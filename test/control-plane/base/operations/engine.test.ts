// The engine that drives due rows: what it keeps about rows that failed.
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

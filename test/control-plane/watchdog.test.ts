// systemd's watchdog gets messages while the loops and the database work, and none otherwise.
import { expect, test } from 'vitest';
import { startWatchdog } from '../../control-plane/loops.ts';
import { RUN_MS_MAX } from '../../control-plane/base/systemd/systemd.ts';
import { startEngine } from '../../control-plane/base/operations/engine.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { startLoop } from '../../shared/loop.ts';
import { seededRng } from '../../shared/rng.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { int } from '../../control-plane/base/db/columns.ts';
import { DbError, sql } from '../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { z } from 'zod';
import { openTestDb } from '../kit/databases.ts';
import { virtualClock } from '../kit/virtual-clock.ts';

const PERIOD_MS = 20_000;

test('alive is sent each period after a row was written; not while a loop hangs or the database fails, but while only its disk is full', async () => {
  const clock = virtualClock();
  const rng = seededRng(1);
  const ids = createIds(clock, rng);
  const db = await openTestDb(SCHEMA, clock);
  let broken: DbError | undefined;
  const failing: typeof db.tx = (name, body) => (broken === undefined ? db.tx(name, body) : Promise.reject(broken));
  const sealing = openSealing(new Uint8Array(32), ids);
  const core = { db: { ...db, tx: failing }, clock, rng, ids, sealing, log: createLog('test', 'silent') };
  const hang = Promise.withResolvers<void>();
  const loop = startLoop({ name: 'stuck', periodMs: 1_000_000_000, run: () => hang.promise }, core);
  const running = { engine: startEngine([], core), loops: [{ endsBeforeDrain: false, loop }] };
  let fed = 0;
  startWatchdog(core, running, { alivePeriodMs: PERIOD_MS, alive: async () => void (fed += 1) });
  const fedIn = async (ms: number): Promise<number> => {
    const before = fed;
    await clock.advance(ms);
    return fed - before;
  };

  // The wall clock is set while a run lasts.
  clock.step(RUN_MS_MAX * 2);
  expect(await fedIn(RUN_MS_MAX)).toBe(RUN_MS_MAX / PERIOD_MS + 1);
  expect(await fedIn(PERIOD_MS * 3)).toBe(0);
  clock.step(-RUN_MS_MAX * 2);
  expect(await fedIn(PERIOD_MS * 3)).toBe(0);
  hang.resolve();
  expect(await fedIn(PERIOD_MS * 3)).toBe(3);
  broken = new DbError('unavailable', 'the server is gone');
  expect(await fedIn(PERIOD_MS * 3)).toBe(0);
  broken = new DbError('disk_full', 'a restart would make no room');
  expect(await fedIn(PERIOD_MS * 3)).toBe(3);
  broken = undefined;
  expect(await fedIn(PERIOD_MS)).toBe(1);
  const row = await db.read.one(z.object({ at_ms: int }), sql`select at_ms from commit_probes`);
  expect(row?.at_ms).toBe(clock.now());
  await Promise.all(running.loops.map(({ loop: each }) => each.stop()));
  await running.engine.stop();
  await db.close();
});

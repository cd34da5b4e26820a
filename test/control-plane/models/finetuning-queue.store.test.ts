// Jobs that wait for a machine are served in the order in which they were created, whichever of them looks first.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { headsOfQueue } from '../../../control-plane/models/finetuning/store.ts';
import { tunableEntries } from '../../kit/models.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { openTraining, type Training } from './training-world.ts';

const BIG = 'big-base';

let training: Training;
beforeEach(async () => {
  const [tunable] = tunableEntries({ base_model: BIG, gpu_count: 2 });
  const models = [...tunableEntries(), { ...tunable, id: 'acme/big', aliases: ['big'] }];
  training = await openTraining({ settings: { models: parseModels(JSON.stringify({ models }), 'models.yaml') } });
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

const CHEAP = { max_budget_usd: 20 };
const small = (): Promise<string> => training.create({ svc: CHEAP });
const big = (): Promise<string> => training.create({ model: BIG, svc: CHEAP });

/** Jobs are created ten seconds apart, so they look for a machine ten seconds apart. */
async function waiting(...creates: (() => Promise<string>)[]): Promise<string[]> {
  const ids: string[] = [];
  for (const create of creates) {
    await training.pass(10);
    ids.push(await create());
    await training.world.drive();
  }
  return ids;
}

async function placed(ids: readonly string[]): Promise<boolean[]> {
  const jobs = await Promise.all(ids.map((id) => training.job(id)));
  return jobs.map(({ workload_id: id }) => id !== null);
}

/** Only the job looks for a machine now. The others look later. */
async function look(id: string): Promise<void> {
  const { db, clock } = training.world;
  await db.tx('test.look', async (tx) => {
    await tx.run(sql`update finetuning_jobs set due_ms = ${clock.now() + 20_000} where id <> ${id}`);
    await tx.run(sql`update finetuning_jobs set due_ms = ${clock.now()} where id = ${id}`);
  });
  await training.world.drive();
}

test('a newer job that looks first leaves the machine to the older one', async () => {
  const ids = await waiting(small, small);
  await training.machine();
  await look(ids[1] ?? '');
  expect(await placed(ids)).toEqual([true, false]);
});

test('a job that has lost its machine goes before a newer one', async () => {
  const { id } = await training.running();
  const [newer = ''] = await waiting(small);
  await training.report(id, 'missing');
  await training.machine();
  await look(newer);
  expect(await placed([id, newer])).toEqual([true, false]);
});

test('all waiting jobs are placed at once if there are machines for them', async () => {
  const ids = await waiting(small, small, small);
  for (let i = 0; i < 3; i += 1) await training.machine();
  await look(ids[2] ?? '');
  expect(await placed(ids)).toEqual([true, true, true]);
});

test('an older job does not block a machine that is too small for it, and gets one that is large enough', async () => {
  const ids = await waiting(big, small, small);
  await training.machine({ gpus: 1 });
  await look(ids[1] ?? '');
  expect(await placed(ids)).toEqual([false, true, false]);
  await training.machine({ gpus: 2 });
  await look(ids[2] ?? '');
  expect(await placed(ids)).toEqual([true, true, false]);
});

test('a cancelled job, and one that was not served within a day, block nobody', async () => {
  const { db, clock, who } = { ...training.world, who: training.who };
  const [cancelled = '', stuck = '', newer = ''] = await waiting(small, small, small);
  await training.world.rooms.fineTuning.cancel(who.orgId, cancelled, async () => undefined);
  await db.tx('test.stuck', (tx) =>
    tx.run(sql`update finetuning_jobs set queued_ms = ${clock.now() - 86_400_000} where id = ${stuck}`),
  );
  await training.machine();
  await look(newer);
  expect(await placed([newer])).toEqual([true]);
});

test('the queue is read from its index', async () => {
  const { db } = training.world;
  if (db.dialect !== 'sqlite') return;
  const recording = recordingDb(db);
  await headsOfQueue(recording.db.read, { sinceMs: 0, before: { id: 'ftjob_a', created_ms: 1 } });
  await headsOfQueue(recording.db.read, { sinceMs: 0 });
  for (const statement of recording.sent)
    expect(await planOf(db, statement)).toContain('INDEX finetuning_jobs_waiting');
});

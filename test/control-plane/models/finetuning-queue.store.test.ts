// Who gets the next machine, whichever of the waiting jobs looks first: organisations in turn, and the jobs of each in the order of their creation.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { pause, resume } from '../../../control-plane/base/db/pauses.ts';
import { headsOfQueue, noteTurn } from '../../../control-plane/models/finetuning/store.ts';
import { FINE_TUNING_OPEN_PER_ORG_MAX } from '../../../shared/limits.ts';
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

test('while launches are paused, a job waits, and it is placed afterwards', async () => {
  const { world } = training;
  const ids = await waiting(small);
  await training.machine();
  await world.db.tx('test.pause', (tx) => pause(tx, { what: 'launches', since_ms: 0, actor: 'a', reason: 'r' }));
  await training.pass(60);
  expect(await placed(ids)).toEqual([false]);
  await world.db.tx('test.resume', (tx) => resume(tx, 'launches'));
  await training.pass(60);
  expect(await placed(ids)).toEqual([true]);
});

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

/** The program of a job ends, and the next job gets its machine. */
async function end(id: string): Promise<void> {
  await training.report(id, 'running');
  await training.end(id);
  await training.report(id, 'removed');
  await training.pass(30);
}

/** This organisation creates small jobs, ten seconds apart. Those that get a machine run. */
async function jobsOf({ create }: Pick<Training, 'create'>, count: number): Promise<string[]> {
  const ids: string[] = [];
  for (let i = 0; i < count; i += 1) {
    const [id = ''] = await waiting(() => create({ svc: CHEAP }));
    const [isPlaced] = await placed([id]);
    if (isPlaced === true) await training.report(id, 'running');
    ids.push(id);
  }
  return ids;
}

test('one job is not behind all those of an organisation that came first', async () => {
  await training.machine();
  const [first = '', second = '', third = ''] = await jobsOf(training, FINE_TUNING_OPEN_PER_ORG_MAX);
  const [single = ''] = await jobsOf(await training.another(), 1);
  expect(await placed([first, single])).toEqual([true, false]);
  await end(first);
  expect(await placed([second, single])).toEqual([false, true]);
  await end(single);
  expect(await placed([second, third])).toEqual([true, false]);
});

test('two organisations take turns at one machine, each with its oldest job', async () => {
  await training.machine();
  const other = await training.another();
  const [a1 = '', a2 = '', a3 = ''] = await jobsOf(training, 3);
  const [b1 = '', b2 = '', b3 = ''] = await jobsOf(other, 3);
  for (const [id, next] of [
    [a1, b1],
    [b1, a2],
    [a2, b2],
    [b2, a3],
    [a3, b3],
  ] as const) {
    expect(await placed([id, next])).toEqual([true, false]);
    await end(id);
  }
  expect(await placed([b3])).toEqual([true]);
});

test('the next machine goes to the organisation that has the fewest', async () => {
  for (let i = 0; i < 3; i += 1) await training.machine();
  const [a1 = '', , , a4 = ''] = await jobsOf(training, 5);
  const [b1 = '', b2 = '', b3 = ''] = await jobsOf(await training.another(), 3);
  await end(a1);
  expect(await placed([a4, b1, b2])).toEqual([false, true, false]);
  // The other organisation had the last turn, but it has only one machine.
  await training.machine();
  await training.pass(30);
  expect(await placed([a4, b2, b3])).toEqual([false, true, false]);
  await training.machine();
  await training.pass(30);
  expect(await placed([a4, b3])).toEqual([true, false]);
});

test('a job that has lost its machine goes before one of an organisation that has had no turn yet', async () => {
  const { id } = await training.running();
  const [newer = ''] = await jobsOf(await training.another(), 1);
  await training.report(id, 'missing');
  await training.machine();
  await look(newer);
  expect(await placed([id, newer])).toEqual([true, false]);
});

test('the queue is read from its index, which leads from head to head', async () => {
  const { db } = training.world;
  if (db.dialect !== 'sqlite') return;
  const recording = recordingDb(db);
  await headsOfQueue(recording.db.read, training.world.clock.now());
  for (const statement of recording.sent) {
    const plan = await planOf(db, statement);
    expect(plan).toContain('INDEX finetuning_jobs_waiting (terms=? AND org_id>?)');
    expect(plan).not.toContain('SCAN finetuning_jobs');
  }
});

test('the heads of the queue are the first jobs with the same terms, whichever organisations have more behind them', async () => {
  const { db, clock } = training.world;
  const other = await training.another();
  const [own = ''] = await waiting(small, small, big, small);
  const [otherBig = ''] = await waiting(
    () => other.create({ model: BIG, svc: CHEAP }),
    () => other.create({ svc: CHEAP }),
  );
  await db.tx('test.turn', (tx) => noteTurn(tx, training.who.orgId, clock.now()));
  const heads = await headsOfQueue(db.read, clock.now());
  expect(heads.map(({ terms }) => terms.gpu_count)).toEqual([2, 1]);
  expect(heads[0]?.id).toBe(otherBig);
  expect(heads.map(({ id }) => id)).not.toContain(own);
});

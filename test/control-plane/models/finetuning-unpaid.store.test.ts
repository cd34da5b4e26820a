// The budget of GPU time that an organisation may hold without paying, for jobs that it cancels or that fail.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { unpaidJobs } from '../../../control-plane/models/finetuning/store.ts';
import { planOf, recordingDb } from '../../kit/recording-db.ts';
import { openTraining, type Training } from './training-world.ts';

const MINUTE_MS = 60_000;

let training: Training;
let machineId: string;
beforeEach(async () => {
  training = await openTraining({ settings: { unpaidGpuHoursPerOrg: 1 } });
  ({ machineId } = await training.machine());
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

/** A job that holds its GPU for this time and is cancelled before it runs. */
async function squat(ms: number): Promise<void> {
  const id = await training.create();
  await training.world.drive();
  await training.world.clock.advance(ms);
  await training.world.rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);
  await training.report(id, 'removed');
  expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
}
const refused = { code: 'rate_limit_exceeded', details: { retryAfterSeconds: 600 } };

/** The job runs, pays for a minute up to its checkpoint, and is cancelled. */
async function payForMinute(id: string): Promise<void> {
  await training.report(id, 'running');
  await training.pass(60);
  await training.upload(id, { step: 1 }, 'a checkpoint');
  await training.world.rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);
  await training.report(id, 'stopped');
  await training.report(id, 'removed');
  expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
}

test('cancelled jobs fill the budget of 60 minutes, and paid jobs do not', async () => {
  for (let i = 0; i < 5; i += 1) await squat(10 * MINUTE_MS);
  // A job needs five minutes, and the budget is full to the millisecond.
  await squat(5 * MINUTE_MS);
  const id = await training.create();
  await training.world.drive();
  await payForMinute(id);

  await squat(1);
  await expect(training.create()).rejects.toMatchObject(refused);
  await expect(training.create()).rejects.toThrow(
    'fine-tuning jobs that ended before they had paid for half of their time, held GPUs for',
  );
  await training.world.clock.advance(24 * 60 * MINUTE_MS);
  await training.create();
});

test('a job that is cancelled at once counts for half a minute', async () => {
  for (let i = 0; i < 5; i += 1) await squat(10 * MINUTE_MS);
  await squat(4.5 * MINUTE_MS);
  await squat(0);
  await squat(0);
  await expect(training.create()).rejects.toMatchObject(refused);
});

test.each<[string, (id: string) => Promise<unknown>]>([
  [
    'is cancelled while its program runs and has stored nothing',
    async (id) => {
      await training.world.rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);
      await training.report(id, 'stopped');
    },
  ],
  ['fails by its training', (id) => training.report(id, 'finished', { exit_code: 1, results: [] })],
])('a job that %s counts from its placement to its end', async (_what, end) => {
  for (let i = 0; i < 5; i += 1) await squat(10 * MINUTE_MS);
  const id = await training.create();
  await training.world.drive();
  await training.world.clock.advance(3 * MINUTE_MS);
  await training.report(id, 'running');
  await training.world.clock.advance(2 * MINUTE_MS + 1);
  await end(id);
  await training.report(id, 'removed');
  expect((await training.money()).paid).toBe(0);
  await expect(training.create()).rejects.toMatchObject(refused);
});

test('a job that fails on several machines counts with each placement whose program ran', async () => {
  for (let i = 0; i < 5; i += 1) await training.machine();
  for (let i = 0; i < 3; i += 1) await squat(10 * MINUTE_MS);
  const id = await training.create();
  for (let tried = 0; tried < 5; tried += 1) {
    await training.world.drive();
    await training.report(id, 'running');
    await training.pass(5 * 60 + 1);
    await training.report(id, 'finished', { exit_code: 137, results: [] });
  }
  await training.pass(10);
  expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'operation_failed' } });
  expect((await training.money()).paid).toBe(0);
  await expect(training.create()).rejects.toMatchObject(refused);
});

test('a job that uses up its budget and has stored nothing counts with its whole time', async () => {
  const id = await training.create({ svc: { max_budget_usd: 36 } });
  await training.world.drive();
  await training.report(id, 'running');
  await training.pass(3_550);
  await training.report(id, 'finishing', { exit_code: 0, stopped_at_limit: true });
  await training.report(id, 'finished', { exit_code: 0, stopped_at_limit: true, results: null });
  await training.report(id, 'removed');
  expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'budget_exceeded' } });
  expect((await training.money()).paid).toBe(0);
  await expect(training.create()).rejects.toMatchObject(refused);
});

test('a minute of paid training does not make an hour free that the job held before', async () => {
  const id = await training.create();
  await training.world.drive();
  await training.world.clock.advance(58 * MINUTE_MS);
  await payForMinute(id);
  expect((await training.money()).paid).toBe(60);
  await expect(training.create()).rejects.toMatchObject(refused);
});

test('a job that waited long for its machine counts for a day after its end', async () => {
  const { clock, rooms } = training.world;
  await rooms.supply.setTrusted(machineId, false);
  const id = await training.create();
  await clock.advance(23 * 60 * MINUTE_MS);
  await rooms.supply.setTrusted(machineId, true);
  await training.world.drive();
  await clock.advance(56 * MINUTE_MS);
  await rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);
  await training.report(id, 'removed');
  await clock.advance(23 * 60 * MINUTE_MS);
  await expect(training.create()).rejects.toMatchObject(refused);
  await clock.advance(60 * MINUTE_MS);
  await training.create();
});

test('unpaid jobs are read from their index', async () => {
  const { db } = training.world;
  if (db.dialect !== 'sqlite') return;
  const recording = recordingDb(db);
  await unpaidJobs(recording.db.read, training.who.orgId, { sinceMs: 1, heldMsMin: 1, limit: 1 });
  const plans = await Promise.all(recording.sent.map((statement) => planOf(db, statement)));
  expect(plans).toEqual([expect.stringContaining('INDEX finetuning_jobs_unpaid (org_id=? AND <expr>>?)')]);
});

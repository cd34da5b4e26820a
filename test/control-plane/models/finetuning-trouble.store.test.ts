// Fine-tuning jobs in trouble: lost machines, hosts and trainers that lie, budgets that end, cancels.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { NOTHING_OBSERVED } from '../../kit/world.ts';
import { openTraining, type Training } from './training-world.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

describe('a lost machine', () => {
  test('costs nothing after the last checkpoint, and the job goes on from there elsewhere', async () => {
    const { id, machineId } = await training.running();
    await training.pass(100);
    await training.upload(id, { step: 4 }, 'state');
    await training.pass(50);
    const other = await training.machine();
    await loseHost(training.world, machineId);
    await training.pass(11 * 60);
    const attempt = await training.attempt(id);
    expect(attempt).toMatchObject({ machine_id: other.machineId, resume_step: 4, started_ms: null });
    expect(attempt.run_ms_max).toBe(9_840_000);
    const { workloads } = await training.world.rooms.workloads.desired(other.machineId);
    expect(workloads[0]?.job?.inputs).toMatchObject([{ name: 'train.jsonl' }, { name: 'resume.ckpt', bytes: 5 }]);
    await training.report(id, 'running');
    await training.pass(30);
    await training.end(id);
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
    expect(await training.money()).toEqual({ paid: 130, held: 0 });
    // The old host learns that its job is over when it is back.
    expect((await training.world.rooms.workloads.desired(machineId)).workloads).toMatchObject([{ desired: 'removed' }]);
  });

  test('that is back within ten minutes has lost nothing', async () => {
    const { id, machineId } = await training.running();
    await loseHost(training.world, machineId);
    await training.pass(9 * 60);
    await linkHost(training.world, machineId);
    await training.pass(10 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'running' });
  });

  test('is not believed lost by a control plane that has just started', async () => {
    const { id, machineId } = await training.running();
    await loseHost(training.world, machineId);
    await training.pass(60);
    await training.world.clock.advance(3_600_000);
    const world = await training.world.restart();
    await world.drive();
    expect((await training.job(id)).status).toBe('running');
  });

  test('that has restarted gets its job back if there is no other', async () => {
    const { id, machineId } = await training.running();
    await training.pass(60);
    await training.upload(id, { step: 4 }, 'state');
    await training.report(id, 'finishing', { exit_code: 255 });
    await training.report(id, 'finished', { exit_code: 255 });
    // Its GPU is free once the host has removed what was left.
    const { rooms, clock, drive } = training.world;
    const [old] = (await rooms.workloads.desired(machineId)).workloads;
    await rooms.workloads.observe(machineId, {
      type: 'observed',
      held: null,
      unknown_workload_ids: [],
      workloads: [{ ...NOTHING_OBSERVED, workload_id: old?.workload_id ?? '', phase: 'removed' }],
    });
    await clock.advance(30_000);
    await drive();
    expect(await training.attempt(id)).toMatchObject({ machine_id: machineId, resume_step: 4 });
    await training.report(id, 'running');
    await training.pass(10);
    await training.end(id);
    expect(await training.money()).toEqual({ paid: 70, held: 0 });
  });

  test('fails the job after a day in the queue if there is no other machine, and what was charged stays', async () => {
    const { id, machineId } = await training.running();
    await training.pass(60);
    await training.upload(id, { step: 4 }, 'state');
    await loseHost(training.world, machineId);
    await training.pass(11 * 60);
    await training.world.clock.advance(24 * 3_600_000);
    await training.world.drive();
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'no_capacity' } });
    expect(await training.money()).toEqual({ paid: 60, held: 0 });
  });

  test('is told by its host: the container vanished, or was killed', async () => {
    const { id } = await training.running();
    const second = await training.machine();
    const third = await training.machine();
    await training.report(id, 'missing');
    expect([second.machineId, third.machineId]).toContain((await training.attempt(id)).machine_id);
    await training.report(id, 'running');
    await training.report(id, 'finishing', { exit_code: 137 });
    await training.report(id, 'finished', { exit_code: 137 });
    expect((await training.job(id)).tried_machine_ids).toHaveLength(3);
    await training.report(id, 'running');
    await training.end(id);
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
  });
});

test('a failure on a host is told without the words of the host, which name the image of the operator', async () => {
  const { id } = await training.running();
  const detail = 'manifest for images.example.com/trainer not found';
  await training.report(id, 'failed', {}, { failure_code: 'image_pull_failed', detail });
  const told = (await training.messages(id)).at(-1);
  expect(told).toBe(
    'Another machine is tried: its image could not be pulled. Nothing after the last checkpoint is charged.',
  );
});

describe('a trainer or host that is not honest', () => {
  test('fails the job if the result has another hash, and nothing is charged', async () => {
    const { id, supplierId } = await training.running();
    await training.pass(100);
    await training.end(id, 'adapter', 'advert!');
    expect(await training.shown(id)).toMatchObject({
      status: 'failed',
      result_files: [],
      error: { code: 'result_invalid' },
    });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
    expect(await training.earnedCents(supplierId)).toBe(0);
  });

  test('fails the job if it names a result that never comes', async () => {
    const { id } = await training.running();
    const results = [{ name: 'adapter.txt', bytes: 1, sha256: '0'.repeat(64) }];
    await training.report(id, 'finishing', { exit_code: 0 });
    await training.report(id, 'finished', { exit_code: 0, results });
    await training.pass(60);
    expect(await training.shown(id)).toMatchObject({ status: 'running' });
    await training.world.clock.advance(2 * 3_600_000);
    await training.world.drive();
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'result_invalid' } });
  });

  test('fails the job if the trainer crashes or leaves no result; the checkpoint before stays charged', async () => {
    const { id } = await training.running();
    await training.pass(60);
    await training.upload(id, { step: 2 }, 'state');
    await training.pass(60);
    await training.report(id, 'finishing', { exit_code: 3 });
    await training.report(id, 'finished', { exit_code: 3 });
    expect(await training.shown(id)).toMatchObject({
      status: 'failed',
      result_files: [expect.stringContaining('name=step-2&')],
      error: { code: 'training_failed', message: expect.stringContaining('code 3') },
    });
    expect(await training.money()).toEqual({ paid: 60, held: 0 });
  });

  test('loses the job if the host stops it before its limit', async () => {
    const { id } = await training.running();
    const other = await training.machine();
    await training.pass(60);
    await training.report(id, 'finishing', { exit_code: 0, stopped_at_limit: true });
    await training.report(id, 'finished', { exit_code: 0, stopped_at_limit: true });
    expect((await training.attempt(id)).machine_id).toBe(other.machineId);
    expect(await training.money()).toEqual({ paid: 0, held: 10_000 });
  });

  test('gets no URL for a job of another machine, for too much, or for a name that it announced otherwise', async () => {
    const { id } = await training.running();
    const { id: workloadId } = await training.attempt(id);
    const { fineTuning } = training.world.rooms;
    const other = await training.machine();
    expect(
      await fineTuning.urlFor(other.machineId, workloadId, { kind: 'input', name: 'train.jsonl' }),
    ).toBeUndefined();
    const { machine_id: machineId } = await training.attempt(id);
    const file = { name: 'big', bytes: 8_193 * 1024 ** 2, sha256: '0'.repeat(64) };
    expect(await fineTuning.urlFor(machineId, workloadId, { kind: 'result', file })).toMatchObject({ kind: 'refused' });
    expect(await fineTuning.urlFor(machineId, workloadId, { kind: 'input', name: 'resume.ckpt' })).toMatchObject({
      kind: 'refused',
    });
    await training.upload(id, { step: 1 }, 'one');
    const again = { kind: 'checkpoint', step: 1, file: { name: 'step-1', bytes: 3, sha256: '1'.repeat(64) } } as const;
    expect(await fineTuning.urlFor(machineId, workloadId, again)).toEqual({ kind: 'stored' });
  });
});

describe('the budget', () => {
  test('is never exceeded: at its end the job is stopped, and its partial result is kept and paid', async () => {
    const machine = await training.machine();
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await training.world.drive();
    await training.report(id, 'running');
    // 600 s are paid: SIGTERM comes at 540, and the host needs 70 s to write its last checkpoint.
    await training.pass(610);
    await training.report(id, 'finishing', { exit_code: 0, stopped_at_limit: true });
    await training.upload(id, 'result', 'partial');
    const results = [{ name: 'adapter.txt', bytes: 7, sha256: '0'.repeat(64) }];
    await training.report(id, 'finished', { exit_code: 0, stopped_at_limit: true, results });
    expect(await training.shown(id)).toMatchObject({
      status: 'failed',
      error: { code: 'budget_exceeded' },
      result_files: [expect.stringContaining('/blobs/')],
    });
    expect(await training.money()).toEqual({ paid: 600, held: 0 });
    expect(await training.earnedCents(machine.supplierId)).toBeLessThanOrEqual(600 * 0.5 * 0.8 * 1.02);
  });

  test('keeps the newest checkpoint if there is no partial result, and charges nothing after it', async () => {
    await training.machine();
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await training.world.drive();
    await training.report(id, 'running');
    await training.pass(400);
    await training.upload(id, { step: 9 }, 'state');
    await training.pass(200);
    await training.report(id, 'finishing', { exit_code: 137, stopped_at_limit: true });
    await training.report(id, 'finished', { exit_code: 137, stopped_at_limit: true });
    const shown = await training.shown(id);
    expect(shown).toMatchObject({ status: 'failed', error: { code: 'budget_exceeded' } });
    expect(shown.result_files).toHaveLength(1);
    expect(await training.money()).toEqual({ paid: 400, held: 0 });
  });

  test('ends a job whose host goes on after its limit', async () => {
    await training.machine();
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await training.world.drive();
    await training.report(id, 'running');
    await training.pass(540 + 60 + 600 + 30);
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'budget_exceeded' } });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });

  test('that is left after a lost machine must pay for another start', async () => {
    const { machineId } = await training.machine();
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await training.world.drive();
    await training.report(id, 'running');
    await training.pass(500);
    await training.upload(id, { step: 9 }, 'state');
    await loseHost(training.world, machineId);
    await training.pass(11 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'budget_exceeded' } });
    expect(await training.money()).toEqual({ paid: 500, held: 0 });
  });
});

describe('a cancel', () => {
  const cancel = (id: string) => training.world.rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);

  test('is done at once if the job waits', async () => {
    await training.world.machine();
    const id = await training.create();
    await training.world.drive();
    expect(await cancel(id)).toMatchObject({ status: 'cancelled' });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });

  test('is done once the host has stopped a job that runs, and its last checkpoint is charged', async () => {
    const { id, machineId } = await training.running();
    await training.pass(100);
    expect(await cancel(id)).toMatchObject({ status: 'running' });
    expect((await training.world.rooms.workloads.desired(machineId)).workloads[0]?.job?.run_ms_max).toBe(0);
    await training.pass(20);
    await training.report(id, 'finishing', { exit_code: 0, stopped_at_limit: true });
    await training.upload(id, { step: 9 }, 'state');
    expect(await training.shown(id)).toMatchObject({ status: 'running' });
    await training.report(id, 'finished', { exit_code: 0, stopped_at_limit: true });
    const { status, result_files: files } = await training.shown(id);
    expect({ status, files: files.length }).toEqual({ status: 'cancelled', files: 1 });
    expect(files[0]).toContain('name=step-9&');
    expect(await training.money()).toEqual({ paid: 120, held: 0 });
    expect(await cancel(id)).toMatchObject({ status: 'cancelled' });
  });

  test('that comes when the result is nearly there charges the program to its end, and its owner gets the result', async () => {
    const { id } = await training.running();
    await training.pass(100);
    await cancel(id);
    await training.end(id);
    const { status, result_files: files } = await training.shown(id);
    expect({ status, files: files.length }).toEqual({ status: 'cancelled', files: 1 });
    expect(await training.money()).toEqual({ paid: 100, held: 0 });
  });

  test('waits for the host too if the job has a machine but does not run yet', async () => {
    await training.machine();
    const id = await training.create();
    await training.world.drive();
    await training.report(id, 'pulling');
    expect(await cancel(id)).toMatchObject({ status: 'queued' });
    await training.report(id, 'stopped');
    expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
  });

  test('is done without the host if its machine is gone for good', async () => {
    const { id, machineId } = await training.running();
    await loseHost(training.world, machineId);
    await cancel(id);
    await training.pass(29 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'running' });
    await training.pass(2 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });

  test('orders the removal if the host does not end the program', async () => {
    const { id, machineId } = await training.running();
    await cancel(id);
    await training.pass(12 * 60);
    expect((await training.world.rooms.workloads.desired(machineId)).workloads).toMatchObject([{ desired: 'removed' }]);
    await training.report(id, 'stopped');
    expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
  });

  test('gives the budget back if a host that is online never confirms the removal, and keeps its GPU out of the market', async () => {
    const { id, machineId } = await training.running();
    await training.pass(100);
    await cancel(id);
    await training.pass(40 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'running' });
    await training.pass(2 * 60);
    expect(await training.shown(id)).toMatchObject({ status: 'cancelled' });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
    const next = await training.create();
    await training.pass(60);
    expect((await training.job(next)).workload_id).toBeNull();
    expect((await training.world.rooms.workloads.desired(machineId)).workloads).toMatchObject([{ desired: 'removed' }]);
  });
});

test('a job that cannot be driven does not keep the others from being driven, and is driven again later', async () => {
  const { world } = training;
  // Queued, because fewer jobs may read their files at once.
  const create = async (): Promise<string> => {
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await world.db.tx('test.queued', (tx) =>
      tx.run(sql`update finetuning_jobs set status = 'queued' where id = ${id}`),
    );
    return id;
  };
  for (let i = 0; i < 15; i += 1) {
    const id = await create();
    await world.db.tx('test.break', (tx) => tx.run(sql`update finetuning_jobs set terms = '{}' where id = ${id}`));
  }
  await world.clock.advance(1);
  const whole = await create();
  const { driver } = world.rooms.fineTuning;
  const due = await driver.due(world.clock.now(), 15);
  expect(due).not.toContain(whole);
  for (const id of due) await expect(driver.drive(id, new AbortController().signal)).rejects.toThrow(/terms/);
  expect(await driver.due(world.clock.now(), 15)).toEqual([whole]);
  await world.clock.advance(30_000);
  expect(await driver.due(world.clock.now(), 16)).toHaveLength(16);
  const [kept] = await world.db.read.all(
    z.object({ terms: text }),
    sql`select terms from finetuning_jobs where id = ${whole}`,
  );
  await world.db.tx('test.mend', (tx) => tx.run(sql`update finetuning_jobs set terms = ${kept?.terms ?? ''}`));
});

test('a job with ten thousand checkpoints may not add one, and still delivers its result', async () => {
  const { id } = await training.running();
  const { id: attemptId } = await training.attempt(id);
  await training.world.db.tx('test.fill', (tx) =>
    tx.run(sql`insert into finetuning_files (id, job_id, workload_id, kind, name, step, bytes, sha256, state, created_ms)
      with recursive n(i) as (select 1 union all select i + 1 from n where i < 9999)
      select 'f-' || i, ${id}, ${attemptId}, 'checkpoint', 'old-' || i, 0, 1, 'x', 'verified', 1 from n`),
  );
  expect(await training.upload(id, { step: 1 }, 'the last one')).toBe('stored');
  expect(await training.upload(id, { step: 2 }, 'one more')).toBe('refused');
  await training.report(id, 'finishing', { exit_code: 0 });
  expect(await training.upload(id, 'result', 'an adapter')).toBe('stored');
});

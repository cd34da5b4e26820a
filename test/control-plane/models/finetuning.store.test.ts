// The life of a fine-tuning job on a fleet that the test plays: placement, money to the second, lost machines, lies, budgets and cancels.
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { filesOf } from '../../../control-plane/models/finetuning/files.ts';
import { countEvents } from '../../../control-plane/models/finetuning/store.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { FINE_TUNING_EVENTS_MAX } from '../../../shared/limits.ts';
import type { JobEvent } from '../../../shared/protocol/job.ts';
import { openTraining, type Training } from './training-world.ts';

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

const metrics = (step: number): JobEvent => ({ type: 'metrics', level: 'info', step, total_steps: 10, loss: 1 / step });
describe('a job', () => {
  test('holds its budget, runs, succeeds, and is charged to the second; the supplier earns its own price', async () => {
    const { id, supplierId } = await training.running();
    expect(await training.money()).toEqual({ paid: 0, held: 10_000 });
    expect(await training.shown(id)).toMatchObject({ status: 'running', result_files: [], finished_at: null });
    await training.pass(137);
    await training.end(id);
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded', error: null, svc: { cost_usd: 1.37 } });
    expect(await training.money()).toEqual({ paid: 137, held: 0 });
    // 137 s of 18 dollars an hour, less a fee of 20 %.
    expect(await training.earnedCents(supplierId)).toBeCloseTo(137 * 0.5 * 0.8, 6);
    expect(await training.messages(id)).toEqual([
      expect.stringContaining('$100.00 are held'),
      expect.stringContaining('waits for a machine'),
      'Placed on 1 x H100_SXM: the cheapest type that fits.',
      'The training runs.',
      expect.stringContaining('has succeeded'),
    ]);
  });

  test('shows its result under fresh URLs, which expire', async () => {
    const { id } = await training.running();
    await training.end(id);
    const [first] = (await training.shown(id)).result_files;
    await training.world.clock.advance(1_000);
    const [second] = (await training.shown(id)).result_files;
    expect(first).toMatch(/^https:\/\/api\.example\.com\/v1\/blobs\/finetuning-blob_/);
    expect(second).not.toBe(first);
  });

  test('keeps its files and its events for thirty days', async () => {
    const { id } = await training.running();
    await training.end(id);
    await training.world.clock.advance(30 * 86_400_000 - 60_000);
    await training.world.drive();
    expect((await training.shown(id)).result_files).toHaveLength(1);
    await training.world.clock.advance(120_000);
    await training.world.drive();
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded', result_files: [] });
    expect(await training.messages(id)).toEqual([]);
  });

  test('is sent to the host with its inputs, its limit and without a network', async () => {
    const { id, machineId } = await training.running();
    const { workloads } = await training.world.rooms.workloads.desired(machineId);
    const [sent] = workloads;
    expect(sent).toMatchObject({ instance_id: id, gpu_uuids: [expect.any(String)], env: { JOB_ID: id } });
    expect(sent?.job?.inputs).toMatchObject([{ name: 'train.jsonl', bytes: 3 }]);
    // 100 dollars pay for 10,000 s, and the last minute is the grace.
    expect(sent?.job?.run_ms_max).toBe(9_940_000);
    expect(JSON.parse(sent?.job?.config ?? '')).toMatchObject({
      job_id: id,
      base_model_path: '/models/tiny',
      method: 'lora',
      lora: { r: 16, alpha: 32, dropout: 0.05 },
      seed: 42,
      epochs: 3,
    });
  });
});

describe('placement', () => {
  test('uses trusted machines only, and waits for one', async () => {
    const { machineId } = await training.world.machine({ dollars: 1 });
    const id = await training.create();
    await training.pass(60);
    expect(await training.shown(id)).toMatchObject({ status: 'queued' });
    await training.world.rooms.supply.setTrusted(machineId, true);
    await training.pass(60);
    expect((await training.attempt(id)).machine_id).toBe(machineId);
  });

  test('never takes a machine that costs more than the job', async () => {
    const { machineId } = await training.machine({ dollars: 36.01 });
    const id = await training.create();
    await training.pass(60);
    expect((await training.job(id)).workload_id).toBeNull();
    await training.world.rooms.supply.setTrusted(machineId, false);
    await training.machine({ dollars: 36 });
    await training.pass(60);
    expect((await training.job(id)).workload_id).not.toBeNull();
  });

  test('follows a preference, and says why it took another type', async () => {
    await training.machine({ gpu: { name: 'NVIDIA A100-SXM4-80GB', memory_mib: 81_920 }, dollars: 1 });
    await training.machine();
    const preferred = await training.create({ svc: { gpu_preference: 'H100_SXM', max_budget_usd: 10 } });
    await training.world.drive();
    expect((await training.attempt(preferred)).gpu_type).toBe('H100_SXM');
    expect((await training.messages(preferred)).at(-1)).toBe('Placed on 1 x H100_SXM: the preferred type.');
    const soft = await training.create({ svc: { gpu_preference: 'H100_SXM', max_budget_usd: 10 } });
    await training.world.drive();
    expect((await training.attempt(soft)).gpu_type).not.toBe('H100_SXM');
    expect((await training.messages(soft)).at(-1)).toContain('none of the preferred types was free');
  });

  test('goes to another type if the machines of the cheapest one have too little disk', async () => {
    const gpu = { name: 'NVIDIA A100-SXM4-80GB', memory_mib: 81_920 };
    await training.machine({ gpu, dollars: 1, diskEnforced: true, storageBytes: 99 * 1024 ** 3 });
    const roomy = await training.machine();
    const id = await training.create();
    await training.world.drive();
    expect((await training.attempt(id)).machine_id).toBe(roomy.machineId);
    const fits = await training.machine({ gpu, dollars: 1, diskEnforced: true, storageBytes: 100 * 1024 ** 3 });
    const other = await training.create();
    await training.world.drive();
    expect((await training.attempt(other)).machine_id).toBe(fits.machineId);
  });

  test('fails without a machine after a day, and gives the budget back', async () => {
    await training.world.machine();
    const id = await training.create();
    await training.world.drive();
    await training.world.clock.advance(24 * 3_600_000);
    await training.world.drive();
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'no_capacity' } });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });

  test('tries another machine if a host does not acknowledge, and gives up after five', async () => {
    for (let i = 0; i < 6; i += 1) await training.machine();
    const id = await training.create();
    await training.pass(5 * 190);
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'operation_failed' } });
    expect((await training.job(id)).tried_machine_ids).toHaveLength(5);
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });
});

describe('a checkpoint', () => {
  test('charges the time up to its announcement once it is verified', async () => {
    const { id } = await training.running();
    await training.pass(100);
    expect(await training.upload(id, { step: 4 }, 'state')).toBe('stored');
    expect(await training.money()).toEqual({ paid: 100, held: 9_900 });
    const { data } = await training.world.rooms.fineTuning.checkpoints(training.who.orgId, id, { limit: 10 });
    expect(data).toMatchObject([{ step_number: 4, fine_tuning_job_id: id }]);
  });

  test('that is announced after the program has ended charges the time up to that end', async () => {
    const { id } = await training.running();
    await training.pass(100);
    await training.report(id, 'finishing', { exit_code: 137, stopped_at_limit: true });
    await training.pass(50);
    await training.upload(id, { step: 4 }, 'state');
    expect(await training.money()).toEqual({ paid: 100, held: 9_900 });
  });

  test('that waits to be read does not move the end of the program', async () => {
    const { id } = await training.running();
    await training.pass(100);
    await training.upload(id, { step: 4 }, 'state', { drive: async () => undefined });
    await training.reportOnly(id, 'finishing', { exit_code: 0 });
    await training.world.clock.advance(30_000);
    await training.reportOnly(id, 'finished', { exit_code: 0 });
    await training.world.clock.advance(30_000);
    await training.world.drive();
    const { started_ms: startedMs, stopped_ms: stoppedMs } = await training.attempt(id);
    expect((stoppedMs ?? 0) - (startedMs ?? 0)).toBe(100_000);
  });

  test('that is not what was announced is not used and charges nothing', async () => {
    const { id } = await training.running();
    await training.pass(100);
    await training.upload(id, { step: 4 }, 'other', { lie: 'state' });
    expect(await training.money()).toEqual({ paid: 0, held: 10_000 });
    expect((await training.messages(id)).at(-1)).toContain('It is not used');
  });

  test('replaces the one before, whose content is removed', async () => {
    const { id } = await training.running();
    await training.upload(id, { step: 1 }, 'one');
    await training.upload(id, { step: 2 }, 'two');
    const files = await filesOf(training.world.db.read, id);
    expect(files.map(({ step, blob_key: key }) => [step, key !== null])).toEqual([[2, true]]);
    const { data } = await training.world.rooms.fineTuning.checkpoints(training.who.orgId, id, { limit: 10 });
    expect(data.map(({ step_number: step }) => step)).toEqual([2, 1]);
  });
});

test('a checkpoint that arrives after a later one does not replace it, because the time up to the later one is paid', async () => {
  const { id, machineId } = await training.running();
  const { id: workloadId } = await training.attempt(id);
  const sha256 = createHash('sha256').update('one').digest('hex');
  const first = { kind: 'checkpoint' as const, step: 1, file: { name: 'step-1', bytes: 3, sha256 } };
  await training.world.rooms.fineTuning.urlFor(machineId, workloadId, first);
  await training.pass(100);
  await training.upload(id, { step: 2 }, 'two');
  await training.upload(id, { step: 1 }, 'one');
  expect(await training.money()).toEqual({ paid: 100, held: 9_900 });
  const files = await filesOf(training.world.db.read, id);
  expect(files.map(({ step, blob_key: key }) => [step, key !== null])).toEqual([[2, true]]);
});

describe('events', () => {
  test('are stored once, however often the host sends them', async () => {
    const { id } = await training.running();
    await training.pass(10);
    expect(await training.events(id, 0, [metrics(1), metrics(2)])).toBe(200);
    expect(await training.events(id, 0, [metrics(1), metrics(2), metrics(3)])).toBe(300);
    expect(await training.events(id, 0, [])).toBe(300);
    const { data } = await training.world.rooms.fineTuning.events(training.who.orgId, id, {
      limit: 200,
      order: 'desc',
    });
    expect(data.filter(({ type }) => type === 'metrics').map(({ data: figures }) => figures['step'])).toEqual([
      3, 2, 1,
    ]);
    expect(data[0]).toMatchObject({
      message: 'Step 3 of 10: loss 0.3333',
      data: { step: 3, total_steps: 10, loss: 1 / 3, eta_seconds: 23 },
    });
  });

  test('have room for messages after more metrics than are kept', async () => {
    const { id } = await training.running();
    const told = (await training.messages(id)).length;
    await training.world.db.tx('test.count', (tx) => countEvents(tx, id, FINE_TUNING_EVENTS_MAX - 1_000 - told));
    await training.events(id, 0, [metrics(1), { type: 'message', level: 'error', message: 'the loss is no number' }]);
    expect((await training.messages(id)).slice(told)).toEqual(['the loss is no number']);
  });

  test('are followed page by page', async () => {
    const { id } = await training.running();
    await training.events(id, 0, [metrics(1), metrics(2), metrics(3)]);
    const { fineTuning } = training.world.rooms;
    const seen: string[] = [];
    for (let after: string | undefined; ;) {
      const page = await fineTuning.events(training.who.orgId, id, {
        limit: 2,
        order: 'asc',
        ...(after === undefined ? {} : { after }),
      });
      seen.push(...page.data.map(({ message }) => message));
      after = page.data.at(-1)?.id;
      if (!page.has_more) break;
    }
    expect(seen).toEqual(await training.messages(id));
  });
});

test('two jobs cannot hold the same money', async () => {
  await training.machine();
  await training.create({ svc: { max_budget_usd: 300 } });
  await expect(training.create({ svc: { max_budget_usd: 300 } })).rejects.toMatchObject({
    code: 'insufficient_balance',
  });
  const { heldUcents } = await training.world.rooms.ledger.balance(training.world.db.read, wallet(training.who.orgId));
  expect(heldUcents).toBe(30_000_000_000n);
});

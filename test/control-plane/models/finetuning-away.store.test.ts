// Programs that begin or end while nobody hears it, because the control plane or the link of the host is away.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ObservedJob } from '../../../shared/protocol/job.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';
import { openTraining, type Training } from './training-world.ts';

const HOUR_MS = 3_600_000;
const RESULTS = [{ name: 'adapter.txt', bytes: 7, sha256: '0'.repeat(64) }];

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

/** The control plane is away for this time. */
async function away(ms: number): Promise<void> {
  await training.world.clock.advance(ms);
  training = await training.restart();
}

/** The host reports the end, and sends the result a minute later. */
async function end(id: string, report: Partial<ObservedJob>): Promise<void> {
  const ended = { exit_code: 0, ...report };
  await training.report(id, 'finishing', ended);
  await training.world.clock.advance(60_000);
  await training.upload(id, 'result', 'adapter');
  await training.report(id, 'finished', { ...ended, results: RESULTS });
}

describe('a program that ends while the control plane is away', () => {
  test('is charged until its end, and its supplier earns no idle time', async () => {
    const { id, supplierId } = await training.running();
    const { id: workloadId, started_ms: startedMs } = await training.attempt(id);
    await training.pass(100);
    await away(2 * HOUR_MS);
    await end(id, { ran_ms: 400_000 });
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
    expect(await training.money()).toEqual({ paid: 400, held: 0 });
    expect(await training.earnedCents(supplierId)).toBe(160);
    const charged = await training.world.rooms.fineTuning.chargedTimes(training.world.db.read, [workloadId]);
    expect(charged.get(workloadId)).toEqual({ fromMs: startedMs, untilMs: (startedMs ?? 0) + 400_000 });
  });

  test('is charged until its end for a checkpoint that arrives after it', async () => {
    const { id } = await training.running();
    await away(2 * HOUR_MS);
    await training.report(id, 'finishing', { exit_code: 3, ran_ms: 400_000 });
    await training.upload(id, { step: 4 }, 'state');
    expect(await training.money()).toEqual({ paid: 400, held: 9_600 });
  });

  test.each<[string, Partial<ObservedJob>]>([
    ['says that it ran longer than that', { ran_ms: 4 * HOUR_MS }],
    ['does not say how long it ran', {}],
  ])('is charged until the report of its end if the host %s', async (_what, report) => {
    const { id } = await training.running();
    await away(2 * HOUR_MS);
    await end(id, report);
    expect(await training.money()).toEqual({ paid: 7_200, held: 0 });
  });

  test('costs nothing if its host says that it did not run at all', async () => {
    const { id } = await training.running();
    await away(2 * HOUR_MS);
    await end(id, { ran_ms: 0 });
    expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
    expect(await training.money()).toEqual({ paid: 0, held: 0 });
  });
});

test('a program that ends while its host is offline is charged until its end', async () => {
  const { id, machineId } = await training.running();
  await loseHost(training.world, machineId);
  await training.pass(9 * 60);
  await linkHost(training.world, machineId);
  await end(id, { ran_ms: 30_000 });
  expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
  expect(await training.money()).toEqual({ paid: 30, held: 0 });
});

test('a host has two hours for its files after the report of the end, even if the end was hours before', async () => {
  const { id } = await training.running();
  // The process stood still, so this control plane does not know that it was away.
  await training.world.clock.advance(2 * HOUR_MS);
  await training.report(id, 'finishing', { exit_code: 0, ran_ms: 60_000 });
  await training.pass(600);
  await end(id, { ran_ms: 60_000 });
  expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
  expect(await training.money()).toEqual({ paid: 60, held: 0 });
});

describe('a program that starts while the control plane is away, and runs to its limit of 540 seconds,', () => {
  /** The program is seen running two minutes before its limit. */
  async function seenLate(): Promise<{ id: string; machineId: string }> {
    const { machineId } = await training.machine();
    const id = await training.create({ svc: { max_budget_usd: 6 } });
    await training.world.drive();
    await training.report(id, 'starting');
    await away(420_000);
    await training.report(id, 'running');
    await training.pass(120);
    return { id, machineId };
  }

  test('ends with the budget, and only the time that was seen is charged', async () => {
    const { id, machineId } = await seenLate();
    await end(id, { stopped_at_limit: true, ran_ms: 540_000 });
    expect(await training.shown(id)).toMatchObject({ status: 'failed', error: { code: 'budget_exceeded' } });
    expect((await training.job(id)).tried_machine_ids).toEqual([machineId]);
    expect(await training.money()).toEqual({ paid: 120, held: 0 });
  });

  test.each<[string, Partial<ObservedJob>]>([
    ['says that it was stopped earlier', { ran_ms: 300_000 }],
    ['does not say how long it ran', {}],
  ])('loses its machine if the host %s', async (_what, report) => {
    const { id } = await seenLate();
    const other = await training.machine();
    await end(id, { stopped_at_limit: true, ...report });
    expect((await training.attempt(id)).machine_id).toBe(other.machineId);
    expect(await training.money()).toEqual({ paid: 0, held: 600 });
  });
});

test('a host that stops a program early is not believed that it ran to its limit if its start was seen in time', async () => {
  await training.machine();
  const id = await training.create({ svc: { max_budget_usd: 6 } });
  await training.world.drive();
  await training.report(id, 'starting');
  await training.pass(600);
  await training.report(id, 'running');
  await training.pass(120);
  const other = await training.machine();
  await end(id, { stopped_at_limit: true, ran_ms: 540_000 });
  expect((await training.attempt(id)).machine_id).toBe(other.machineId);
  expect(await training.money()).toEqual({ paid: 0, held: 600 });
});

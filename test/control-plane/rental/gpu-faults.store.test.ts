// A GPU of an instance breaks: the host reports it, the time is not charged, and the instance goes on when it is mended or ends after the grace.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { freeTimesOf } from '../../../control-plane/money/credits/store.ts';
import { payable, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { segmentsOf } from '../../../control-plane/money/metering/store.ts';
import { findProbe } from '../../../control-plane/rental/outages/store.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { findInstance, type InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import type { GpuFault, Inventory } from '../../../shared/protocol/inventory.ts';
import type { MadeMachine } from '../../kit/machines.ts';
import { watchFor } from '../../kit/watching.ts';
import { openWorld, type World, type WorldAccount, type WorldOutside } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const FUNDED = 10_000_000_000n;
const OFF_THE_BUS = 'Xid 79: it has fallen off the bus';

let world: World;
let made: MadeMachine;
let who: WorldAccount;
let whole: Inventory;
beforeEach(() => open());
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function open(outside: WorldOutside = {}): Promise<void> {
  world = await openWorld(1, outside);
  made = await world.machine({ dollars: 3.6, gpus: 2 });
  who = await world.customer(10_000);
  const machine = await findMachine(world.db.read, made.machineId);
  if (machine?.inventory == null) throw new Error('the machine has no inventory');
  whole = machine.inventory;
}

async function instance(id: string): Promise<InstanceRow> {
  const row = await findInstance(world.db.read, id);
  if (row === undefined) throw new Error('the instance is gone');
  return row;
}

async function gpuOf(id: string): Promise<string> {
  const { workload_id: workloadId } = await instance(id);
  const held = (await gpusOf(world.db.read, made.machineId)).find((gpu) => gpu.held_by === workloadId);
  return held?.gpu_uuid ?? '';
}

async function report(patch: Partial<Inventory>): Promise<void> {
  await world.rooms.supply.reportInventory(made.machineId, { ...whole, ...patch });
  await world.drive();
}

const breaks = (uuid: string, severity: GpuFault['severity'] = 'broken'): Promise<void> =>
  report({ gpu_faults: [{ uuid, severity, detail: OFF_THE_BUS }] });

const watch = (ms: number): Promise<void> => watchFor(world, ms);

const spent = async (): Promise<bigint> =>
  FUNDED - (await world.rooms.ledger.balance(world.db.read, wallet(who.orgId))).postedUcents;
const tick = (): Promise<string[]> => world.rooms.metering.tick(new AbortController().signal);
const costOf = (ms: number): bigint => (360_000_000n * BigInt(ms)) / BigInt(HOUR_MS);

describe('a running rental whose GPU breaks', () => {
  // Specification 2.2: status_reason explains a running rental whose GPU its host has found broken, and that the time is not charged.
  test('is not charged and its supplier not paid until it is mended; it stays running, and its customer reads why', async () => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    await world.clock.advance(10 * 60_000);
    await breaks(gpu);
    expect(await instance(id)).toMatchObject({
      status: 'running',
      status_reason: `The host has found a GPU of this instance broken (${gpu}: ${OFF_THE_BUS}). This time is not charged; the instance ends if that is not mended within 30 minutes.`,
    });
    await world.clock.advance(20 * 60_000);
    expect(await tick()).toEqual([]);
    // If it is reported again, the first time still counts.
    await breaks(gpu);
    expect(await spent()).toBe(costOf(10 * 60_000));
    await report({});
    expect(await instance(id)).toMatchObject({ status: 'running', status_reason: null });
    await world.clock.advance(5 * 60_000);
    await world.remove(who, id);
    expect(await spent()).toBe(costOf(15 * 60_000));
    const earned = await world.rooms.ledger.balance(world.db.read, payable(made.supplierId));
    expect(earned.postedUcents).toBe((costOf(15 * 60_000) * 8000n) / 10_000n);
    const events = (await world.journal(id)).filter((type) => /gpu|running|recovered/.test(type));
    expect(events).toEqual(['instance.running', 'instance.gpu_broken', 'instance.gpu_mended']);
  });

  test('has its evidence named on the time that is not charged, and on no charge', async () => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    await world.clock.advance(60_000);
    await breaks(gpu);
    const [time] = await freeTimesOf(world.db.read, id);
    expect(time?.evidence).toBe(`the host found a GPU broken: ${gpu}: ${OFF_THE_BUS}`);
    const charges = await world.db.read.all(
      z.object({ evidence: text.nullable() }),
      sql`select evidence from transfers where subject_id = ${id} and kind = 'rental.charge'`,
    );
    expect(charges).toEqual([{ evidence: null }]);
  });

  test('ends when that outlasts the grace: failed, with the reason, and the GPU is held until the host reports the container gone', async () => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    await breaks(gpu);
    await world.clock.advance(GRACE_MS - 1);
    await world.drive();
    expect((await instance(id)).status).toBe('running');
    await world.clock.advance(1);
    await world.drive();
    expect(await instance(id)).toMatchObject({
      status: 'error',
      status_reason: `A GPU of this instance broke and was not mended in time: ${gpu}: ${OFF_THE_BUS}. That time was not charged.`,
    });
    expect(await spent()).toBe(0n);
    expect((await world.journal(id)).at(-1)).toBe('instance.failed');
    expect(await gpuOf(id)).toBe(gpu);
    await world.observe(id, { phase: 'removed' });
    expect(await gpuOf(id)).toBe('');
  });

  test('goes on if the GPU was mended while the control plane was away, as its host reports after it has reconnected', async () => {
    const id = await world.run(who);
    await breaks(await gpuOf(id));
    await world.rooms.ownOutages.beat();
    await world.clock.advance(GRACE_MS);
    world = await world.restart();
    await world.drive();
    expect((await instance(id)).status).toBe('running');
    await world.clock.advance(60_000);
    await report({});
    await world.clock.advance(QUIET_AFTER_START_MS);
    await world.drive();
    expect(await instance(id)).toMatchObject({ status: 'running', status_reason: null });
  });

  test('ends at its runtime limit if that comes first', async () => {
    const id = await world.run(who, { auto_terminate_hours: 1 });
    await world.clock.advance(HOUR_MS - 60_000);
    await breaks(await gpuOf(id));
    await world.clock.advance(60_000);
    await world.drive();
    expect(await instance(id)).toMatchObject({ status: 'stopping', status_reason: expect.stringContaining('limit') });
  });

  test('counts as broken if the host does not list the GPU any more, until the host lists it again', async () => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    const others = whole.gpus.filter(({ uuid }) => uuid !== gpu);
    await report({ gpus: others });
    expect((await instance(id)).status_reason).toContain(`${gpu}: the host does not list it any more`);
    // A driver that fails proves nothing about the GPU.
    await report({ gpus: [], gpu_error: 'Driver/library version mismatch' });
    expect((await instance(id)).status_reason).toContain('not charged');
    await world.clock.advance(MINUTE_MS);
    await report({});
    expect((await instance(id)).status_reason).toBeNull();
  });

  test('that is mended within a minute is charged since it was, when the minute is over', async () => {
    const id = await world.run(who);
    await breaks(await gpuOf(id));
    const aliveMs = world.clock.now() - ((await instance(id)).ready_ms ?? 0);
    await world.clock.advance(20_000);
    await report({});
    await world.clock.advance(MINUTE_MS - 20_001);
    await world.drive();
    expect((await instance(id)).status_reason).toContain(OFF_THE_BUS);
    await world.clock.advance(1);
    await world.drive();
    expect(await instance(id)).toMatchObject({ status_reason: null, gpu_fault: null, gpu_whole_ms: null });
    await world.remove(who, id);
    expect(await spent()).toBe(costOf(aliveMs + MINUTE_MS - 20_000));
    expect((await world.journal(id)).filter((type) => type.includes('gpu'))).toEqual([
      'instance.gpu_broken',
      'instance.gpu_mended',
    ]);
  });

  test('writes nothing more for a host that reports it broken and whole in turns, and counts as broken if that was last', async () => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    for (let turn = 0; turn < 20; turn += 1) {
      await breaks(gpu);
      await world.clock.advance(1_000);
      await report({});
      await world.clock.advance(1_000);
    }
    await breaks(gpu);
    await world.clock.advance(MINUTE_MS);
    await world.drive();
    expect((await instance(id)).gpu_fault).toContain(OFF_THE_BUS);
    const events = (await world.journal(id)).filter((type) => type.includes('gpu'));
    expect(events).toEqual(['instance.gpu_broken']);
    expect(await segmentsOf(world.db.read, [id])).toHaveLength(1);
  });

  test('that was mended within a minute in which its SSH path failed too is charged from its recovery on', async () => {
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    await breaks(await gpuOf(id));
    await report({});
    world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
    await watch(60_000);
    expect((await instance(id)).status).toBe('unreachable');
    world.probeAnswers.delete(id);
    await watch(12_000);
    await world.drive();
    const back = await instance(id);
    expect(back).toMatchObject({ status: 'running', gpu_fault: null });
    expect((await segmentsOf(world.db.read, [id])).at(-1)?.started_ms).toBe(back.entered_ms);
    await world.remove(who, id);
  });

  test('that was mended within a minute does not keep the engine busy while its SSH path fails, and is charged from the first good probe', async () => {
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    await breaks(await gpuOf(id));
    await report({});
    world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
    await watch(2 * MINUTE_MS);
    expect((await instance(id)).status).toBe('unreachable');
    await world.drive();
    expect(await instance(id)).toMatchObject({ status: 'unreachable', gpu_fault: null });
    world.probeAnswers.delete(id);
    await watch(12_000);
    expect(await instance(id)).toMatchObject({ status: 'running', status_reason: null });
    const answeredMs = (await world.sinceMs(id, 'instance.recovered')) ?? 0;
    expect((await segmentsOf(world.db.read, [id])).at(-1)?.started_ms).toBe(answeredMs);
    await world.remove(who, id);
  });

  test('stays uncharged over an outage of its SSH path, until the GPU is mended', async () => {
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    const before = world.clock.now() - ((await instance(id)).ready_ms ?? 0);
    const gpu = await gpuOf(id);
    await breaks(gpu);
    world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
    await watch(60_000);
    expect((await instance(id)).status).toBe('unreachable');
    world.probeAnswers.delete(id);
    await watch(12_000);
    expect(await instance(id)).toMatchObject({
      status: 'running',
      status_reason: expect.stringContaining(OFF_THE_BUS),
    });
    await tick();
    const alive = ((await world.sinceMs(id, 'instance.unreachable')) ?? 0) - ((await instance(id)).ready_ms ?? 0);
    expect(alive).toBeLessThan(before);
    expect(await spent()).toBe(costOf(alive));
    await report({});
    await world.clock.advance(60_000);
    await world.remove(who, id);
    expect(await spent()).toBe(costOf(alive + 60_000));
  });

  test('that is mended while it cannot be reached is charged from its recovery on', async () => {
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    const before = world.clock.now() - ((await instance(id)).ready_ms ?? 0);
    await breaks(await gpuOf(id));
    world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
    await watch(60_000);
    await report({});
    const alive = ((await instance(id)).unreachable_since_ms ?? 0) - ((await instance(id)).ready_ms ?? 0);
    expect(alive).toBeLessThan(before);
    expect(await spent()).toBe(costOf(alive));
    world.probeAnswers.delete(id);
    await watch(12_000);
    const back = await instance(id);
    expect(back).toMatchObject({ status: 'running', status_reason: null });
    await world.remove(who, id);
    const answeredMs = (await world.sinceMs(id, 'instance.recovered')) ?? 0;
    expect(answeredMs).toBeLessThan(back.entered_ms);
    expect(await spent()).toBe(costOf(alive + world.clock.now() - answeredMs));
  });

  test('that is mended between the two good probes of its recovery is charged from the mending on', async () => {
    const id = await world.run(who);
    await watch(QUIET_AFTER_START_MS);
    await breaks(await gpuOf(id));
    world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
    await watch(2 * MINUTE_MS);
    expect((await instance(id)).status).toBe('unreachable');
    world.probeAnswers.delete(id);
    let firstMs: number | null = null;
    while (firstMs === null) {
      await watch(1_000);
      firstMs = (await findProbe(world.db.read, id))?.first_success_ms ?? null;
    }
    expect((await instance(id)).status).toBe('unreachable');
    await report({});
    const mendedMs = world.clock.now();
    expect(mendedMs).toBeGreaterThan(firstMs);
    await watch(12_000);
    expect((await instance(id)).status).toBe('running');
    expect((await segmentsOf(world.db.read, [id])).at(-1)?.started_ms).toBe(mendedMs);
    await world.remove(who, id);
  });

  test('still shows the broken GPU when its main process ends, and shows the ended process when the GPU is mended', async () => {
    const id = await world.run(who);
    await breaks(await gpuOf(id));
    const exit = { code: 1, signal: null };
    await world.observe(id, { phase: 'running', main_exit: exit });
    expect(await instance(id)).toMatchObject({ status_reason: expect.stringContaining(OFF_THE_BUS), main_exit: exit });
    await world.clock.advance(MINUTE_MS);
    await report({});
    expect((await instance(id)).status_reason).toBe('main process exited with code 1');
  });
});

describe('nothing happens to a running rental', () => {
  test.each<[string, (gpu: string, other: string) => Promise<void>]>([
    ['whose GPU is only unfit for somebody new', (gpu) => breaks(gpu, 'unfit')],
    ['beside whose GPU another one breaks', (_gpu, other) => breaks(other)],
    ['whose host has a driver that fails', () => report({ gpus: [], gpu_error: 'Driver/library version mismatch' })],
  ])('%s', async (_what, happen) => {
    const id = await world.run(who);
    const gpu = await gpuOf(id);
    const other = whole.gpus.find(({ uuid }) => uuid !== gpu)?.uuid ?? '';
    await happen(gpu, other);
    await world.clock.advance(HOUR_MS);
    await world.drive();
    expect(await instance(id)).toMatchObject({ status: 'running', status_reason: null });
    await tick();
    await world.remove(who, id);
    expect(await spent()).toBe(costOf(HOUR_MS));
  });
});

test('a launch on a GPU that breaks before it runs goes to another host, and is charged there as ever', async () => {
  const id = await world.launch(who);
  const { machineId } = await world.machine({ dollars: 3.6 });
  await world.observe(id, { phase: 'starting' });
  await world.drive();
  await breaks(await gpuOf(id));
  expect(await instance(id)).toMatchObject({ machine_id: machineId, gpu_fault: null });
  await world.start(id);
  expect(await instance(id)).toMatchObject({ status: 'running', status_reason: null });
  await world.clock.advance(60_000);
  await world.remove(who, id);
  expect(await spent()).toBe(costOf(60_000));
});

describe('what the host reports during the last probe of a launch is not forgotten:', () => {
  /** Launches an instance. `happen` runs while its SSH path is probed for the first time. */
  async function runWhile(happen: (id: string) => Promise<void>): Promise<string> {
    await world.close();
    let probes = 0;
    await open({
      probe: async (id) => {
        probes += 1;
        if (probes === 1) await happen(id);
        return { ok: true };
      },
    });
    return world.run(who);
  }

  test('a broken GPU is shown, not charged, and ends the rental after the grace', async () => {
    const id = await runWhile(async (probed) => {
      const fault: GpuFault = { uuid: await gpuOf(probed), severity: 'broken', detail: OFF_THE_BUS };
      await world.rooms.supply.reportInventory(made.machineId, { ...whole, gpu_faults: [fault] });
    });
    expect(await instance(id)).toMatchObject({
      status: 'running',
      status_reason: expect.stringContaining(OFF_THE_BUS),
    });
    // No money is held for a charge that does not begin.
    await world.verify();
    await world.clock.advance(GRACE_MS);
    await world.drive();
    expect((await instance(id)).status).toBe('error');
    expect(await spent()).toBe(0n);
  });

  test('a container that has vanished ends the rental at once', async () => {
    const id = await runWhile((probed) => world.observe(probed, { phase: 'removed' }));
    expect((await instance(id)).status).toBe('stopped');
    expect(await spent()).toBe(0n);
  });
});

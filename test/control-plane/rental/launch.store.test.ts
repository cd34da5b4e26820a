// The life of an instance on a real database: placed, billed, rescued, ended. Two launches never get the same GPU.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { payable, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { findProbe } from '../../../control-plane/rental/outages/store.ts';
import { createLog } from '../../../shared/log.ts';
import { LAUNCH, openWorld, type World } from '../../kit/world.ts';

let world: World;
let logged: string[];
beforeEach(async () => {
  logged = [];
  world = await openWorld(1, { log: createLog('test', 'info', { write: (line) => void logged.push(line) }) });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const HOUR_MS = 3_600_000;
const ROUNDS = process.env['SOAK'] === '1' ? 2_000 : 60;

const status = async (id: string): Promise<string | undefined> => (await findInstance(world.db.read, id))?.status;
const operationOf = async (id: string, principalId: string) => {
  const instance = await findInstance(world.db.read, id);
  return world.rooms.operations.find(world.db.read, instance?.create_operation_id ?? '', principalId);
};
const held = async (machineId: string): Promise<number> =>
  (await gpusOf(world.db.read, machineId)).filter((gpu) => gpu.held_by !== null).length;
const available = async (orgId: string): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).availableUcents;

describe('a launch', () => {
  // Specification 3.1: allocating while GPUs are acquired, then starting: a host has taken it.
  // Specification 3.1: A container that is up but has no SSH is not running.
  // Specification 6.1: instance.running: booted and SSH live, not before.
  test('runs once SSH works, bills from then to the delete, and frees the GPU when the host lets go', async () => {
    const { machineId, supplierId } = await world.machine({ dollars: 3.6 });
    const who = await world.customer(10_000);
    const before = await available(who.orgId);
    const id = await world.launch(who);
    expect(await status(id)).toBe('allocating');
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'pending', resource_id: null });
    await world.observe(id, { phase: 'pulling', pull: { done_bytes: 1024 ** 2, total_bytes: 4 * 1024 ** 2 } });
    await world.drive();
    expect(await status(id)).toBe('starting');
    expect(await operationOf(id, who.principalId)).toMatchObject({
      state: 'in_progress',
      resource_id: id,
      progress: 'pulling the image: 1.0 of 4.0 MiB',
    });
    world.probeAnswers.set(id, { ok: false, leg: 'auth', detail: 'not yet' });
    await world.start(id);
    expect(await status(id)).toBe('starting');
    world.probeAnswers.delete(id);
    await world.clock.advance(1000);
    await world.drive();
    expect(await status(id)).toBe('running');
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'succeeded' });
    await world.clock.advance(HOUR_MS);
    await world.remove(who, id);
    expect(await status(id)).toBe('stopping');
    await world.clock.advance(1000);
    expect(await held(machineId)).toBe(1);
    await world.observe(id, { phase: 'stopped' });
    await world.drive();
    expect(await status(id)).toBe('terminated');
    expect(await held(machineId)).toBe(0);
    expect(before - (await available(who.orgId))).toBe(360_000_000n);
    expect((await world.rooms.ledger.balance(world.db.read, payable(supplierId))).postedUcents).toBe(288_000_000n);
    const events = await world.journal(id);
    expect(events).toEqual([
      'instance.creating',
      'instance.starting',
      'instance.running',
      'instance.stopping',
      'instance.terminated',
    ]);
  });

  test('nudges the loops that drive it, open its ports and deliver its webhooks', async () => {
    const nudged = new Set<string>();
    const nudge = (who: string) => (): void => void nudged.add(who);
    const nudges = {
      engine: nudge('engine'),
      edge: nudge('edge'),
      watch: () => undefined,
      webhooks: nudge('webhooks'),
    };
    await world.close();
    world = await openWorld(1, { nudges });
    await world.machine();
    const who = await world.customer(10_000);
    const nudgedBy = async (work: () => Promise<unknown>): Promise<string[]> => {
      nudged.clear();
      await work();
      return [...nudged].toSorted();
    };
    let id = '';
    // The instance has its place and waits for the host, so the engine has nothing to do.
    expect(await nudgedBy(async () => (id = await world.launch(who)))).toEqual(['edge', 'webhooks']);
    // Nothing fits now. The engine tries once more.
    expect(await nudgedBy(() => world.launch(who, { gpu_count: 2 }))).toEqual(['edge', 'engine', 'webhooks']);
    expect(await nudgedBy(() => world.remove(who, id))).toEqual(['edge', 'engine', 'webhooks']);
  });

  test('is probed while the container starts, and runs at a report of the host without another probe', async () => {
    await world.machine();
    const id = await world.launch(await world.customer(10_000));
    await world.clock.advance(1000);
    await world.observe(id, { phase: 'creating', host_key: 'ssh-ed25519 AAAA' });
    await world.drive();
    const triedMs = world.clock.now();
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'starting', last_reachable_ms: triedMs });
    world.probeAnswers.set(id, { ok: false, leg: 'auth', detail: 'not again' });
    await world.clock.advance(1000);
    await world.start(id);
    const ready = { status: 'running', ready_ms: triedMs + 1000, last_reachable_ms: triedMs };
    expect(await findInstance(world.db.read, id)).toMatchObject(ready);
  });

  test('that cannot be reached while the container starts is probed when the container runs', async () => {
    await world.machine();
    const id = await world.launch(await world.customer(10_000));
    await world.clock.advance(1000);
    world.probeAnswers.set(id, { ok: false, leg: 'auth', detail: 'not yet' });
    await world.observe(id, { phase: 'creating', host_key: 'ssh-ed25519 AAAA' });
    await world.drive();
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'starting', last_reachable_ms: null });
    world.probeAnswers.delete(id);
    await world.start(id);
    expect(await status(id)).toBe('running');
  });

  test('without any capacity is accepted, then fails with the count that each condition left', async () => {
    await world.machine({ gpus: 1 });
    const who = await world.customer(10_000);
    const id = await world.launch(who, { gpu_count: 2 });
    await world.drive();
    expect(await status(id)).toBe('error');
    expect(await operationOf(id, who.principalId)).toMatchObject({
      state: 'failed',
      error_code: 'no_capacity',
      error_detail:
        'No offering fits. Offerings left after each condition: 1 listed, 1 of type H100_SXM, 0 with at least 2 GPUs. Change what the last condition asks for, or try again later.',
    });
    expect(await available(who.orgId)).toBe(10_000_000_000n);
    expect(logged.map((line) => JSON.parse(line) as object)).toContainEqual(
      expect.objectContaining({ msg: 'launch failed', instance_id: id, code: 'no_capacity' }),
    );
  });

  test('that the balance does not cover is refused and leaves nothing behind', async () => {
    const { machineId } = await world.machine({ dollars: 600 });
    const who = await world.customer(9_999);
    await expect(world.launch(who)).rejects.toMatchObject({ code: 'insufficient_balance' });
    expect(await held(machineId)).toBe(0);
    expect(await world.rooms.endpoints.openEndpoints(world.db.read)).toEqual([]);
  });

  // Specification 4.3: region is preferred, best effort.
  test('prefers the region, goes elsewhere without it, and stays with a pin', async () => {
    const near = await world.machine({ region: 'near', dollars: 5 });
    const far = await world.machine({ region: 'far', dollars: 1 });
    const who = await world.customer(100_000);
    const inRegion = await findInstance(world.db.read, await world.launch(who, { region: 'near' }));
    expect(inRegion?.machine_id).toBe(near.machineId);
    const elsewhere = await findInstance(world.db.read, await world.launch(who, { region: 'near' }));
    expect(elsewhere?.machine_id).toBe(far.machineId);
    await expect(world.launch(who, { offering_id: 'off_gone' })).rejects.toMatchObject({
      code: 'offering_unavailable',
    });
  });
});

describe('a host that fails', () => {
  // Specification 3.1: A host that fails is tried elsewhere first, never above the first price.
  test('hands the launch to another one, never above the first price', async () => {
    const cheap = await world.machine({ dollars: 2 });
    await world.machine({ dollars: 3 });
    const equal = await world.machine({ dollars: 2 });
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    const first = (await findInstance(world.db.read, id))?.machine_id;
    expect([cheap.machineId, equal.machineId]).toContain(first);
    await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await world.drive();
    const rescued = await findInstance(world.db.read, id);
    expect(rescued).toMatchObject({ status: 'allocating', price_ucents_per_hour: 200_000_000n });
    expect([cheap.machineId, equal.machineId].filter((machineId) => machineId !== first)).toEqual([
      rescued?.machine_id,
    ]);
    await world.observe(id, { phase: 'failed', failure_code: 'gpu_unavailable', detail: 'no GPU' });
    await world.drive();
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'failed', error_code: 'operation_failed' });
    expect(await available(who.orgId)).toBe(100_000_000_000n);
  });

  test('hands it to none above the first price, although the caller would pay more', async () => {
    await world.machine({ dollars: 2 });
    await world.machine({ dollars: 3 });
    const who = await world.customer(100_000);
    const id = await world.launch(who, { max_price_per_hour: 5 });
    await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await world.drive();
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'failed' });
  });

  test('because its engine does not answer hands the launch on too', async () => {
    const machines = [await world.machine(), await world.machine()].map((machine) => machine.machineId);
    const id = await world.launch(await world.customer(100_000));
    const first = (await findInstance(world.db.read, id))?.machine_id;
    await world.observe(id, { phase: 'failed', failure_code: 'engine_unavailable', detail: 'no answer' });
    await world.drive();
    const next = await findInstance(world.db.read, id);
    expect(next).toMatchObject({ status: 'allocating' });
    expect(machines.filter((machine) => machine !== first)).toEqual([next?.machine_id]);
  });

  test('whose container starts, but that then reports nothing more, is given up after two and a half minutes', async () => {
    const machines = [await world.machine(), await world.machine()].map((machine) => machine.machineId);
    const id = await world.launch(await world.customer(100_000));
    const first = (await findInstance(world.db.read, id))?.machine_id;
    await world.observe(id, { phase: 'pulling' });
    await world.drive();
    await world.clock.advance(20 * 60_000);
    await world.observe(id, { phase: 'starting' });
    await world.drive();
    await world.clock.advance(149_999);
    // A repeated report about the same start does not restart the time limit.
    await world.observe(id, { phase: 'starting', detail: 'still' });
    await world.drive();
    expect((await findInstance(world.db.read, id))?.machine_id).toBe(first);
    await world.clock.advance(1);
    await world.drive();
    const next = await findInstance(world.db.read, id);
    expect(machines.filter((machine) => machine !== first)).toEqual([next?.machine_id]);
  });

  test('whose container stays silent ends the launch: the image is not tried elsewhere, and nothing is charged', async () => {
    await world.machine();
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    await world.observe(id, { phase: 'failed', failure_code: 'guest_silent', detail: 'nothing inside has answered' });
    await world.drive();
    expect(await status(id)).toBe('error');
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'failed', error_code: 'image_unavailable' });
    expect(await available(who.orgId)).toBe(100_000_000_000n);
  });

  test('keeps its GPU held after the instance has ended, until it reports that the container has stopped', async () => {
    const { machineId } = await world.machine();
    const who = await world.customer(100_000);
    const id = await world.run(who);
    await world.observe(id, { phase: 'failed', detail: 'out of memory' });
    await world.drive();
    expect(await status(id)).toBe('error');
    expect(await held(machineId)).toBe(1);
    await world.observe(id, { phase: 'stopped' });
    expect(await held(machineId)).toBe(0);
  });

  // Specification 3.1: A host that does not answer is given up after a minute, and the next one has a minute too.
  test('to acknowledge the launch is given up after a minute, and so is each one after it', async () => {
    for (const dollars of [1, 1, 1]) await world.machine({ dollars });
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    for (const tried of [1, 2, 3]) {
      await world.drive();
      await world.clock.advance(59_999);
      await world.drive();
      const waiting = await findInstance(world.db.read, id);
      expect([waiting?.status, waiting?.tried_machine_ids.length]).toEqual(['allocating', tried]);
      await world.clock.advance(1);
    }
    await world.drive();
    expect(await findInstance(world.db.read, id)).toMatchObject({
      status: 'error',
      status_reason: 'Tried 3 hosts; on the last one, the host did not answer.',
    });
    expect(await available(who.orgId)).toBe(100_000_000_000n);
  });

  test('with a bad image fails at once, because no other host can mend that', async () => {
    await world.machine();
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    await world.observe(id, { phase: 'failed', failure_code: 'image_pull_failed', detail: 'manifest unknown' });
    await world.drive();
    expect(await operationOf(id, who.principalId)).toMatchObject({
      error_code: 'image_unavailable',
      error_detail: 'manifest unknown',
    });
  });
});

describe('a delete', () => {
  // Specification 3.1: DELETE before it runs terminates at once, unbilled.
  test('while starting cancels the launch unbilled', async () => {
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    await world.remove(who, id);
    expect(await status(id)).toBe('terminated');
    expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'cancelled' });
    expect(await available(who.orgId)).toBe(100_000_000_000n);
    await expect(world.remove(who, id)).rejects.toMatchObject({ code: 'not_found' });
  });

  test('of another organisation finds nothing', async () => {
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    const other = await world.customer(1);
    await expect(world.remove(other, id)).rejects.toMatchObject({ code: 'not_found' });
  });

  // Specification 3.1: DELETE passes through stopping, for five minutes at most.
  test('whose host never answers ends after five minutes', async () => {
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.run(who);
    await world.remove(who, id);
    await world.drive();
    await world.clock.advance(5 * 60_000);
    await world.drive();
    expect(await status(id)).toBe('terminated');
  });
});

test(`two launches race for the last GPU: exactly one gets it, ${ROUNDS} rounds`, async () => {
  const { machineId } = await world.machine();
  const who = await world.customer(10_000_000);
  for (let round = 0; round < ROUNDS; round += 1) {
    const launch = (): Promise<unknown> => world.rooms.instances.create(who, LAUNCH, async () => undefined);
    await Promise.all([launch(), launch()]);
    await world.drive();
    const rows = await world.rooms.instances.list(who.orgId, { count: 2 });
    const placed = rows.filter(({ instance }) => instance.status === 'allocating');
    expect(placed).toHaveLength(1);
    expect(rows.filter(({ instance }) => instance.status === 'error')).toHaveLength(1);
    expect(await held(machineId)).toBe(1);
    const id = placed[0]?.instance.id ?? '';
    await world.remove(who, id);
    await world.observe(id, { phase: 'removed' });
    await world.clock.advance(1);
  }
});

test('the lowest price there is caps a boot rescue as any other does', async () => {
  await world.machine({ dollars: 0.00000001 });
  const who = await world.customer(100_000);
  const id = await world.launch(who);
  await world.machine({ dollars: 2 });
  await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
  await world.drive();
  expect(await operationOf(id, who.principalId)).toMatchObject({ state: 'failed', error_code: 'operation_failed' });
});

test('an instance is probed once it runs, and not if its launch is handed on, fails or is cancelled', async () => {
  for (let i = 0; i < 4; i += 1) await world.machine({ dollars: 2 });
  const who = await world.customer(100_000);
  const isProbed = async (id: string): Promise<boolean> => (await findProbe(world.db.read, id)) !== undefined;
  const report = async (id: string, patch: Parameters<World['observe']>[1]): Promise<void> => {
    await world.observe(id, patch);
    await world.drive();
  };
  const [handedOn, failed, cancelled] = [await world.launch(who), await world.launch(who), await world.launch(who)];
  for (const id of [handedOn, failed, cancelled]) await report(id, { phase: 'pulling' });
  await report(handedOn, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
  expect(await findInstance(world.db.read, handedOn)).toMatchObject({ status: 'allocating' });
  await report(failed, { phase: 'failed', failure_code: 'image_pull_failed', detail: 'no such image' });
  expect(await findInstance(world.db.read, failed)).toMatchObject({ status: 'error' });
  await world.rooms.instances.remove(who, cancelled, async () => undefined);
  expect(await findInstance(world.db.read, cancelled)).toMatchObject({ status: 'terminated' });
  for (const id of [handedOn, failed, cancelled]) expect(await isProbed(id)).toBe(false);
  await report(handedOn, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  expect(await isProbed(handedOn)).toBe(true);
});

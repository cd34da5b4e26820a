// The operator approves GPUs, not machines. A host that shows other GPUs is off the market, and no machine can claim the GPUs of another
// one.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { machineView } from '../../../control-plane/fleet/supply/machine-view.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findMachine, gpusOf, type MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import { createLog } from '../../../shared/log.ts';
import type { GpuFacts, Inventory } from '../../../shared/protocol/inventory.ts';
import { inventoryOf, linkHost, loseHost, type MadeMachine, NO_FACTS } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
let lines: { machine_id?: string; msg: string; detail?: string }[];
beforeEach(async () => {
  lines = [];
  const log = createLog('test', 'error', { write: (line: string) => void lines.push(JSON.parse(line) as never) });
  world = await openWorld(1, { log });
});
afterEach(() => world.close());

const machine = async (machineId: string): Promise<MachineRow> => {
  const row = await findMachine(world.db.read, machineId);
  if (row === undefined) throw new Error('the machine is gone');
  return row;
};
const offers = async (): Promise<number> => (await listedOfferings(world.db.read, { count: 10 })).length;
const report = (made: MadeMachine, gpus: GpuFacts[], patch: Partial<Inventory> = {}): Promise<boolean> =>
  world.rooms.supply.reportInventory(made.machineId, { ...made.inventory, gpus, ...patch });

/** A machine of a supplier that the operator has not approved. */
async function stranger(inventory: Inventory): Promise<MadeMachine> {
  const org = await world.rooms.accounts.createOrg('stranger');
  const { machine: made, token } = await world.db.tx('stranger', async (tx) => {
    await world.rooms.supply.registerSupplier(tx, org.id);
    const nothing = { gpuCount: null, gpuType: null, vramPerGpuGb: null };
    const rest = { region: 'eu-west', priceUcentsPerHour: 1n, tier: 'on_demand' } as const;
    return world.rooms.supply.registerMachine(tx, org.id, { ...nothing, ...rest });
  });
  await world.rooms.supply.enroll({ token, public_key: 's'.repeat(43), inventory });
  await linkHost(world, made.id);
  return { machineId: made.id, supplierId: made.supplier_id, orgId: org.id, inventory };
}

describe('a host that shows other GPUs than the approved ones (bait and switch)', () => {
  test('is failed and off the market at once, and stays so until the operator approves again', async () => {
    const made = await world.machine({ gpus: 1, gpu: { name: 'Tesla T4', memory_mib: 15_360 } });
    expect(await offers()).toBe(1);
    const bait = made.inventory.gpus;
    const switched = inventoryOf(8, () => `fake-${Math.trunc(world.core.rng.float() * 1e9)}`);
    await report(made, switched.gpus);
    expect(await offers()).toBe(0);
    const view = machineView(await machine(made.machineId), NO_FACTS);
    expect(view).toMatchObject({ status: 'listed', verification_status: 'failed' });
    expect(view.verification_detail).toMatch(/^the host showed what the operator has not approved: GPU-fake-/);
    expect(view.status_reason).toContain('Its verification failed: the host showed');
    const who = await world.customer(100_000);
    await expect(world.launch(who, { gpu_count: 4 })).rejects.toMatchObject({ code: 'image_unavailable' });
    // The host shows the approved GPUs again, but a host that was caught does not return by itself.
    await report(made, bait);
    expect([await offers(), (await machine(made.machineId)).verification_status]).toEqual([0, 'failed']);
    expect(await world.journal(made.machineId)).toContain('machine.inventory_changed');
    await world.rooms.supply.approve(made.machineId);
    expect([await offers(), (await machine(made.machineId)).verification_status]).toEqual([1, 'unverified']);
    expect((await world.journal(made.machineId)).at(-1)).toBe('machine.inventory_approved');
  });

  test('fills neither the log nor the journal, however often it switches', async () => {
    const made = await world.machine();
    for (let i = 0; i < 20; i += 1) {
      await report(made, inventoryOf(1, () => `other-${i}`).gpus);
      await report(made, made.inventory.gpus);
    }
    const changes = (await world.journal(made.machineId)).filter((type) => type === 'machine.inventory_changed');
    expect(changes).toHaveLength(1);
    expect(lines.filter((line) => line.machine_id === made.machineId)).toHaveLength(1);
    expect(lines[0]).toMatchObject({ msg: 'a machine failed its verification and is off the market' });
  });

  test('is failed with one GPU more, and with the approved GPUs under another type', async () => {
    const more = await world.machine({ gpus: 2 });
    await report(more, [...more.inventory.gpus, ...inventoryOf(1, () => 'third').gpus]);
    expect((await machine(more.machineId)).verification_detail).toContain('GPU-third (H100_SXM, 80 GB)');
    const renamed = await world.machine({ gpu: { name: 'Tesla T4', memory_mib: 15_360 } });
    await report(
      renamed,
      renamed.inventory.gpus.map((gpu) => ({ ...gpu, name: 'NVIDIA H100 80GB HBM3', memory_mib: 81_559 })),
    );
    expect((await machine(renamed.machineId)).verification_detail).toContain(
      'as H100_SXM with 80 GB, approved as T4 with 16 GB',
    );
    expect(await offers()).toBe(0);
  });

  test('keeps its running rentals', async () => {
    const made = await world.machine();
    const id = await world.launch(await world.customer(100_000));
    await report(made, inventoryOf(1, () => 'other').gpus);
    expect((await gpusOf(world.db.read, made.machineId)).some((gpu) => gpu.held_by !== null)).toBe(true);
    expect((await world.rooms.workloads.desired(made.machineId)).workloads).toHaveLength(1);
    expect(id).not.toBe('');
  });
});

describe('a host that shows fewer GPUs than approved', () => {
  test('is off the market while a GPU is missing without a reported fault, and returns with it', async () => {
    const made = await world.machine({ gpus: 2 });
    const [first, second] = made.inventory.gpus;
    await report(
      made,
      [first ?? second].flatMap((gpu) => (gpu ? [gpu] : [])),
    );
    expect([await offers(), (await machine(made.machineId)).verification_status]).toEqual([0, 'failed']);
    await report(made, made.inventory.gpus);
    expect([await offers(), (await machine(made.machineId)).verification_status]).toEqual([1, 'unverified']);
  });

  test('stays on offer with the other GPUs while it reports the missing one as broken', async () => {
    const made = await world.machine({ gpus: 2 });
    const [first, second] = made.inventory.gpus;
    const fault = {
      uuid: second?.uuid ?? '',
      severity: 'broken',
      detail: 'Xid 79: it has fallen off the bus',
    } as const;
    await report(made, made.inventory.gpus.slice(0, 1), { gpu_faults: [fault] });
    expect([await offers(), (await machine(made.machineId)).verification_status]).toEqual([1, 'unverified']);
    expect(first).toBeDefined();
  });

  test('with another driver waits for the operator, but is not failed', async () => {
    const made = await world.machine();
    const updated = made.inventory.gpus.map((gpu) => ({ ...gpu, driver_version: '570.86.10' }));
    await report(made, updated);
    const view = machineView(await machine(made.machineId), NO_FACTS);
    expect(await offers()).toBe(0);
    expect(view).toMatchObject({
      verification_status: 'unverified',
      verification_detail: 'the host runs the GPU driver 570.86.10, and the operator approved 550.54.15.',
    });
    expect(view.status_reason).toContain('The operator must approve it again');
    await world.rooms.supply.approve(made.machineId);
    expect(await offers()).toBe(1);
    await expect(world.rooms.supply.approve(made.machineId)).rejects.toThrow('The machine is listed already.');
  });
});

describe('a GPU that two machines show', () => {
  test('stays with the approved machine, whatever another machine reports, even while its host is offline (squatting)', async () => {
    const victim = await world.machine({ gpus: 2 });
    const attacker = await stranger(inventoryOf(0, () => ''));
    await report(attacker, victim.inventory.gpus);
    await loseHost(world, victim.machineId);
    await report(attacker, victim.inventory.gpus);
    // The agent of the rightful machine reconnects.
    await report(victim, victim.inventory.gpus);
    await linkHost(world, victim.machineId);
    expect(await offers()).toBe(1);
    expect(await machine(victim.machineId)).toMatchObject({ verification_status: 'unverified' });
    expect((await gpusOf(world.db.read, victim.machineId)).map((gpu) => gpu.usable)).toEqual([true, true]);
    const verdict = machineView(await machine(attacker.machineId), NO_FACTS);
    expect(verdict.verification_status).toBe('failed');
    expect(verdict.verification_detail).toContain('2 of its GPUs belong to another machine');
    await expect(world.rooms.supply.approve(attacker.machineId)).rejects.toThrow(
      `2 of its GPUs belong to machine ${victim.machineId}. Its approval is older and stands`,
    );
    expect(lines).toMatchObject([{ machine_id: attacker.machineId, claimed_by_machine_ids: [victim.machineId] }]);
  });

  test('goes to the machine that the operator approves first, and the other one is judged at once', async () => {
    const honest = await stranger(inventoryOf(1, () => 'shared'));
    const squatter = await world.machine();
    await report(squatter, honest.inventory.gpus);
    // No machine claims GPU-shared yet: showing a GPU is no claim.
    expect((await machine(honest.machineId)).verification_status).toBe('unverified');
    await world.rooms.supply.approve(honest.machineId);
    expect((await machine(squatter.machineId)).verification_detail).toContain(
      '1 of its GPUs belong to another machine',
    );
    expect(await offers()).toBe(1);
  });

  test.each([
    [
      'is delisted',
      (made: MadeMachine) => world.db.tx('d', (tx) => world.rooms.supply.delist(tx, made.orgId, made.machineId)),
      (made: MadeMachine) => world.db.tx('r', (tx) => world.rooms.supply.relist(tx, made.orgId, made.machineId)),
    ],
    [
      'is suspended',
      (made: MadeMachine) => world.rooms.supply.suspend(made.machineId),
      (made: MadeMachine) => world.rooms.supply.approve(made.machineId),
    ],
  ])(
    'is judged again if the machine that claims it %s, and the first machine cannot take it back',
    async (_what, end, back) => {
      const first = await world.machine();
      const second = await stranger(first.inventory);
      expect((await machine(second.machineId)).verification_status).toBe('failed');
      await end(first);
      expect((await machine(second.machineId)).verification_status).toBe('unverified');
      await world.rooms.supply.approve(second.machineId);
      expect(await offers()).toBe(1);
      await back(first).catch(() => undefined);
      expect(await machine(first.machineId)).toMatchObject({ verification_status: 'failed' });
      expect((await gpusOf(world.db.read, first.machineId)).map((gpu) => gpu.usable)).toEqual([false]);
      expect(await offers()).toBe(1);
    },
  );

  test('stays claimed while it is rented on a suspended machine', async () => {
    const first = await world.machine();
    const who = await world.customer(100_000);
    const id = await world.launch(who);
    const second = await stranger(first.inventory);
    await world.rooms.supply.suspend(first.machineId);
    await expect(world.rooms.supply.approve(second.machineId)).rejects.toMatchObject({ code: 'conflict' });
    await world.end(who, id);
    expect((await machine(second.machineId)).verification_status).toBe('unverified');
    await world.rooms.supply.approve(second.machineId);
    expect(await offers()).toBe(1);
  });
});

test('a machine that drains keeps only its rented GPU once the operator takes its approval back', async () => {
  const made = await world.machine({ gpus: 2 });
  const who = await world.customer(100_000);
  await world.run(who);
  await world.db.tx('d', (tx) => world.rooms.supply.delist(tx, made.orgId, made.machineId));
  const second = await stranger(made.inventory);
  const claimed = async (): Promise<string | null> => (await machine(second.machineId)).verification_detail;
  expect(await claimed()).toContain('2 of its GPUs belong to another machine');
  await world.rooms.supply.suspend(made.machineId);
  expect(await claimed()).toContain('1 of its GPUs belong to another machine');
});

test('an approval needs GPUs that the host shows, and a host that matches its declaration', async () => {
  const empty = await stranger({ ...inventoryOf(0, () => ''), gpu_error: 'no devices were found' });
  await expect(world.rooms.supply.approve(empty.machineId)).rejects.toThrow('nvidia-smi says: no devices were found');
  await report(empty, inventoryOf(1, () => 'one').gpus, { gpu_error: '' });
  await world.db.tx('declare', (tx) =>
    world.rooms.supply.change(tx, empty.orgId, empty.machineId, { declared_gpu_count: 8 }),
  );
  await expect(world.rooms.supply.approve(empty.machineId)).rejects.toThrow(
    'gpu_count is declared as 8, the host shows 1',
  );
});

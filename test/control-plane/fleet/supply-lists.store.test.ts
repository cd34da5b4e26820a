// Lists of supply in their order: what waits for the operator, which machines are linked, which contracts come first, what other requests get.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { fittingByType } from '../../../control-plane/fleet/supply/narrowing.ts';
import type { CapacityRequest } from '../../../control-plane/fleet/supply/offerings.ts';
import { gpusOffered, linkedMachines, waitingMachines } from '../../../control-plane/fleet/supply/overview.ts';
import { slotsOf, wantsFor, wantsOf } from '../../../control-plane/fleet/supply/slots.ts';
import { findMachine, gpuUseOf, onlineMachineIds } from '../../../control-plane/fleet/supply/store.ts';
import { ANYWHERE, inventoryOf, linkHost, loseHost } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const GIB = 1024 ** 3;
const L4 = { name: 'NVIDIA L4', memory_mib: 23_034 };
const L40 = { name: 'NVIDIA L40', memory_mib: 46_068 };

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

/** Machines of one supplier that have enrolled and connected, and that nobody has approved. */
async function strangers(count: number): Promise<string[]> {
  const { supply, accounts } = world.rooms;
  const org = await accounts.createOrg('supplier');
  await world.db.tx('supplier', (tx) => supply.registerSupplier(tx, org.id));
  const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu', tier: 'on_demand' } as const;
  const ids: string[] = [];
  for (let i = 0; i < count; i += 1) {
    const { machine, token } = await world.db.tx('register', (tx) =>
      supply.registerMachine(tx, org.id, { ...declared, priceUcentsPerHour: 1n }),
    );
    const name = machine.id.padEnd(43, 'k');
    await supply.enroll({ token, public_key: name, inventory: inventoryOf(1, () => name) });
    await linkHost(world, machine.id);
    ids.push(machine.id);
  }
  return ids;
}
const set = (change: ReturnType<typeof sql>): Promise<number> => world.db.tx('set', (tx) => tx.run(change));

describe('the machines that wait for the operator', () => {
  const waiting = async (limit = 10): Promise<string[]> => {
    const rows = await waitingMachines(world.db.read, { limit, nowMs: world.clock.now() });
    return rows.map(({ id, what }) => `${id} ${what.includes('Two hosts') ? 'copied' : 'new'}`);
  };

  test('are those that came first, and of equal ones those with the smaller id', async () => {
    const together = (await strangers(3)).toSorted();
    await world.clock.advance(1_000);
    const [late = ''] = await strangers(1);
    expect(await waiting()).toEqual([...together, late].map((id) => `${id} new`));
    expect(await waiting(2)).toEqual(together.slice(0, 2).map((id) => `${id} new`));
  });

  test('are neither approved nor suspended ones, and neither those without a link', async () => {
    const [approved = '', suspended = '', unlinked = '', left = ''] = await strangers(4);
    await world.rooms.supply.approve(approved);
    await world.rooms.supply.suspend(suspended);
    await set(sql`delete from machine_links where machine_id = ${unlinked}`);
    expect(await waiting()).toEqual([`${left} new`]);
  });

  test('are also those with two hosts, in the order in which that was found', async () => {
    const ids = [];
    for (let i = 0; i < 3; i += 1) ids.push((await world.machine()).machineId);
    const [first = '', second = '', third = ''] = ids.toSorted();
    await world.rooms.supply.setCopied(third, true);
    await world.clock.advance(1_000);
    for (const id of [second, first]) await world.rooms.supply.setCopied(id, true);
    expect(await waiting()).toEqual([third, first, second].map((id) => `${id} copied`));
    expect(await waiting(1)).toEqual([`${third} copied`]);
  });
});

test('the overview counts machines that are listed or drain, those with a link, and the GPUs on offer', async () => {
  const { supply } = world.rooms;
  const drains = await world.machine({ gpus: 2 });
  const who = await world.customer(100_000);
  await world.launch(who, { gpu_count: 2 });
  await world.db.tx('d', (tx) => supply.delist(tx, drains.orgId, drains.machineId));
  const gone = await world.machine({ gpus: 4 });
  await world.db.tx('d', (tx) => supply.delist(tx, gone.orgId, gone.machineId));
  await world.machine({ gpus: 3 });
  const away = await world.machine({ gpus: 5 });
  await loseHost(world, away.machineId);
  await strangers(1);
  expect(await linkedMachines(world.db.read)).toEqual({ listed: 3, linked: 2 });
  expect(await gpusOffered(world.db.read)).toBe(3);
});

test('machines with a link are listed in the order of ids after one of them, and only they get a heartbeat', async () => {
  const made = [];
  for (let i = 0; i < 4; i += 1) made.push((await world.machine()).machineId);
  const [first = '', second = '', third = '', fourth = ''] = made.toSorted();
  await loseHost(world, second);
  expect(await onlineMachineIds(world.db.read, '', 10)).toEqual([first, third, fourth]);
  expect(await onlineMachineIds(world.db.read, first, 1)).toEqual([third]);
  expect(await onlineMachineIds(world.db.read, third, 10)).toEqual([fourth]);
  const beforeMs = world.clock.now();
  await world.clock.advance(5_000);
  await world.rooms.supply.noteHeartbeats([]);
  await world.rooms.supply.noteHeartbeats([first, second]);
  const seenMs = await Promise.all(
    [first, second, third].map(async (id) => (await findMachine(world.db.read, id))?.last_heartbeat_ms),
  );
  expect(seenMs).toEqual([beforeMs + 5_000, beforeMs, beforeMs]);
});

describe('contracts that wait for GPUs', () => {
  const want = (reservedBy: string, gpuType: string, startsMs: number, region = 'eu-west') =>
    world.db.tx('want', (tx) =>
      world.rooms.supply.awaitSlots(tx, {
        reserved_by: reservedBy,
        gpu_type: gpuType,
        region,
        gpus_missing: 1,
        starts_ms: startsMs,
        ends_ms: null,
      }),
    );

  test('come in the order of their start, then of their ids, then of the types', async () => {
    const { machineId, inventory } = await world.machine({ gpus: 2 });
    const gpus = inventory.gpus.map((gpu, i) => (i === 0 ? gpu : { ...gpu, ...L4 }));
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
    await world.rooms.supply.approve(machineId);
    for (const type of ['L4', 'H100_SXM']) {
      await want('r-2', type, 5);
      await want('r-1', type, 5);
      await want('r-3', type, 4);
    }
    await want('r-1', 'L4', 5, 'us-east');
    const rows = await wantsFor(world.db.read, machineId);
    expect(rows.map((row) => `${row.reserved_by} ${row.gpu_type}`)).toEqual(
      ['r-3', 'r-1', 'r-2'].flatMap((id) => [`${id} H100_SXM`, `${id} L4`]),
    );
    const own = await wantsOf(world.db.read, 'r-1');
    expect(own.map((row) => `${row.gpu_type} ${row.region}`)).toEqual(['H100_SXM eu-west', 'L4 eu-west', 'L4 us-east']);
  });

  test('have their slots listed by machine and type, and GPUs in use are listed so too', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 2; i += 1) {
      const { machineId, inventory } = await world.machine({ gpus: 3 });
      const [, second, third] = [L40, L4, L40];
      const gpus = inventory.gpus.map((gpu, at) => ({ ...gpu, ...(at === 0 ? {} : at === 1 ? second : third) }));
      await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
      await world.rooms.supply.approve(machineId);
      for (const gpuType of ['L40', 'L4', 'H100_SXM'])
        await world.db.tx('r', (tx) =>
          world.rooms.supply.reserve(tx, { machineId, gpuType, count: 1, reservedBy: 'r', startsMs: 1, endsMs: null }),
        );
      ids.push(machineId);
    }
    const expected = ids.toSorted().flatMap((id) => [`${id} H100_SXM`, `${id} L4`, `${id} L40`]);
    const rows = await slotsOf(world.db.read, 'r');
    expect(rows.map((row) => `${row.machine_id} ${row.gpu_type}`)).toEqual(expected);
    const use = await gpuUseOf(world.db.read, ids.toSorted().toReversed());
    expect(use.map((row) => `${row.machine_id} ${row.gpu_type}`)).toEqual(expected);
  });
});

describe('the offerings by type that a launch could take', () => {
  const REQUEST: Omit<CapacityRequest, 'gpuType'> = {
    gpuCount: 1,
    ...ANYWHERE,
  };
  const fitting = async (patch: Partial<typeof REQUEST> = {}): Promise<string[]> =>
    (await fittingByType(world.db.read, { ...REQUEST, ...patch })).map(
      (row) => `${row.offerings} ${row.gpu_type} from ${row.ucents_per_hour}`,
    );

  test('are the most frequent first, then by name, each with its lowest price', async () => {
    await world.machine({ gpu: L40, dollars: 3 });
    await world.machine({ gpu: L4, dollars: 1 });
    await world.machine({ dollars: 5 });
    await world.machine({ dollars: 4, gpus: 2 });
    const all = ['2 H100_SXM from 400000000', '1 L4 from 100000000', '1 L40 from 300000000'];
    expect(await fitting()).toEqual(all);
    expect(await fitting({ gpuCount: 2 })).toEqual(['1 H100_SXM from 400000000']);
    expect(await fitting({ maxPriceUcentsPerHour: 300_000_000n })).toEqual(all.slice(1));
    expect(await fitting({ minVramGb: 25 })).toEqual([all[0], all[2]]);
  });

  test('are neither spot ones, nor those off the market, nor those in use', async () => {
    const spot = await world.machine({ gpu: L4 });
    await world.db.tx('c', (tx) => world.rooms.supply.change(tx, spot.orgId, spot.machineId, { tier: 'spot' }));
    const away = await world.machine({ gpu: L40 });
    await loseHost(world, away.machineId);
    await world.machine({ diskEnforced: true, storageBytes: 100 * GIB });
    expect(await fitting()).toEqual(['1 H100_SXM from 200000000']);
    expect(await fitting({ diskGb: 101 })).toEqual([]);
    await world.launch(await world.customer(100_000));
    expect(await fitting()).toEqual([]);
  });
});

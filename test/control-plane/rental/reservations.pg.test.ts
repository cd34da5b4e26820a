// Contracts on PostgreSQL while other transactions release GPUs: a contract gets the GPUs that it needs, no more, and none after its end.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { slotsOf } from '../../../control-plane/fleet/supply/slots.ts';
import { type Interleaved, interleave } from '../../kit/interleave.ts';
import { openWorldOver, type World } from '../../kit/world.ts';
import { brokenContracts } from './contract-promises.ts';

const DAY_MS = 24 * 3_600_000;
const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3, 4, 5, 6];

let world: World;
let interleaved: Interleaved;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave));
});
afterEach(async () => {
  expect(await brokenContracts(world)).toEqual([]);
  await world.verify();
  await world.close();
});

/** Holds GPUs of a machine, by a holder with the same id. */
async function hold(machineId: string, count: number, reservedBy: string | null = null): Promise<void> {
  const want = {
    machineIds: [machineId],
    gpuType: 'H100_SXM',
    count,
    heldBy: machineId,
    reservedBy,
    endsMs: null,
    diskGb: 0,
  };
  await interleaved.db.tx('test.hold', (tx) => world.rooms.supply.hold(tx, want));
}
/** The id of a machine whose GPUs are all held. */
async function heldMachine(gpus: number): Promise<string> {
  const { machineId } = await world.machine({ gpus });
  await hold(machineId, gpus);
  return machineId;
}
const release = (machineId: string) => (): Promise<void> =>
  interleaved.db.tx('test.release', async (tx) => {
    await tx.lock('machine', machineId);
    await world.rooms.supply.release(tx, machineId);
  });
function reserve(machineId: string): Promise<boolean> {
  const want = { machineId, gpuType: 'H100_SXM', count: 1, reservedBy: 'r-1', startsMs: 0, endsMs: null };
  return interleaved.db.tx('test.reserve', (tx) => world.rooms.supply.reserve(tx, want));
}
async function contract(gpus: number, startsMs = world.clock.now()): Promise<string> {
  const { id } = await world.rooms.accounts.createOrg('holder');
  const [starts_at, ends_at] = [0, 30].map((days) => new Date(startsMs + days * DAY_MS).toISOString());
  const made = await world.rooms.reservations.create({
    org_id: id,
    title: 'training',
    starts_at: starts_at ?? '',
    ends_at: ends_at ?? '',
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', region: 'eu-west', gpu_count: gpus }],
  });
  return made.contract.id;
}
async function slotsIn(id: string): Promise<number> {
  return (await slotsOf(world.db.read, id)).reduce((sum, row) => sum + row.slots, 0);
}
/** Throws if one of the operations has failed. */
async function atOnce(seed: number, operations: (() => Promise<unknown>)[]): Promise<void> {
  for (const result of await interleaved.run(seed, operations)) if (result.status === 'rejected') throw result.reason;
}

describe.each(SEEDS)('in the order of seed %d', (seed) => {
  test('GPUs that are released while a contract is made become its slots', async () => {
    const machineId = await heldMachine(2);
    let id = '';
    const make = async (): Promise<void> => void (id = await contract(2));
    await atOnce(seed, [make, release(machineId)]);
    await world.drive();
    expect(await slotsIn(id)).toBe(2);
  });

  test('two machines that release GPUs give a contract no more than it needs', async () => {
    const machines = [await heldMachine(2), await heldMachine(2)];
    const id = await contract(2);
    await atOnce(seed, machines.map(release));
    await world.drive();
    expect(await slotsIn(id)).toBe(2);
  });

  test('a machine that releases GPUs gives a contract that ends none', async () => {
    const machineId = await heldMachine(2);
    const id = await contract(2);
    await atOnce(seed, [release(machineId), () => world.rooms.reservations.cancel(id)]);
    expect(await slotsIn(id)).toBe(0);
  });

  test('two contracts for the same GPUs at once are one contract, also if one of them is an extension', async () => {
    await world.machine({ gpus: 2 });
    const first = await interleaved.run(seed, [() => contract(2), () => contract(2)]);
    expect(first.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
    const [made] = await world.rooms.reservations.list({ count: 2 });
    const id = made?.contract.id ?? '';
    const endMs = made?.contract.ends_ms ?? 0;
    const later = () => world.rooms.reservations.extend(id, endMs + DAY_MS);
    const second = await interleaved.run(seed, [later, () => contract(1, endMs)]);
    expect(second.map(({ status }) => status).toSorted()).toEqual(['fulfilled', 'rejected']);
  });

  test('a launch and a contract that want the same GPU do not wait for each other in a circle', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    await atOnce(seed, [() => reserve(machineId), () => hold(machineId, 1)]);
    expect(interleaved.collisions()).toBe(0);
  });

  test('the end of a launch and of its contract do not wait for each other in a circle', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    await reserve(machineId);
    await hold(machineId, 1, 'r-1');
    const end = (): Promise<void> => interleaved.db.tx('test.end', (tx) => world.rooms.supply.unreserve(tx, 'r-1'));
    await atOnce(seed, [release(machineId), end]);
    expect(interleaved.collisions()).toBe(0);
  });
});

// The lead time of a contract: its GPUs stay on the market until then, and those in use become its slots as they are released.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { latestEnd } from '../../../control-plane/rental/instances/plan.ts';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { OperatorView } from '../../../control-plane/rental/reservations/reservations.ts';
import type { NewReservation } from '../../../shared/api/reservation.ts';
import { createLog } from '../../../shared/log.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';
import { brokenContracts } from './contract-promises.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const LEAD_MS = 6 * HOUR_MS;

let world: World;
let mine: WorldAccount;
let holder: string;
let other: WorldAccount;
let lines: string[];

beforeEach(async () => {
  lines = [];
  const log = createLog('test', 'error', { write: (line) => void lines.push(line) });
  world = await openWorld(1, { log, settings: { reservationLeadMs: LEAD_MS } });
  mine = await world.customer(0);
  holder = mine.orgId;
  other = await world.customer(10_000_000);
});
afterEach(async () => {
  expect(await brokenContracts(world)).toEqual([]);
  await world.verify();
  await world.close();
});

const iso = (offsetMs: number): string => new Date(world.clock.now() + offsetMs).toISOString();

function contract(gpus: number, startsInMs: number, patch: Partial<NewReservation> = {}): Promise<OperatorView> {
  return world.rooms.reservations.create({
    org_id: holder,
    title: 'training',
    starts_at: iso(startsInMs),
    ends_at: iso(startsInMs + 10 * DAY_MS),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: gpus, region: 'eu-west' }],
    ...patch,
  });
}

async function pass(ms: number): Promise<void> {
  await world.clock.advance(ms);
  await world.drive();
}

async function end(instanceId: string): Promise<void> {
  await world.remove(other, instanceId);
  await world.observe(instanceId, { phase: 'removed' });
}

async function onOffer(): Promise<number> {
  const offers = await listedOfferings(world.db.read, { count: 10 });
  return offers.reduce((sum, { gpu_free: free }) => sum + free, 0);
}

/** [slots, awaited]. */
async function has(id: string): Promise<[number, number]> {
  const { slots, awaited } = await world.rooms.reservations.show(id);
  return [slots.reduce((sum, machine) => sum + machine.slots, 0), awaited];
}

describe('GPUs of a contract', () => {
  test('stay on the market until the lead time, at both edges, and leave it then on as few machines as possible', async () => {
    await world.machine({ gpus: 4 });
    await world.machine({ gpus: 8 });
    const {
      contract: { id, starts_ms: startsMs },
      claimMs,
    } = await contract(9, LEAD_MS + DAY_MS);
    expect(claimMs).toBe(startsMs - LEAD_MS);
    await pass(DAY_MS - 1);
    expect([await has(id), await onOffer()]).toEqual([[0, 0], 12]);
    await pass(1);
    expect([await has(id), await onOffer()]).toEqual([[9, 0], 3]);
    const { slots } = await world.rooms.reservations.show(id);
    expect(slots.map((machine) => machine.slots).toSorted((a, b) => a - b)).toEqual([1, 8]);
    await pass(LEAD_MS);
    expect(lines).toEqual([]);
    expect(await world.journal(id)).toEqual(['reservation.pending', 'reservation.active']);
  });

  test('are set aside at creation if the contract begins within the lead time, and not a millisecond before it', async () => {
    await world.machine({ gpus: 2 });
    const late = await contract(1, LEAD_MS + 1);
    const soon = await contract(1, LEAD_MS);
    expect([await has(late.contract.id), await has(soon.contract.id)]).toEqual([
      [0, 0],
      [1, 0],
    ]);
    expect(await onOffer()).toBe(1);
  });

  test('are set aside for a suspended contract too', async () => {
    await world.machine();
    const { contract: made } = await contract(1, DAY_MS);
    await world.rooms.reservations.suspend(made.id);
    await pass(DAY_MS - LEAD_MS);
    expect([await has(made.id), await onOffer()]).toEqual([[1, 0], 0]);
  });

  test('are set aside by an engine that was away during the lead time, before the contract begins', async () => {
    await world.machine();
    const { contract: made } = await contract(1, DAY_MS);
    await pass(2 * DAY_MS);
    expect(await has(made.id)).toEqual([1, 0]);
    expect(await world.journal(made.id)).toEqual(['reservation.pending', 'reservation.active']);
  });
});

describe('GPUs of a contract whose lead time comes while the control plane is away', () => {
  /** The next process begins a minute after the lead time. The host of the larger machine comes back last. */
  async function awayAtLead(): Promise<{ id: string; machineId: string }> {
    const small = await world.machine({ gpus: 4 });
    const { machineId } = await world.machine({ gpus: 8 });
    const { contract: made } = await contract(8, DAY_MS);
    for (const id of [small.machineId, machineId]) await loseHost(world, id);
    await world.clock.advance(DAY_MS - LEAD_MS + 60_000);
    world = await world.restart();
    await world.drive();
    await linkHost(world, small.machineId);
    await pass(QUIET_AFTER_START_MS - 1);
    await linkHost(world, machineId);
    await world.drive();
    return { id: made.id, machineId };
  }

  test('are set aside once hosts had time to come back, on as few machines as possible', async () => {
    const { id, machineId } = await awayAtLead();
    expect([await has(id), await onOffer()]).toEqual([[0, 0], 12]);
    await pass(1);
    expect([await has(id), await onOffer()]).toEqual([[8, 0], 4]);
    expect((await world.rooms.reservations.show(id)).slots.map((slots) => slots.machine_id)).toEqual([machineId]);
  });

  test('are set aside when the contract begins, if that comes first', async () => {
    const { machineId } = await world.machine();
    const { contract: made } = await contract(1, 2 * DAY_MS);
    await world.clock.advance(2 * DAY_MS - 1);
    world = await world.restart();
    await world.drive();
    expect([await has(made.id), await onOffer()]).toEqual([[0, 0], 1]);
    await pass(1);
    expect([await has(made.id), await onOffer()]).toEqual([[1, 0], 0]);
    expect((await world.rooms.reservations.show(made.id)).slots[0]?.machine_id).toBe(machineId);
  });
});

describe('a GPU in use at the lead time', () => {
  test('becomes a slot in the transaction that releases it: no launch gets in between', async () => {
    await world.machine({ gpus: 2 });
    const running = await world.launch(other, { gpu_count: 2 });
    const { contract: made } = await contract(2, DAY_MS);
    await pass(DAY_MS - LEAD_MS);
    expect(await has(made.id)).toEqual([0, 2]);
    await end(running);
    expect([await has(made.id), await onOffer()]).toEqual([[2, 0], 0]);
    await pass(LEAD_MS);
    expect(lines).toEqual([]);
  });

  test('is not awaited if a new host can serve the contract instead', async () => {
    await world.machine({ gpus: 2 });
    await world.launch(other, { gpu_count: 2 });
    const { contract: made } = await contract(2, LEAD_MS);
    await world.machine({ gpus: 1 });
    expect([await has(made.id), await onOffer()]).toEqual([[1, 1], 0]);
    await world.machine({ gpus: 3 });
    expect([await has(made.id), await onOffer()]).toEqual([[2, 0], 2]);
  });

  test('that is missing at the start is reported in the log, the events and both views, and still becomes a slot later', async () => {
    await world.machine({ gpus: 3 });
    const running = await world.launch(other, { gpu_count: 2 });
    const { contract: made } = await contract(3, DAY_MS);
    await pass(DAY_MS - 1);
    expect(lines).toEqual([]);
    await pass(1);
    expect(lines.map((line) => JSON.parse(line) as object)).toMatchObject([
      { reservation_id: made.id, org_id: holder, missing_gpus: 2, msg: expect.stringContaining('begins without all') },
    ]);
    expect(await world.journal(made.id)).toEqual(['reservation.pending', 'reservation.active', 'reservation.short']);
    expect(await has(made.id)).toEqual([1, 2]);
    await expect(world.launch(mine, { tier: 'reserved', gpu_count: 2 })).rejects.toMatchObject({
      code: 'reservation/no_capacity',
      details: { detail: expect.stringContaining('2 more are awaited from others who use them') },
    });
    await end(running);
    await world.launch(mine, { tier: 'reserved', gpu_count: 3 });
    expect(await has(made.id)).toEqual([3, 0]);
  });

  test('goes to the contract that begins first, whichever was made first', async () => {
    await world.machine({ gpus: 2 });
    const running = [await world.launch(other), await world.launch(other)];
    const second = await contract(1, LEAD_MS);
    const first = await contract(1, LEAD_MS - 1);
    await end(running[0] ?? '');
    expect([await has(first.contract.id), await has(second.contract.id)]).toEqual([
      [1, 0],
      [0, 1],
    ]);
    await end(running[1] ?? '');
    expect(await has(second.contract.id)).toEqual([1, 0]);
  });

  test('is on offer again at its release once the contract that waited for it is cancelled', async () => {
    await world.machine();
    const running = await world.launch(other);
    const { contract: made } = await contract(1, LEAD_MS);
    await world.rooms.reservations.cancel(made.id);
    await end(running);
    expect([await has(made.id), await onOffer()]).toEqual([[0, 0], 1]);
  });

  test('is awaited as before after reassign, which replaces what is lost alone and is refused before the lead time', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    const { contract: made } = await contract(1, DAY_MS);
    await expect(world.rooms.reservations.reassign(made.id)).rejects.toMatchObject({ code: 'conflict' });
    await pass(DAY_MS - LEAD_MS);
    await loseHost(world, machineId);
    await world.machine({ gpus: 2 });
    await world.rooms.reservations.reassign(made.id);
    expect([await has(made.id), await onOffer()]).toEqual([[1, 0], 1]);
  });
});

describe('a launch that ends by itself', () => {
  const hours = 2;
  const longestMs = latestEnd(0, hours);
  const limited = { auto_terminate_hours: hours };
  const placedAt = async (id: string): Promise<string | null> =>
    (await findInstance(world.db.read, id))?.machine_id ?? null;

  test('borrows a GPU of a contract if it is over a millisecond before the start, and not if it may last until the start', async () => {
    const { machineId } = await world.machine();
    const { contract: made } = await contract(1, longestMs);
    const late = await world.launch(other, limited);
    await world.drive();
    expect((await findInstance(world.db.read, late))?.status).toBe('error');
    await world.rooms.reservations.cancel(made.id);
    await contract(1, longestMs + 1);
    expect(await placedAt(await world.launch(other, limited))).toBe(machineId);
  });

  test('gives the GPU back to the contract, never to the market, and the offer never shows a GPU that others could not have', async () => {
    await world.machine();
    const { contract: made } = await contract(1, LEAD_MS);
    const borrowed = await world.run(other, limited);
    expect([await has(made.id), await onOffer()]).toEqual([[1, 0], 0]);
    expect((await world.rooms.reservations.ofOrg(holder))[0]?.utilization.allocated_gpus).toBe(0);
    await pass(hours * HOUR_MS);
    expect(await world.journal(borrowed)).toContain('instance.stopping');
    await world.observe(borrowed, { phase: 'stopped' });
    expect([await has(made.id), await onOffer()]).toEqual([[1, 0], 0]);
    const endless = await world.launch(other);
    await world.drive();
    expect((await findInstance(world.db.read, endless))?.status).toBe('error');
    await pass(LEAD_MS - hours * HOUR_MS);
    await world.launch(mine, { tier: 'reserved' });
    expect(lines).toEqual([]);
  });

  test('takes a lent GPU before a free one, and takes both together if it needs both', async () => {
    const { machineId } = await world.machine({ gpus: 3 });
    await contract(2, LEAD_MS);
    await world.launch(other, limited);
    expect(await onOffer()).toBe(1);
    expect(await placedAt(await world.launch(other, { ...limited, gpu_count: 2 }))).toBe(machineId);
    expect(await onOffer()).toBe(0);
  });

  test('goes to the cheapest host, whether its GPUs are free or lent, and borrows nothing from a contract that has begun', async () => {
    const { machineId: cheap } = await world.machine({ dollars: 1 });
    await contract(1, LEAD_MS);
    const { machineId: dear } = await world.machine({ dollars: 3 });
    const first = await world.launch(other, limited);
    expect(await placedAt(first)).toBe(cheap);
    await end(first);
    await pass(LEAD_MS);
    expect(await placedAt(await world.launch(other, limited))).toBe(dear);
  });

  test('is tried elsewhere if it starts so late that it could outlast its loan', async () => {
    await world.machine();
    const { contract: made } = await contract(1, longestMs + 1);
    const slow = await world.launch(other, limited);
    // The control plane was away: the host answered, and the engine gets to it long after.
    await world.clock.advance(HOUR_MS);
    await world.start(slow);
    expect((await findInstance(world.db.read, slow))?.status).toBe('error');
    await world.observe(slow, { phase: 'removed' });
    await pass(longestMs + 1 - HOUR_MS);
    expect([await has(made.id), lines]).toEqual([[1, 0], []]);
  });

  test('keeps its GPU as any other launch does if the contract is cancelled, and then frees it to the market', async () => {
    await world.machine();
    const { contract: made } = await contract(1, LEAD_MS);
    const borrowed = await world.launch(other, limited);
    await world.rooms.reservations.cancel(made.id);
    await end(borrowed);
    expect(await onOffer()).toBe(1);
  });
});

describe('promised capacity', () => {
  const refused = { code: 'conflict' };

  test('never exceeds the GPUs at any moment: other contracts count while they last', async () => {
    await world.machine({ gpus: 4 });
    await contract(3, 5 * DAY_MS);
    await expect(contract(2, 14 * DAY_MS)).rejects.toMatchObject(refused);
    await contract(1, 14 * DAY_MS);
    await contract(3, 15 * DAY_MS);
    // Before the first one begins, all four are there.
    await contract(4, DAY_MS, { ends_at: iso(5 * DAY_MS) });
    await expect(contract(4, DAY_MS, { ends_at: iso(5 * DAY_MS) })).rejects.toMatchObject({
      details: { detail: expect.stringMatching(/^4 H100_SXM in eu-west are needed\. There are 4, .* up to 4 of them/) },
    });
    expect(await world.rooms.reservations.list({ count: 1_000 })).toHaveLength(4);
  });

  test('has no end if a contract is renewed, and an extension must not take capacity that is promised to others', async () => {
    await world.machine({ gpus: 2 });
    const { contract: made } = await contract(1, DAY_MS);
    const { contract: renewed } = await contract(1, DAY_MS, { renewal: 'auto_renew' });
    await expect(contract(2, 400 * DAY_MS)).rejects.toMatchObject(refused);
    const next = await contract(1, 12 * DAY_MS);
    const { reservations } = world.rooms;
    await reservations.extend(made.id, next.contract.starts_ms);
    await expect(reservations.extend(made.id, next.contract.starts_ms + 1)).rejects.toMatchObject(refused);
    await reservations.cancel(renewed.id);
    await reservations.extend(made.id, next.contract.starts_ms + 1);
  });

  test('counts GPUs that are in use, and those set aside on a host that is away', async () => {
    const { machineId } = await world.machine({ gpus: 2 });
    await world.launch(other, { gpu_count: 2 });
    const { contract: made } = await contract(2, DAY_MS);
    await expect(contract(1, DAY_MS)).rejects.toMatchObject(refused);
    await world.rooms.reservations.cancel(made.id);
    await world.machine({ gpus: 1 });
    const set = await contract(1, LEAD_MS);
    await loseHost(world, machineId);
    await world.rooms.reservations.extend(set.contract.id, world.clock.now() + 90 * DAY_MS);
  });
});

describe('the view of a new contract', () => {
  test('shows how many GPUs are free for a contract that begins later, and how many are missing', async () => {
    const { machineId } = await world.machine({ gpus: 4 });
    await world.launch(other);
    const { outlook, awaited, slots } = await contract(4, DAY_MS);
    expect([slots, awaited]).toEqual([[], 0]);
    expect(outlook).toEqual({ free: [{ machineId, gpuType: 'H100_SXM', count: 3 }], missing: 1 });
  });

  test('counts the slots of contracts that end before, and not the GPUs that others wait for', async () => {
    const { machineId } = await world.machine({ gpus: 4 });
    const ends = { ends_at: iso(3 * DAY_MS) };
    await contract(3, 0, ends);
    await contract(1, 2 * DAY_MS);
    const { outlook } = await contract(3, 3 * DAY_MS);
    expect(outlook).toEqual({ free: [{ machineId, gpuType: 'H100_SXM', count: 3 }], missing: 0 });
  });

  test('has no outlook within the lead time, because its set-aside and awaited GPUs are known', async () => {
    await world.machine({ gpus: 2 });
    await world.launch(other);
    const { outlook, awaited, slots } = await contract(2, LEAD_MS);
    expect([outlook, awaited, slots.map((machine) => machine.slots)]).toEqual([null, 1, [1]]);
  });
});

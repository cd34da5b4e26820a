// The time until which a supplier offers a machine: which launches and contracts may still go there, and what happens when it comes.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type ListedOffering, listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { machineView } from '../../../control-plane/fleet/supply/machine-view.ts';
import { slotsOf } from '../../../control-plane/fleet/supply/slots.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { latestEnd } from '../../../control-plane/rental/instances/plan.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { isoTime } from '../../../shared/clock.ts';
import { type MadeMachine, NO_FACTS } from '../../kit/machines.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let world: World;
let who: WorldAccount;
let made: MadeMachine;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(1_000_000);
  made = await world.machine({ gpus: 2 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function setUntil(untilMs: number | null, { orgId, machineId } = made): Promise<void> {
  await world.db.tx('change', async (tx) => {
    await tx.lock('machine', machineId);
    await world.rooms.supply.change(tx, orgId, machineId, { rentable_until_ms: untilMs });
  });
}
/** The first placement of a launch that ends by itself after an hour, and of one that does not. */
const placed = async (hours: number | undefined): Promise<string | null | undefined> => {
  const id = await world.launch(who, { auto_terminate_hours: hours });
  return (await findInstance(world.db.read, id))?.machine_id;
};
const offers = (): Promise<ListedOffering[]> => listedOfferings(world.db.read, { count: 10 });
const seen = async () => {
  const row = await findMachine(world.db.read, made.machineId);
  if (row === undefined) throw new Error('the machine is gone');
  return machineView(row, NO_FACTS);
};

describe('a time that a supplier sets', () => {
  test('must be later than now, and is shown on the machine and with its offering until it is withdrawn', async () => {
    const nowMs = world.clock.now();
    const errors = [{ field: 'rentable_until', rule: 'must be later than now; null withdraws it' }];
    await expect(setUntil(nowMs)).rejects.toMatchObject({ code: 'validation_failed', details: { errors } });
    await setUntil(nowMs + 1);
    expect(await seen()).toMatchObject({ rentable_until: isoTime(nowMs + 1), on_offer: true });
    expect(await offers()).toMatchObject([{ rentable_until_ms: nowMs + 1 }]);
    await setUntil(null);
    expect(await seen()).toMatchObject({ rentable_until: null });
    expect(await offers()).toMatchObject([{ rentable_until_ms: null }]);
  });

  test('lets launches in that end by then, and no others', async () => {
    await setUntil(latestEnd(world.clock.now(), 1));
    expect(await placed(1)).toBe(made.machineId);
    expect(await placed(undefined)).toBeNull();
    await setUntil(latestEnd(world.clock.now(), 1) - 1);
    expect(await placed(1)).toBeNull();
    await setUntil(null);
    expect(await placed(undefined)).toBe(made.machineId);
  });

  test('that is set after the choice of a machine is seen when its GPUs are held', async () => {
    const untilMs = world.clock.now() + HOUR_MS;
    await setUntil(untilMs);
    const want = { machineIds: [made.machineId], gpuType: 'H100_SXM', count: 1, reservedBy: null, diskGb: 0 };
    const offerFor = async (heldBy: string, endsMs: number | null) =>
      (await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, heldBy, endsMs })))?.offer;
    expect(await offerFor('w-1', untilMs)).toMatchObject({ machine_id: made.machineId });
    await world.db.tx('release', (tx) => world.rooms.supply.release(tx, 'w-1'));
    expect(await offerFor('w-2', untilMs + 1)).toBeUndefined();
    expect(await offerFor('w-3', null)).toBeUndefined();
    for (const heldBy of ['w-2', 'w-3']) await world.db.tx('release', (tx) => world.rooms.supply.release(tx, heldBy));
  });

  test('makes the free GPUs unavailable to a launch without an end, in the catalogue too', async () => {
    expect(await offers()).toMatchObject([{ gpu_free: 2 }]);
    await setUntil(world.clock.now() + DAY_MS);
    expect(await offers()).toMatchObject([{ gpu_free: 0 }]);
    expect(await listedOfferings(world.db.read, { count: 10 }, { gpu_count: 1 })).toEqual([]);
  });

  test('leaves the free GPUs available to a launch that ends by then', async () => {
    const endsMs = latestEnd(world.clock.now(), 1);
    const offersUntil = (untilMs: number) =>
      listedOfferings(world.db.read, { count: 10 }, { gpu_count: 2, endsMs: untilMs });
    await setUntil(endsMs);
    expect(await offersUntil(endsMs)).toMatchObject([{ gpu_free: 2 }]);
    expect(await offersUntil(endsMs + 1)).toEqual([]);
    expect(await listedOfferings(world.db.read, { count: 10 }, { endsMs: endsMs + 1 })).toEqual([]);
  });

  test('is named to a launch that it excludes, pinned or not', async () => {
    await setUntil(world.clock.now() + DAY_MS);
    const [offering] = await offers();
    const reasonOf = async (request: object): Promise<string | null | undefined> => {
      const id = await world.launch(who, request);
      await world.drive();
      return (await findInstance(world.db.read, id))?.status_reason;
    };
    expect(await reasonOf({})).toContain('0 that are offered without an end (see auto_terminate_hours).');
    expect(await reasonOf({ auto_terminate_hours: 24 })).toContain('0 that are offered until the launch has ended');
    const untilText = isoTime(world.clock.now() + DAY_MS);
    expect(await reasonOf({ offering_id: offering?.id })).toContain(`can be rented until ${untilText}`);
    await setUntil(null);
    expect(await reasonOf({ gpu_count: 3 })).not.toContain('that are offered');
  });
});

describe('when the time has come', () => {
  test('the machine goes off offer and its rental runs on; a later time and none put it back', async () => {
    const id = await world.run(who);
    const untilMs = world.clock.now() + HOUR_MS;
    await setUntil(untilMs);
    await world.clock.advance(HOUR_MS - 1);
    await world.drive();
    expect(await seen()).toMatchObject({ on_offer: true });
    await world.clock.advance(1);
    await world.drive();
    const reason = `Its supplier offers it until ${isoTime(untilMs)}; a rental on it goes on until it ends.`;
    expect(await seen()).toMatchObject({ on_offer: false, status_reason: reason, status: 'listed' });
    expect(await offers()).toEqual([]);
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running' });
    expect(await world.rooms.supply.leaving.due(world.clock.now(), 10)).toEqual([]);
    await setUntil(untilMs + DAY_MS);
    expect(await seen()).toMatchObject({ on_offer: true });
    await world.clock.advance(DAY_MS);
    await world.drive();
    expect(await offers()).toEqual([]);
    await setUntil(null);
    expect(await offers()).toMatchObject([{ gpu_free: 1 }]);
  });

  test('another change of the machine does not put it back', async () => {
    await setUntil(world.clock.now() + HOUR_MS);
    await world.clock.advance(HOUR_MS);
    await world.drive();
    const { orgId, machineId } = made;
    await world.db.tx('name', (tx) => world.rooms.supply.change(tx, orgId, machineId, { name: 'rack 7' }));
    expect(await offers()).toEqual([]);
  });
});

describe('an instance there', () => {
  const shown = async (id: string) => (await world.rooms.instances.describe(world.db.read, who.orgId, [id])).get(id);
  const told = async (id: string): Promise<unknown[]> => {
    const events = await world.rooms.events.ofSubject(world.db.read, id, { count: 20 });
    return events.filter(({ type }) => type === 'instance.host_leaving').map(({ data }) => data['reason']);
  };

  test('shows the time, and each change is told to its organisation once', async () => {
    const id = await world.run(who);
    const untilMs = world.clock.now() + DAY_MS;
    expect(await shown(id)).toMatchObject({ host_rentable_until: null });
    await setUntil(untilMs);
    await setUntil(untilMs);
    expect(await shown(id)).toMatchObject({ host_rentable_until: isoTime(untilMs), status: 'running' });
    expect(await told(id)).toEqual([
      `The supplier takes the host off the market at ${isoTime(untilMs)}. The instance runs on until you end it, but move what you need before.`,
    ]);
    await setUntil(null);
    expect(await shown(id)).toMatchObject({ host_rentable_until: null });
    expect(await told(id)).toContain('The supplier offers the host without an end again.');
    await setUntil(untilMs);
    await world.end(who, id);
    expect(await shown(id)).toMatchObject({ host_rentable_until: null });
    await setUntil(null);
    expect(await told(id)).toHaveLength(3);
  });

  test('that is placed there later shows the time from the start', async () => {
    const untilMs = latestEnd(world.clock.now(), 1);
    await setUntil(untilMs);
    const id = await world.run(who, { auto_terminate_hours: 1 });
    expect(await shown(id)).toMatchObject({ host_rentable_until: isoTime(untilMs) });
    expect(await told(id)).toEqual([]);
  });
});

describe('a contract', () => {
  async function reserve(days: number, renewal: 'none' | 'auto_renew' = 'none'): Promise<string> {
    const { orgId } = await world.customer(0);
    const made = await world.rooms.reservations.create({
      org_id: orgId,
      title: 'training',
      starts_at: isoTime(world.clock.now()),
      ends_at: isoTime(world.clock.now() + days * DAY_MS),
      renewal,
      commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' }],
    });
    return made.contract.id;
  }
  const slots = async (id: string): Promise<number> => (await slotsOf(world.db.read, id)).length;

  test('takes slots on a machine that stays until its end, and none on others; then it is refused if there are none', async () => {
    await setUntil(world.clock.now() + 2 * DAY_MS);
    const id = await reserve(2);
    expect(await slots(id)).toBe(1);
    await expect(reserve(2.001)).rejects.toMatchObject({ code: 'conflict' });
    await expect(reserve(1, 'auto_renew')).rejects.toMatchObject({ code: 'conflict' });
    // Its slots serve launches without an end too: they have been paid for.
    const holder = await world.rooms.reservations.show(id);
    const launched = await world.launch({ ...who, orgId: holder.contract.org_id }, { tier: 'reserved' });
    expect(await findInstance(world.db.read, launched)).toMatchObject({ machine_id: made.machineId });
  });

  test('that waits for GPUs gets none that come free on a machine that leaves before its end', async () => {
    const rented = await world.run(who, { gpu_count: 2 });
    const [endsFirst, renewed] = [await reserve(2), await reserve(2, 'auto_renew')];
    await setUntil(world.clock.now() + 2 * DAY_MS);
    await world.end(who, rented);
    expect([await slots(endsFirst), await slots(renewed)]).toEqual([1, 0]);
    expect(await world.rooms.supply.driver.due(world.clock.now(), 10)).toEqual([]);
    await setUntil(null);
    expect(await slots(renewed)).toBe(1);
  });

  test('that is extended waits for machines that stay until its new end', async () => {
    const rented = await world.run(who, { gpu_count: 2 });
    const id = await reserve(2);
    await world.rooms.reservations.extend(id, world.clock.now() + 4 * DAY_MS);
    await setUntil(world.clock.now() + 3 * DAY_MS);
    await world.end(who, rented);
    expect(await slots(id)).toBe(0);
    await setUntil(world.clock.now() + 4 * DAY_MS);
    expect(await slots(id)).toBe(1);
  });
});

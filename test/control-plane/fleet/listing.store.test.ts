// Listing: decisions of the operator and the supplier, and the rentals that a delisted machine still runs.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { slotsOf } from '../../../control-plane/fleet/supply/slots.ts';
import { findMachine, gpusOf, type MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { inventoryOf, linkHost, type MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

const DAY_MS = 86_400_000;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const statusOf = async (machineId: string): Promise<string | undefined> =>
  (await findMachine(world.db.read, machineId))?.status;
const delist = ({ orgId, machineId }: MadeMachine): Promise<string> =>
  world.db.tx('delist', (tx) => world.rooms.supply.delist(tx, orgId, machineId));
const relist = async ({ orgId, machineId }: MadeMachine): Promise<string> =>
  (await world.db.tx('relist', (tx) => world.rooms.supply.relist(tx, orgId, machineId))).status;
const change = ({ orgId, machineId }: MadeMachine, patch: Parameters<World['rooms']['supply']['change']>[3]) =>
  world.db.tx('change', (tx): Promise<MachineRow> => world.rooms.supply.change(tx, orgId, machineId, patch));
const offers = async (): Promise<number> => (await listedOfferings(world.db.read, { count: 10 })).length;

interface Rental {
  id: string;
  /** The customer deletes the instance. */
  ask(): Promise<unknown>;
  /** The host then reports that it has stopped it. */
  end(): Promise<void>;
}

async function rent(): Promise<Rental> {
  const who = await world.customer(100_000);
  const id = await world.run(who);
  const ask = (): Promise<unknown> => world.remove(who, id);
  return {
    id,
    ask,
    end: async () => {
      await ask();
      await world.observe(id, { phase: 'stopped' });
      await world.drive();
    },
  };
}

/** A contract for one GPU, from now on. */
async function reserve(): ReturnType<World['rooms']['reservations']['create']> {
  const { orgId } = await world.customer(100);
  const at = (days: number): string => new Date(world.clock.now() + days * DAY_MS).toISOString();
  return world.rooms.reservations.create({
    org_id: orgId,
    title: 'contract',
    starts_at: at(0),
    ends_at: at(2),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' }],
  });
}

describe('a machine that its supplier delists', () => {
  test('is delisted at once if it is idle, and leaves supply; a repeat gets the same answer', async () => {
    const made = await world.machine();
    expect(await delist(made)).toBe('delisted');
    expect(await offers()).toBe(0);
    expect(await delist(made)).toBe('delisted');
    expect(await world.journal(made.machineId)).toEqual([
      'machine.registered',
      'machine.enrolled',
      'machine.listed',
      'machine.delisted',
    ]);
  });

  test('drains if it is in use: its rental goes on and is paid, nothing new comes, and the end of the rental delists it', async () => {
    const made = await world.machine({ gpus: 2 });
    const { id, end } = await rent();
    expect(await delist(made)).toBe('draining');
    expect(await delist(made)).toBe('draining');
    expect(await offers()).toBe(0);
    const late = world.launch(await world.customer(100_000));
    await expect(late).rejects.toMatchObject({ code: 'image_unavailable' });
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running' });
    expect((await world.rooms.workloads.desired(made.machineId)).workloads).toMatchObject([{ desired: 'running' }]);
    await world.clock.advance(3_600_000);
    await end();
    expect(await statusOf(made.machineId)).toBe('delisted');
    const events = await world.journal(made.machineId);
    expect(events.slice(-2)).toEqual(['machine.draining', 'machine.delisted']);
  });

  test('keeps draining while one of two rentals is left, or while the host has not released a GPU', async () => {
    const made = await world.machine({ gpus: 2 });
    const [first, second] = [await rent(), await rent()];
    await delist(made);
    await first.end();
    expect(await statusOf(made.machineId)).toBe('draining');
    await second.ask();
    expect(await statusOf(made.machineId)).toBe('draining');
    await second.end();
    expect(await statusOf(made.machineId)).toBe('delisted');
  });

  test('is offered at once if it is listed again, even while it drains; listing a listed machine does nothing', async () => {
    const made = await world.machine({ gpus: 2 });
    expect(await relist(made)).toBe('listed');
    await delist(made);
    expect(await relist(made)).toBe('listed');
    expect(await offers()).toBe(1);
    const { end } = await rent();
    await delist(made);
    expect(await relist(made)).toBe('listed');
    await end();
    expect(await statusOf(made.machineId)).toBe('listed');
  });

  test('keeps its link, so that leftovers of its rentals are still removed', async () => {
    const made = await world.machine();
    const { id, end } = await rent();
    await delist(made);
    await end();
    expect((await world.rooms.workloads.desired(made.machineId)).workloads).toMatchObject([{ desired: 'removed' }]);
    await world.observe(id, { phase: 'removed' });
    expect((await world.rooms.workloads.desired(made.machineId)).workloads).toEqual([]);
  });

  test('keeps the slots of a contract, but nothing is launched on them; the operator can replace them', async () => {
    const made = await world.machine();
    const { contract } = await reserve();
    expect(await delist(made)).toBe('delisted');
    expect(await slotsOf(world.db.read, contract.id)).toMatchObject([{ slots: 1, free: 0, listed: false }]);
    const { machineId: other } = await world.machine();
    await world.rooms.reservations.reassign(contract.id);
    expect(await slotsOf(world.db.read, contract.id)).toMatchObject([{ machine_id: other, slots: 1, free: 1 }]);
  });

  test('is visible to its own supplier only', async () => {
    const [made, other] = [await world.machine(), await world.machine()];
    const foreign = { ...made, orgId: other.orgId };
    for (const act of [delist, relist, (it: MadeMachine) => change(it, { tier: 'spot' })]) {
      await expect(act(foreign)).rejects.toMatchObject({ code: 'not_found' });
    }
    expect(await statusOf(made.machineId)).toBe('listed');
  });
});

describe('a decision of the operator', () => {
  // Specification 3.4: Community machine status: suspended, by the operator, whatever its supplier does.
  test('outlasts a delisting: a machine that was suspended, delisted and listed again waits for approval', async () => {
    const made = await world.machine();
    await world.rooms.supply.suspend(made.machineId);
    expect(await relist(made)).toBe('suspended');
    expect(await delist(made)).toBe('delisted');
    expect(await relist(made)).toBe('pending_verification');
    expect(await offers()).toBe(0);
    await world.rooms.supply.approve(made.machineId);
    expect(await offers()).toBe(1);
  });

  test('does not bring back a delisted machine, and applies once its supplier lists it again', async () => {
    const made = await world.machine();
    const { supply } = world.rooms;
    await delist(made);
    await expect(supply.approve(made.machineId)).rejects.toThrow('The machine is delisted and approved already.');
    expect(await supply.suspend(made.machineId)).toMatchObject({ status: 'delisted', approved: false });
    await expect(supply.suspend(made.machineId)).rejects.toThrow('delisted and not approved already');
    expect(await supply.approve(made.machineId)).toMatchObject({ status: 'delisted', approved: true });
    expect(await offers()).toBe(0);
    expect(await relist(made)).toBe('listed');
  });

  test('to suspend a supplier covers all its machines, and running rentals go on', async () => {
    const made = await world.machine({ gpus: 2 });
    const { id } = await rent();
    const { supply } = world.rooms;
    expect(await supply.suspendSupplier(made.supplierId)).toMatchObject({ status: 'suspended' });
    expect([await offers(), await statusOf(made.machineId)]).toEqual([0, 'listed']);
    expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running' });
    await expect(supply.suspendSupplier(made.supplierId)).rejects.toThrow('The supplier is suspended already.');
    await linkHost(world, made.machineId);
    expect(await offers()).toBe(0);
    expect(await supply.resumeSupplier(made.supplierId)).toMatchObject({ status: 'active' });
    expect(await offers()).toBe(1);
    await expect(supply.resumeSupplier('nobody')).rejects.toMatchObject({ code: 'not_found' });
  });
});

describe('a change', () => {
  test('of the price applies to later rentals', async () => {
    const made = await world.machine({ gpus: 2, dollars: 2 });
    const first = await rent();
    await change(made, { price_ucents_per_hour: 500_000_000n });
    const second = await rent();
    const prices = await Promise.all([first, second].map(({ id }) => findInstance(world.db.read, id)));
    expect(prices.map((row) => row?.price_ucents_per_hour)).toEqual([200_000_000n, 500_000_000n]);
  });

  test('of the region waits until no GPU is rented or reserved; the same region is no change', async () => {
    const made = await world.machine();
    const { end } = await rent();
    await expect(change(made, { region: 'us-east' })).rejects.toMatchObject({ code: 'conflict' });
    await change(made, { region: 'eu-west', price_ucents_per_hour: 1n });
    await end();
    expect((await change(made, { region: 'us-east' })).region).toBe('us-east');
    expect(await listedOfferings(world.db.read, { count: 10 })).toMatchObject([{ region: 'us-east' }]);
  });

  test('to the tier spot waits until no GPU is reserved, because a contract could not use it then', async () => {
    const made = await world.machine();
    const { contract } = await reserve();
    await expect(change(made, { tier: 'spot' })).rejects.toMatchObject({ code: 'conflict' });
    await change(made, { tier: 'on_demand', price_ucents_per_hour: 1n });
    expect(await slotsOf(world.db.read, contract.id)).toMatchObject([{ slots: 1, free: 1 }]);
    await world.clock.advance(2 * DAY_MS);
    await world.drive();
    expect(await change(made, { tier: 'spot' })).toMatchObject({ tier: 'spot' });
    // A rental does not end with the tier.
    await change(made, { tier: 'on_demand' });
    const { end } = await rent();
    expect(await change(made, { tier: 'spot' })).toMatchObject({ tier: 'spot' });
    await end();
  });

  // Specification 2.17: CommunityMachine: tier becomes the tier of its offerings.
  test('of the tier takes it off the on-demand market, and back', async () => {
    const made = await world.machine();
    await change(made, { tier: 'spot' });
    expect(await offers()).toBe(0);
    await change(made, { tier: 'on_demand' });
    expect(await offers()).toBe(1);
  });
});

test('a delisted machine may get another host, which needs a new approval and new trust; a listed one may not', async () => {
  const made = await world.machine();
  const { supply } = world.rooms;
  const isTrusted = async (): Promise<boolean | undefined> =>
    (await findMachine(world.db.read, made.machineId))?.trusted;
  await supply.setTrusted(made.machineId, true);
  expect(await isTrusted()).toBe(true);
  const token = async (): Promise<string> =>
    (await world.db.tx('token', (tx) => supply.reissueToken(tx, made.orgId, made.machineId))).token;
  const host = { public_key: 'n'.repeat(43), inventory: inventoryOf(1, () => 'new') };
  await expect(token()).rejects.toThrow('To give it another host, delist it first.');
  await delist(made);
  const spare = await token();
  await relist(made);
  await expect(supply.enroll({ ...host, token: spare })).rejects.toMatchObject({ code: 'conflict' });
  await delist(made);
  expect(await supply.enroll({ ...host, token: spare })).toEqual({ machineId: made.machineId });
  expect((await gpusOf(world.db.read, made.machineId)).map((gpu) => gpu.gpu_uuid)).toEqual(['GPU-new']);
  expect(await relist(made)).toBe('pending_verification');
  expect(await isTrusted()).toBe(false);
});

test('the token of an earlier host does not bring it back, and a repeat of an enrolment stores no GPUs', async () => {
  const { supply } = world.rooms;
  const made = await world.machine();
  const token = async (): Promise<string> =>
    (await world.db.tx('token', (tx) => supply.reissueToken(tx, made.orgId, made.machineId))).token;
  const enroll = (name: string, used: string, gpu = name): Promise<unknown> =>
    supply.enroll({ token: used, public_key: name.padEnd(43, 'n'), inventory: inventoryOf(1, () => gpu) });
  const gpus = async (): Promise<string[]> => (await gpusOf(world.db.read, made.machineId)).map((gpu) => gpu.gpu_uuid);
  await delist(made);
  const first = await token();
  await enroll('first', first);
  const second = await token();
  await enroll('second', second);
  await expect(enroll('first', first)).rejects.toMatchObject({ code: 'enrollment_token_used' });
  // Nobody has proven the key: a repeat only repeats the answer.
  expect(await enroll('second', second, 'invented')).toEqual({ machineId: made.machineId });
  expect(await gpus()).toEqual(['GPU-second']);
  // The first host comes back with a new token.
  await enroll('first', await token());
  expect(await gpus()).toEqual(['GPU-first']);
});

test('a machine that is accused loses its trust, and a new approval does not bring it back', async () => {
  const made = await world.machine();
  const { supply } = world.rooms;
  await supply.setTrusted(made.machineId, true);
  await world.db.tx('accuse', (tx) => supply.accuse(tx, made.machineId, 'it gives wrong answers'));
  expect(await supply.approve(made.machineId)).toMatchObject({ trusted: false, inventory_fault: null });
  await expect(supply.setTrusted('nobody', true)).rejects.toMatchObject({ code: 'not_found' });
});

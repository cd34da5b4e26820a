// An instance has a broken GPU, and somebody sets the wall clock: its host has half an hour that passes, not one that the clock shows.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { GRACE_MS } from '../../../shared/limits.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** Time passes in a process whose engine and loop of beats run. */
async function pass(ms: number): Promise<void> {
  const beats = brought(world.brings(), 'loops').find(({ name }) => name === 'own-outages');
  for (let passedMs = 0; passedMs < ms; passedMs += 30_000) {
    await beats?.run(new AbortController().signal);
    await world.drive();
    await world.clock.advance(30_000);
  }
  await world.drive();
}

/** An instance at $1 an hour that was charged for one minute, and whose only GPU then broke. */
async function broken(): Promise<{ id: string; orgId: string }> {
  const { machineId } = await world.machine({ dollars: 1, gpus: 1 });
  const who = await world.customer(10_000);
  const id = await world.run(who);
  await pass(MINUTE_MS);
  const inventory = (await findMachine(world.db.read, machineId))?.inventory;
  if (inventory == null) throw new Error('the machine has no inventory');
  const uuid = inventory.gpus[0]?.uuid ?? '';
  const gpuFaults = [{ uuid, severity: 'broken', detail: 'Xid 79' } as const];
  await world.rooms.supply.reportInventory(machineId, { ...inventory, gpu_faults: gpuFaults });
  await world.drive();
  return { id, orgId: who.orgId };
}

const status = async (id: string): Promise<string | undefined> => (await findInstance(world.db.read, id))?.status;

test.each([
  ['forward', [10 * HOUR_MS]],
  ['forward and back again', [10 * HOUR_MS, -10 * HOUR_MS]],
])('the instance ends after half an hour that has passed if the clock is set %s', async (_where, steps) => {
  const { id, orgId } = await broken();
  let leftMs = GRACE_MS;
  for (const stepMs of steps) {
    await pass(5 * MINUTE_MS);
    world.clock.step(stepMs);
    leftMs -= 5 * MINUTE_MS;
  }
  await pass(leftMs - MINUTE_MS);
  expect(await status(id)).toBe('running');
  await pass(MINUTE_MS);
  expect(await status(id)).toBe('error');
  const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  expect(10_000_000_000n - postedUcents).toBe(100_000_000n / 60n);
});

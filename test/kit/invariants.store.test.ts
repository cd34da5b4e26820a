// Breaks each invariant of a world once, and checks that the world's end names it.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from './world.ts';

let world: World;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(10_000);
});
afterEach(() => world.close());

const hold = (id: string, ucents: bigint): Promise<void> =>
  world.db.tx('test.hold', (tx) => world.rooms.ledger.setHold(tx, id, wallet(who.orgId), ucents));

test.each(['rental:nobody', 'inference:nobody', 'video:nobody', 'rent:nobody'])(
  'the hold %s has no owner, and a world does not close with it',
  async (id) => {
    await hold(id, 1n);
    const fault = `the hold ${id} has no owner that is under way`;
    await expect(world.verify()).rejects.toThrow(fault);
    await expect(world.close()).rejects.toThrow(fault);
    await hold(id, 0n);
    await world.verify();
  },
);

test('the holds of a launch, of a rental and of a test have an owner', async () => {
  await world.machine();
  const id = await world.launch(who);
  await hold('test:any', 1n);
  await world.verify();
  await world.start(id);
  await world.verify();
});

test('a host that was not sent its desired state is named until it was', async () => {
  const { machineId } = await world.machine();
  const id = await world.launch(who);
  await world.verify();
  const workloadId = (await findInstance(world.db.read, id))?.workload_id ?? '';
  await world.db.tx('test.remove', (tx) => world.rooms.workloads.remove(tx, workloadId));
  const fault = `the host of ${workloadId} was sent wanted until further notice, the desired state is removing until further notice`;
  await expect(world.verify()).rejects.toThrow(fault);
  world.rooms.link.push(machineId);
  await world.verify();
});

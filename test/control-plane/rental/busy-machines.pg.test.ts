// Launches on PostgreSQL while another transaction works on the cheapest machine.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

let world: World;
let who: WorldAccount;
let cheapest: string;
beforeEach(async () => {
  world = await openWorld();
  who = await world.customer(100_000);
  cheapest = (await world.machine({ gpus: 2, dollars: 2 })).machineId;
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** Another transaction holds the machine until the returned function is called. */
async function keepBusy(machineId: string): Promise<() => Promise<void>> {
  const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const work = world.db.tx('busy', async (tx) => {
    const held = await tx.lockFirst('machine', [machineId]);
    if (held !== machineId) throw new Error('the machine was busy already');
    begun.resolve();
    await end.promise;
  });
  await begun.promise;
  return () => (end.resolve(), work);
}

const Waiting = z.object({ count: int });

/** Resolves once a transaction waits for a lock. */
async function waitForLock(): Promise<void> {
  const waiting = sql`select count(*) as count from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`;
  while (((await world.db.read.one(Waiting, waiting))?.count ?? 0) === 0);
}

const machineOf = async (id: string): Promise<string | null | undefined> =>
  (await findInstance(world.db.read, id))?.machine_id;

test('a launch takes a free machine of the same price instead of waiting', async () => {
  const same = (await world.machine({ gpus: 2, dollars: 2 })).machineId;
  const letGo = await keepBusy(cheapest);
  expect(await machineOf(await world.launch(who))).toBe(same);
  await letGo();
});

test('a launch waits for the cheapest machine if the others cost more', async () => {
  await world.machine({ gpus: 2, dollars: 2.01 });
  const letGo = await keepBusy(cheapest);
  const launched = world.launch(who);
  const first = await Promise.race([launched.then(() => 'launched'), waitForLock().then(() => 'waits')]);
  await letGo();
  expect(first).toBe('waits');
  expect(await machineOf(await launched)).toBe(cheapest);
});

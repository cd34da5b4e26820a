// Reports of a host that come too late: about an earlier placement of an instance, or about one that does not exist. And reports about a rental
// that cannot be read.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { findInstance, type InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { NOTHING_OBSERVED, openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

test('a host that was given up changes nothing of an instance that another host has', async () => {
  for (let i = 0; i < 2; i += 1) await world.machine({ dollars: 2 });
  const who = await world.customer(100_000);
  const id = await world.launch(who);
  const row = async (): Promise<InstanceRow | undefined> => findInstance(world.db.read, id);
  const first = (await row())?.workload_id ?? '';
  await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
  await world.drive();
  const before = await row();
  expect(before?.workload_id).not.toBe(first);
  const late = { ...NOTHING_OBSERVED, workload_id: first, phase: 'running' as const, host_key: 'ssh-ed25519 OLD' };
  const exited = { ...late, main_exit: { code: 1, signal: null } as never };
  for (const report of [late, exited]) {
    await world.db.tx('late', (tx) => world.rooms.instances.noteObserved(tx, id, report));
    await world.db.tx('late', (tx) => world.rooms.instances.noteObserved(tx, 'i-none', report));
  }
  await world.rooms.instances.noteGpus([{ heldBy: first, fault: 'Xid 79' }]);
  expect(await row()).toEqual(before);
  expect((await world.rooms.endpoints.find(world.db.read, id))?.host_key).toBeNull();
});

test('a broken GPU of one rental is noted, although the other rental on its host cannot be read', async () => {
  await world.machine({ dollars: 2, gpus: 2 });
  const who = await world.customer(100_000);
  const [broken = '', other = ''] = [await world.run(who), await world.run(who)].toSorted();
  const row = (id: string): Promise<InstanceRow | undefined> => findInstance(world.db.read, id);
  const held = [(await row(broken))?.workload_id ?? '', (await row(other))?.workload_id ?? ''];
  const setTier = (tier: string): Promise<number> =>
    world.db.tx('test.tier', (tx) => tx.run(sql`update instances set tier = ${tier} where id = ${broken}`));
  await setTier('unknown');
  const reported = world.rooms.instances.noteGpus(held.map((heldBy) => ({ heldBy, fault: 'Xid 79' })));
  await expect(reported).rejects.toThrow(broken);
  expect((await row(other))?.gpu_fault).toBe('Xid 79');
  await setTier('on_demand');
});

// Suppliers are mailed when a machine on the market is offline for long, and when it is back. They do not learn whose rental it concerns.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { join, sql } from '../../../../control-plane/base/db/db.ts';
import { gpusOf } from '../../../../control-plane/fleet/supply/store.ts';
import { findInstance } from '../../../../control-plane/rental/instances/store.ts';
import { OFFLINE_MS, SPAN_MS } from '../../../../control-plane/rental/notices/limits.ts';
import { linkHost, loseHost, type MadeMachine } from '../../../kit/machines.ts';
import type { World } from '../../../kit/world.ts';
import { type Mailed, openMailed } from './mailed.ts';

let mailed: Mailed;
let world: World;
let machine: MadeMachine;
beforeEach(async () => {
  mailed = await openMailed();
  ({ world } = mailed);
  machine = await world.machine({ gpus: 2 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const look = (): Promise<void> => mailed.look(world);
const delist = (): Promise<unknown> =>
  world.db.tx('test.delist', (tx) => world.rooms.supply.delist(tx, machine.orgId, machine.machineId));

test('a machine that is offline for ten minutes is told once, and so is its return', async () => {
  const { sent } = mailed;
  const owner = await mailed.person(machine.orgId, 'owner');
  await mailed.person(machine.orgId, 'billing');
  await world.clock.advance(OFFLINE_MS);
  const lostMs = world.clock.now();
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS - 1);
  await look();
  await mailed.gather();
  expect(sent).toEqual([]);
  await Promise.all([look(), look()]);
  await look();
  await mailed.gather();
  expect(sent).toMatchObject([{ to: owner.email, subject: 'Trouble with your machines (api.example.com)' }]);
  const since = new Date(lostMs).toISOString().slice(0, 19).replace('T', ' ');
  expect(sent[0]?.text).toContain(`UTC: ${machine.machineId} is offline since ${since} UTC.\n`);
  expect(sent[0]?.text.match(/is offline since/g)).toHaveLength(1);
  expect(sent[0]?.text).toContain('https://api.example.com/console/machines');
  world = await world.restart();
  await world.clock.advance(2 * OFFLINE_MS);
  await look();
  await mailed.run(world);
  expect(sent).toHaveLength(1);
  await linkHost(world, machine.machineId);
  await Promise.all([look(), look()]);
  await look();
  await world.clock.advance(SPAN_MS);
  await mailed.run(world);
  expect(sent.slice(1)).toMatchObject([{ subject: 'Your machines are in order again (api.example.com)' }]);
  expect(sent[1]?.text).toContain(`UTC: ${machine.machineId} is online again.\n`);
  expect(sent[1]?.text.match(/is online again/g)).toHaveLength(1);
});

test('a machine that returns within ten minutes is not told, and neither is one that is not on the market', async () => {
  await mailed.person(machine.orgId, 'owner');
  await world.clock.advance(OFFLINE_MS);
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS - 1);
  await linkHost(world, machine.machineId);
  await world.clock.advance(1);
  await look();
  await delist();
  await loseHost(world, machine.machineId);
  await world.clock.advance(2 * OFFLINE_MS);
  await look();
  await mailed.gather();
  expect(mailed.asked).toEqual([]);
});

test('a machine that returns or is lost at the very moment is told as it is', async () => {
  await mailed.person(machine.orgId, 'owner');
  const lookWhile = (name: string, happens: () => Promise<void>): Promise<void> => {
    const tx: World['db']['tx'] = async (of, body) => {
      if (of === name) await happens();
      return world.db.tx(of, body);
    };
    return mailed.beside({ ...world.db, tx }).lookAtMachines(new AbortController().signal);
  };
  await world.clock.advance(OFFLINE_MS);
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS);
  await lookWhile('notices.machine_offline', () => linkHost(world, machine.machineId));
  await mailed.gather();
  expect(mailed.asked).toEqual([]);
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS);
  await look();
  await mailed.gather();
  expect(mailed.sent).toHaveLength(1);
  await linkHost(world, machine.machineId);
  await lookWhile('notices.machine_end', () => loseHost(world, machine.machineId));
  await world.clock.advance(SPAN_MS);
  await look();
  await mailed.gather();
  expect(mailed.sent).toHaveLength(1);
});

test('a machine that leaves the market while it is offline is told no more', async () => {
  await mailed.person(machine.orgId, 'owner');
  await world.clock.advance(OFFLINE_MS);
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS);
  await look();
  await mailed.gather();
  expect(mailed.sent).toHaveLength(1);
  await delist();
  await look();
  await linkHost(world, machine.machineId);
  await look();
  await world.clock.advance(SPAN_MS);
  await mailed.run();
  expect(mailed.sent).toHaveLength(1);
});

test('a machine that is delisted but still has a rental is told', async () => {
  await mailed.person(machine.orgId, 'owner');
  await world.db.tx('test.drain', (tx) =>
    tx.run(sql`update machines set status = 'draining' where id = ${machine.machineId}`),
  );
  await world.clock.advance(OFFLINE_MS);
  await loseHost(world, machine.machineId);
  await world.clock.advance(OFFLINE_MS);
  await look();
  await mailed.gather();
  expect(mailed.sent[0]?.text).toContain(`${machine.machineId} is offline since`);
});

test('of more machines than a statement reads, each is told', async () => {
  await mailed.person(machine.orgId, 'owner');
  const ids = Array.from({ length: 401 }, () => world.core.ids.uuid());
  const rows = ids.map((id) => sql`(${id})`);
  await world.db.tx('test.many', (tx) =>
    tx.run(
      sql`insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, last_heartbeat_ms,
            created_ms, updated_ms)
          select n.id, m.supplier_id, m.status, m.verification_status, m.region, m.price_ucents_per_hour, m.tier, ${world.clock.now()},
            m.created_ms, m.updated_ms
          from machines m, (with names (id) as (values ${join(rows)}) select id from names) n where m.id = ${machine.machineId}`,
    ),
  );
  await world.clock.advance(OFFLINE_MS);
  await look();
  await mailed.gather();
  expect(mailed.sent[0]?.text).toContain(`- and ${ids.length - 50} more\n`);
  await world.db.tx('test.return', (tx) => tx.run(sql`update machines set online = 1`));
  await look();
  await world.clock.advance(SPAN_MS);
  await mailed.run();
  expect(mailed.sent[1]?.text).toContain(`- and ${ids.length - 50} more\n`);
});

test('after an absence of the control plane, machines have ten minutes to return', async () => {
  await mailed.person(machine.orgId, 'owner');
  await world.rooms.supply.setAllOffline();
  await world.clock.advance(3 * OFFLINE_MS);
  world = await world.restart();
  await world.clock.advance(OFFLINE_MS - 1);
  await look();
  await mailed.gather();
  expect(mailed.asked).toEqual([]);
  await look();
  await world.clock.advance(60_000);
  await mailed.run(world);
  expect(mailed.sent).toHaveLength(1);
});

test('a broken GPU of a rental is told to the supplier, who does not learn whose it is', async () => {
  const who = await world.customer(10_000);
  const supplier = await mailed.person(machine.orgId, 'member');
  const id = await world.run(who, { name: 'train' });
  const { workload_id: heldBy } = (await findInstance(world.db.read, id)) ?? {};
  const gpu = (await gpusOf(world.db.read, machine.machineId)).find((each) => each.held_by === heldBy);
  const fault = { uuid: gpu?.gpu_uuid ?? '', severity: 'broken', detail: 'Xid 79' } as const;
  await world.rooms.supply.reportInventory(machine.machineId, { ...machine.inventory, gpu_faults: [fault] });
  await look();
  await mailed.gather();
  expect(mailed.sent.map(({ to }) => to)).toEqual([supplier.email]);
  const text = mailed.sent[0]?.text ?? '';
  expect(text).toContain(`A GPU of ${machine.machineId} is broken. Reason: "${fault.uuid}: Xid 79"\n`);
  expect(text).not.toMatch(/train|i-[a-z2-7]{20}/);
});

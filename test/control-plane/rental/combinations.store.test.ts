// Combinations of launch features: rules that hold for each feature alone hold for them together.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const GB = 1024 ** 3;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const instance = (id: string) => findInstance(world.db.read, id);
const iso = (offsetMs: number): string => new Date(world.clock.now() + offsetMs).toISOString();

async function fail(id: string): Promise<void> {
  await world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
  await world.drive();
}

test('a reserved launch with a disk and a limit is rescued on slots that honour the disk, at no price', async () => {
  const roomy = { diskEnforced: true, storageBytes: 1000 * GB };
  const fitting = [(await world.machine(roomy)).machineId, (await world.machine(roomy)).machineId];
  await world.machine({ diskEnforced: true, storageBytes: 400 * GB });
  await world.machine();
  const who = await world.customer(1);
  await world.rooms.reservations.create({
    org_id: who.orgId,
    title: 'training',
    starts_at: iso(0),
    ends_at: iso(30 * DAY_MS),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 4, region: 'eu-west' }],
  });
  const id = await world.launch(who, { tier: 'reserved', disk_gb: 500, auto_terminate_hours: 1 });
  const first = (await instance(id))?.machine_id;
  await fail(id);
  const rescued = await instance(id);
  expect(rescued).toMatchObject({ status: 'allocating', disk_gb: 500, price_ucents_per_hour: 0n });
  expect(new Set([first, rescued?.machine_id])).toEqual(new Set(fitting));
  await world.start(id);
  expect((await instance(id))?.auto_terminate_ms).toBe(world.clock.now() + HOUR_MS);
  await world.clock.advance(HOUR_MS);
  await world.drive();
  expect(await instance(id)).toMatchObject({ status: 'stopping' });
});

test('an instance is not charged past its runtime limit, however late its end is noticed', async () => {
  await world.machine({ dollars: 1 });
  const who = await world.customer(100_000);
  const id = await world.run(who, { auto_terminate_hours: 1 });
  await world.clock.advance(HOUR_MS + 45_000);
  await world.drive();
  expect(await instance(id)).toMatchObject({ status: 'stopping' });
  const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
  expect(postedUcents).toBe((100_000n - 100n) * UCENTS_PER_CENT);
});

test('a rental whose money and whose time end together ends once, for the reason that came first', async () => {
  await world.machine({ dollars: 1 });
  const who = await world.customer(100);
  const id = await world.run(who, { auto_terminate_hours: 1 });
  await world.clock.advance(HOUR_MS);
  for (const uncovered of await world.rooms.metering.tick(new AbortController().signal)) {
    await world.rooms.instances.stopUnpaid(uncovered);
  }
  await world.drive();
  expect(await instance(id)).toMatchObject({
    status: 'stopping',
    status_reason: 'The balance no longer covers this instance. Add funds and launch again.',
  });
  await world.observe(id, { phase: 'stopped' });
  await world.drive();
  expect((await world.journal(id)).filter((type) => type === 'instance.terminated')).toHaveLength(1);
  expect((await instance(id))?.status).toBe('terminated');
});

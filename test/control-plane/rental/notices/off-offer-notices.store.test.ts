// Suppliers are mailed when a connected machine is not on offer for long or has a broken GPU, also if nobody rents it, and when that is over.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { OFF_OFFER_MS, OFFLINE_MS, SPAN_MS } from '../../../../control-plane/rental/notices/limits.ts';
import type { GpuFault, Inventory } from '../../../../shared/protocol/inventory.ts';
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
  await mailed.person(machine.orgId, 'owner');
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const look = (): Promise<void> => mailed.look(world);

async function report(patch: Partial<Inventory>): Promise<void> {
  await world.rooms.supply.reportInventory(machine.machineId, { ...machine.inventory, ...patch });
}

/** What the mails have said since the last call, oldest first: the lines about machines, without their times. */
async function told(): Promise<string[]> {
  await world.clock.advance(SPAN_MS);
  await mailed.run(world);
  const lines = mailed.sent.splice(0).flatMap(({ text }) => text.match(/^- .*$/gm) ?? []);
  return lines.map((line) => line.replace(/^- .*? UTC: /, '').replaceAll(machine.machineId, 'M'));
}

const broken = (at: number, detail = 'Xid 79'): GpuFault => ({
  uuid: machine.inventory.gpus[at]?.uuid ?? '',
  severity: 'broken',
  detail,
});

test('a machine without a Docker Engine for ten minutes is told once, with the reason, and so is its return', async () => {
  await report({ engine_version: '' });
  await look();
  await world.clock.advance(OFF_OFFER_MS - 1);
  await look();
  expect(await told()).toEqual([]);
  await Promise.all([look(), look()]);
  await look();
  expect(await told()).toEqual([
    expect.stringMatching(
      /^Nothing of M is on offer since \S+ \S+ UTC\. Reason: "The Docker Engine of the host does not answer\."$/,
    ),
  ]);
  world = await world.restart();
  await linkHost(world, machine.machineId);
  await look();
  expect(await told()).toEqual([]);
  await report({});
  await Promise.all([look(), look()]);
  await look();
  expect(await told()).toEqual(['M is on offer again.']);
});

test('a machine that is back on offer within ten minutes is not told', async () => {
  await report({ engine_version: '' });
  await look();
  await report({});
  await world.clock.advance(OFF_OFFER_MS);
  await look();
  await report({ engine_version: '' });
  await look();
  await world.clock.advance(OFF_OFFER_MS - 1);
  await look();
  expect(await told()).toEqual([]);
});

test('a machine that was offline in between has ten minutes again', async () => {
  await report({ engine_version: '' });
  await look();
  await loseHost(world, machine.machineId);
  await look();
  await world.clock.advance(OFF_OFFER_MS - 1);
  await linkHost(world, machine.machineId);
  await look();
  await world.clock.advance(OFF_OFFER_MS - 1);
  await look();
  expect(await told()).toEqual([]);
  await look();
  expect(await told()).toHaveLength(1);
});

test('a machine that is fully rented, or off offer because its supplier wants that, is not told', async () => {
  await world.run(await world.customer(10_000), { gpu_count: 2 });
  const untilMs = world.clock.now() + OFF_OFFER_MS;
  await world.db.tx('test.until', async (tx) => {
    await tx.lock('machine', machine.machineId);
    await world.rooms.supply.change(tx, machine.orgId, machine.machineId, { rentable_until_ms: untilMs });
  });
  await look();
  await world.clock.advance(OFF_OFFER_MS);
  await world.drive();
  await look();
  await world.clock.advance(OFF_OFFER_MS);
  await look();
  expect(await told()).toEqual([]);
});

test('a machine that was told and is delisted, or goes offline, is told no return', async () => {
  await report({ engine_version: '' });
  await look();
  await world.clock.advance(OFF_OFFER_MS);
  await look();
  expect(await told()).toHaveLength(1);
  await loseHost(world, machine.machineId);
  await look();
  await world.clock.advance(OFFLINE_MS);
  await look();
  expect(await told()).toEqual([expect.stringMatching(/^M is offline since/)]);
  await linkHost(world, machine.machineId);
  await look();
  expect(await told()).toEqual(['M is online again.']);
  await world.db.tx('test.delist', (tx) => world.rooms.supply.delist(tx, machine.orgId, machine.machineId));
  await look();
  expect(await told()).toEqual([]);
});

test('a machine that the operator suspends is told, although nothing is wrong with it', async () => {
  await world.rooms.supply.suspend(machine.machineId);
  await look();
  await world.clock.advance(OFF_OFFER_MS);
  await look();
  expect(await told()).toEqual([expect.stringContaining('Reason: "The operator has suspended it."')]);
});

test('each broken GPU that nobody rents is told once, and its repair', async () => {
  await report({ gpu_faults: [broken(0)] });
  await Promise.all([look(), look()]);
  await report({ gpu_faults: [broken(0, 'Xid 79 again'), broken(1)] });
  await look();
  expect(await told()).toEqual([
    `A GPU of M is broken. Reason: "${broken(0).uuid}: Xid 79"`,
    `A GPU of M is broken. Reason: "${broken(1).uuid}: Xid 79"`,
  ]);
  await report({ gpu_faults: [broken(1)] });
  await look();
  await look();
  expect(await told()).toEqual([`The GPU "${broken(0).uuid}" of M works again.`]);
});

test('a GPU that its supplier keeps is not told, and one that was taken out is not told to work again', async () => {
  await report({ gpu_faults: [{ ...broken(0), severity: 'unfit' }] });
  await look();
  expect(await told()).toEqual([]);
  await report({ gpu_faults: [broken(1)] });
  await look();
  expect(await told()).toHaveLength(1);
  await report({ gpus: machine.inventory.gpus.slice(0, 1) });
  await look();
  expect(await told()).toEqual([]);
});

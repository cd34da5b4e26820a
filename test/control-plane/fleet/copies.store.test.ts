// A host whose disk was copied: the copy is detected, nothing new goes to either host, and running rentals go on.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openCloneTokens, type CloneTokens } from '../../../control-plane/fleet/link/clone-tokens.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/offerings.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { obstacleOf } from '../../../control-plane/fleet/supply/verdict.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

describe('a clone token', () => {
  const ID = 'm-1';
  let key = 'key';
  const open = (): CloneTokens => openCloneTokens({ ...world.core, machineKey: async () => key });

  test('is accepted if it is the newest that the host has confirmed, or a newer one', async () => {
    const cloneTokens = open();
    expect(await cloneTokens.show(ID, null)).toBe(true);
    const first = await cloneTokens.next(ID);
    expect(await cloneTokens.show(ID, null)).toBe(true);
    const second = await cloneTokens.next(ID);
    expect(await cloneTokens.show(ID, first)).toBe(true);
    await cloneTokens.kept(ID, second);
    expect(await cloneTokens.show(ID, second)).toBe(true);
  });

  test.each([
    ['the one before', (values: string[]) => values[0] ?? ''],
    ['none', () => null],
    ['something of its own', () => 'x'.repeat(60)],
  ])('that is %s exposes a copy, each time that it is shown', async (_what, shown) => {
    const cloneTokens = open();
    await cloneTokens.show(ID, null);
    const values = [await cloneTokens.next(ID), await cloneTokens.next(ID)];
    for (const value of values) await cloneTokens.kept(ID, value);
    for (let i = 0; i < 2; i += 1) expect(await cloneTokens.show(ID, shown(values))).toBe(false);
    expect(await cloneTokens.show(ID, values[1] ?? '')).toBe(true);
  });

  test('of another machine is refused', async () => {
    const cloneTokens = open();
    for (const id of [ID, 'm-2']) await cloneTokens.show(id, null);
    await cloneTokens.kept(ID, await cloneTokens.next(ID));
    expect(await cloneTokens.show(ID, await cloneTokens.next('m-2'))).toBe(false);
  });

  test('that is newer than a restored database knows is accepted, and counting continues from it', async () => {
    const cloneTokens = open();
    await cloneTokens.show(ID, null);
    let ahead = '';
    for (let i = 0; i < 3; i += 1) ahead = await cloneTokens.next(ID);
    await world.db.tx('test.restore', (tx) => tx.run(sql`update clone_tokens set issued = 1, kept = 1`));
    expect(await cloneTokens.show(ID, ahead)).toBe(true);
    await cloneTokens.kept(ID, await cloneTokens.next(ID));
    expect(await cloneTokens.show(ID, ahead)).toBe(false);
  });

  test('starts anew for a host that has enrolled again', async () => {
    const cloneTokens = open();
    await cloneTokens.show(ID, null);
    await cloneTokens.kept(ID, await cloneTokens.next(ID));
    key = 'another';
    expect(await cloneTokens.show(ID, null)).toBe(true);
  });
});

const offered = async (): Promise<number> => (await listedOfferings(world.db.read, { count: 10 })).length;

test('a copied machine is offered no longer until the operator says that one is left', async () => {
  const { machineId } = await world.machine();
  const { supply } = world.rooms;
  for (let i = 0; i < 2; i += 1) await supply.setCopied(machineId, true);
  expect(await offered()).toBe(0);
  const machine = await findMachine(world.db.read, machineId);
  expect(machine && obstacleOf(machine)).toContain('Two hosts run with the identity of this machine');
  await supply.setCopied(machineId, false);
  expect(await offered()).toBe(1);
  await expect(supply.setCopied(machineId, false)).rejects.toMatchObject({ code: 'conflict' });
  await expect(supply.setCopied('m-nobody', true)).rejects.toMatchObject({ code: 'not_found' });
});

test.each(['missing', 'failed', 'stopped'] as const)('its rental goes on if one host reports %s', async (phase) => {
  const made = await world.machine();
  const id = await world.run(await world.customer(1_000));
  await world.rooms.supply.setCopied(made.machineId, true);
  await world.rooms.supply.reportInventory(made.machineId, { ...made.inventory, gpus: [] });
  await world.observe(id, { phase });
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'running', gpu_fault: null });
  await world.rooms.supply.setCopied(made.machineId, false);
  await world.observe(id, { phase: 'missing' });
  await world.drive();
  expect((await findInstance(world.db.read, id))?.status).toBe('stopped');
});

test('its GPUs are not released if a host that never had the container reports it gone', async () => {
  const made = await world.machine();
  const who = await world.customer(1_000);
  const id = await world.run(who);
  await world.rooms.supply.setCopied(made.machineId, true);
  await world.remove(who, id);
  await world.observe(id, { phase: 'removed' });
  const held = async (): Promise<(string | null)[]> =>
    (await gpusOf(world.db.read, made.machineId)).map((gpu) => gpu.held_by);
  expect(await held()).not.toEqual([null]);
  await world.rooms.supply.setCopied(made.machineId, false);
  await world.observe(id, { phase: 'removed' });
  expect(await held()).toEqual([null]);
});

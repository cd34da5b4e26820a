// A host whose disk was copied: the copy is detected, nothing new goes to either host, and running rentals go on.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openCloneTokens, type CloneTokens } from '../../../control-plane/fleet/link/clone-tokens.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findMachine, gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { obstacleOf } from '../../../control-plane/fleet/supply/checks.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
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
  const open = (): CloneTokens => openCloneTokens(world.core);
  const show = async (
    tokens: CloneTokens,
    token: string | null,
    { id = ID, publicKey = 'key' }: { id?: string; publicKey?: string } = {},
  ): Promise<boolean> => {
    const verdict = await world.db.tx('test.show', (tx) => tokens.show(tx, id, { publicKey, token }));
    verdict.take();
    return verdict.isGenuine;
  };

  test('is accepted if it is the newest that the host has confirmed, or a newer one', async () => {
    const cloneTokens = open();
    expect(await show(cloneTokens, null)).toBe(true);
    const first = await cloneTokens.next(ID);
    expect(await show(cloneTokens, null)).toBe(true);
    const second = await cloneTokens.next(ID);
    expect(await show(cloneTokens, first)).toBe(true);
    cloneTokens.kept(ID, second);
    expect(await show(cloneTokens, second)).toBe(true);
  });

  test.each([
    ['the one before', (values: string[]) => values[0] ?? ''],
    ['none', () => null],
    ['something of its own', () => 'x'.repeat(60)],
  ])('that is %s exposes a copy, each time that it is shown', async (_what, choose) => {
    const cloneTokens = open();
    await show(cloneTokens, null);
    const values = [await cloneTokens.next(ID), await cloneTokens.next(ID)];
    for (const value of values) cloneTokens.kept(ID, value);
    for (let i = 0; i < 2; i += 1) expect(await show(cloneTokens, choose(values))).toBe(false);
    expect(await show(cloneTokens, values[1] ?? '')).toBe(true);
  });

  test('of another machine is refused', async () => {
    const cloneTokens = open();
    for (const id of [ID, 'm-2']) await show(cloneTokens, null, { id });
    cloneTokens.kept(ID, await cloneTokens.next(ID));
    expect(await show(cloneTokens, await cloneTokens.next('m-2'))).toBe(false);
  });

  test('that is newer than a restored database knows is accepted, and counting continues from it', async () => {
    const cloneTokens = open();
    await show(cloneTokens, null);
    let ahead = '';
    for (let i = 0; i < 3; i += 1) ahead = await cloneTokens.next(ID);
    await world.db.tx('test.restore', (tx) => tx.run(sql`update clone_tokens set issued = 1, kept = 1`));
    expect(await show(cloneTokens, ahead)).toBe(true);
    cloneTokens.kept(ID, await cloneTokens.next(ID));
    expect(await show(cloneTokens, ahead)).toBe(false);
  });

  test('starts anew for a host that has enrolled again', async () => {
    const cloneTokens = open();
    await show(cloneTokens, null);
    cloneTokens.kept(ID, await cloneTokens.next(ID));
    expect(await show(cloneTokens, null, { publicKey: 'another' })).toBe(true);
  });

  test('that is older than one that this process saw confirmed exposes a copy, although the row is not written yet', async () => {
    const cloneTokens = open();
    await show(cloneTokens, null);
    const [old, newest] = [await cloneTokens.next(ID), await cloneTokens.next(ID)];
    cloneTokens.kept(ID, newest);
    expect(await show(cloneTokens, old)).toBe(false);
  });

  test('that was copied before the last write exposes a copy in the next process, also if the link has ended', async () => {
    const before = open();
    await show(before, null);
    const [first, second] = [await before.next(ID), await before.next(ID)];
    before.kept(ID, first);
    await before.store();
    before.kept(ID, second);
    expect(await show(open(), null)).toBe(false);
    await before.leave(ID);
    expect(await show(open(), first)).toBe(false);
  });

  test('is found out at the next turn if a crash lost the confirmation of a newer one', async () => {
    const before = open();
    await show(before, null);
    const [old, newest] = [await before.next(ID), await before.next(ID)];
    for (const value of [old, newest]) before.kept(ID, value);
    const after = open();
    expect(await show(after, old)).toBe(true);
    after.kept(ID, await after.next(ID));
    expect(await show(after, newest)).toBe(false);
  });

  test('is issued without a write while reserved numbers are left, and never twice', async () => {
    const tokens = [open(), open()];
    const issued = new Set<string>();
    const numbers = async (): Promise<number> => {
      const row = await world.db.read.one(z.object({ issued: int }), sql`select issued from clone_tokens`);
      return row?.issued ?? 0;
    };
    for (const each of tokens) await show(each, null);
    const reserved = await numbers();
    const place = `cloneToken/${ID}`;
    for (let i = 0; i < 50; i += 1)
      for (const each of tokens) issued.add(world.core.sealing.open(place, await each.next(ID)));
    expect(await numbers()).toBe(reserved);
    for (let i = 0; i < 50; i += 1)
      for (const each of tokens) issued.add(world.core.sealing.open(place, await each.next(ID)));
    expect(issued.size).toBe(200);
    expect(Math.max(...[...issued].map(Number))).toBeLessThanOrEqual(await numbers());
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

// A restart of the control plane takes no offering off the market. A machine that does not return is marked offline after its time.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openLinkRecords, openPresence, RETURN_MS, STORE_MS } from '../../../control-plane/fleet/link/presence.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { findListed } from '../../../control-plane/fleet/supply/offerings.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { createLog } from '../../../shared/log.ts';
import type { HelloMessage } from '../../../shared/protocol/link.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const offered = async (): Promise<string[]> => {
  const listed = await listedOfferings(world.db.read, { count: 10 });
  return Promise.all(listed.map(async ({ id }) => (await findListed(world.db.read, id))?.machine_id ?? ''));
};

test('machines stay on offer until the time to reconnect is over, then only those with a link do', async () => {
  const [back, gone] = [(await world.machine()).machineId, (await world.machine()).machineId];
  const links = new Set<string>();
  // A process that has just started does this.
  const { run } = openPresence({
    ...world,
    supply: world.rooms.supply,
    cloneTokens: world.rooms.cloneTokens,
    link: { isUp: (machineId) => links.has(machineId) },
    log: createLog('test', 'silent'),
  });
  await run();
  await world.clock.advance(RETURN_MS - 1);
  await run();
  expect((await offered()).toSorted()).toEqual([back, gone].toSorted());
  links.add(back);
  await world.clock.advance(1);
  await run();
  expect(await offered()).toEqual([back]);
  expect(await world.rooms.supply.onlineMachineIds('', 10)).toEqual([back]);
});

test('a machine that cannot be marked offline keeps no other one on offer', async () => {
  const [broken, gone] = [(await world.machine()).machineId, (await world.machine()).machineId].toSorted();
  const { supply } = world.rooms;
  const loseLink: typeof supply.loseLink = async (id, isUp) => {
    if (id === broken) throw new Error('its row is broken');
    return supply.loseLink(id, isUp);
  };
  const { run } = openPresence({
    ...world,
    supply: { ...supply, loseLink },
    cloneTokens: world.rooms.cloneTokens,
    link: { isUp: () => false },
    log: createLog('test', 'silent'),
  });
  await world.clock.advance(RETURN_MS);
  await expect(run()).rejects.toThrow(`the machine ${broken} could not be marked offline`);
  expect(await offered()).not.toContain(gone);
});

test('a secondary that becomes the primary gives machines the same time, however long it has run', async () => {
  const { machineId } = await world.machine();
  const { begin, run } = openPresence({
    ...world,
    supply: world.rooms.supply,
    cloneTokens: world.rooms.cloneTokens,
    link: { isUp: () => false },
    log: createLog('test', 'silent'),
  });
  await world.clock.advance(STORE_MS);
  begin();
  await world.clock.advance(RETURN_MS - 1);
  await run();
  expect(await offered()).toEqual([machineId]);
  await world.clock.advance(1);
  await run();
  expect(await offered()).toEqual([]);
});

test('the heartbeat of a machine with a link is updated about once in ten minutes', async () => {
  const { machineId } = await world.machine();
  const { run } = openPresence({
    ...world,
    supply: world.rooms.supply,
    cloneTokens: world.rooms.cloneTokens,
    link: { isUp: () => true },
    log: createLog('test', 'silent'),
  });
  await world.clock.advance(RETURN_MS);
  for (let round = 0; round < 50; round += 1) {
    await run();
    await world.clock.advance(15_000);
  }
  const heardMs = (await findMachine(world.db.read, machineId))?.last_heartbeat_ms ?? 0;
  expect(world.clock.now() - heardMs).toBeLessThanOrEqual(STORE_MS + 15_000);
});

test('a fleet of several pages is walked whole, and each machine is recorded once', async () => {
  const ids = Array.from({ length: 450 }, (_, i) => `m-${i}`).toSorted();
  const [offline, noted]: [string[], string[]] = [[], []];
  const { run } = openPresence({
    ...world,
    supply: {
      onlineMachineIds: async (afterId, limit) => ids.filter((id) => id > afterId).slice(0, limit),
      loseLink: async (id) => offline.push(id) > 0,
      noteHeartbeats: async (some) => void noted.push(...some),
    },
    cloneTokens: world.rooms.cloneTokens,
    link: { isUp: (id) => !id.endsWith('7') },
    log: createLog('test', 'silent'),
  });
  await world.clock.advance(STORE_MS);
  await run();
  expect(offline).toEqual(ids.filter((id) => id.endsWith('7')));
  expect(noted).toEqual(ids.filter((id) => !id.endsWith('7')));
});

describe('a machine whose link returns while its loss is handled', () => {
  let made: { lost: string; back: string };
  let links: Set<string>;
  const isUp = (machineId: string): boolean => links.has(machineId);
  beforeEach(async () => {
    const [lost = '', back = ''] = [(await world.machine()).machineId, (await world.machine()).machineId].toSorted();
    made = { lost, back };
    links = new Set();
  });

  test('stays on offer if it links after the loop has looked', async () => {
    const { supply, cloneTokens } = world.rooms;
    const { run } = openPresence({
      ...world,
      supply: {
        ...supply,
        // The hello finds the machine online, so it writes nothing.
        loseLink: (id, hasLink) => {
          if (id === made.back) links.add(id);
          return supply.loseLink(id, hasLink);
        },
      },
      cloneTokens,
      link: { isUp },
      log: createLog('test', 'silent'),
    });
    await world.clock.advance(RETURN_MS);
    await run();
    expect(await offered()).toEqual([made.back]);
  });

  test('stays on offer and linked if it links before the end of its old link is stored', async () => {
    const { supply } = world.rooms;
    const records = openLinkRecords(world);
    const hello = { boot_id: 'b', inventory: { agent_version: '1' } } as HelloMessage;
    const ended = (): Promise<{ n: number } | undefined> =>
      world.db.read.one(
        z.object({ n: int }),
        sql`select count(*) as n from agent_links where disconnected_ms is not null`,
      );
    await world.db.tx('test.hello', (tx) => records.up(tx, made.back, hello, '192.0.2.1'));
    links.add(made.back);
    expect(await supply.loseLink(made.back, isUp)).toBe(false);
    await records.down(made.back, isUp);
    expect((await offered()).toSorted()).toEqual([made.lost, made.back]);
    expect(await ended()).toEqual({ n: 0 });
    links.delete(made.back);
    expect(await supply.loseLink(made.back, isUp)).toBe(true);
    await records.down(made.back, isUp);
    expect(await offered()).toEqual([made.lost]);
    expect(await ended()).toEqual({ n: 1 });
  });
});

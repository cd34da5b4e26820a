// A restart of the control plane takes no offering off the market. A machine that does not return is marked offline after its time.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openPresence, RETURN_MS, STORE_MS } from '../../../control-plane/fleet/link/presence.ts';
import { findListed, listedOfferings } from '../../../control-plane/fleet/supply/offerings.ts';
import { findMachine } from '../../../control-plane/fleet/supply/store.ts';
import { createLog } from '../../../shared/log.ts';
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
      setOnline: async (id) => void offline.push(id),
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

// Launches over an outage of the control plane itself: hosts have time to reconnect before anything is judged.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const instance = (id: string) => findInstance(world.db.read, id);
const status = async (id: string): Promise<string | undefined> => (await instance(id))?.status;

describe('a launch that was placed before a restart of the control plane', () => {
  test('whose host did not acknowledge it in time is given up two minutes after the start at the earliest', async () => {
    await world.machine();
    const id = await world.launch(await world.customer(100_000));
    await world.rooms.ownOutages.beat();
    await world.clock.advance(61_000);
    world = await world.restart();
    await world.drive();
    await world.clock.advance(119_999);
    await world.drive();
    expect(await status(id)).toBe('allocating');
    await world.observe(id, { phase: 'pulling' });
    await world.drive();
    expect(await status(id)).toBe('starting');
  });

  test('that its host fails goes to another host once that one is back', async () => {
    const made = [await world.machine(), await world.machine()];
    const id = await world.launch(await world.customer(100_000));
    const first = (await instance(id))?.machine_id ?? '';
    const [other = ''] = made.map(({ machineId }) => machineId).filter((machineId) => machineId !== first);
    await world.clock.advance(1);
    world = await world.restart();
    await loseHost(world, other);
    await world.observe(id, { phase: 'failed', failure_code: 'start_failed' });
    await world.drive();
    expect((await instance(id))?.machine_id).toBe(first);
    // The old host is not told to remove anything yet, so that it goes on to report why it has failed.
    expect((await world.rooms.workloads.desired(first)).workloads).toMatchObject([{ desired: 'running' }]);
    await linkHost(world, other);
    await world.clock.advance(5_000);
    await world.drive();
    expect(await instance(id)).toMatchObject({ status: 'allocating', machine_id: other });
  });
});

// A launch that finds no host when it is accepted, and one when the engine first looks for it.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

let world: World;
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** A launch that nothing fits when it is accepted. A machine that fits is on offer before the engine looks. */
async function placedLate(who: WorldAccount, dollars: number): Promise<string> {
  const id = await world.launch(who);
  expect(await findInstance(world.db.read, id)).toMatchObject({ status: 'allocating', machine_id: null });
  await world.machine({ dollars });
  return id;
}

test('fails with the reason if all public ports are in use then, and holds nothing', async () => {
  world = await openWorld(1, { settings: { sshPorts: { first: 30000, last: 30000 } } });
  await world.machine({ dollars: 3.6 });
  const who = await world.customer(10_000);
  await world.run(who);
  const id = await placedLate(who, 3.6);
  await world.drive();
  expect(await findInstance(world.db.read, id)).toMatchObject({
    status: 'error',
    status_reason: 'All public ports are in use. Try again in a few minutes.',
  });
});

describe('with a balance of which running instances hold a part for later hours', () => {
  let who: WorldAccount;
  beforeEach(async () => {
    world = await openWorld();
    await world.machine({ dollars: 3.6 });
    who = await world.customer(1_500);
    await world.run(who);
    await world.clock.advance(6 * 60_000);
    // The balance lasts for more than four hours, so this holds the money of more than an hour.
    await world.rooms.metering.tick(new AbortController().signal);
  });

  test('gets that part if it needs it now', async () => {
    // The hold of ten minutes is 12.50 dollars.
    const id = await placedLate(who, 75);
    await world.drive();
    expect(await findInstance(world.db.read, id)).toMatchObject({
      status: 'allocating',
      machine_id: expect.any(String),
      status_reason: null,
    });
  });

  test('fails with the reason if that part is not enough, and holds nothing', async () => {
    const id = await placedLate(who, 90);
    await world.drive();
    expect(await findInstance(world.db.read, id)).toMatchObject({
      status: 'error',
      status_reason: expect.stringMatching(
        /^This needs \$15\.00 and \$14\.04 is available\. \$0\.96 is held for other requests and rentals that are open\./,
      ),
    });
  });
});

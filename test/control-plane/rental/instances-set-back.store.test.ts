// Instances that wait for a time while the wall clock is set back: they wait as long as they would have, not until the clock has caught up.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { QUIET_AFTER_START_MS } from '../../../control-plane/rental/instances/quiet.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { STARTING_MS_MAX, STOPPING_MS_MAX } from '../../../shared/limits.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let world: World;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  await world.machine();
  who = await world.customer(100_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const status = async (id: string): Promise<string | undefined> => (await findInstance(world.db.read, id))?.status;
async function pass(ms: number): Promise<void> {
  await world.clock.advance(ms);
  await world.drive();
}
/** The engine has looked before, as it does each second. */
async function setBack(): Promise<void> {
  await world.drive();
  world.clock.step(-HOUR_MS);
  await world.drive();
}

test('a launch whose probe has failed is probed again a second later, and runs', async () => {
  const id = await world.launch(who);
  world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
  await world.start(id);
  expect(await status(id)).toBe('starting');
  await setBack();
  world.probeAnswers.delete(id);
  await pass(1_000);
  expect(await status(id)).toBe('running');
});

test('a probe that was good before counts no more', async () => {
  const id = await world.launch(who);
  await pass(1);
  await world.observe(id, { phase: 'starting', host_key: 'ssh-ed25519 AAAA' });
  await world.drive();
  await setBack();
  world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: closed' });
  await pass(MINUTE_MS);
  await world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  await world.drive();
  expect(await status(id)).toBe('starting');
});

test('a launch that its host does not acknowledge fails after a minute', async () => {
  const id = await world.launch(who);
  await setBack();
  await pass(MINUTE_MS - 1);
  expect(await status(id)).toBe('allocating');
  await pass(1);
  expect(await status(id)).toBe('error');
});

test('a launch that does not start fails when its time to start is over', async () => {
  const id = await world.launch(who);
  await world.observe(id, { phase: 'pulling' });
  await world.drive();
  await setBack();
  await pass(STARTING_MS_MAX - 1);
  expect(await status(id)).toBe('starting');
  await pass(1);
  expect(await status(id)).toBe('error');
});

test('an instance whose host does not confirm its end is terminated after five minutes', async () => {
  const id = await world.run(who);
  await world.remove(who, id);
  await world.drive();
  await setBack();
  await pass(STOPPING_MS_MAX - 1);
  expect(await status(id)).toBe('stopping');
  await pass(1);
  expect(await status(id)).toBe('terminated');
});

test('a launch waits no longer if another process takes over, whose clock is behind', async () => {
  const id = await world.launch(who);
  await world.clock.advance(1_000);
  await world.rooms.ownOutages.beat();
  world.clock.step(-HOUR_MS);
  world = await world.restart();
  await world.drive();
  await pass(QUIET_AFTER_START_MS - 1);
  expect(await status(id)).toBe('allocating');
  await pass(1);
  expect(await status(id)).toBe('error');
});

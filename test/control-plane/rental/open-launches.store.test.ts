// The limit on launches of one organisation in progress at once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openWorld, type World } from '../../kit/world.ts';

const MAX = 3;

let world: World;
beforeEach(async () => {
  world = await openWorld(1, { settings: { openLaunchesPerOrg: MAX } });
  await world.machine({ gpus: 8 });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

test('as many as the operator allows are accepted, one more is 429 and leaves nothing, and a place comes free', async () => {
  const who = await world.customer(1_000_000);
  const ids: string[] = [];
  for (let i = 0; i < MAX; i += 1) ids.push(await world.launch(who));
  const refused = world.launch(who);
  await expect(refused).rejects.toMatchObject({ code: 'rate_limit_exceeded', details: { retryAfterSeconds: 30 } });
  await expect(refused).rejects.toThrow('3 launches of this organisation are in progress already');

  // Others are not kept waiting by it.
  await world.launch(await world.customer(10_000));

  await world.observe(ids[0] ?? '', { phase: 'pulling' });
  await world.drive();
  await expect(world.launch(who)).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
  await world.start(ids[0] ?? '');
  await world.launch(who);
  await world.remove(who, ids[1] ?? '');
  await world.launch(who);
  await expect(world.launch(who)).rejects.toMatchObject({ code: 'rate_limit_exceeded' });
});

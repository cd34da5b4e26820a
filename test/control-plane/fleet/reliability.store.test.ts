// The numbers of a machine over 30 days: how long it was linked, how many launches it failed, how much of it was rented. They outlive every
// process, because all of them are rows.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { linkedByDay, reliabilityOf } from '../../../control-plane/fleet/supply/reliability.ts';
import { isoTime } from '../../../shared/clock.ts';
import { linkHost, loseHost, type MadeMachine } from '../../kit/machines.ts';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

let world: World;
let made: MadeMachine;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld();
  made = await world.machine({ gpus: 2 });
  who = await world.customer(10_000_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const numbers = async () => {
  const known = await reliabilityOf(world.db.read, [{ id: made.machineId, gpus: 2 }], world.clock.now());
  return known.get(made.machineId);
};
const link = (isUp: boolean): Promise<void> => (isUp ? linkHost : loseHost)(world, made.machineId);

describe('a time by days', () => {
  test.each([
    [0, 0, []],
    [10, 20, [[0, 10]]],
    [0, DAY_MS, [[0, DAY_MS]]],
    [
      DAY_MS - 1,
      DAY_MS + 1,
      [
        [0, 1],
        [DAY_MS, 1],
      ],
    ],
    [
      DAY_MS / 2,
      2 * DAY_MS + 5,
      [
        [0, DAY_MS / 2],
        [DAY_MS, DAY_MS],
        [2 * DAY_MS, 5],
      ],
    ],
  ])('from %d to %d', (fromMs, untilMs, days) => {
    expect(linkedByDay(fromMs, untilMs).map(({ dayMs, linkedMs }) => [dayMs, linkedMs])).toEqual(days);
  });
});

describe('uptime', () => {
  test('is the share of the time since the first link in which the machine was linked', async () => {
    expect(await numbers()).toMatchObject({ since: isoTime(world.clock.now()), uptime: null });
    const since = isoTime(world.clock.now());
    await world.clock.advance(30 * HOUR_MS);
    expect(await numbers()).toMatchObject({ since, uptime: 1 });
    await link(false);
    await link(false);
    await world.clock.advance(10 * HOUR_MS);
    expect(await numbers()).toMatchObject({ since, uptime: 0.75 });
    await link(true);
    await world.clock.advance(HOUR_MS);
    await link(true);
    await world.clock.advance(19 * HOUR_MS);
    expect(await numbers()).toMatchObject({ since, uptime: 0.8333 });
  });

  test('of a machine goes on while another one loses its link', async () => {
    const other = await world.machine();
    await loseHost(world, other.machineId);
    await world.clock.advance(10 * HOUR_MS);
    await link(false);
    await world.clock.advance(10 * HOUR_MS);
    expect(await numbers()).toMatchObject({ uptime: 0.5 });
  });

  test('counts 30 UTC days with today, and forgets what is older', async () => {
    await world.clock.advance(DAY_MS / 2);
    await link(false);
    await world.clock.advance(29 * DAY_MS);
    // The first half day is in the window until the next midnight.
    expect(await numbers()).toMatchObject({ uptime: Math.round((0.5 / 29.5) * 10_000) / 10_000 });
    await world.clock.advance(DAY_MS / 2);
    expect(await numbers()).toMatchObject({ since: isoTime(world.clock.now() - 29 * DAY_MS), uptime: 0 });
    await world.clock.advance(3 * DAY_MS);
    const [days] = world.brings().flatMap(({ forgets = [] }) => forgets.filter(({ what }) => what === 'machine_days'));
    expect(await days?.run(new AbortController().signal)).toBe(1);
  });

  test('is not below 0 if the clock was set back since the link came', async () => {
    await link(false);
    await world.clock.advance(2 * HOUR_MS);
    await link(true);
    world.clock.step(-HOUR_MS);
    expect(await numbers()).toMatchObject({ uptime: 0 });
    world.clock.step(HOUR_MS);
  });

  test('of a link that lasts longer than the window is 1', async () => {
    await world.clock.advance(45 * DAY_MS);
    expect(await numbers()).toMatchObject({ uptime: 1 });
    await link(false);
    expect(await numbers()).toMatchObject({ uptime: 1 });
  });

  test('counts the time in which the control plane was away as before it, and goes on in the next process', async () => {
    await world.rooms.ownOutages.beat();
    await world.clock.advance(6 * HOUR_MS);
    world = await world.restart();
    expect(await numbers()).toMatchObject({ uptime: 1 });
    await world.clock.advance(2 * HOUR_MS);
    expect(await numbers()).toMatchObject({ uptime: 0.75 });
  });
});

describe('launches', () => {
  test('that run, and that their host fails, are counted; a cancelled one and a wrong image are not', async () => {
    const runs = await world.run(who);
    expect(await numbers()).toMatchObject({ launches: 1, failed_launches: 0, failed_launch_share: 0 });
    const cancelled = await world.launch(who);
    await world.end(who, cancelled);
    const wrong = await world.launch(who);
    const failed = { phase: 'failed', failure_code: 'image_pull_failed', detail: 'no such image' } as const;
    await world.observe(wrong, failed);
    await world.drive();
    expect(await numbers()).toMatchObject({ launches: 1, failed_launches: 0 });
    await world.end(who, wrong);
    const lost = await world.launch(who);
    await world.observe(lost, { phase: 'failed', failure_code: 'start_failed', detail: 'no memory' });
    await world.drive();
    expect(await numbers()).toMatchObject({ launches: 2, failed_launches: 1, failed_launch_share: 0.5 });
    await world.end(who, runs);
  });

  test('that another host rescues are counted against the one that failed', async () => {
    const rescued = await world.launch(who, { gpu_count: 2 });
    const other = await world.machine({ gpus: 2 });
    await world.observe(rescued, { phase: 'failed', failure_code: 'start_failed', detail: 'no memory' });
    await world.drive();
    expect(await numbers()).toMatchObject({ launches: 1, failed_launches: 1, failed_launch_share: 1 });
    await world.start(rescued);
    made = other;
    expect(await numbers()).toMatchObject({ launches: 1, failed_launches: 0, failed_launch_share: 0 });
  });
});

describe('rented time', () => {
  test('is the charged share of the time of all GPUs', async () => {
    await world.clock.advance(10 * HOUR_MS);
    const id = await world.run(who);
    await world.clock.advance(10 * HOUR_MS);
    expect(await numbers()).toMatchObject({ rented: 0.25 });
    await world.end(who, id);
    await world.clock.advance(20 * HOUR_MS);
    expect(await numbers()).toMatchObject({ rented: 0.125 });
  });

  test('of long ago does not count', async () => {
    const id = await world.run(who);
    await world.clock.advance(10 * HOUR_MS);
    await world.end(who, id);
    await world.clock.advance(40 * DAY_MS);
    expect(await numbers()).toMatchObject({ rented: 0, launches: 0 });
  });
});

test('a machine that never had a link has no numbers', async () => {
  await world.db.tx('test.new', (tx) => tx.run(sql`delete from machine_links`));
  expect(await numbers()).toEqual({
    since: null,
    uptime: null,
    launches: 0,
    failed_launches: 0,
    failed_launch_share: null,
    rented: null,
  });
});

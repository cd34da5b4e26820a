// The budget of GPU time that launches may hold without being paid for, for any 24 hours. Paid time adds to it.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openWorld, type World, type WorldAccount } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const GPU_HOURS = 2;

let world: World;
let who: WorldAccount;
beforeEach(async () => {
  world = await openWorld(1, { settings: { unpaidGpuHoursPerOrg: GPU_HOURS } });
  for (let i = 0; i < 4; i += 1) await world.machine({ gpus: 8 });
  who = await world.customer(1_000_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** A launch that holds its GPUs for the given time and never runs. */
async function squat(gpus: number, ms: number): Promise<void> {
  const id = await world.launch(who, { gpu_count: gpus });
  await world.observe(id, { phase: 'pulling' });
  await world.drive();
  await world.clock.advance(ms);
  await world.end(who, id);
}
const refused = { code: 'rate_limit_exceeded', details: { retryAfterSeconds: 600 } };

test('a launch fits that fills the budget to the millisecond; one more is 429 and leaves nothing', async () => {
  // The budget is 120 GPU minutes. A launch of one GPU needs five.
  await squat(8, 14 * MINUTE_MS);
  await squat(1, 3 * MINUTE_MS);
  const last = await world.launch(who);
  await expect(world.launch(who)).rejects.toMatchObject(refused);
  await expect(world.launch(who)).rejects.toThrow(/held GPUs for 2\.1 GPU hours in the last 24 hours.*2\.0 are free/);
  await world.launch(await world.customer(10_000));
  await world.end(who, last);
});

test('a launch that is cancelled at once counts for half a minute, in which its host removes the container', async () => {
  await squat(8, 14 * MINUTE_MS);
  await squat(1, 2.5 * MINUTE_MS);
  // 114.5 minutes have been used, and a launch needs five.
  for (let i = 0; i < 2; i += 1) await world.end(who, await world.launch(who));
  await expect(world.launch(who)).rejects.toMatchObject(refused);
});

/** A launch whose image is pulled for some time, and that runs for another time. */
async function pullAndRun(gpus: number, { pullMs, runMs }: { pullMs: number; runMs: number }): Promise<void> {
  const id = await world.launch(who, { gpu_count: gpus });
  await world.observe(id, { phase: 'pulling' });
  await world.drive();
  await world.clock.advance(pullMs);
  await world.start(id);
  await world.clock.advance(runMs);
  await world.end(who, id);
}

test.each([
  ['no more than that', 34, true],
  ['also no less', 36, false],
])('a rental that ran for a moment counts with its start beyond five minutes, and %s', async (_, minutes, fits) => {
  // 80 GPU minutes of the 120. The next launch needs five.
  await pullAndRun(8, { pullMs: 15 * MINUTE_MS, runMs: 1 });
  await squat(1, minutes * MINUTE_MS);
  const outcome = await world.launch(who).catch((error: { code: string }) => error.code);
  expect(outcome === refused.code).toBe(!fits);
});

test('rentals that start within five minutes never count, however short they are', async () => {
  for (let n = 0; n < 20; n += 1) await pullAndRun(8, { pullMs: 5 * MINUTE_MS, runMs: MINUTE_MS });
  await squat(8, 14 * MINUTE_MS);
  await world.launch(who);
});

test('a rental that was paid for as long as it took to start counts no more', async () => {
  for (let i = 0; i < 8; i += 1) await pullAndRun(8, { pullMs: 15 * MINUTE_MS, runMs: 15 * MINUTE_MS });
  await squat(8, 15 * MINUTE_MS);
  await world.launch(who);
});

test('a rental that was ready before the last 24 hours counts no more', async () => {
  await pullAndRun(8, { pullMs: 15 * MINUTE_MS, runMs: 1 });
  await world.clock.advance(DAY_MS - 1);
  await squat(8, 14 * MINUTE_MS);
  await world.launch(who);
});

test('one millisecond more than what leaves room for a launch refuses it', async () => {
  await squat(1, 115 * MINUTE_MS + 1);
  await expect(world.launch(who)).rejects.toMatchObject(refused);
});

test('launches at the same moment count before any time has passed', async () => {
  for (let i = 0; i < 3; i += 1) await world.launch(who, { gpu_count: 8 - 2 * i });
  await expect(world.launch(who, { gpu_count: 7 })).rejects.toMatchObject(refused);
  await world.launch(who, { gpu_count: 6 });
});

test('time under a reservation contract is paid for elsewhere, and adds nothing', async () => {
  const nowMs = world.clock.now();
  await world.rooms.reservations.create({
    org_id: who.orgId,
    title: 'training',
    starts_at: new Date(nowMs).toISOString(),
    ends_at: new Date(nowMs + 30 * DAY_MS).toISOString(),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', region: 'eu-west', gpu_count: 8 }],
  });
  await world.run(who, { gpu_count: 8, tier: 'reserved' });
  await world.clock.advance(2 * HOUR_MS);
  await squat(8, 14 * MINUTE_MS);
  await expect(world.launch(who, { gpu_count: 2 })).rejects.toMatchObject(refused);
});

test('a launch that runs in the end does not count, and what is paid adds a quarter', async () => {
  const id = await world.launch(who, { gpu_count: 4 });
  await world.clock.advance(20 * MINUTE_MS + 1);
  await expect(world.launch(who, { gpu_count: 8 })).rejects.toMatchObject(refused);
  await world.start(id);
  await squat(8, 15 * MINUTE_MS);
  // Four GPUs were paid for a quarter of an hour: that adds a quarter of a GPU hour, enough for three launches of one GPU.
  await world.launch(who, { gpu_count: 3 });
  await expect(world.launch(who)).rejects.toMatchObject(refused);
});

test('what is older than 24 hours counts no more', async () => {
  await squat(8, 15 * MINUTE_MS);
  await world.clock.advance(DAY_MS - 10 * MINUTE_MS - 1);
  await expect(world.launch(who, { gpu_count: 8 })).rejects.toMatchObject(refused);
  await world.clock.advance(1);
  await world.launch(who, { gpu_count: 8 });
});

test('a failed launch counts until it failed, however long it is listed', async () => {
  await squat(4, MINUTE_MS);
  const id = await world.launch(who, { gpu_count: 2 });
  await world.observe(id, { phase: 'failed', failure_code: 'no_command', detail: 'nothing to run' });
  await world.drive();
  await world.clock.advance(10 * HOUR_MS);
  await world.launch(who, { gpu_count: 8 });
});

// The wall clock of the control plane is set forward while a job trains: nobody is charged or paid for the time between.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openTraining, type Training } from './training-world.ts';

const HOUR_MS = 3_600_000;

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

interface Trained {
  id: string;
  supplierId: string;
}

/** A job that trains for ten minutes, and has a checkpoint in the middle. */
async function trainTenMinutes(): Promise<Trained> {
  const { id, supplierId } = await training.running();
  await training.pass(300);
  await training.upload(id, { step: 1 }, 'half of it');
  await training.pass(300);
  return { id, supplierId };
}

/** What ten more minutes until the next checkpoint have cost and earned in all. */
async function chargedAfter({ id, supplierId }: Trained, step = 2): Promise<{ paid: number; earned: number }> {
  await training.pass(600);
  await training.upload(id, { step }, 'all of it');
  expect(await training.shown(id)).toMatchObject({ status: 'running' });
  return { paid: (await training.money()).paid, earned: await training.earnedCents(supplierId) };
}

const setForward = async (ms: number): Promise<void> => {
  const { rooms, clock } = training.world;
  await rooms.ownOutages.beat();
  clock.step(ms);
};

/** The step is found at the next beat. */
const beat = (): Promise<boolean> => training.world.rooms.ownOutages.beat();

test.each([
  ['an hour', HOUR_MS],
  ['longer than the job may run', 100 * 24 * HOUR_MS],
])('a job costs its own time if the clock is set forward by %s', async (_what, stepMs) => {
  const plain = await chargedAfter(await trainTenMinutes());
  expect(plain.paid).toBeGreaterThan(0);
  await training.world.close();
  training = await openTraining();
  const trained = await trainTenMinutes();
  await setForward(stepMs);
  await beat();
  // A second try of the same step, as after a failure of the database, takes nothing off.
  const untilMs = training.world.clock.now();
  await training.world.rooms.fineTuning.skip({ fromMs: untilMs - stepMs, untilMs });
  expect(await chargedAfter(trained)).toEqual(plain);
});

test('a checkpoint that was charged before the step was noticed is paid for by the time after it', async () => {
  const trained = await trainTenMinutes();
  await setForward(HOUR_MS);
  await training.upload(trained.id, { step: 2 }, 'too much time');
  const { paid } = await training.money();
  await beat();
  expect(await chargedAfter(trained, 3)).toMatchObject({ paid });
});

// The wall clock of the control plane is set forward while a job trains: nobody is charged or paid for the time between.
import { expect, test } from 'vitest';
import { openTraining, type Training } from './training-world.ts';

const HOUR_MS = 3_600_000;

/** A job that trains in a world of its own. */
interface Trained {
  training: Training;
  id: string;
  supplierId: string;
}

/** Runs `work` with a job that has trained for ten minutes, and has a checkpoint in the middle. Afterwards the books are proved. */
async function afterTenMinutes<T>(work: (trained: Trained) => Promise<T>): Promise<T> {
  const training = await openTraining();
  const { id, supplierId } = await training.running();
  await training.pass(300);
  await training.upload(id, { step: 1 }, 'half of it');
  await training.pass(300);
  const value = await work({ training, id, supplierId });
  await training.world.verify();
  await training.world.close();
  return value;
}

/** What all the time until the next checkpoint, ten minutes later, has cost and earned. */
async function chargedAfter(trained: Trained, step = 2): Promise<{ paid: number; earned: number }> {
  const { training, id, supplierId } = trained;
  await training.pass(600);
  await training.upload(id, { step }, 'all of it');
  expect(await training.shown(id)).toMatchObject({ status: 'running' });
  return { paid: (await training.money()).paid, earned: await training.earnedCents(supplierId) };
}

async function setForward({ training }: Trained, ms: number): Promise<void> {
  await training.world.rooms.ownOutages.beat();
  training.world.clock.step(ms);
}

test.each([
  ['an hour', HOUR_MS],
  ['longer than the job may run', 100 * 24 * HOUR_MS],
])('a job costs its own time if the clock is set forward by %s', async (_what, stepMs) => {
  const plain = await afterTenMinutes((trained) => chargedAfter(trained));
  expect(plain.paid).toBeGreaterThan(0);
  const stepped = await afterTenMinutes(async (trained) => {
    await setForward(trained, stepMs);
    const { rooms, clock } = trained.training.world;
    await rooms.ownOutages.beat();
    // A second try of the same step, as after a failure of the database, takes nothing off.
    const untilMs = clock.now();
    await rooms.fineTuning.skip({ fromMs: untilMs - stepMs, untilMs });
    return chargedAfter(trained);
  });
  expect(stepped).toEqual(plain);
});

test('a checkpoint that was charged before the step was noticed is paid for by the time after it', () =>
  afterTenMinutes(async (trained) => {
    const { training, id } = trained;
    await setForward(trained, HOUR_MS);
    await training.upload(id, { step: 2 }, 'too much time');
    const { paid } = await training.money();
    await training.world.rooms.ownOutages.beat();
    expect(await chargedAfter(trained, 3)).toMatchObject({ paid });
  }));

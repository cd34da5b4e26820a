// Several control planes drive the same fine-tuning job at the same moment: each step happens once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../control-plane/base/db/columns.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import type { JobUrlAnswer } from '../../../shared/protocol/job.ts';
import { openTraining, type Training } from './training-world.ts';

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

const NEVER = new AbortController().signal;
/** Does what five processes would do: each reads the facts before any of them has written. */
const driveFiveTimes = (id: string): Promise<unknown> =>
  Promise.all(Array.from({ length: 5 }, () => training.world.rooms.fineTuning.driver.drive(id, NEVER)));

const Counts = z.object({ attempts: int, events: int, charges: int });
const counts = (): Promise<z.infer<typeof Counts> | undefined> =>
  training.world.db.read.one(
    Counts,
    sql`select (select count(*) from finetuning_attempts) as attempts, (select count(*) from finetuning_events) as events,
          (select count(*) from transfers where kind = 'finetune.charge') as charges`,
  );

test('a job is validated, placed, charged and ended once', async () => {
  await training.machine();
  await training.machine();
  const id = await training.create();
  // One that reads later may find the next step already.
  await driveFiveTimes(id);
  await driveFiveTimes(id);
  expect(await counts()).toEqual({ attempts: 1, events: 3, charges: 0 });
  await training.report(id, 'running');
  await training.pass(50);
  await training.upload(id, { step: 1 }, 'state', { drive: () => driveFiveTimes(id) });
  expect(await counts()).toEqual({ attempts: 1, events: 5, charges: 1 });
  await training.end(id);
  await driveFiveTimes(id);
  expect(await training.money()).toEqual({ paid: 50, held: 0 });
  expect(await training.shown(id)).toMatchObject({ status: 'succeeded' });
});

test('files of a result that are announced at the same moment are within the limit together', async () => {
  const { id, machineId } = await training.running();
  const { id: workloadId } = await training.attempt(id);
  const { terms } = await training.job(id);
  const bytes = Math.ceil(terms.result_mib_max * 1024 ** 2 * 0.4);
  const announce = (name: string): Promise<JobUrlAnswer | undefined> =>
    training.world.rooms.fineTuning.urlFor(machineId, workloadId, {
      kind: 'result',
      file: { name, bytes, sha256: '0'.repeat(64) },
    });
  const answers = await Promise.all(['a', 'b', 'c', 'd'].map(announce));
  expect(answers.filter((answer) => answer?.kind === 'url')).toHaveLength(2);
  expect(answers.filter((answer) => answer?.kind === 'refused')).toHaveLength(2);
});

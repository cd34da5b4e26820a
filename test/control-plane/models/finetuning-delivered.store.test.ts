// What a customer can download or go on from is paid, and what is not paid is not delivered.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { loseHost } from '../../kit/machines.ts';
import { openTraining, type Training } from './training-world.ts';

const HOUR_S = 3_600;

let training: Training;
beforeEach(async () => {
  training = await openTraining();
});
afterEach(async () => {
  await training.world.verify();
  await training.world.close();
});

const cancel = (id: string): Promise<unknown> =>
  training.world.rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);

test('a result whose host is lost before it reports the end of the program is charged up to its announcement', async () => {
  const { id, machineId } = await training.running();
  await training.pass(100);
  await training.upload(id, 'result', 'adapter');
  await training.pass(20);
  await cancel(id);
  await loseHost(training.world, machineId);
  await training.pass(HOUR_S);
  const { status, result_files: files } = await training.shown(id);
  expect({ status, files: files.length }).toEqual({ status: 'cancelled', files: 1 });
  expect(await training.money()).toEqual({ paid: 100, held: 0 });
});

test('a job without its whole result delivers the checkpoint that was paid, and no part of the result', async () => {
  const { id } = await training.running();
  await training.pass(50);
  await training.upload(id, { step: 1 }, 'state');
  await training.pass(100);
  await training.report(id, 'finishing', { exit_code: 0 });
  await training.upload(id, 'result', 'adapter');
  const results = ['adapter.txt', 'config.json'].map((name) => ({ name, bytes: 7, sha256: '0'.repeat(64) }));
  await training.report(id, 'finished', { exit_code: 0, results });
  await training.pass(3 * HOUR_S);
  const { status, error, result_files: files } = await training.shown(id);
  expect({ status, code: error?.code }).toEqual({ status: 'failed', code: 'result_invalid' });
  expect(files).toEqual([expect.stringContaining('name=step-1&')]);
  expect(await training.money()).toEqual({ paid: 50, held: 0 });
});

test('a checkpoint that arrives while the job leaves its machine is not used', async () => {
  const { id } = await training.running();
  await training.pass(50);
  await training.upload(id, { step: 1 }, 'state');
  await training.pass(100);
  const { open } = training.world.rooms.blobs;
  // The job leaves its machine after the upload was found and before it is noted.
  training.world.rooms.blobs.open = async (key) => {
    training.world.rooms.blobs.open = open;
    await training.report(id, 'missing');
    return open(key);
  };
  await training.upload(id, { step: 2 }, 'more');
  const other = await training.machine();
  await training.pass(60);
  expect(await training.attempt(id)).toMatchObject({ machine_id: other.machineId, resume_step: 1 });
  expect(await training.money()).toMatchObject({ paid: 50 });
});

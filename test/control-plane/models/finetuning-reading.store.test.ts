// Jobs whose step reads a whole file do not keep the others from being driven.
import { expect, test, vi } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openTraining } from './training-world.ts';

const READING_MAX = 8;

test('eight jobs at most read files at once, and other jobs go on meanwhile', async () => {
  const training = await openTraining();
  const { db, clock, rooms } = training.world;
  const { driver } = rooms.fineTuning;
  const ids: string[] = [];
  for (let i = 0; i < 10; i += 1) ids.push(await training.create({ svc: { max_budget_usd: 6 } }));
  const due = (): Promise<string[]> => driver.due(clock.now(), 100);
  // Each new job reads its training file first. The store is slow.
  const arrives = Promise.withResolvers<void>();
  const { open } = rooms.blobs;
  vi.spyOn(rooms.blobs, 'open').mockImplementation(async (...which) => {
    await arrives.promise;
    return open(...which);
  });
  const reading = await due();
  expect(reading).toHaveLength(READING_MAX);
  const driving = reading.map((id) => driver.drive(id, new AbortController().signal));
  const [other = '', last = ''] = ids.filter((id) => !reading.includes(id));
  expect(await due()).toEqual([]);
  await db.tx('test.queued', (tx) => tx.run(sql`update finetuning_jobs set status = 'queued' where id = ${other}`));
  expect(await due()).toEqual([other]);
  arrives.resolve();
  await Promise.all(driving);
  expect(await due()).toContain(last);
  await training.world.close();
});

const DAY_MS = 24 * 3_600_000;
const MESSAGE = 'EIO: i/o error, read';

test('a job whose training file can never be read fails after a day, and gives its budget back', async () => {
  const training = await openTraining();
  const { clock, rooms } = training.world;
  const opened = vi.spyOn(rooms.blobs, 'open').mockRejectedValue(new Error(MESSAGE));
  const id = await training.create();
  const drive = (): Promise<unknown> =>
    rooms.fineTuning.driver.drive(id, new AbortController().signal).catch((error: unknown) => error);
  expect(await drive()).toMatchObject({ message: MESSAGE });
  await clock.advance(DAY_MS - 1);
  expect(await drive()).toMatchObject({ message: MESSAGE });
  expect(await training.money()).toEqual({ paid: 0, held: 10_000 });
  await clock.advance(1);
  await drive();
  opened.mockRestore();
  expect(await training.shown(id)).toMatchObject({
    status: 'failed',
    error: {
      code: 'operation_failed',
      message: expect.stringContaining('training file could not be read within a day'),
    },
  });
  expect(await training.money()).toEqual({ paid: 0, held: 0 });
  await training.world.close();
});

test('a job whose result can never be read fails after a day, nothing is charged, and the wait is not held against its owner', async () => {
  const training = await openTraining({ settings: { unpaidGpuHoursPerOrg: 1 } });
  const { clock, rooms } = training.world;
  const { id } = await training.running();
  await training.pass(100);
  await training.reportOnly(id, 'finishing', { exit_code: 0 });
  await training.upload(id, 'result', 'adapter', { drive: async () => undefined });
  const opened = vi.spyOn(rooms.blobs, 'open').mockRejectedValue(new Error(MESSAGE));
  const results = [{ name: 'adapter.txt', bytes: 7, sha256: '0'.repeat(64) }];
  await training.reportOnly(id, 'finished', { exit_code: 0, results });
  const drive = (): Promise<unknown> =>
    rooms.fineTuning.driver.drive(id, new AbortController().signal).catch((error: unknown) => error);
  await drive();
  expect(await drive()).toMatchObject({ message: MESSAGE });
  await clock.advance(DAY_MS);
  await drive();
  opened.mockRestore();
  expect(await training.shown(id)).toMatchObject({
    status: 'failed',
    error: { code: 'result_invalid', message: 'The files of the result could not be read within a day.' },
  });
  expect(await training.money()).toEqual({ paid: 0, held: 0 });
  expect((await training.shown(await training.create())).status).toBe('validating');
  await training.world.close();
});

test('a cancelled job ends and gives its budget back, also if a file that its host has sent can never be read', async () => {
  const training = await openTraining();
  const { clock, rooms } = training.world;
  const { id } = await training.running();
  await training.pass(100);
  await training.upload(id, { step: 1 }, 'state', { drive: async () => undefined });
  vi.spyOn(rooms.blobs, 'open').mockRejectedValue(new Error('EIO: i/o error, read'));
  await rooms.fineTuning.cancel(training.who.orgId, id, async () => undefined);
  await training.reportOnly(id, 'finished', { exit_code: 0, stopped_at_limit: true });
  const drive = (): Promise<unknown> =>
    rooms.fineTuning.driver.drive(id, new AbortController().signal).catch((error: unknown) => error);
  await drive();
  expect(await drive()).toMatchObject({ message: 'EIO: i/o error, read' });
  expect(await training.money()).toEqual({ paid: 0, held: 10_000 });
  await clock.advance(42 * 60_000);
  await drive();
  expect(await training.shown(id)).toMatchObject({ status: 'cancelled', result_files: [] });
  expect(await training.money()).toEqual({ paid: 0, held: 0 });
  await training.world.close();
});

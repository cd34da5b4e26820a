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

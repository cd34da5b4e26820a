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

// Nothing that runs by itself reads a long history: a turn of each loop reads what is due, however much there was before.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { type Api, openReadingApi } from '../contract/api.ts';
import { makeAll } from '../contract/resources.ts';
import { rentalWithOutage } from '../contract/suppliers.ts';
import { copyEverything, type Reading } from '../kit/long-history.ts';

const COPIES = 600;
/** A few rows of the process and its loop. */
const ROWS_MAX = 20;

let api: Api;
let reading: Reading;
let close: () => Promise<void>;
beforeAll(async () => {
  ({ api, reading, close } = await openReadingApi());
  const { world } = api;
  const owner = await api.account();
  await makeAll(api, owner);
  await rentalWithOutage(api, owner);
  // What was due is done before there are copies of it.
  for (const loop of brought(world.brings(), 'loops')) await loop.run(new AbortController().signal);
  await world.drive();
  await copyEverything(world.db, COPIES);
  await world.clock.advance(1_000);
});
afterAll(() => close());

/** Expects that those of these names read more than a few rows, and no others. A failure shows the statements of the others. */
async function expectGreedy(
  works: readonly { name: string; run: () => Promise<unknown> }[],
  names: readonly string[],
): Promise<void> {
  const many: string[] = [];
  const unexpected: string[] = [];
  for (const { name, run } of works) {
    const { rows, costly } = await reading(run);
    if (rows <= ROWS_MAX) continue;
    many.push(name);
    if (!names.includes(name)) unexpected.push(`${name}: ${rows} rows`, ...costly);
  }
  expect(unexpected).toEqual([]);
  expect(many.toSorted()).toEqual(names);
}

const LARGE = [
  // Blobs of one key: no two videos have the same in truth.
  'blobs',
  // It proves all of the books, a piece at a time.
  'books',
  // It counts the machines by their states.
  'minutes',
  // It looks for suppliers whose balance is large enough, a piece at a time.
  'payouts',
  // Parts are kept for open uploads only. The copies belong to the one that is open.
  'uploads',
  // It compares what customers see of all machines, a page at a time.
  'uptimes',
];

test(`a turn of each loop reads few rows, but for ${LARGE.join(', ')}`, async () => {
  const loops = brought(api.world.brings(), 'loops');
  const signal = new AbortController().signal;
  const works = loops.map(({ name, run }) => ({ name, run: async () => run(signal) }));
  expect(works.length).toBeGreaterThan(15);
  await expectGreedy(works, LARGE);
});

test('no driver reads rows that are not due', async () => {
  const { world } = api;
  const works = brought(world.brings(), 'drivers').map(({ name, due }) => ({
    name,
    run: async () => due(world.clock.now(), 100),
  }));
  expect(works.length).toBeGreaterThan(5);
  await expectGreedy(works, []);
});

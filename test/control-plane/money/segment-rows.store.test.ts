// Reads of metered segments: the edges of their windows, the rental beside the right one, and their order.
import { sql } from '../../../control-plane/base/db/db.ts';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import * as store from '../../../control-plane/money/metering/store.ts';
import { openTestDb } from '../../kit/databases.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA, virtualClock());
});
afterEach(() => db.close());

interface Made extends Partial<store.Segment> {
  from?: number;
  to?: number | null;
}
/** A segment of the rental `i` of the organisation `o` on the machine `m`, from 100 to 200. One that is open has a rental of its own. */
async function add(id: string, { from = 100, to = 200, ...patch }: Made = {}): Promise<void> {
  await db.tx('add', async (tx) => {
    await store.insertSegment(tx, {
      id,
      subject_id: to === null ? `i ${id}` : 'i',
      org_id: 'o',
      supplier_id: 's',
      machine_id: 'm',
      gpu_type: 'H100_SXM',
      gpu_count: 1,
      rate_ucents_per_hour: 10n,
      supplier_bps: 8_500,
      started_ms: from,
      posted_through_ms: from,
      ended_ms: null,
      ...patch,
    });
    // Rows of one rental may overlap here.
    await tx.run(sql`update meter_segments set started_ms = ${from}, posted_through_ms = ${from} where id = ${id}`);
    if (to !== null) await store.endSegment(tx, id, to);
  });
}
const idsOf = (rows: readonly store.Segment[]): string[] => rows.map(({ id }) => id);

test('segments past a time are open or end after it, in the order of their start and then of their ids', async () => {
  await add('b', { from: 100 });
  await add('a', { from: 100, to: 201 });
  await add('early', { from: 50, to: 199 });
  await add('other', { subject_id: 'i-2' });
  await add('open', { from: 300, to: null, subject_id: 'i' });
  const past = async (ms: number, ids = ['i']): Promise<string[]> => idsOf(await store.segmentsPast(db.read, ids, ms));
  expect(await past(199)).toEqual(['a', 'b', 'open']);
  expect(await past(200)).toEqual(['a', 'open']);
  expect(await past(198)).toEqual(['early', 'a', 'b', 'open']);
  expect(await past(0, ['i-2'])).toEqual(['other']);
  expect(await past(0, [])).toEqual([]);
  expect(idsOf(await store.segmentsOf(db.read, ['i', 'i-2']))).toEqual(['early', 'a', 'b', 'other', 'open']);
  expect(await store.segmentsOf(db.read, [])).toEqual([]);
});

test('open segments are walked in the order of ids, and those of one organisation are its rate', async () => {
  for (const id of ['c', 'a', 'b']) await add(id, { to: null });
  await add('closed');
  await add('d', { to: null, org_id: 'o-2', rate_ucents_per_hour: 5n });
  expect(idsOf(await store.openSegments(db.read, '', 9))).toEqual(['a', 'b', 'c', 'd']);
  expect(idsOf(await store.openSegments(db.read, 'a', 2))).toEqual(['b', 'c']);
  expect(idsOf(await store.openSegmentsOf(db.read, 'o'))).toEqual(['a', 'b', 'c']);
  expect(await store.openRateOf(db.read, 'o')).toBe(30n);
  expect(await store.openRateOf(db.read, 'nobody')).toBe(0n);
});

test('segments across a time contain it: their start belongs to them, and their end does not', async () => {
  await add('b');
  await add('a', { from: 150, to: null });
  const across = async (ms: number, page = { afterId: '', limit: 9 }): Promise<string[]> =>
    idsOf(await store.segmentsAcross(db.read, ms, page));
  expect(await across(99)).toEqual([]);
  expect(await across(100)).toEqual(['b']);
  expect(await across(150)).toEqual(['a', 'b']);
  expect(await across(199)).toEqual(['a', 'b']);
  expect(await across(200)).toEqual(['a']);
  expect(await across(150, { afterId: 'a', limit: 9 })).toEqual(['b']);
  expect(await across(150, { afterId: '', limit: 1 })).toEqual(['a']);
});

test('segments that were in use within a window are read in pages, those that are open and those that have ended', async () => {
  await add('later', { from: 500, to: 600 });
  await add('b', { subject_id: 'i-b' });
  await add('a', { from: 99 });
  await add('foreign', { org_id: 'o-2', subject_id: 'i-2' });
  await add('open-b', { from: 700, to: null });
  await add('open-a', { from: 700, to: null });
  const walk = async (read: typeof store.openWithin, fromMs: number, untilMs: number): Promise<string[]> => {
    const found: store.Segment[] = [];
    for (let page: store.Segment[] | undefined; page === undefined || page.length === 1; found.push(...page))
      page = await read(db.read, 'o', { fromMs, untilMs, after: found.at(-1), limit: 1 });
    return idsOf(found);
  };
  expect(await walk(store.endedWithin, 199, 501)).toEqual(['a', 'b', 'later']);
  expect(await walk(store.endedWithin, 199, 500)).toEqual(['a', 'b']);
  expect(await walk(store.endedWithin, 200, 501)).toEqual(['later']);
  expect(await walk(store.endedWithin, 0, 100)).toEqual(['a']);
  expect(await walk(store.openWithin, 800, 900)).toEqual(['open-a', 'open-b']);
  expect(await walk(store.openWithin, 0, 701)).toEqual(['open-a', 'open-b']);
  expect(await walk(store.openWithin, 0, 700)).toEqual([]);
});

test('charged GPU time counts from the beginning of the window, for each GPU, and not what cost nothing', async () => {
  await add('two GPUs', { gpu_count: 2 });
  await add('open', { from: 250, to: null });
  await add('free', { rate_ucents_per_hour: 0n });
  await add('foreign', { org_id: 'o-2' });
  const charged = (sinceMs: number): Promise<number> => store.chargedGpuMs(db.read, 'o', { sinceMs, nowMs: 300 });
  expect([await charged(0), await charged(100), await charged(150), await charged(200)]).toEqual([250, 250, 150, 50]);
  expect(await charged(260)).toBe(40);
  expect(await store.chargedGpuMs(db.read, 'nobody', { sinceMs: 0, nowMs: 300 })).toBe(0);
});

test('a machine has served others if they were charged on it for long enough within the window', async () => {
  await add('mine');
  await add('theirs', { org_id: 'o-2', from: 100, to: 160 });
  await add('of a third', { org_id: 'o-3', from: 200, to: null });
  await add('elsewhere', { org_id: 'o-2', machine_id: 'm-2' });
  const served = async (sinceMs: number, forMs: number): Promise<string[]> => [
    ...(await store.machinesThatServed(db.read, 'o', { sinceMs, nowMs: 240, forMs })),
  ];
  expect(await served(0, 100)).toEqual(['m']);
  expect(await served(0, 101)).toEqual([]);
  expect(await served(130, 70)).toEqual(['m']);
  expect(await served(130, 71)).toEqual([]);
  // What ended at the beginning of the window is outside of it.
  expect(await served(160, 40)).toEqual(['m']);
  expect(await served(160, 41)).toEqual([]);
  await add('mine too', { machine_id: 'm-2' });
  await add('nowhere', { machine_id: '' });
  await add('nowhere else', { org_id: 'o-2', machine_id: '' });
  expect(await served(0, 100)).toEqual(['m', 'm-2']);
  // In this window, the organisation itself has used neither machine.
  expect(await served(200, 40)).toEqual([]);
});

test('the charged time on machines counts each GPU, up to now for what is open', async () => {
  await add('two GPUs', { gpu_count: 2 });
  await add('open', { from: 250, to: null });
  await add('of another', { machine_id: 'm-2', org_id: 'o-2' });
  await add('elsewhere', { machine_id: 'm-3' });
  const charged = async (sinceMs: number): Promise<unknown> =>
    Object.fromEntries(await store.chargedOnMachines(db.read, ['m', 'm-2'], { sinceMs, nowMs: 300 }));
  expect(await charged(0)).toEqual({ m: 250, 'm-2': 100 });
  expect(await charged(150)).toEqual({ m: 150, 'm-2': 50 });
  expect(await charged(200)).toEqual({ m: 50 });
  expect(await charged(260)).toEqual({ m: 40 });
});

describe('a change', () => {
  test('is of one segment alone', async () => {
    await add('a', { to: null });
    await add('b', { to: null });
    await db.tx('change', async (tx) => {
      await store.setPostedThrough(tx, 'a', 150);
      await store.endSegment(tx, 'b', 170);
    });
    const rows = await store.segmentsOf(db.read, ['i a', 'i b']);
    expect(rows.map((row) => [row.id, row.posted_through_ms, row.ended_ms])).toEqual([
      ['a', 150, null],
      ['b', 100, 170],
    ]);
  });
});

test('the rentals with segments are walked in order, each once', async () => {
  for (const [id, subject] of [
    ['1', 'i-3'],
    ['2', 'i-1'],
    ['3', 'i-1'],
    ['4', 'i-2'],
  ] as const)
    await add(id, { subject_id: subject });
  expect(await store.subjectsAfter(db.read, '', 9)).toEqual(['i-1', 'i-2', 'i-3']);
  expect(await store.subjectsAfter(db.read, 'i-1', 1)).toEqual(['i-2']);
});

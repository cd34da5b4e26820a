// Reads of uncharged time, held amounts, flags and outages: the edges of their windows, and the order of equal rows.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import {
  outageOf,
  outagesSince,
  pageOfOutages,
  sumsOfOutages,
  timesOfOutage,
  timesOfOutages,
} from '../../../control-plane/money/credits/outages.ts';
import { openFreeTimes } from '../../../control-plane/money/credits/overview.ts';
import * as store from '../../../control-plane/money/credits/store.ts';
import { openTestDb } from '../../kit/databases.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA, virtualClock());
});
afterEach(() => db.close());

interface Ended extends Partial<store.FreeTime> {
  /** Null: it lasts. */
  to?: number | null;
}
/** An uncharged time of the rental `i` of `o` on the machine `m` of `s`, which ended at 200 with 100 granted. */
async function add(id: string, { to = 200, ...patch }: Ended = {}): Promise<void> {
  await db.tx('add', async (tx) => {
    await store.beginFreeTime(tx, {
      id,
      subject_id: 'i',
      org_id: 'o',
      supplier_id: 's',
      machine_id: 'm',
      cause: 'outage',
      rate_ucents_per_hour: 10n,
      supplier_bps: 8_500,
      from_ms: 100,
      counted_ms: 0,
      counted_at_ms: 100,
      ended_ms: null,
      free_ms: null,
      granted_ucents: 0n,
      held_ucents: 0n,
      evidence: 'probes',
      outage_id: 'out',
      ...patch,
    });
    if (to === null) return;
    const { granted_ucents: grantedUcents = 100n, held_ucents: heldUcents = 0n } = patch;
    await store.endFreeTime(tx, id, { endedMs: to, freeMs: 50, grantedUcents, heldUcents });
  });
}
async function hold(id: string, patch: Partial<store.HeldCredit> = {}): Promise<void> {
  const row: store.HeldCredit = {
    id,
    kind: 'credit',
    why: 'org_bound',
    free_time_id: null,
    cause: 'outage',
    subject_id: 'i',
    org_id: 'o',
    supplier_id: 's',
    amount_ucents: 7n,
    wallet_ucents: 7n,
    supplier_bps: 8_500,
    from_ms: 100,
    until_ms: 200,
    evidence: 'probes',
    state: 'held',
    note: null,
    created_ms: 100,
    decided_ms: null,
    ...patch,
  };
  await db.tx('hold', (tx) => store.insertHeld(tx, row));
}
const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);
const page = { count: 9 };

describe('an uncharged time', () => {
  test('is extended by another beginning while it lasts, and its start moves back only', async () => {
    await add('a', { to: null, from_ms: 100, counted_ms: 10 });
    await add('b', { to: null, from_ms: 50, counted_ms: 20 });
    await add('c', { to: null, from_ms: 150, counted_ms: 5 });
    expect(await store.freeTimesOf(db.read, 'i')).toMatchObject([{ id: 'a', from_ms: 50, counted_ms: 35 }]);
    await db.tx('end', (tx) =>
      store.endFreeTime(tx, 'a', { endedMs: 300, freeMs: 60, grantedUcents: 1n, heldUcents: 2n }),
    );
    await add('d', { to: null });
    expect(await store.openFreeTime(db.read, 'i')).toMatchObject({ id: 'd' });
    expect(await store.openFreeTime(db.read, 'nobody')).toBeUndefined();
    expect(await store.freeTimesOf(db.read, 'i')).toMatchObject([
      { id: 'a', ended_ms: 300, free_ms: 60, granted_ucents: 1n, held_ucents: 2n },
      { id: 'd', ended_ms: null, free_ms: null },
    ]);
  });

  test('is shortened only while it lasts', async () => {
    await add('lasts', { to: null, counted_ms: 30 });
    await add('ended', { subject_id: 'i-2', counted_ms: 30 });
    await db.tx('shorten', (tx) => store.shortenFreeTimes(tx, 20));
    const counted = (await store.freeTimesAfter(db.read, '', 9)).map((row) => [row.id, row.counted_ms]);
    expect(counted).toEqual([
      ['ended', 30],
      ['lasts', 10],
    ]);
  });
});

describe('uncharged times are listed', () => {
  beforeEach(async () => {
    await add('b', { subject_id: 'i', from_ms: 100 });
    await add('a', { subject_id: 'i', from_ms: 100, to: 201 });
    await add('first', { subject_id: 'i', from_ms: 90, to: 199 });
    await add('lasts', { subject_id: 'i-2', from_ms: 95, to: null });
    await add('other', { subject_id: 'i-3' });
  });

  test('of a rental from old to new, and of several since a time if they lasted beyond it', async () => {
    expect(idsOf(await store.freeTimesOf(db.read, 'i'))).toEqual(['first', 'a', 'b']);
    const since = async (ms: number): Promise<string[]> => idsOf(await store.freeTimesSince(db.read, ['i', 'i-2'], ms));
    expect(await since(198)).toEqual(['first', 'lasts', 'a', 'b']);
    expect(await since(199)).toEqual(['lasts', 'a', 'b']);
    expect(await since(200)).toEqual(['lasts', 'a']);
    expect(await store.freeTimesSince(db.read, [], 0)).toEqual([]);
  });

  test('in pages of ids', async () => {
    expect(idsOf(await store.freeTimesAfter(db.read, 'a', 2))).toEqual(['b', 'first']);
  });

  test('as one outage of some rentals, with its span and its amounts', async () => {
    await add('elsewhere', { subject_id: 'i-4', outage_id: 'out-2', held_ucents: 5n });
    expect((await sumsOfOutages(db.read, ['out', 'none'])).get('out')).toEqual({
      outage_id: 'out',
      rentals: 3,
      open: 1,
      from_ms: 90,
      until_ms: 201,
      granted_ucents: 400n,
      held_ucents: 0n,
    });
    expect(await sumsOfOutages(db.read, [])).toEqual(new Map());
    expect(idsOf(await timesOfOutages(db.read, ['out']))).toEqual(['first', 'lasts', 'a', 'b', 'other']);
    expect(await timesOfOutages(db.read, [])).toEqual([]);
    await hold('h-2', { free_time_id: 'elsewhere', subject_id: 'i-4' });
    await hold('h-1', { free_time_id: 'elsewhere', subject_id: 'i-4' });
    await hold('of another time', { free_time_id: 'a', subject_id: 'i-4' });
    const { times, held } = await timesOfOutage(db.read, 'out-2');
    expect([idsOf(times), idsOf(held)]).toEqual([['elsewhere'], ['h-1', 'h-2']]);
    expect((await timesOfOutage(db.read, 'out')).held).toEqual([]);
  });
});

describe('what was given in a window', () => {
  beforeEach(async () => {
    await add('at once');
    await add('too early', { to: 199 });
    await add('lasts', { subject_id: 'i-2', to: null });
    await add('of another', { org_id: 'o-2', supplier_id: 's-2' });
    await add('our own', { cause: 'own_outage', granted_ucents: 10n });
  });

  test('counts for its organisation whatever the cause, and for its supplier except for our own outages', async () => {
    expect(await store.grantedToOrg(db.read, 'o', 199)).toBe(110n);
    expect(await store.grantedToOrg(db.read, 'o', 200)).toBe(0n);
    expect(await store.grantedOnSupplier(db.read, 's', 199)).toBe(100n);
    expect(await store.grantedOnSupplier(db.read, 's', 200)).toBe(0n);
    expect(await store.grantedToOrg(db.read, 'nobody', 0)).toBe(0n);
  });

  test('shows which machines failed for one organisation, and which of them failed for others too', async () => {
    await add('second', { machine_id: 'm-2' });
    await add('gpu', { machine_id: 'm-3', cause: 'gpu_fault' });
    expect((await store.outagesOfOrg(db.read, 'o', 199)).toSorted()).toEqual(['m', 'm-2']);
    const failed = async (sinceMs: number): Promise<string[]> =>
      [...(await store.machinesThatFailedOthers(db.read, 'o', sinceMs))].toSorted();
    expect(await failed(199)).toEqual(['m']);
    expect(await failed(200)).toEqual([]);
    await add('now', { machine_id: 'm-2', org_id: 'o-2', subject_id: 'i-9', to: null });
    await add('their GPU', { machine_id: 'm-2', org_id: 'o-3', subject_id: 'i-8', cause: 'gpu_fault' });
    expect(await failed(199)).toEqual(['m', 'm-2']);
    // Neither a machine whose GPU broke for this organisation, nor one that it never had.
    await add('theirs on m-3', { machine_id: 'm-3', org_id: 'o-2' });
    await add('theirs on m-4', { machine_id: 'm-4', org_id: 'o-2' });
    expect(await failed(199)).toEqual(['m', 'm-2']);
    // The outages of others must be in the window too.
    await add('mine, later', { to: 300 });
    expect(await failed(250)).toEqual([]);
  });

  test('is counted in the overview while it lasts: rentals, and their machines', async () => {
    await add('also', { subject_id: 'i-3', to: null });
    await add('elsewhere', { subject_id: 'i-4', machine_id: 'm-2', to: null });
    expect(await openFreeTimes(db.read)).toEqual({ rentals: 3, machines: 2 });
  });
});

describe('held amounts', () => {
  beforeEach(async () => {
    await hold('b');
    await hold('a');
    await hold('payment', { kind: 'payment', created_ms: 99, amount_ucents: 3n, wallet_ucents: 0n });
    await hold('decided', { state: 'released', created_ms: 98 });
    await hold('refused', { state: 'refused', created_ms: 97 });
    await hold('other', { subject_id: 'i-2', created_ms: 96 });
  });

  test('that wait come first in the list, each part newest first, and pages follow each other', async () => {
    const order = ['b', 'a', 'payment', 'other', 'decided', 'refused'];
    const rows = await store.pageOfHeld(db.read, page);
    expect(idsOf(rows)).toEqual(order);
    for (const [at, row] of rows.entries()) {
      const next = await store.pageOfHeld(db.read, { from: store.placeOfHeld(row), count: 9 });
      expect(idsOf(next)).toEqual(order.slice(at + 1));
    }
    expect(idsOf(await store.pageOfHeld(db.read, { count: 2 }))).toEqual(['b', 'a']);
  });

  test('are those of one rental from old to new, and the oldest that wait', async () => {
    expect(idsOf(await store.heldOf(db.read, 'i'))).toEqual(['refused', 'decided', 'payment', 'a', 'b']);
    expect(idsOf(await store.oldestHeld(db.read, 3))).toEqual(['other', 'payment', 'a']);
    expect(idsOf(await store.heldAfter(db.read, '', 9))).toEqual(['a', 'b', 'decided', 'other', 'payment', 'refused']);
    expect(idsOf(await store.heldAfter(db.read, 'b', 2))).toEqual(['decided', 'other']);
  });

  test('are counted by kind while they wait, and a decision is about one of them', async () => {
    await db.tx('decide', (tx) => store.decideHeld(tx, 'a', { state: 'released', note: 'ok', nowMs: 500 }));
    expect(await store.findHeld(db.read, 'a')).toMatchObject({ state: 'released', note: 'ok', decided_ms: 500 });
    expect(await store.findHeld(db.read, 'b')).toMatchObject({ state: 'held', note: null, decided_ms: null });
    expect(await store.countHeld(db.read)).toEqual([
      { kind: 'credit', count: 2, total_ucents: 14n },
      { kind: 'payment', count: 1, total_ucents: 3n },
    ]);
  });
});

test('flags are listed from new to old while they stand, and each organisation has one', async () => {
  const flag = (orgId: string, flaggedMs: number | null): Promise<void> =>
    db.tx('flag', (tx) =>
      store.writeFlag(tx, { org_id: orgId, flagged_ms: flaggedMs, trusted_ms: null, detail: `${flaggedMs}` }),
    );
  for (const [orgId, ms] of [
    ['o-2', 5],
    ['o-1', 5],
    ['o-3', 6],
    ['o-4', null],
    ['o-5', 9],
    ['o-5', 4],
  ] as const)
    await flag(orgId, ms);
  expect((await store.pageOfFlags(db.read, page)).map((row) => row.org_id)).toEqual(['o-3', 'o-2', 'o-1', 'o-5']);
  expect(await store.countFlags(db.read)).toBe(4);
  expect(await store.findFlag(db.read, 'o-5')).toMatchObject({ flagged_ms: 4, detail: '4' });
  expect(await store.findFlag(db.read, 'nobody')).toBeUndefined();
});

describe('an outage', () => {
  const opening = { subject_id: 'i', cause: 'outage', machine_id: 'm', evidence: 'probes' } as const;
  const open = (patch: Partial<Parameters<typeof outageOf>[1]>, newId: string, nowMs = 10): Promise<string> =>
    db.tx('open', (tx) => outageOf(tx, { ...opening, ...patch }, { newId, nowMs }));

  test('has all rentals that one cause has stopped on one machine, while it lasts', async () => {
    expect(await open({}, 'out-1')).toBe('out-1');
    await add('a', { to: null, outage_id: 'out-1' });
    expect(await open({ subject_id: 'i-2' }, 'out-2')).toBe('out-1');
    expect(await open({ subject_id: 'i-2', cause: 'gpu_fault' }, 'out-3')).toBe('out-3');
    expect(await open({ subject_id: 'i-2', machine_id: 'm-2' }, 'out-4')).toBe('out-4');
    // A rental that is uncharged already stays in its outage, whatever stops it too.
    expect(await open({ cause: 'gpu_fault', machine_id: 'm-9' }, 'out-5')).toBe('out-1');
    await db.tx('end', (tx) =>
      store.endFreeTime(tx, 'a', { endedMs: 300, freeMs: 1, grantedUcents: 0n, heldUcents: 0n }),
    );
    expect(await open({ subject_id: 'i-2' }, 'out-6')).toBe('out-6');
  });

  test('of our own is one for all machines, by its evidence', async () => {
    const own = { cause: 'own_outage', evidence: 'we were away' } as const;
    expect(await open(own, 'out-1')).toBe('out-1');
    expect(await open({ ...own, subject_id: 'i-2', machine_id: 'm-2' }, 'out-2')).toBe('out-1');
    expect(await open({ ...own, subject_id: 'i-3', evidence: 'again' }, 'out-3')).toBe('out-3');
    expect(
      (await pageOfOutages(db.read, { machineId: undefined, isOpen: false }, page)).map((row) => row.machine_id),
    ).toEqual([null, null]);
  });

  test('is listed from new to old, of one machine or of all, and only those that last if that is asked', async () => {
    for (const [id, machine, nowMs] of [
      ['out-2', 'm-2', 5],
      ['out-1', 'm-1', 5],
      ['out-3', 'm-1', 6],
    ] as const)
      await open({ subject_id: id, machine_id: machine }, id, nowMs);
    await add('lasts', { subject_id: 'i-1', outage_id: 'out-1', to: null });
    await add('ended', { subject_id: 'i-2', outage_id: 'out-2' });
    const list = async (patch: Partial<Parameters<typeof pageOfOutages>[1]>): Promise<string[]> =>
      idsOf(await pageOfOutages(db.read, { machineId: undefined, isOpen: false, ...patch }, page));
    expect(await list({})).toEqual(['out-3', 'out-2', 'out-1']);
    expect(await list({ machineId: 'm-1' })).toEqual(['out-3', 'out-1']);
    expect(await list({ isOpen: true })).toEqual(['out-1']);
    expect(await list({ isOpen: true, machineId: 'm-2' })).toEqual([]);
    const spans = async (sinceMs: number): Promise<string[]> =>
      (await outagesSince(db.read, sinceMs)).map(({ id, untilMs }) => `${id} ${untilMs}`);
    // An outage without an uncharged time gave nothing and is not shown.
    expect(await spans(4)).toEqual(['out-1 null', 'out-2 200']);
    expect(await spans(5)).toEqual(['out-1 null']);
    await db.tx('end', (tx) => tx.run(sql`update free_times set ended_ms = 300 where id = 'lasts'`));
    expect(await spans(5)).toEqual([]);
  });
});

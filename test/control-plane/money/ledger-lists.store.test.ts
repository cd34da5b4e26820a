// Reads of the ledger by account, kind and time: the edges of their windows, the account beside the right one, and the order of equal rows.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Db, join, sql } from '../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import {
  type AccountRef,
  badDebt,
  funding,
  paidOut,
  payable,
  revenue,
  wallet,
} from '../../../control-plane/money/ledger/accounts.ts';
import { openLedger } from '../../../control-plane/money/ledger/ledger.ts';
import {
  amountsOfSubject,
  explainedTransfers,
  type NewTransfer,
  refundsByEvidence,
  refundTotals,
} from '../../../control-plane/money/ledger/store.ts';
import * as suppliers from '../../../control-plane/money/ledger/suppliers.ts';
import * as wallets from '../../../control-plane/money/ledger/wallets.ts';
import { openTestDb } from '../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const START_MS = 1_000;
let clock: VirtualClock;
let db: Db;
beforeEach(async () => {
  clock = virtualClock(START_MS);
  db = await openTestDb(SCHEMA, clock);
});
afterEach(() => db.close());

/** Posts a transfer at `START_MS + atMs`. */
async function post(
  id: string,
  [debit, credit]: [AccountRef, AccountRef],
  patch: Partial<NewTransfer> & { atMs?: number } = {},
) {
  const { atMs = 0, ...more } = patch;
  const at = { ...clock, now: () => START_MS + atMs };
  const transfer = {
    id,
    debit,
    credit,
    amountUcents: 10n,
    kind: 'rental.supplier',
    subjectId: 'i',
    effectiveMs: 0,
    ...more,
  };
  await db.tx('post', (tx) => openLedger({ clock: at }).post(tx, `batch ${id}`, [transfer]));
}
const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);
const [customer, other] = [wallet('o'), wallet('o-2')];
const [supplier, rival] = [payable('s'), payable('s-2')];

describe('the account of a supplier', () => {
  beforeEach(async () => {
    await post('b', [revenue, supplier]);
    await post('a', [revenue, supplier]);
    await post('c', [supplier, revenue], { amountUcents: 4n, kind: 'rental.refund_supplier' });
    await post('late', [revenue, supplier], { atMs: 1, subjectId: 'i-2', kind: 'own_outage.supplier' });
    await post('paid', [supplier, paidOut], { kind: 'payout', amountUcents: 3n, subjectId: 'p' });
    await post('back', [paidOut, supplier], { kind: 'payout.failed', amountUcents: 1n, subjectId: 'p' });
    await post('foreign', [revenue, rival], { amountUcents: 100n });
    await post('foreign back', [rival, revenue], { kind: 'rental.refund_supplier' });
    await post('foreign paid', [rival, paidOut], { kind: 'payout', subjectId: 'p-2' });
    await post('foreign failed', [paidOut, rival], { kind: 'payout.failed', subjectId: 'p-2', amountUcents: 2n });
  });

  test('has earnings and claw-backs from new to old, without payouts, in pages that follow each other', async () => {
    const entries = async (after?: suppliers.EntryCursor, limit = 9) =>
      suppliers.earnedEntries(db.read, 's', after, limit);
    const all = await entries();
    expect(all.map((row) => [row.id, row.amount_ucents])).toEqual([
      ['late', 10n],
      ['c', -4n],
      ['b', 10n],
      ['a', 10n],
    ]);
    for (const [at, row] of all.entries())
      expect(idsOf(await entries({ postedMs: row.posted_ms, id: row.id }))).toEqual(idsOf(all).slice(at + 1));
    expect(idsOf(await entries(undefined, 2))).toEqual(['late', 'c']);
  });

  test('is summed by rental, since a time and for some rentals', async () => {
    const since = async (ms: number): Promise<unknown> =>
      (await suppliers.earnedBySubject(db.read, 's', START_MS + ms)).map((row) => [row.subject_id, row.amount_ucents]);
    expect(await since(0)).toEqual([
      ['i', 16n],
      ['i-2', 10n],
    ]);
    expect(await since(1)).toEqual([['i-2', 10n]]);
    expect(await since(2)).toEqual([]);
    const of = (...ids: string[]): Promise<bigint> => suppliers.earnedBySubjects(db.read, 's', ids);
    expect([await of(), await of('i'), await of('i', 'i-2'), await of('p')]).toEqual([0n, 16n, 26n, 0n]);
  });

  test('was paid what did not come back', async () => {
    expect([await suppliers.paidTo(db.read, 's'), await suppliers.paidTo(db.read, 'nobody')]).toEqual([2n, 0n]);
    expect((await suppliers.standings(db.read)).map((row) => [row.id, row.earned_ucents, row.paid_ucents])).toEqual([
      ['supplier_payable:s', 30n, 2n],
      ['supplier_payable:s-2', 100n, 8n],
    ]);
  });

  test('waits for what is new, and for all of a disputed rental, of which none is below zero', async () => {
    const waits = (ms: number, disputed: string[] = [], fromMs = 0): Promise<bigint> => {
      const rows = disputed.map((id) => sql`select ${id} as subject_id, ${fromMs} as from_ms`);
      const none = sql`select '' as subject_id, 0 as from_ms where 1 = 0`;
      return suppliers.waitingFor(db.read, 's', {
        sinceMs: START_MS + ms,
        disputed: join([none, ...rows], ' union all '),
      });
    };
    expect([await waits(-1), await waits(0), await waits(1)]).toEqual([26n, 10n, 0n]);
    expect([await waits(1, ['i']), await waits(0, ['i']), await waits(0, ['i-2'])]).toEqual([16n, 26n, 10n]);
    // Disputed from a time on: entries of that moment wait, older ones do not, and new ones wait in any case.
    expect([await waits(1, ['i-2'], START_MS + 1), await waits(1, ['i-2'], START_MS + 2)]).toEqual([10n, 0n]);
    expect([await waits(1, ['i'], START_MS), await waits(1, ['i'], START_MS + 1)]).toEqual([16n, 0n]);
    expect([await waits(0, ['i-2'], START_MS + 2), await waits(-1, ['i'], START_MS + 1)]).toEqual([10n, 26n]);
    await post('too much', [supplier, revenue], { atMs: 2, amountUcents: 40n, kind: 'rental.refund_supplier' });
    expect(await waits(1)).toBe(0n);
  });

  test('has earnings of one kind after a time', async () => {
    const earned = (kind: string, ms: number): Promise<bigint> =>
      suppliers.earnedByKind(db.read, 's', { kind, sinceMs: START_MS + ms });
    expect([await earned('rental.supplier', -1), await earned('rental.supplier', 0)]).toEqual([20n, 0n]);
    expect([await earned('own_outage.supplier', 0), await earned('own_outage.supplier', 1)]).toEqual([10n, 0n]);
  });

  test('is owed to the suppliers in order, if it is enough', async () => {
    const owed = (least: bigint, afterId = '', limit = 9) =>
      suppliers.suppliersOwed(db.read, least, { afterId, limit });
    expect([await owed(24n), await owed(25n), await owed(0n, 's'), await owed(0n, '', 1)]).toEqual([
      ['s', 's-2'],
      ['s-2'],
      ['s-2'],
      ['s'],
    ]);
    await post('rich', [funding, customer], { amountUcents: 1_000n, kind: 'funding.manual' });
    expect(await owed(0n)).toEqual(['s', 's-2']);
  });

  test('has payouts, each with its amount', async () => {
    const after = async (id: string, limit: number): Promise<string[]> =>
      idsOf(await suppliers.amountsOfPayoutsAfter(db.read, id, limit));
    expect([await after('', 9), await after('back', 2)]).toEqual([
      ['back', 'foreign failed', 'foreign paid', 'paid'],
      ['foreign failed', 'foreign paid'],
    ]);
    expect(idsOf(await suppliers.amountsOfPayouts(db.read, ['paid', 'rich', 'c']))).toEqual(['paid']);
    expect(await suppliers.amountsOfPayouts(db.read, [])).toEqual([]);
  });
});

describe('transfers', () => {
  beforeEach(async () => {
    await post('b', [funding, customer], { kind: 'funding.manual', subjectId: 'o', amountUcents: 100n });
    await post('a', [customer, revenue], { kind: 'rental.charge' });
    await post('foreign', [funding, other], { kind: 'funding.manual', subjectId: 'o-2', amountUcents: 50n });
    await post('late', [customer, revenue], { kind: 'rental.charge', atMs: 1 });
    await post('fee', [revenue, badDebt], { kind: 'rental.charge', atMs: 1 });
  });
  const page = { after: undefined, limit: 9 };
  const within = { fromMs: START_MS, untilMs: START_MS + 9 };

  test('are exported in the order of posting, of all or of one wallet, subject or kind, and in pages', async () => {
    const list = async (filter: wallets.TransferFilter & { untilMs?: number }, of = page): Promise<string[]> =>
      idsOf(await wallets.transfersIn(db.read, { ...within, ...filter }, of, clock));
    expect(await list({})).toEqual(['a', 'b', 'foreign', 'fee', 'late']);
    expect(await list({ untilMs: START_MS + 1 })).toEqual(['a', 'b', 'foreign']);
    expect(await list({ orgId: 'o' })).toEqual(['a', 'b', 'late']);
    expect(await list({ orgId: 'o', kind: 'rental.charge' })).toEqual(['a', 'late']);
    expect(await list({ subjectId: 'i' })).toEqual(['a', 'fee', 'late']);
    expect(await list({ subjectId: 'i', orgId: 'o' })).toEqual(['a', 'late']);
    expect(await list({ subjectId: 'i', orgId: 'o-2' })).toEqual([]);
    expect(await list({ subjectId: 'i', kind: 'funding.manual' })).toEqual([]);
    for (const filter of [{}, { orgId: 'o' }, { subjectId: 'i' }, { orgId: 'o', kind: 'rental.charge' }]) {
      const rows = await wallets.transfersIn(db.read, { ...within, ...filter }, page, clock);
      for (const [at, row] of rows.entries()) {
        const after = { postedMs: row.posted_ms, id: row.id };
        const next = await wallets.transfersIn(db.read, { ...within, ...filter }, { after, limit: 1 }, clock);
        expect(idsOf(next)).toEqual(idsOf(rows).slice(at + 1, at + 2));
      }
    }
  });

  test('of a wallet and a kind are searched in pieces, with a turn of the event loop after each', async () => {
    const account = `customer_wallet:o`;
    await db.tx('test.many', (tx) =>
      tx.run(
        sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
            with recursive n (i) as (select 1 union all select i + 1 from n where i < 10000)
            select 'n' || cast(i + 10000 as text), 'b', ${account}, 'platform_revenue:platform', 1,
              case when i in (1, 5000, 5001, 10000) then 'rare' else 'often' end, 'x', 0, 20000 from n`,
      ),
    );
    let turns = 0;
    const counted = { nextTurn: async () => void (turns += 1) };
    const list = async (limit: number, after?: { postedMs: number; id: string }): Promise<[string[], number]> => {
      turns = 0;
      const filter = { orgId: 'o', kind: 'rare', fromMs: 20_000, untilMs: 20_001 };
      return [idsOf(await wallets.transfersIn(db.read, filter, { after, limit }, counted)), turns];
    };
    expect(await list(9)).toEqual([['n10001', 'n15000', 'n15001', 'n20000'], 3]);
    expect(await list(2)).toEqual([['n10001', 'n15000'], 1]);
    expect(await list(3)).toEqual([['n10001', 'n15000', 'n15001'], 2]);
    expect(await list(9, { postedMs: 20_000, id: 'n15000' })).toEqual([['n15001', 'n20000'], 2]);
    expect(await list(9, { postedMs: 20_000, id: 'n20000' })).toEqual([[], 1]);
  });

  test('are what wallets have paid for a subject, and the amounts of its kinds', async () => {
    await post('refund', [revenue, customer], { kind: 'rental.refund_charge', amountUcents: 4n });
    expect(await wallets.paidOfSubjects(db.read, ['i', 'o'])).toEqual(
      new Map([
        ['i', 16n],
        ['o', -100n],
      ]),
    );
    expect(await wallets.paidOfSubjects(db.read, [])).toEqual(new Map());
    const amounts = async (...kinds: string[]): Promise<string[]> => idsOf(await amountsOfSubject(db.read, 'i', kinds));
    expect(await amounts('rental.charge')).toEqual(['a', 'fee', 'late']);
    expect(await amounts('rental.refund_charge', 'rental.charge')).toEqual(['a', 'fee', 'late', 'refund']);
    expect(await amountsOfSubject(db.read, 'o', ['rental.charge'])).toEqual([]);
  });

  test('with evidence are shown from new to old, by the time of posting', async () => {
    const refund = (id: string, patch: Partial<NewTransfer> & { atMs?: number }) =>
      post(id, [revenue, customer], { kind: 'rental.refund_charge', evidence: 'dispute 1', ...patch });
    await refund('r-3', { effectiveMs: 5 });
    await refund('r-2', { effectiveMs: 5 });
    await refund('r-1', { effectiveMs: 4, evidence: 'dispute 2' });
    await refund('r-4', { effectiveMs: 5, atMs: 1, evidence: 'probes' });
    await refund('of another', { subjectId: 'i-2', amountUcents: 1n });
    await post('credit', [revenue, customer], { kind: 'correction.credit', evidence: 'dispute 1' });
    expect(
      (await explainedTransfers(db.read, 'i', 9)).map((row) => [row.effective_ms, row.posted_ms - START_MS, row.kind]),
    ).toEqual([
      [5, 1, 'rental.refund_charge'],
      [5, 0, 'rental.refund_charge'],
      [5, 0, 'rental.refund_charge'],
      [4, 0, 'rental.refund_charge'],
      [0, 0, 'correction.credit'],
    ]);
    const [newest, ...others] = await explainedTransfers(db.read, 'i', 2);
    expect([newest?.posted_ms, others.length]).toEqual([START_MS + 1, 1]);
    const disputed = async (...ids: string[]): Promise<string[]> =>
      idsOf(await refundsByEvidence(db.read, ids, 'dispute '));
    expect(await disputed('i')).toEqual(['r-1', 'r-2', 'r-3']);
    expect(await disputed('i', 'i-2')).toEqual(['of another', 'r-1', 'r-2', 'r-3']);
    expect(await disputed()).toEqual([]);
    expect(await refundTotals(db.read, 'dispute ')).toEqual(
      new Map([
        ['dispute 1', 21n],
        ['dispute 2', 10n],
      ]),
    );
  });
});

test('what stands beside the segments of a rental is what its wallet got, and what it could not cover', async () => {
  await post('fund', [funding, customer], { kind: 'funding.manual', subjectId: 'o', amountUcents: 100n });
  await post('charge', [customer, revenue], { kind: 'rental.charge' });
  await post('shortfall', [badDebt, revenue], { kind: 'rental.shortfall', amountUcents: 3n });
  await post('refund', [revenue, customer], { kind: 'rental.refund_charge', amountUcents: 2n });
  await post('held', [customer, revenue], { kind: 'credit.held', amountUcents: 5n });
  await post('given', [revenue, customer], { kind: 'correction.refund_fee', amountUcents: 1n });
  await post('elsewhere', [revenue, customer], { kind: 'correction.refund_fee', subjectId: 'i-2' });
  const beside = await wallets.besideSegments(db.read, ['i', 'i-3']);
  expect([...beside.values()]).toEqual([{ id: 'i', wallet_ucents: -4n, shortfall_ucents: 3n }]);
  expect(await wallets.besideSegments(db.read, [])).toEqual(new Map());
});

// The lines of months: summed by the loop or not, a reader gets the same. What a clock that was set back leaves out is found and mended.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { idRow } from '../../../control-plane/base/db/columns.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import {
  type AccountRef,
  funding,
  paidOut,
  payable,
  revenue,
  wallet,
} from '../../../control-plane/money/ledger/accounts.ts';
import { openLedger } from '../../../control-plane/money/ledger/ledger.ts';
import { openMonthLines } from '../../../control-plane/money/ledger/month-lines.ts';
import { readMonth } from '../../../control-plane/money/ledger/month-read.ts';
import { changeSince, type Grouping } from '../../../control-plane/money/ledger/month-store.ts';
import { monthAt } from '../../../control-plane/money/ledger/month.ts';
import type { NewTransfer } from '../../../control-plane/money/ledger/store.ts';
import type { Billed } from '../../../control-plane/money/ledger/wallets.ts';
import { createLog, type Log } from '../../../shared/log.ts';
import { openTestDb } from '../../kit/databases.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

const NOVEMBER_MS = Date.UTC(2026, 10, 1);
const DECEMBER_MS = Date.UTC(2026, 11, 1);
const NEVER = new AbortController().signal;
const [customer, supplier] = [wallet('o'), payable('s')];

const BILLED: Billed = {
  'rental.charge': { section: 'rental', by: 'subject' },
  'inference.charge': { section: 'inference', by: 'model' },
  'funding.manual': { section: 'deposit', by: 'batch' },
};
const GROUPING: Grouping = { bySubject: ['rental.charge'], byEvidence: ['inference.charge'] };

let clock: VirtualClock;
let db: Db;
let logged: string[];
let log: Log;
beforeEach(async () => {
  clock = virtualClock(DECEMBER_MS);
  db = await openTestDb(SCHEMA, clock);
  logged = [];
  log = createLog('test', 'info', { write: (line: string) => logged.push(line) });
});
afterEach(() => db.close());

async function post(
  id: string,
  [debit, credit]: [AccountRef, AccountRef],
  { atMs = DECEMBER_MS, ...patch }: Partial<NewTransfer> & { atMs?: number } = {},
): Promise<void> {
  const at = { ...clock, now: () => atMs };
  const plain = { id, debit, credit, amountUcents: 10n, kind: 'rental.charge', subjectId: 'i', effectiveMs: 0 };
  await db.tx('post', (tx) => openLedger({ clock: at }).post(tx, `batch ${id}`, [{ ...plain, ...patch }]));
}

/** Transfers of two months, some of them on the edges of their months. */
async function postTwoMonths(): Promise<void> {
  const november = DECEMBER_MS - 1;
  await post('fund', [funding, customer], { kind: 'funding.manual', amountUcents: 1_000n, atMs: NOVEMBER_MS });
  await post('a', [customer, revenue], { atMs: november });
  await post('b', [customer, revenue], { atMs: november - 5 });
  await post('c', [customer, revenue], { subjectId: 'i-2' });
  await post('e-1', [customer, revenue], { subjectId: 'r-1', kind: 'inference.charge', evidence: 'm' });
  await post('e-2', [customer, revenue], { subjectId: 'r-2', kind: 'inference.charge', evidence: 'm' });
  await post('e-3', [customer, revenue], { subjectId: 'r-3', kind: 'inference.charge' });
  await post('earned', [revenue, supplier], { kind: 'rental.supplier', atMs: november });
  await post('earned again', [revenue, supplier], { kind: 'rental.supplier', amountUcents: 7n });
  await post('back', [supplier, revenue], { kind: 'rental.refund_supplier', evidence: 'probes', amountUcents: 3n });
  await post('paid', [supplier, paidOut], { kind: 'payout', amountUcents: 5n, subjectId: 'p' });
  await post('failed', [paidOut, supplier], {
    kind: 'payout.failed',
    amountUcents: 5n,
    subjectId: 'p',
    atMs: DECEMBER_MS + 1,
  });
}

const months = () => openMonthLines({ db, clock, log, billed: () => BILLED });
const rows = async (): Promise<number> =>
  (await db.read.all(idRow, sql`select cast(count as text) as id from month_lines`)).reduce(
    (n, { id }) => n + Number(id),
    0,
  );
const linesOf = async (account: AccountRef, monthMs: number): Promise<unknown[]> => {
  const grouping = account.kind === 'customer_wallet' ? GROUPING : undefined;
  const deps = { db, clock, ledger: openLedger({ clock }) };
  const { lines } = await readMonth(account, { window: monthAt(monthMs), grouping }, deps);
  return lines.map((line) => [
    line.kind,
    line.subject_id,
    line.batch_id,
    line.evidence,
    line.count,
    line.change_ucents,
  ]);
};
const all = async (): Promise<unknown> => ({
  wallet: [await linesOf(customer, NOVEMBER_MS), await linesOf(customer, DECEMBER_MS)],
  supplier: [await linesOf(supplier, NOVEMBER_MS), await linesOf(supplier, DECEMBER_MS)],
  since: await Promise.all(
    [customer, supplier].flatMap((account) =>
      [NOVEMBER_MS, DECEMBER_MS].map((ms) => changeSince(db.read, account, ms)),
    ),
  ),
});
const EXPECTED = {
  wallet: [
    [
      ['funding.manual', 'i', 'batch fund', null, 1, 1_000n],
      ['rental.charge', 'i', '', null, 2, -20n],
    ],
    [
      ['inference.charge', '', '', null, 1, -10n],
      ['inference.charge', '', '', 'm', 2, -20n],
      ['rental.charge', 'i-2', '', null, 1, -10n],
    ],
  ],
  supplier: [
    [['rental.supplier', 'i', '', null, 1, 10n]],
    [
      ['payout', 'p', '', null, 1, -5n],
      ['rental.refund_supplier', 'i', '', 'probes', 1, -3n],
      ['rental.supplier', 'i', '', null, 1, 7n],
      ['payout.failed', 'p', '', null, 1, 5n],
    ],
  ],
  since: [940n, -40n, 14n, 4n],
};

test('a month has the same lines before its transfers are summed, when some are, and when all are', async () => {
  await postTwoMonths();
  expect(await all()).toEqual(EXPECTED);
  await clock.advance(60_000);
  expect(await months().run(NEVER)).toBe(false);
  // The four sides of November, and nothing of the last minute.
  expect(await rows()).toBe(4);
  expect(await all()).toEqual(EXPECTED);
  await clock.advance(2);
  await months().run(NEVER);
  expect(await rows()).toBe(12);
  expect(await all()).toEqual(EXPECTED);
});

test('a transfer is summed a minute after it was posted', async () => {
  await post('fund', [funding, customer], { kind: 'funding.manual' });
  await clock.advance(60_000);
  await months().run(NEVER);
  expect(await rows()).toBe(0);
  await clock.advance(1);
  await months().run(NEVER);
  expect(await rows()).toBe(1);
});

test('later transfers are added to the lines of earlier ones, also by two processes at once', async () => {
  await postTwoMonths();
  await clock.advance(61_000);
  await Promise.all([months().run(NEVER), months().run(NEVER)]);
  expect(await rows()).toBe(12);
  await post('c-2', [customer, revenue], { subjectId: 'i-2', atMs: clock.now() });
  await clock.advance(61_000);
  await Promise.all([months().run(NEVER), months().run(NEVER)]);
  expect(await rows()).toBe(13);
  expect((await linesOf(customer, DECEMBER_MS)).at(-1)).toEqual(['rental.charge', 'i-2', '', null, 2, -20n]);
});

test('a run ends if it is stopped or has taken a minute, and the next one continues', async () => {
  await postTwoMonths();
  await clock.advance(61_000);
  expect(await months().run(AbortSignal.abort())).toBe(false);
  // The first piece of a run ends with its month.
  expect(await rows()).toBe(4);
  await post('late', [customer, revenue], { atMs: DECEMBER_MS + 40_000 });
  let nowMs = 0;
  const slow = { ...clock, monotonicMs: () => (nowMs += 60_000) };
  expect(await openMonthLines({ db, clock: slow, log, billed: () => BILLED }).run(NEVER)).toBe(true);
  expect(await rows()).toBe(12);
});

test('a transfer that was posted before the position is found within an hour, and its account is summed again', async () => {
  await postTwoMonths();
  await clock.advance(61_000);
  const running = months();
  await running.run(NEVER);
  await post('set back', [customer, revenue], { atMs: NOVEMBER_MS + 5 });
  await post('earned late', [revenue, supplier], { kind: 'rental.supplier', atMs: NOVEMBER_MS + 5 });
  await post('other', [funding, wallet('o-2')], { kind: 'funding.manual', atMs: clock.now() });
  await clock.advance(3_600_000 - 1);
  await running.run(NEVER);
  expect(logged).toEqual([]);
  await clock.advance(1);
  await running.run(NEVER);
  expect(logged.map((line) => (JSON.parse(line) as { account_id: string }).account_id)).toEqual([
    'customer_wallet:o',
    'supplier_payable:s',
  ]);
  expect(await linesOf(customer, NOVEMBER_MS)).toEqual([
    ['funding.manual', 'i', 'batch fund', null, 1, 1_000n],
    ['rental.charge', 'i', '', null, 3, -30n],
  ]);
  expect(await linesOf(customer, DECEMBER_MS)).toEqual(EXPECTED.wallet[1]);
  expect(await linesOf(supplier, NOVEMBER_MS)).toEqual([['rental.supplier', 'i', '', null, 2, 20n]]);
  expect(await linesOf(supplier, DECEMBER_MS)).toEqual(EXPECTED.supplier[1]);
  await months().run(NEVER);
  expect(logged).toHaveLength(2);
});

test('an account whose lines cannot be made again waits for the next check, and others do not', async () => {
  await postTwoMonths();
  await clock.advance(61_000);
  let isBroken = false;
  const billed = (): Billed => {
    if (isBroken) throw new Error('no kinds');
    return BILLED;
  };
  const running = openMonthLines({ db, clock, log, billed });
  await running.run(NEVER);
  await post('set back', [customer, revenue], { atMs: NOVEMBER_MS + 5 });
  await post('earned late', [revenue, supplier], { kind: 'rental.supplier', atMs: NOVEMBER_MS + 5 });
  await clock.advance(3_600_000);
  isBroken = true;
  await expect(running.run(NEVER)).rejects.toThrow('the lines of customer_wallet:o could not be made again');
  isBroken = false;
  expect(await linesOf(supplier, NOVEMBER_MS)).toEqual([['rental.supplier', 'i', '', null, 2, 20n]]);
  await clock.advance(3_600_000 - 1);
  await running.run(NEVER);
  expect(logged).toHaveLength(2);
  await clock.advance(1);
  await running.run(NEVER);
  expect(logged).toHaveLength(3);
  expect((await linesOf(customer, NOVEMBER_MS)).at(-1)).toEqual(['rental.charge', 'i', '', null, 3, -30n]);
});

// The bill of an organisation and a month: all transfers of its wallet that were posted in the month, in lines, between two balances.
//
// The bills of all months are a chain that ends at the balance of the ledger (money/ledger/month.ts).
//
// The month of a transfer is the time of its posting. So the bill of a past month never changes: a later refund is on a later bill. The hours
// of a rental are posted up to half an hour after their end (money/metering), so the last hour of a month may be on the next bill.
import { BILL_SECTIONS, type Bill, type BillLine } from '../../../shared/api/bill.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Db } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { monthOf, shownMonth } from '../ledger/month.ts';
import { groupingOf } from '../ledger/month-lines.ts';
import { readMonth } from '../ledger/month-read.ts';
import type { MonthLine } from '../ledger/month-store.ts';
import type { Billed, BilledAs } from '../ledger/wallets.ts';

export interface BillDeps {
  db: Db;
  clock: Clock;
  ledger: Pick<Ledger, 'balance'>;
  /** How each kind of transfer appears on a bill. Each room states this for its own kinds. */
  billed(): Billed;
}

/**
 * `month` is like 2026-11; undefined is the present month. Other work of the process goes on in between.
 * @throws ServiceError `validation_failed` for a month to come
 */
export async function billOf(orgId: string, month: string | undefined, deps: BillDeps): Promise<Bill> {
  const { clock } = deps;
  const chosen = monthOf(month, clock.now());
  const billed = deps.billed();
  const about = { window: chosen.window, grouping: groupingOf(billed) };
  const { lines, ...balances } = await readMonth(wallet(orgId), about, deps);
  await clock.nextTurn();
  const sorted = linesOf(lines, billed);
  await clock.nextTurn();
  return { org_id: orgId, ...shownMonth(chosen, balances, sorted) };
}

/** A row of a bill as a table. */
export type Row = readonly (string | number | null)[];

/** The first row names the columns, and the lines stand between the two balances. */
export function* billRows(bill: Bill): Generator<Row> {
  const { month, currency } = bill;
  const balance = (name: string, amount: string): Row => [month, name, null, null, null, null, amount, currency, null];
  yield ['month', 'section', 'subject_id', 'model', 'reason', 'count', 'amount', 'currency', 'posted_at'];
  yield balance('opening_balance', bill.opening_balance);
  for (const line of bill.lines) {
    const { section, subject_id: subject, model, reason, count, amount, posted_at: postedAt } = line;
    yield [month, section, subject, model, reason, count, amount, currency, postedAt];
  }
  yield balance('closing_balance', bill.closing_balance);
}

/** How a transfer appears whose kind no room has stated. It stays on the bill, and `ledger verify` reports the kind. */
const UNKNOWN: BilledAs = { section: 'other', by: 'batch' };

interface Line extends Omit<BillLine, 'amount' | 'posted_at'> {
  ucents: bigint;
  postedMs: number;
}

/** Lines of the same millisecond are sorted by their keys. So each request for the bill gets the same order. */
function linesOf(groups: readonly MonthLine[], billed: Billed): Line[] {
  const lines = new Map<string, Line>();
  for (const group of groups) {
    const line = lineOf(group, billed[group.kind] ?? UNKNOWN);
    const { section, subject_id: subject, model, reason } = line;
    const key = JSON.stringify([section, subject, model, reason, group.batch_id]);
    const known = lines.get(key);
    if (known === undefined) lines.set(key, line);
    else {
      known.ucents += line.ucents;
      known.count += line.count;
      known.postedMs = Math.max(known.postedMs, line.postedMs);
    }
  }
  const order = ({ section }: Line): number => BILL_SECTIONS.indexOf(section);
  return [...lines]
    .toSorted(([a, x], [b, y]) => order(x) - order(y) || x.postedMs - y.postedMs || (a < b ? -1 : 1))
    .map(([, line]) => line);
}

function lineOf(group: MonthLine, { section, by }: BilledAs): Line {
  const { subject_id: subject, evidence } = group;
  return {
    section: typeof section === 'string' ? section : section(evidence),
    subject_id: subject === '' ? null : subject,
    model: by === 'model' ? evidence : null,
    reason: by === 'model' ? null : evidence,
    count: group.count,
    ucents: group.change_ucents,
    postedMs: group.last_posted_ms,
  };
}

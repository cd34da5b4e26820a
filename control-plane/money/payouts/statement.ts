// The statement of a supplier and a month: all transfers of its account that were posted in the month, in lines, between two balances. The
// statements of all months are a chain that ends at the balance of the ledger (money/ledger/month.ts). The month of an entry is the time of
// its posting, so the statement of a past month never changes.
import { type CommunityStatement, STATEMENT_SECTIONS, type StatementLine } from '../../../shared/api/payout.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { payable } from '../ledger/accounts.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { monthOf, shownMonth } from '../ledger/month.ts';
import { readMonth } from '../ledger/month-read.ts';
import type { MonthLine } from '../ledger/month-store.ts';
import type { MachinesOf } from './earnings.ts';

export interface StatementDeps {
  db: Db;
  clock: Clock;
  ledger: Pick<Ledger, 'balance'>;
  machinesOf: MachinesOf;
}

type Section = StatementLine['section'];

interface Line extends Omit<StatementLine, 'amount' | 'posted_at'> {
  ucents: bigint;
  postedMs: number;
}

/**
 * `month` is like 2026-11; undefined is the present month. The statement is empty for a supplier whose account has no entries. Other work of the
 * process goes on in between.
 * @throws ServiceError `validation_failed` for a month to come
 */
export async function statementOf(
  supplierId: string,
  month: string | undefined,
  { machinesOf, ...deps }: StatementDeps,
): Promise<CommunityStatement> {
  const { db, clock } = deps;
  const chosen = monthOf(month, clock.now());
  const about = { window: chosen.window, grouping: undefined };
  const { lines: groups, ...balances } = await readMonth(payable(supplierId), about, deps);
  await clock.nextTurn();
  const lines = await linesOf(db.read, groups, machinesOf);
  await clock.nextTurn();
  return shownMonth(chosen, balances, lines);
}

/** Pure: a statement as the rows of a table. The first row names the columns, and the lines stand between the two balances. */
export function* statementRows(statement: CommunityStatement): Generator<readonly (string | number | null)[]> {
  const { month, currency } = statement;
  const balance = (name: string, amount: string) => [month, name, null, null, null, null, null, amount, currency, null];
  yield [
    'month',
    'section',
    'machine_id',
    'instance_id',
    'payout_id',
    'reason',
    'count',
    'amount',
    'currency',
    'posted_at',
  ];
  yield balance('opening_balance', statement.opening_balance);
  for (const line of statement.lines) {
    const { section, machine_id: machine, instance_id: instance, payout_id: payout, reason, count } = line;
    yield [month, section, machine, instance, payout, reason, count, line.amount, currency, line.posted_at];
  }
  yield balance('closing_balance', statement.closing_balance);
}

async function linesOf(query: Query, groups: readonly MonthLine[], machinesOf: MachinesOf): Promise<Line[]> {
  const rentals = groups.filter(({ kind }) => !isPayout(kind)).map((group) => group.subject_id);
  const machines = await machinesOf(query, [...new Set(rentals)]);
  const lines = groups.map((group): Line => {
    const { subject_id: subject, evidence: reason, count, change_ucents: ucents, last_posted_ms: postedMs } = group;
    const about = isPayout(group.kind)
      ? { machine_id: null, instance_id: null, payout_id: subject }
      : { machine_id: machines.get(subject) ?? null, instance_id: subject, payout_id: null };
    return { section: sectionOf(group), ...about, reason, count, ucents, postedMs };
  });
  const placeOf = ({ section, machine_id: machine }: Line): string =>
    `${STATEMENT_SECTIONS.indexOf(section)} ${machine ?? ''}`;
  // The groups are sorted by time, and sorting keeps their order. So the lines of one machine stay in the order of time.
  return lines.toSorted((a, b) => {
    if (placeOf(a) === placeOf(b)) return 0;
    return placeOf(a) < placeOf(b) ? -1 : 1;
  });
}

function isPayout(kind: string): boolean {
  return kind.startsWith('payout');
}

function sectionOf({ kind, change_ucents: change }: MonthLine): Section {
  if (isPayout(kind)) return change < 0n ? 'payout' : 'payout_failed';
  return change < 0n ? 'claw_back' : 'earning';
}

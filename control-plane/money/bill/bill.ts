// The bill of an organisation and a month: all transfers of its wallet that were posted in the month, in lines, between two balances.
//
// The opening balance is the balance of the account today, minus everything that was posted since the month began. The closing balance is
// the opening balance plus the change of the month. So the bills of all months are a chain that ends at the balance of the ledger:
//
//   opening(October) --lines--> closing(October) = opening(November) --lines--> closing(November) = the balance in the ledger
//
// The month of a transfer is the time of its posting. So the bill of a past month never changes: a later refund is on a later bill. The hours
// of a rental are posted up to half an hour after their end (money/metering), so the last hour of a month may be on the next bill.
import { BILL_SECTIONS, type Bill, type BillLine, type BillSection } from '../../../shared/api/bill.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { dollarText } from '../../../shared/money.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { wallet } from '../ledger/accounts.ts';
import type { Billed, BilledAs } from '../ledger/billed.ts';
import type { Ledger } from '../ledger/ledger.ts';
import { type PostedWindow, walletChange, type WalletGroup, walletGroups } from '../ledger/wallets.ts';

/** No transaction lasts this long, so nothing is added to a month that ended earlier. */
const SETTLED_MS = 60_000;

export interface BillDeps {
  db: Db;
  clock: Clock;
  ledger: Pick<Ledger, 'balance'>;
  /** The kinds of all rooms. */
  billed(): Billed;
}

/** `month` is like 2026-11; undefined is the present month. @throws ServiceError `validation_failed` for a month to come */
export function billOf(orgId: string, month: string | undefined, deps: BillDeps): Promise<Bill> {
  const { db, clock, ledger } = deps;
  const nowMs = clock.now();
  const name = month ?? isoTime(nowMs).slice(0, 7);
  const window = windowOf(name);
  if (window.fromMs > nowMs) failField('month', 'must not be in the future');
  const billed = deps.billed();
  return db.snapshot('bill', async (query) => {
    const { postedUcents } = await ledger.balance(query, wallet(orgId));
    const opening = postedUcents - (await walletChange(query, orgId, { ...window, untilMs: Number.MAX_SAFE_INTEGER }));
    const closing = opening + (await walletChange(query, orgId, window));
    const lines = await linesOf(query, orgId, { window, billed });
    return {
      org_id: orgId,
      month: name,
      currency: 'USD',
      is_complete: nowMs >= window.untilMs + SETTLED_MS,
      opening_balance: dollarText(opening),
      closing_balance: dollarText(closing),
      totals: totalsOf(lines),
      lines: lines.map(({ ucents, postedMs, ...line }) => ({
        ...line,
        amount: dollarText(ucents),
        posted_at: isoTime(postedMs),
      })),
    };
  });
}

/** How a kind without a statement appears: nothing is lost, and `ledger verify` reports the kind. */
const UNKNOWN: BilledAs = { section: 'other', by: 'batch' };

interface Line extends Omit<BillLine, 'amount' | 'posted_at'> {
  ucents: bigint;
  postedMs: number;
}

async function linesOf(
  query: Query,
  orgId: string,
  { window, billed }: { window: PostedWindow; billed: Billed },
): Promise<Line[]> {
  const kindsBy = (by: BilledAs['by']): string[] => Object.keys(billed).filter((kind) => billed[kind]?.by === by);
  const grouping = { bySubject: kindsBy('subject'), byEvidence: kindsBy('model') };
  const lines = new Map<string, Line>();
  for (const group of await walletGroups(query, orgId, { window, grouping })) {
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
  // The keys decide between lines of one millisecond, so that a bill is the same at each read.
  return [...lines]
    .toSorted(([a, x], [b, y]) => order(x) - order(y) || x.postedMs - y.postedMs || (a < b ? -1 : 1))
    .map(([, line]) => line);
}

function lineOf(group: WalletGroup, { section, by }: BilledAs): Line {
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

function totalsOf(lines: readonly Line[]): Bill['totals'] {
  const sums = new Map<BillSection, bigint>();
  for (const { section, ucents } of lines) sums.set(section, (sums.get(section) ?? 0n) + ucents);
  return [...sums].map(([section, ucents]) => ({ section, amount: dollarText(ucents) }));
}

function windowOf(month: string): PostedWindow {
  const [year = 0, number = 0] = month.split('-').map(Number);
  return { fromMs: Date.UTC(year, number - 1), untilMs: Date.UTC(year, number) };
}

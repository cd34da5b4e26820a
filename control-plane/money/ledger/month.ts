// A month of an account, for the bill of a customer and the statement of a supplier: its window and the two balances around its lines.
//
// The opening balance is the balance of the account today, minus everything that was posted since the month began. The closing balance is
// the opening balance plus the lines of the month. So all months are a chain that ends at the balance of the ledger:
//
//   opening(October) --lines--> closing(October) = opening(November) --lines--> closing(November) = the balance in the ledger
import { isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { dollarText } from '../../../shared/money.ts';
import type { PostedWindow } from './wallets.ts';

/** No transaction lasts this long. So everything that was posted earlier is visible, and nothing is added to a month that ended earlier. */
export const SETTLED_MS = 60_000;

export interface Month {
  /** The month, like 2026-11, in UTC. */
  name: string;
  window: PostedWindow;
  /** False while something may still be posted in it. */
  isComplete: boolean;
}

/** Undefined is the present month. @throws ServiceError `validation_failed` for a month to come */
export function monthOf(name: string | undefined, nowMs: number): Month {
  const chosen = name ?? isoTime(nowMs).slice(0, 7);
  const [year = 0, number = 0] = chosen.split('-').map(Number);
  const window = monthAt(Date.UTC(year, number - 1));
  if (window.fromMs > nowMs) failField('month', 'must not be in the future');
  return { name: chosen, window, isComplete: nowMs >= window.untilMs + SETTLED_MS };
}

/** The month that a moment is in. */
export function monthAt(atMs: number): PostedWindow {
  const at = new Date(atMs);
  const month = (offset: number): number => Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + offset);
  return { fromMs: month(0), untilMs: month(1) };
}

/** A line of a month before its amount and time become text. */
interface Entry<Section extends string> {
  section: Section;
  ucents: bigint;
  postedMs: number;
}

type Shown<Line> = Omit<Line, 'ucents' | 'postedMs'> & { amount: string; posted_at: string };

interface ShownMonth<Section extends string, Line> {
  month: string;
  currency: 'USD';
  is_complete: boolean;
  opening_balance: string;
  closing_balance: string;
  totals: { section: Section; amount: string }[];
  lines: Shown<Line>[];
}

/** The members that a bill and a statement share. `sinceUcents` is what was posted since the month began. */
export function shownMonth<Section extends string, Line extends Entry<Section>>(
  { name, isComplete }: Month,
  { nowUcents, sinceUcents }: { nowUcents: bigint; sinceUcents: bigint },
  lines: readonly Line[],
): ShownMonth<Section, Line> {
  const openingUcents = nowUcents - sinceUcents;
  const totals = totalsOf(lines);
  const closingUcents = [...totals.values()].reduce((sum, ucents) => sum + ucents, openingUcents);
  return {
    month: name,
    currency: 'USD',
    is_complete: isComplete,
    opening_balance: dollarText(openingUcents),
    closing_balance: dollarText(closingUcents),
    totals: [...totals].map(([section, ucents]) => ({ section, amount: dollarText(ucents) })),
    lines: lines.map(({ ucents, postedMs, ...line }) => ({
      ...line,
      amount: dollarText(ucents),
      posted_at: isoTime(postedMs),
    })),
  };
}

/** The sections stand in the order of their first lines. */
function totalsOf<Section extends string>(lines: readonly Entry<Section>[]): Map<Section, bigint> {
  const sums = new Map<Section, bigint>();
  for (const { section, ucents } of lines) sums.set(section, (sums.get(section) ?? 0n) + ucents);
  return sums;
}

// Computes the status of a contract at a moment, and its next term. Pure: no I/O, no clock.
import type { RenewalMode } from '../../../shared/api/reservation.ts';
import { RESERVATION_STATES, type ReservationState } from '../../../shared/states.ts';

export const DAY_MS = 24 * 3_600_000;
/** A contract that ends within this number of days expires soon (specification 8). */
const EXPIRING_SOON_DAYS = 14;

export interface Term {
  starts_ms: number;
  /** The end of the term. The term covers the time before it. */
  ends_ms: number;
}

export interface Standing extends Term {
  /** The start of the first term. Terms of whole months begin on its day of the month. */
  first_ms: number;
  status: ReservationState;
  renewal: RenewalMode;
}

/**
 * The contract with its status at `nowMs`. The engine writes that status within a second, and no launch is accepted or refused wrongly because
 * of that second. A suspended contract is not renewed; it expires at its end.
 */
export function standing<T extends Standing>(contract: T, nowMs: number): T {
  let now = contract;
  for (let next = nextStep(now, nowMs); next !== undefined; next = nextStep(now, nowMs)) now = { ...now, ...next };
  return now;
}

/** The next change that is due: another status, or the next term. Undefined if nothing is due. */
export function nextStep(
  { status, renewal, first_ms: firstMs, ...term }: Standing,
  nowMs: number,
): { status: ReservationState } | Term | undefined {
  if (status === 'pending') return nowMs >= term.starts_ms ? { status: 'active' } : undefined;
  if ((status !== 'active' && status !== 'suspended') || nowMs < term.ends_ms) return undefined;
  return status === 'active' && renewal === 'auto_renew' ? nextTerm(term, firstMs) : { status: 'expired' };
}

/** The end of the contract; null: it is renewed. */
export function lastEnd({ renewal, ends_ms: endsMs }: Pick<Standing, 'renewal' | 'ends_ms'>): number | null {
  return renewal === 'auto_renew' ? null : endsMs;
}

/** True if the contract has expired or was cancelled. */
export function isOver({ status }: { status: ReservationState }): boolean {
  return RESERVATION_STATES[status].length === 0;
}

/** The status of a suspended contract after `resume`. */
export function resumed(term: Term, nowMs: number): ReservationState {
  return nowMs < term.starts_ms ? 'pending' : 'active';
}

/**
 * The term that follows `term` directly, with the same length. A term of whole calendar months (UTC) is followed by as many months, counted from the
 * first term: 31 January to 28 February is followed by 28 February to 31 March.
 */
function nextTerm({ starts_ms: startsMs, ends_ms: endsMs }: Term, firstMs: number): Term {
  const first = new Date(firstMs);
  const [from, to] = [monthsBetween(first, new Date(startsMs)), monthsBetween(first, new Date(endsMs))];
  const isWhole = from < to && addMonths(first, from) === startsMs && addMonths(first, to) === endsMs;
  return { starts_ms: endsMs, ends_ms: isWhole ? addMonths(first, 2 * to - from) : endsMs + (endsMs - startsMs) };
}

/** The difference of the months of two dates, whatever their days. */
function monthsBetween(from: Date, to: Date): number {
  return (to.getUTCFullYear() - from.getUTCFullYear()) * 12 + to.getUTCMonth() - from.getUTCMonth();
}

/** The same day and time in a later month, or its last day if it has no such day. */
function addMonths(date: Date, months: number): number {
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + months];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const day = Math.min(date.getUTCDate(), lastDay);
  return Date.UTC(year, month, day) + (date.getTime() % DAY_MS);
}

/** `renewal` of specification 2.7. Days are rounded up, so that "soon" begins exactly 14 times 24 hours before the end. */
export function daysUntilEnd({ ends_ms: endsMs }: Term, nowMs: number): { days: number; isSoon: boolean } {
  const days = Math.max(0, Math.ceil((endsMs - nowMs) / DAY_MS));
  return { days, isSoon: days <= EXPIRING_SOON_DAYS };
}

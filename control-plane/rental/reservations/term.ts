// Pure: how a contract stands at a moment, and the term that follows a term.
import type { RenewalMode } from '../../../shared/api/reservation.ts';
import { RESERVATION_STATES, type ReservationState } from '../../../shared/states.ts';

export const DAY_MS = 24 * 3_600_000;
/** Specification 8. */
const EXPIRING_SOON_DAYS = 14;

export interface Term {
  starts_ms: number;
  /** Exclusive. */
  ends_ms: number;
}

export interface Standing extends Term {
  status: ReservationState;
  renewal: RenewalMode;
}

/**
 * The contract as it stands at `nowMs`. Its row follows within a second, when the engine gets to it; nobody is refused or let in
 * because of that second. A suspended contract is not renewed: it expires at its end.
 */
export function standing<T extends Standing>(contract: T, nowMs: number): T {
  let now = contract;
  for (let next = nextStep(now, nowMs); next !== undefined; next = nextStep(now, nowMs)) now = { ...now, ...next };
  return now;
}

/** The one change that is due: a status that follows, or the next term. Undefined where nothing is due. */
export function nextStep(
  { status, renewal, ...term }: Standing,
  nowMs: number,
): { status: ReservationState } | Term | undefined {
  if (status === 'pending') return nowMs >= term.starts_ms ? { status: 'active' } : undefined;
  if ((status !== 'active' && status !== 'suspended') || nowMs < term.ends_ms) return undefined;
  return status === 'active' && renewal === 'auto_renew' ? nextTerm(term) : { status: 'expired' };
}

/** Ended or cancelled: nothing follows. */
export function isOver({ status }: { status: ReservationState }): boolean {
  return RESERVATION_STATES[status].length === 0;
}

/** The status of a suspended contract that goes on. */
export function resumed(term: Term, nowMs: number): ReservationState {
  return nowMs < term.starts_ms ? 'pending' : 'active';
}

/** As long as `term`, and right after it. A term of whole calendar months (UTC) is followed by as many months. */
function nextTerm({ starts_ms: startsMs, ends_ms: endsMs }: Term): Term {
  const [from, to] = [new Date(startsMs), new Date(endsMs)];
  const months = (to.getUTCFullYear() - from.getUTCFullYear()) * 12 + to.getUTCMonth() - from.getUTCMonth();
  const isWhole = months > 0 && addMonths(from, months) === endsMs;
  return { starts_ms: endsMs, ends_ms: isWhole ? addMonths(to, months) : endsMs + (endsMs - startsMs) };
}

/** Same day of the month and time of day; the last day where the month has no such day. */
function addMonths(date: Date, months: number): number {
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + months];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const day = Math.min(date.getUTCDate(), lastDay);
  return Date.UTC(year, month, day) + (date.getTime() % DAY_MS);
}

/** `renewal` of specification 2.7. Days are counted up, so that "soon" begins exactly 14 times 24 hours before the end. */
export function daysUntilEnd({ ends_ms: endsMs }: Term, nowMs: number): { days: number; isSoon: boolean } {
  const days = Math.max(0, Math.ceil((endsMs - nowMs) / DAY_MS));
  return { days, isSoon: days <= EXPIRING_SOON_DAYS };
}

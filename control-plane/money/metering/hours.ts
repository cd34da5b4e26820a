// Pure: when the hours of a rental are posted, and how far its hold reaches. A rental that runs is written once an hour.
//
// Each hour is posted some minutes after its end: POST_SPREAD_MS times a fraction that follows from the id of the segment. So the postings of
// all rentals do not come at the same moment. The transfers carry the end of the hour, and balances and usage are exact at any time.
// Each posting also sets the hold. It then covers the time until the next posting, and `aheadMs` more.
//
//   10:00        10:12                  11:00        11:12
//     |  end       |  posted to 10:00     |  end       |  posted to 11:00
//     |  of hour   |  hold until 11:12 + 10 min        |  hold until 12:12 + 10 min
//
// The exception is a wallet that does not last for WALLET_MS at the price of all rentals of its organisation. Long holds would leave nothing
// for the next launch, or stop one rental while another one holds what it needs much later. Holds on such a wallet cover `aheadMs` alone, and
// are renewed when half of that has passed. A launch that costs more than the others may still lack what they hold: then all of them are shortened
// to `aheadMs`, and only a launch that lacks more is refused.
import { hash } from 'node:crypto';
import { accruedUcents } from '../../../shared/money.ts';
import { costUcents, unpostedUcents } from './posting.ts';
import type { Segment } from './store.ts';

const HOUR_MS = 3_600_000;
const POST_SPREAD_MS = HOUR_MS / 2;
/** Longer than the longest hold. A hold covers at most an hour and a half that is not posted yet, and a little more than the next hour. */
export const WALLET_MS = 4 * HOUR_MS;

/** The last hour end that is to be posted by now. */
export function postableMs(segment: Segment, nowMs: number): number {
  return Math.floor((nowMs - delayMs(segment)) / HOUR_MS) * HOUR_MS;
}

/** What a hold must cover until the next posting, and `aheadMs` more. */
export function longHoldUcents(segment: Segment, aheadMs: number): bigint {
  const fromMs = segment.posted_through_ms;
  const nextPostingMs = Math.floor(fromMs / HOUR_MS) * HOUR_MS + HOUR_MS + delayMs(segment);
  return costUcents(segment, nextPostingMs + aheadMs) - costUcents(segment, fromMs);
}

/** What a hold must cover now and for `forMs` more. */
export function coverUcents(segment: Segment, nowMs: number, forMs: number): bigint {
  return unpostedUcents(segment, nowMs) + accruedUcents(segment.rate_ucents_per_hour, forMs);
}

/** The time from the end of an hour until it is posted: at most half an hour, and always the same for one segment. */
function delayMs({ id }: Segment): number {
  return Math.floor((Number.parseInt(hash('sha256', id).slice(0, 8), 16) / 2 ** 32) * POST_SPREAD_MS);
}

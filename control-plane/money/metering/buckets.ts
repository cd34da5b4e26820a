// Pure: the UTC time buckets of usage rows, and the windows that may be requested.
import { isoTimeMs } from '../../../shared/iso-time.ts';
import { failField } from '../../../shared/errors.ts';
import { USAGE_DAYS_MAX } from '../../../shared/limits.ts';

export type Bucket = 'hour' | 'day' | 'week' | 'month';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const WEEK_MS = 7 * DAY_MS;
/** Specification 4.6. */
const WINDOW_DEFAULT_MS = 30 * DAY_MS;
/** If no bucket is given: hours for windows up to the first limit, days up to the second, months beyond. */
const HOURS_UP_TO_MS = 2 * DAY_MS;
const DAYS_UP_TO_MS = 62 * DAY_MS;

export interface Window {
  /** Inclusive. */
  startMs: number;
  /** Exclusive. */
  endMs: number;
  bucket: Bucket;
}

/**
 * The requested window. Defaults: `end` is now, `start` is 30 days before the end, `bucket` depends on the length of the window.
 * @throws ServiceError `validation_failed` for a window that is empty or too long for its bucket
 */
export function windowOf(
  asked: { start?: string | undefined; end?: string | undefined; bucket?: Bucket | undefined },
  nowMs: number,
): Window {
  const endMs = asked.end === undefined ? nowMs : momentOf(asked.end);
  const startMs = asked.start === undefined ? endMs - WINDOW_DEFAULT_MS : momentOf(asked.start);
  if (startMs >= endMs)
    failField('start', asked.end === undefined ? 'must be before now, the default of end' : 'must be before end');
  const lengthMs = endMs - startMs;
  const bucket = asked.bucket ?? defaultBucket(lengthMs);
  const daysMax = USAGE_DAYS_MAX[bucket];
  if (lengthMs > daysMax * DAY_MS) {
    failField('start', `must be at most ${daysMax} days before end for rows by ${bucket}`);
  }
  return { startMs, endMs, bucket };
}

/** The query schema accepts nothing else. */
function momentOf(text: string): number {
  const ms = isoTimeMs(text);
  if (ms === undefined) throw new Error(`${text} is not a time`);
  return ms;
}

function defaultBucket(lengthMs: number): Bucket {
  if (lengthMs <= HOURS_UP_TO_MS) return 'hour';
  return lengthMs <= DAYS_UP_TO_MS ? 'day' : 'month';
}

/** Weeks begin on Monday. */
export function bucketStart(atMs: number, bucket: Bucket): number {
  const date = new Date(atMs);
  const dayMs = Math.floor(atMs / DAY_MS) * DAY_MS;
  switch (bucket) {
    case 'hour':
      return Math.floor(atMs / HOUR_MS) * HOUR_MS;
    case 'day':
      return dayMs;
    case 'week':
      return dayMs - ((date.getUTCDay() + 6) % 7) * DAY_MS;
    case 'month':
      return Date.UTC(date.getUTCFullYear(), date.getUTCMonth(), 1);
  }
}

/** Exclusive. */
export function bucketEnd(startMs: number, bucket: Bucket): number {
  switch (bucket) {
    case 'hour':
      return startMs + HOUR_MS;
    case 'day':
      return startMs + DAY_MS;
    case 'week':
      return startMs + WEEK_MS;
    case 'month': {
      const date = new Date(startMs);
      return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
    }
  }
}

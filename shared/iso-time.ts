// Parses times in any form of ISO 8601: dates and date-times, basic or extended, by week or by day of the year, with any offset.
import { DateTime } from 'luxon';

/** Far above the longest form. A longer text is refused unread. */
const CHARS_MAX = 64;
/** Begins with a year, because a time of day alone would mean today. Excludes names of time zones. */
const ALPHABET = /^[+-]?\d{4}[\dTZW:.,+-]*$/i;

/** Answers write times with four digits of the year, and windows begin up to 30 days before a time that was given. */
const FIRST_MS = Date.parse('0001-01-01T00:00:00Z');
const LAST_MS = Date.parse('9999-12-31T23:59:59.999Z');

/**
 * Unix milliseconds; undefined for anything else, and for a time that is not in the years 1 to 9999. A time without offset is UTC, and a date means
 * its first moment.
 */
export function isoTimeMs(text: string): number | undefined {
  if (text.length > CHARS_MAX || !ALPHABET.test(text)) return undefined;
  const moment = DateTime.fromISO(text, { zone: 'utc' });
  const ms = moment.isValid ? moment.toMillis() : Number.NaN;
  return ms >= FIRST_MS && ms <= LAST_MS ? ms : undefined;
}

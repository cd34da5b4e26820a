// Parses times in any form of ISO 8601: dates and date-times, basic or extended, by week or by day of the year, with any offset.
import { DateTime } from 'luxon';

/** Far above the longest form. A longer text is refused unread. */
const CHARS_MAX = 64;
/** Begins with a year, because a time of day alone would mean today. Excludes names of time zones. */
const ALPHABET = /^[+-]?\d{4}[\dTZW:.,+-]*$/i;

/** Unix milliseconds; undefined for anything else. A time without offset is UTC, and a date means its first moment. */
export function isoTimeMs(text: string): number | undefined {
  if (text.length > CHARS_MAX || !ALPHABET.test(text)) return undefined;
  const moment = DateTime.fromISO(text, { zone: 'utc' });
  return moment.isValid ? moment.toMillis() : undefined;
}

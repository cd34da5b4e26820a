// Moments that callers write in any form of ISO 8601: dates and date-times, basic or extended, by week or by day of the year, with any offset.
import { DateTime } from 'luxon';

/** Far above the longest form: what is longer is not looked at. */
const CHARS_MAX = 64;
/** A year first, so no time of day alone, which would mean today; and no names of time zones. */
const ALPHABET = /^[+-]?\d{4}[\dTZW:.,+-]*$/i;

/** Unix milliseconds. What names no offset is UTC, and a date is its beginning. Undefined for anything else. */
export function isoTimeMs(text: string): number | undefined {
  if (text.length > CHARS_MAX || !ALPHABET.test(text)) return undefined;
  const moment = DateTime.fromISO(text, { zone: 'utc' });
  return moment.isValid ? moment.toMillis() : undefined;
}

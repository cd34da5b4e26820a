// How numbers, money and times are written. Money is text of the API or a number of dollars; times are UTC.
import { serviceNow } from './clock.ts';

const MINUTE_S = 60;
const HOUR_S = 3_600;
const DAY_S = 86_400;

/** An amount like `$12.10` or `−$0.02`. Rates may have more digits: `dollars(1.2345, 4)`. */
export function dollars(amount: number | string, digits = 2): string {
  const value = Number(amount);
  const text = Math.abs(value).toLocaleString('en-US', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
  const isZero = Number(text.replaceAll(',', '')) === 0;
  return value < 0 && !isZero ? `−$${text}` : `$${text}`;
}

/** Whole cents as dollars. */
export const cents = (amount: number): string => dollars(amount / 100);

/** Most digits of a rate in dollars: the smallest amount is a microcent. */
const RATE_DIGITS_MAX = 8;

/** A rate as short as it can be without losing a digit: `$2.19`, `$0.001221`. */
export function rate(amount: number): string {
  const decimals = amount.toFixed(RATE_DIGITS_MAX).split('.')[1] ?? '';
  let digits = decimals.length;
  while (decimals.endsWith('0', digits)) digits -= 1;
  return dollars(amount, Math.max(2, digits));
}

/** A duration in its two largest units, like `3 d 4 h`, `5 h 12 m`, `4 m 10 s` or `8 s`. */
export function duration(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (s >= DAY_S) return `${Math.floor(s / DAY_S)} d ${Math.floor((s % DAY_S) / HOUR_S)} h`;
  if (s >= HOUR_S) return `${Math.floor(s / HOUR_S)} h ${Math.floor((s % HOUR_S) / MINUTE_S)} m`;
  if (s >= MINUTE_S) return `${Math.floor(s / MINUTE_S)} m ${s % MINUTE_S} s`;
  return `${s} s`;
}

/** A time in UTC: `14:32:10` for today, `22 Nov 14:32` for another day. */
export function time(iso: string, nowMs: number = serviceNow()): string {
  const at = new Date(iso);
  const day = at.toISOString().slice(0, 10);
  if (day === new Date(nowMs).toISOString().slice(0, 10)) return at.toISOString().slice(11, 19);
  return `${date(iso)} ${at.toISOString().slice(11, 16)}`;
}

/** A day like `22 Nov`, with the year if it is not the current year. */
export function date(iso: string, nowMs: number = serviceNow()): string {
  const at = new Date(iso);
  const isThisYear = at.getUTCFullYear() === new Date(nowMs).getUTCFullYear();
  return at.toLocaleDateString('en-GB', {
    timeZone: 'UTC',
    day: 'numeric',
    month: 'short',
    ...(isThisYear ? {} : { year: 'numeric' }),
  });
}

/** A time relative to now, like `4 m 10 s ago` or `in 3 h 2 m`. */
export function relative(iso: string, nowMs: number = serviceNow()): string {
  const seconds = (nowMs - Date.parse(iso)) / 1_000;
  if (Math.abs(seconds) < 1) return 'now';
  return seconds > 0 ? `${duration(seconds)} ago` : `in ${duration(-seconds)}`;
}

/** A number of bytes like `6.1 GB`. The units are powers of ten, as for disks. */
export function bytes(count: number): string {
  const units = ['B', 'kB', 'MB', 'GB', 'TB'];
  let power = 0;
  // From 999.5 on, the number would be rounded to the next unit.
  while (power < units.length - 1 && count / 1_000 ** power >= 999.5) power += 1;
  const value = count / 1_000 ** power;
  return `${power === 0 ? value : value.toFixed(value < 9.95 ? 1 : 0)} ${units[power]}`;
}

/** Number and type of GPUs, like `4 × H100 SXM`. */
export function gpus(count: number, type: string): string {
  return `${count} × ${type.replaceAll('_', ' ')}`;
}

export function count(value: number): string {
  return value.toLocaleString('en-US');
}

/** A number with its noun, like `1 instance` or `2 instances`. */
export function plural(value: number, noun: string): string {
  return `${count(value)} ${noun}${value === 1 ? '' : 's'}`;
}

/** The end of an id. Ids that are made in the same minute begin alike. */
export const shortId = (id: string): string => id.slice(-8);

/** `in_flight` becomes `In flight`, and `gpus` becomes `GPUs`. */
export function capital(word: string): string {
  const words = word.replaceAll('_', ' ').replace(/\bgpu(s?)\b/g, 'GPU$1');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/**
 * The text as one word of a shell. It is quoted if it needs to be. Control characters are left out, because a shell takes pasted ones for keys: one
 * empties the line, and what follows would be a command.
 */
export function quoted(text: string): string {
  const pasted = text.replaceAll(/[^\P{Cc}\n\t]/gu, '');
  return /^[\w@%+=:,./-]+$/.test(pasted) ? pasted : `'${pasted.replaceAll("'", String.raw`'\''`)}'`;
}

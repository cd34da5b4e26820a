// Exact money. The unit is the microcent (1 cent = 1,000,000), always BigInt. Cumulative amounts are rounded down, so that parts add up.

export const UCENTS_PER_CENT = 1_000_000n;
const UCENTS_PER_DOLLAR = 100n * UCENTS_PER_CENT;
const MS_PER_HOUR = 3_600_000n;
const BPS_WHOLE = 10_000n;

/**
 * The cost from the start until `elapsedMs` at this rate, in microcents, rounded down. A charge must be the difference of two such values,
 * because a sum of rounded parts could be too small.
 */
export function accruedUcents(rateUcentsPerHour: bigint, elapsedMs: number): bigint {
  return (rateUcentsPerHour * BigInt(Math.max(0, Math.trunc(elapsedMs)))) / MS_PER_HOUR;
}

/** The smaller of two amounts. */
export function lesserUcents(one: bigint, other: bigint): bigint {
  return one < other ? one : other;
}

/** The supplier's part of a cumulative charge. The platform's fee is the rest. */
export function supplierPartUcents(chargedUcents: bigint, supplierBps: number): bigint {
  return (chargedUcents * BigInt(supplierBps)) / BPS_WHOLE;
}

/**
 * Whole cents of a cumulative amount, rounded towards minus infinity. So differences of rounded amounts add up, even if amounts are
 * negative.
 */
export function centsFloor(ucents: bigint): bigint {
  const cents = ucents / UCENTS_PER_CENT;
  return ucents < 0n && cents * UCENTS_PER_CENT !== ucents ? cents - 1n : cents;
}

/** Rounds up to whole cents. Only for a charge that is made once, because rounded-up parts do not add up. */
export function ceilToCents(ucents: bigint): bigint {
  return -centsFloor(-ucents) * UCENTS_PER_CENT;
}

/** Microcents of a dollar amount from a JSON number; undefined if it is finer than a microcent or not finite. */
export function ucentsFromDollars(dollars: number): bigint | undefined {
  if (!Number.isFinite(dollars)) return undefined;
  const match = /^(-?)(\d+)(?:\.(\d{1,8}))?$/.exec(plainDecimal(dollars));
  if (match === null) return undefined;
  const [, sign, whole = '0', fraction = ''] = match;
  const ucents = BigInt(whole) * UCENTS_PER_DOLLAR + BigInt(fraction.padEnd(8, '0'));
  return sign === '-' ? -ucents : ucents;
}

/** Microcents of a text like `25.50`. For any other text, the rule that it breaks. */
export function ucentsFromText(text: string): bigint | string {
  const [, sign, whole = '', fraction = ''] = /^(-?)(\d{1,18})(?:\.(\d+))?$/.exec(text) ?? [];
  if (whole === '') return 'must be dollars like 25 or 25.50';
  if (sign === '-') return 'must not be negative';
  if (fraction.length > 8) return 'must have at most 8 decimals: a microcent is the smallest amount';
  const ucents = BigInt(whole) * UCENTS_PER_DOLLAR + BigInt(fraction.padEnd(8, '0'));
  return ucents === 0n ? 'must be more than 0' : ucents;
}

/** Microcents of a computed price, rounded to the nearest: with doubles, 3 * 2.49 is 7.470000000000001. */
export function nearestUcents(dollars: number): bigint {
  return BigInt(Math.round(dollars * Number(UCENTS_PER_DOLLAR)));
}

/** A JSON number of dollars. Exact for every price with at most 15 significant digits. */
export function dollarsFromUcents(ucents: bigint): number {
  return Number(ucents) / Number(UCENTS_PER_DOLLAR);
}

/** Dollars as text with all significant decimals (at least two), for people and logs: `1.29`, `-0.000012`. */
export function dollarText(ucents: bigint): string {
  const sign = ucents < 0n ? '-' : '';
  const size = ucents < 0n ? -ucents : ucents;
  const fraction = (size % UCENTS_PER_DOLLAR)
    .toString()
    .padStart(8, '0')
    .replace(/0{1,6}$/, '');
  return `${sign}${size / UCENTS_PER_DOLLAR}.${fraction}`;
}

/** Dollars for people with two to four decimals. `up` is for what is needed, and `down` for what is there, so that neither promises too much. */
export function shortDollarText(ucents: bigint, rounding: 'up' | 'down'): string {
  const step = UCENTS_PER_CENT / 100n;
  const over = ((ucents % step) + step) % step;
  return dollarText(rounding === 'up' && over > 0n ? ucents - over + step : ucents - over);
}

/**
 * JavaScript prints numbers below 1e-6 and above 1e21 with an exponent; a price must not depend on that. The text keeps its exponent if the number
 * has more than eight decimals. Twenty of them show that, and not yet that it is stored in binary.
 */
function plainDecimal(value: number): string {
  const text = String(value);
  const eight = value.toFixed(8);
  return text.includes('e') && value.toFixed(20) === `${eight}${'0'.repeat(12)}` ? eight : text;
}

// Whether a payout may leave, and what a supplier is owed in words. Months are cut at their UTC bounds.
import { describe, expect, test } from 'vitest';
import { monthOf, shownMonth } from '../../../control-plane/money/ledger/month.ts';
import { destinationsAt, obstacleOf, periodStart, sendObstacleOf } from '../../../control-plane/money/payouts/plan.ts';
import { centsText, owedWords, standingOf } from '../../../control-plane/money/payouts/standing.ts';
import type { DestinationRow } from '../../../control-plane/money/payouts/store.ts';

const destination = (id: string, inForceMs: number): DestinationRow => ({
  id,
  supplier_id: 's',
  chain: 'base',
  address: '0x1',
  requested_ms: 0,
  in_force_ms: inForceMs,
  cancelled_ms: null,
});

test('a destination is in force from its time on, and pending until then', () => {
  const rows = [destination('new', 200), destination('old', 100)];
  const at = (nowMs: number): (string | undefined)[] => {
    const { inForce, pending } = destinationsAt(rows, nowMs);
    return [inForce?.id, pending?.id];
  };
  expect([at(99), at(100), at(199), at(200)]).toEqual([
    [undefined, 'new'],
    ['old', 'new'],
    ['old', 'new'],
    ['new', undefined],
  ]);
  expect(destinationsAt([], 0)).toEqual({ inForce: undefined, pending: undefined });
});

describe('a payout', () => {
  const [inForce, pending] = [destination('old', 0), destination('new', Date.UTC(2026, 0, 2))];

  test('waits while the supplier is suspended or a change of the destination is pending', () => {
    const suspended = 'The supplier is suspended. End the suspension first (admin supplier resume)';
    const waits =
      'A change of the payout destination is pending until 2026-01-02T00:00:00.000Z. Payouts wait until it is in force or the supplier cancels it';
    expect(obstacleOf('active', { inForce, pending: undefined })).toBeUndefined();
    expect(obstacleOf(undefined, { inForce: undefined, pending: undefined })).toBeUndefined();
    expect(obstacleOf('suspended', { inForce, pending })).toBe(suspended);
    expect(obstacleOf('active', { inForce, pending })).toBe(waits);
    expect(sendObstacleOf('suspended', { inForce, pending: undefined })).toBe(suspended);
    expect(sendObstacleOf('active', { inForce: undefined, pending })).toBe(waits);
  });

  test('to a destination needs one that is in force', () => {
    expect(sendObstacleOf('active', { inForce, pending: undefined })).toBeUndefined();
    expect(sendObstacleOf('active', { inForce: undefined, pending: undefined })).toBe(
      'The supplier has named no payout destination',
    );
  });

  test('of the loop belongs to a UTC day, or to a week from Monday on', () => {
    const thursday = Date.UTC(2026, 0, 1, 13);
    expect(periodStart(thursday, 'day')).toBe(Date.UTC(2026, 0, 1));
    expect(periodStart(thursday, 'week')).toBe(Date.UTC(2025, 11, 29));
    expect(periodStart(Date.UTC(2026, 0, 5), 'week')).toBe(Date.UTC(2026, 0, 5));
    expect(periodStart(Date.UTC(2026, 0, 5) - 1, 'week')).toBe(Date.UTC(2025, 11, 29));
  });
});

describe('what a supplier is owed', () => {
  const CENT = 1_000_000n;

  test('is in whole cents, each sum rounded down once, and what is payable is never below zero', () => {
    const standing = standingOf({ owedUcents: 5n * CENT - 1n, paidUcents: 2n * CENT + 1n, waitingUcents: CENT });
    expect(standing).toEqual({ accruedCents: 7n, unpaidCents: 4n, payableCents: 3n });
    expect(standingOf({ owedUcents: CENT, paidUcents: 0n, waitingUcents: 2n * CENT })).toMatchObject({
      payableCents: 0n,
    });
    expect(standingOf({ owedUcents: CENT, paidUcents: 0n, waitingUcents: 0n })).toMatchObject({ payableCents: 1n });
  });

  test.each([
    [500n, 500n, 'The supplier is owed $5.00'],
    [500n, 600n, 'The supplier is owed $5.00'],
    [500n, 499n, 'The supplier is owed $5.00, of which $4.99 is payable now; the rest is too new or disputed'],
    [1n, 0n, 'The supplier is owed $0.01, of which $0.00 is payable now; the rest is too new or disputed'],
    [0n, 0n, 'The supplier is owed $0.00'],
    [-500n, -600n, 'The supplier is owed $-5.00'],
  ])('with %d cents unpaid and %d payable is said in words', (unpaidCents, payableCents, words) => {
    expect(owedWords({ unpaidCents, payableCents })).toBe(words);
  });

  test('is written in dollars', () => {
    expect([centsText(0n), centsText(1n), centsText(123_456n)]).toEqual(['$0.00', '$0.01', '$1234.56']);
  });
});

describe('a month', () => {
  const at = (text: string): number => Date.parse(text);

  test('is the present one if none is named, by its UTC bounds, over the end of a year too', () => {
    const nowMs = at('2026-12-31T23:59:59.999Z');
    expect(monthOf(undefined, nowMs)).toEqual({
      name: '2026-12',
      window: { fromMs: at('2026-12-01T00:00:00Z'), untilMs: at('2027-01-01T00:00:00Z') },
      isComplete: false,
    });
    expect(monthOf('2026-02', nowMs).window).toEqual({ fromMs: at('2026-02-01'), untilMs: at('2026-03-01') });
  });

  test('is complete a minute after its end, and not to come', () => {
    const end = at('2026-12-01T00:00:00Z');
    expect([59_999, 60_000].map((ms) => monthOf('2026-11', end + ms).isComplete)).toEqual([false, true]);
    expect(monthOf('2026-12', end).name).toBe('2026-12');
    expect(() => monthOf('2026-12', end - 1)).toThrow(expect.objectContaining({ code: 'validation_failed' }));
  });

  test('has two balances around its lines, and a sum for each section in the order of its first line', () => {
    const month = monthOf('2026-11', at('2027-01-01'));
    const line = (section: string, ucents: bigint) => ({ section, ucents, postedMs: at('2026-11-02'), note: 'n' });
    const lines = [line('b', 10_000_000n), line('a', 5_000_000n), line('b', 15_000_000n)];
    const shown = shownMonth(month, { nowUcents: 200_000_000n, sinceUcents: 50_000_000n }, lines);
    expect(shown).toMatchObject({
      month: '2026-11',
      currency: 'USD',
      is_complete: true,
      opening_balance: '1.50',
      closing_balance: '1.80',
      totals: [
        { section: 'b', amount: '0.25' },
        { section: 'a', amount: '0.05' },
      ],
    });
    expect(shown.lines[0]).toEqual({ section: 'b', note: 'n', amount: '0.10', posted_at: '2026-11-02T00:00:00.000Z' });
  });
});

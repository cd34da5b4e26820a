// Time buckets and windows of usage: the UTC calendar, the defaults, and which windows are refused.
import { describe, expect, test } from 'vitest';
import { type Bucket, bucketEnd, bucketStart, windowOf } from '../../../control-plane/money/metering/buckets.ts';

const DAY_MS = 24 * 3_600_000;
const at = (text: string): number => Date.parse(`${text}Z`);
const NOW = at('2026-03-10T12:34:56.789');

// Specification 2.8: bucket_start is the start of the time bucket.
// Specification 4.6: bucket is hour, day, week or month, in UTC; weeks start on Monday.
test.each<[Bucket, string, string, string]>([
  ['hour', '2026-03-10T12:34:56.789', '2026-03-10T12:00', '2026-03-10T13:00'],
  ['hour', '2026-03-10T12:00', '2026-03-10T12:00', '2026-03-10T13:00'],
  ['day', '2026-03-10T23:59:59.999', '2026-03-10T00:00', '2026-03-11T00:00'],
  ['week', '2026-03-09T00:00', '2026-03-09T00:00', '2026-03-16T00:00'],
  ['week', '2026-03-08T23:59:59.999', '2026-03-02T00:00', '2026-03-09T00:00'],
  ['week', '2026-01-01T00:00', '2025-12-29T00:00', '2026-01-05T00:00'],
  ['month', '2028-02-29T10:00', '2028-02-01T00:00', '2028-03-01T00:00'],
  ['month', '2026-12-31T23:59:59.999', '2026-12-01T00:00', '2027-01-01T00:00'],
])('the %s of %s begins at %s and ends at %s', (bucket, moment, starts, ends) => {
  expect(bucketStart(at(moment), bucket)).toBe(at(starts));
  expect(bucketEnd(at(starts), bucket)).toBe(at(ends));
});

describe('a usage window', () => {
  test('is the last 30 days by day if nothing is given', () => {
    expect(windowOf({}, NOW)).toEqual({ startMs: NOW - 30 * DAY_MS, endMs: NOW, bucket: 'day' });
    const end = '2026-02-01T00:00:00Z';
    expect(windowOf({ end }, NOW)).toMatchObject({ startMs: at('2026-01-02T00:00'), endMs: Date.parse(end) });
    expect(windowOf({ start: '2026-03-10T12:00:00Z' }, NOW)).toMatchObject({ endMs: NOW, bucket: 'hour' });
    expect(windowOf({ start: '2026-03-10T12:00:00+02:00' }, NOW).startMs).toBe(at('2026-03-10T10:00'));
  });

  // Specification 4.6: The default bucket depends on the length of the window.
  test.each<[number, Bucket]>([
    [1, 'hour'],
    [2 * DAY_MS, 'hour'],
    [2 * DAY_MS + 1, 'day'],
    [62 * DAY_MS, 'day'],
    [62 * DAY_MS + 1, 'month'],
  ])('of %d ms has rows by %s', (lengthMs, bucket) => {
    expect(windowOf({ start: new Date(NOW - lengthMs).toISOString() }, NOW).bucket).toBe(bucket);
  });

  test.each<[Bucket, number]>([
    ['hour', 62],
    ['day', 1_100],
    ['week', 7_305],
    ['month', 7_305],
  ])('by %s has at most %d days', (bucket, days) => {
    const start = (lengthMs: number): string => new Date(NOW - lengthMs).toISOString();
    expect(windowOf({ bucket, start: start(days * DAY_MS) }, NOW).bucket).toBe(bucket);
    expect(() => windowOf({ bucket, start: start(days * DAY_MS + 1) }, NOW)).toThrow(
      `start must be at most ${days} days before end for rows by ${bucket}`,
    );
  });

  test('must not be empty or backwards', () => {
    const moment = '2026-01-01T00:00:00Z';
    expect(() => windowOf({ start: moment, end: moment }, NOW)).toThrow('start must be before end');
    expect(() => windowOf({ start: '2026-03-10T12:34:56.789Z' }, NOW)).toThrow('must be before now');
    expect(windowOf({ start: moment, end: '2026-01-01T00:00:00.001Z' }, NOW)).toMatchObject({ bucket: 'hour' });
  });
});

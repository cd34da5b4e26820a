// When uncharged time ended for the customer: with the segment that goes on, or with the free time itself.
import { expect, test } from 'vitest';
import { freeUntilMs } from '../../../control-plane/money/bill/instance-bill.ts';

type FreeTime = Parameters<typeof freeUntilMs>[0];
type Segment = Parameters<typeof freeUntilMs>[2][number];

const time = { from_ms: 10_000 } as FreeTime;
const segment = (startedMs: number) => ({ started_ms: startedMs }) as Segment;

test.each([
  ['no segment follows', [0], 15_000],
  ['charging went on at once', [0, 15_000], 15_000],
  ['charging went on later', [0, 16_000, 20_000], 16_000],
  ['a segment began within the free time', [0, 14_999], 15_000],
])('%s', (_what, starts, untilMs) => {
  expect(freeUntilMs(time, 5_000, starts.map(segment))).toBe(untilMs);
});

test('the end of uncharged time is found among thousands of segments by looking at a few', () => {
  let looks = 0;
  const counted = (startedMs: number): Segment => {
    const get = (): number => {
      looks += 1;
      return startedMs;
    };
    return Object.defineProperty(segment(0), 'started_ms', { get });
  };
  const segments = Array.from({ length: 10_000 }, (_, index) => counted(index * 10));
  expect(freeUntilMs(time, 5_001, segments)).toBe(15_010);
  expect(looks).toBeLessThan(20);
});

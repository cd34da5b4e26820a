// A secondary compares its wall clock with the time of the answers of the primary, and says so once if they differ.
import { beforeEach, expect, test } from 'vitest';
import { openClockDifference } from '../../../../control-plane/base/http/clock-difference.ts';
import { createLog } from '../../../../shared/log.ts';
import { type VirtualClock, virtualClock } from '../../../kit/virtual-clock.ts';

const PRIMARY = { id: 'a', url: 'http://10.0.0.1:8080' };

let clock: VirtualClock;
let lines: object[];
let look: (date: string | undefined) => void;
beforeEach(() => {
  clock = virtualClock();
  lines = [];
  const log = createLog('test', 'info', { write: (line) => void lines.push(JSON.parse(line) as object) });
  const difference = openClockDifference({ clock, log });
  look = (date) => difference.look({ date }, PRIMARY);
});
const primaryAheadBy = (ms: number): void => look(new Date(clock.now() + ms).toUTCString());

test.each([
  ['ahead', 11_000, 11],
  ['behind', -11_000, -11],
])(
  'a primary whose clock is %s is named once, with what to do, and again when the clocks agree',
  (_how, ms, seconds) => {
    for (let i = 0; i < 3; i += 1) primaryAheadBy(ms);
    const named = { level: 40, primary: PRIMARY.url, primary_ahead_seconds: seconds };
    expect(lines).toMatchObject([{ ...named, msg: expect.stringContaining('start a time service on both hosts') }]);
    primaryAheadBy(6_000);
    for (let i = 0; i < 3; i += 1) primaryAheadBy(0);
    expect(lines).toMatchObject([named, { level: 30 }]);
    primaryAheadBy(ms);
    expect(lines).toHaveLength(3);
  },
);

test('a difference of some seconds, and an answer without a time, are nothing to say', () => {
  primaryAheadBy(9_000);
  primaryAheadBy(-9_000);
  look(undefined);
  look('yesterday');
  expect(lines).toEqual([]);
});

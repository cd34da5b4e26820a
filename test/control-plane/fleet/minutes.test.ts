// The sums of samples by the minute, in memory: each minute is stored once, and nothing is stored for a minute without samples.
import { expect, test } from 'vitest';
import { openMinutes } from '../../../control-plane/fleet/metrics/minutes.ts';
import { metricsSample } from '../../kit/samples.ts';

const MINUTE_MS = 60_000;

test('each minute is returned once, whenever the next sample comes', () => {
  const minutes = openMinutes();
  const returned: [number, number][] = [];
  for (let minute = 0; minute < 4; minute += 1) {
    for (const second of [0, 30])
      minutes.take('m', metricsSample(minute * MINUTE_MS + second * 1_000), minute * MINUTE_MS + second * 1_000);
    for (const { minuteMs, samples } of minutes.closed((minute + 1) * MINUTE_MS)) returned.push([minuteMs, samples]);
  }
  // A tick that comes before the next sample finds nothing.
  expect(minutes.closed(5 * MINUTE_MS)).toEqual([]);
  expect(returned).toEqual([0, 1, 2, 3].map((minute) => [minute * MINUTE_MS, 2]));
});

test('a minute that is over when the next sample comes is returned with the next tick', () => {
  const minutes = openMinutes();
  minutes.take('m', metricsSample(0), 0);
  minutes.take('m', metricsSample(MINUTE_MS), MINUTE_MS);
  expect(minutes.closed(MINUTE_MS).map(({ minuteMs }) => minuteMs)).toEqual([0]);
});

// The ribbons of a machine's GPUs: what was charged, what was free, and what was an outage.
import { expect, test } from 'vitest';
import { timeOfGpus } from '../../../control-plane/console/web/supplier/rented-time.ts';
import type { MachineRental } from '../../../shared/api/community.ts';

const at = (clock: string): string => `2026-11-24T${clock}:00.000Z`;
const ms = (clock: string): number => Date.parse(at(clock));
const SPAN = { fromMs: ms('00:00'), untilMs: ms('12:00') };

function rental(
  gpus: string[],
  [from, until]: [string, string | null],
  charged: [string, string | null][],
): MachineRental {
  const end = (clock: string | null): string | null => (clock === null ? null : at(clock));
  return {
    rental_id: `r ${from}`,
    instance_id: `i ${from}`,
    gpu_uuids: gpus,
    from: at(from),
    until: end(until),
    charged: charged.map(([start, stop]) => ({ from: at(start), until: end(stop) })),
  };
}

const piece = (kind: string, from: string, until: string) => ({ kind, fromMs: ms(from), untilMs: ms(until) });

test('a start is free, and a gap between two charges is an outage', () => {
  const rented = rental(
    ['A'],
    ['09:00', null],
    [
      ['09:02', '11:00'],
      ['11:20', null],
    ],
  );
  const [time] = timeOfGpus(['A'], [rented], SPAN);
  expect(time?.pieces).toEqual([
    piece('free', '09:00', '09:02'),
    piece('billed', '09:02', '11:00'),
    piece('outage', '11:00', '11:20'),
    piece('billed', '11:20', '12:00'),
  ]);
  expect(time?.chargedMs).toBe(ms('11:00') - ms('09:02') + ms('12:00') - ms('11:20'));
});

test('a rental that is still there and no longer charged is an outage until now; one that is over ends with its last charge', () => {
  const charged: [string, string][] = [['09:00', '10:00']];
  const [lasts] = timeOfGpus(['A'], [rental(['A'], ['09:00', null], charged)], SPAN);
  expect(lasts?.pieces).toEqual([piece('billed', '09:00', '10:00'), piece('outage', '10:00', '12:00')]);
  const [over] = timeOfGpus(['A'], [rental(['A'], ['09:00', '10:01'], charged)], SPAN);
  expect(over?.pieces).toEqual([piece('billed', '09:00', '10:00')]);
});

test('a launch that never ran is free from its beginning to its end', () => {
  const [time] = timeOfGpus(['A'], [rental(['A'], ['09:00', '09:10'], [])], SPAN);
  expect(time).toEqual({ gpuUuid: 'A', pieces: [piece('free', '09:00', '09:10')], chargedMs: 0 });
});

test('only time within the span counts, and each GPU has the rentals that held it', () => {
  const before = rental(['A'], ['00:00', '00:00'], []);
  const across = { ...rental(['A', 'C'], ['00:00', null], [['00:00', '01:00']]), from: '2026-11-23T20:00:00.000Z' };
  across.charged = [{ from: '2026-11-23T20:00:00.000Z', until: at('01:00') }];
  const times = timeOfGpus(['A', 'B'], [across, before], SPAN);
  expect(times.map(({ gpuUuid, chargedMs }) => [gpuUuid, chargedMs])).toEqual([
    ['A', 3_600_000],
    ['B', 0],
    ['C', 3_600_000],
  ]);
  expect(times[1]?.pieces).toEqual([]);
});

// The curve of a job's loss: one point for each step, in the order of the steps, within its square.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { lossOf, pathOf } from '../../../control-plane/console/web/models/loss.ts';
import type { FineTuningEvent } from '../../../shared/api/fine-tuning.ts';

const event = (data: FineTuningEvent['data'], type: FineTuningEvent['type'] = 'metrics'): FineTuningEvent => ({
  id: 'ftevent_1',
  object: 'fine_tuning.job.event',
  created_at: 0,
  level: 'info',
  message: '',
  type,
  data,
});
const figures = fc.array(fc.record({ step: fc.nat(50), loss: fc.integer({ min: 0, max: 1_000 }) }));

describe('the points', () => {
  test('are one for each step, in order, with its last loss', () => {
    fc.assert(
      fc.property(figures, (all) => {
        const last = new Map(all.map(({ step, loss }) => [step, loss]));
        const steps = [...last.keys()].toSorted((a, b) => a - b);
        expect(lossOf(all.map((each) => event(each)))).toEqual(steps.map((step) => ({ step, loss: last.get(step) })));
      }),
    );
  });

  test('are made from figures alone: a message, a text and a missing figure make none', () => {
    const events = [
      event({ step: 1, loss: 2.5 }),
      event({ step: 2, loss: 1 }, 'message'),
      event({ step: 3, loss: 'nan' }),
      event({ step: 4 }),
      event({ loss: 1 }),
    ];
    expect(lossOf(events)).toEqual([{ step: 1, loss: 2.5 }]);
  });
});

describe('the path', () => {
  test('goes from edge to edge, and from the loss of 0 below to the top above', () => {
    const points = [
      { step: 10, loss: 4 },
      { step: 15, loss: 2 },
      { step: 20, loss: 0 },
    ];
    expect(pathOf(points, 4)).toBe('M0.00 0.00L50.00 50.00L100.00 100.00');
  });

  test('of one point is that point, and of none is empty', () => {
    expect(pathOf([{ step: 7, loss: 1 }], 2)).toBe('M0.00 50.00');
    expect(pathOf([], 1)).toBe('');
  });

  test('stays in its square and never goes back, whatever was measured', () => {
    fc.assert(
      fc.property(figures, (all) => {
        const points = lossOf(all.map((each) => event(each)));
        const top = Math.max(1, ...points.map(({ loss }) => loss));
        const numbers = [...pathOf(points, top).matchAll(/[ML]([\d.-]+) ([\d.-]+)/g)];
        expect(numbers).toHaveLength(points.length);
        const places = numbers.map(([, x, y]) => [Number(x), Number(y)]);
        for (const place of places.flat()) expect(place >= 0 && place <= 100).toBe(true);
        const across = places.map(([x]) => x ?? NaN);
        expect(across).toEqual(across.toSorted((a, b) => a - b));
      }),
    );
  });
});

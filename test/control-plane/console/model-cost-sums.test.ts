// What models cost in the console: days added up by model or key, the most expensive first.
import { expect, test } from 'vitest';
import { modelCosts, sumOfCosts } from '../../../control-plane/console/web/models/model-cost-sums.ts';
import type { ReceiptTotal } from '../../../shared/api/receipt-totals.ts';

const row = (model: string, cost: string): ReceiptTotal => ({
  bucket_start: '2026-11-24T00:00:00.000Z',
  model,
  requests: 2,
  prompt_tokens: 30,
  completion_tokens: 4,
  images: 1,
  cost,
});

test('the days of a model are one row, and all rows add up to the last microcent', () => {
  const costs = modelCosts(
    [row('a', '0.00000001'), row('b', '1.50'), row('a', '0.00000002'), row('free', '0.00')],
    'model',
  );
  expect(costs.map(({ group, ucents }) => [group, ucents])).toEqual([
    ['b', 150_000_000n],
    ['a', 3n],
    ['free', 0n],
  ]);
  expect(costs[1]).toMatchObject({ requests: 4, promptTokens: 60, completionTokens: 8, images: 2 });
  expect(sumOfCosts(costs)).toMatchObject({ requests: 8, ucents: 150_000_003n });
});

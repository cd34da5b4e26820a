// What the list of models says of prices and of the time that an economy tier takes to wake.
import { expect, test } from 'vitest';
import { pricesOf, wakesIn } from '../../../control-plane/console/web/models/prices.ts';
import type { Model } from '../../../shared/api/model.ts';

test('the price of embeddings names the least charge of a request', () => {
  const model: Model = {
    id: 'acme/embedder',
    object: 'model',
    owned_by: 'acme',
    modality: 'embedding',
    status: 'active',
    pricing: { currency: 'USD', input_per_1m_tokens_cents: 2, min_charge_cents: 1 },
  };
  expect(pricesOf(model)).toEqual(['$0.02 in', 'at least $0.01 a request']);
});

test.each([
  [{ p50: 17.048, p95: 17.048 }, 'economy wakes in about 17 s'],
  [{ p50: 17.4, p95: 41.2 }, 'economy wakes in about 17 s, mostly below 41 s'],
])('the starts %j are told as %j', (wakes, words) => {
  expect(wakesIn(wakes)).toBe(words);
});

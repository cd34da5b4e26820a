// The costs of the rows of the instances: of two reads under way, the answer of the later one counts.
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { requestsUnderWay } from './requests-under-way.ts';

interface InstanceCosts {
  openCosts(): {
    of(id: string): { value: { total: string } | undefined };
    error: { value: unknown };
    draw(id: string): () => void;
    rereadAll(): void;
  };
}

/** The sources of the console are typed for a browser, so they are loaded by name. */
const COSTS_FILE: string = '../../../control-plane/console/web/customer/cost-reads.ts';
const { openCosts } = (await import(COSTS_FILE)) as InstanceCosts;

const underWay = requestsUnderWay();
beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const costs = (...totals: readonly (readonly [string, string])[]): object => ({
  data: totals.map(([id, total]) => ({ instance_id: id, total })),
  next_cursor: null,
});

test('an older answer, or its failure, does not replace what a later read has shown', async () => {
  const list = openCosts();
  list.draw('i-a');
  await vi.advanceTimersByTimeAsync(0);
  list.rereadAll();
  await vi.advanceTimersByTimeAsync(1_000);
  list.rereadAll();
  await vi.advanceTimersByTimeAsync(1_000);
  const [first, second, third] = underWay;
  third?.answer(costs(['i-a', '3']));
  await vi.advanceTimersByTimeAsync(0);
  second?.answer(costs(['i-a', '2']));
  first?.breakOff();
  await vi.advanceTimersByTimeAsync(0);
  expect([list.of('i-a').value?.total, list.error.value]).toEqual(['3', undefined]);
});

test('a later read of another row leaves the answer of an earlier read its row', async () => {
  const list = openCosts();
  list.draw('i-a');
  await vi.advanceTimersByTimeAsync(0);
  list.draw('i-b');
  await vi.advanceTimersByTimeAsync(0);
  const [ofA, ofB] = underWay;
  ofB?.answer(costs(['i-b', '2']));
  await vi.advanceTimersByTimeAsync(0);
  ofA?.answer(costs(['i-a', '1']));
  await vi.advanceTimersByTimeAsync(0);
  expect(['i-a', 'i-b'].map((id) => list.of(id).value?.total)).toEqual(['1', '2']);
});

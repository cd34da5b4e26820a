// Stories of a fleet from seeds: whatever goes wrong, the rules hold and everything comes to its end.
import { expect, test } from 'vitest';
import { live, type Plot } from './story.ts';
import { TROUBLES } from './troubles.ts';

const PLOT: Plot = {
  size: { hosts: [2, 2, 4, 1, 2], customers: [1_000_000, 1_000_000, 400] },
  steps: 90,
  troubles: TROUBLES.map(({ name }) => name),
};
const SEED = process.env['SIM_SEED'];
const COUNT = process.env['SOAK'] === '1' ? 300 : 6;
const seeds = SEED === undefined ? Array.from({ length: COUNT }, (_, i) => i + 1) : [Number(SEED)];

test.each(seeds)('story %i', { timeout: 60_000 }, async (seed) => {
  const { seen } = await live(seed, PLOT);
  expect(seen).toContain('launch');
});

test('the same seed tells the same story', { timeout: 60_000 }, async () => {
  const plot = { ...PLOT, steps: 25 };
  expect((await live(7, plot)).hash).toBe((await live(7, plot)).hash);
});

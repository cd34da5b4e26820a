// Stories of a fleet from seeds: whatever goes wrong, the rules hold and everything comes to its end.
import { expect, test } from 'vitest';
import { systemRng } from '../../shared/rng.ts';
import { live, type Plot } from './story.ts';
import { TROUBLES } from './troubles.ts';

const troubles = TROUBLES.map(({ name }) => name);
/** The stories in the order of what `SIM_SEED` may repeat: the story of every day, and with `SOAK` that of a large fleet. */
const SMALL: Plot = { size: { hosts: [2, 2, 4, 1, 2], customers: [1_000_000, 1_000_000, 400] }, steps: 90, troubles };
const LARGE: Plot = {
  size: {
    hosts: Array.from({ length: 30 }, (_, i) => [2, 4, 1, 8, 2][i % 5] ?? 1),
    customers: Array.from({ length: 12 }, (_, i) => (i % 4 === 3 ? 600 : 1_000_000)),
  },
  steps: 240,
  troubles,
};
const isSoak = process.env['SOAK'] === '1';
const SEED = process.env['SIM_SEED'];
/** A story takes seconds. The limit is for one that never ends, also while other programs take the processor. */
const STORY_MS_MAX = 5 * 60_000;

test.each(seedsOf(3, 150))('story %i', { timeout: STORY_MS_MAX }, (seed) => tell(seed, SMALL));

test.skipIf(!isSoak).each(seedsOf(0, 20))('story %i of a large fleet', { timeout: 2 * STORY_MS_MAX }, (seed) =>
  tell(seed, LARGE),
);

async function tell(seed: number, plot: Plot): Promise<void> {
  const { seen } = await live(seed, plot);
  expect(seen).toContain('launch');
}

/** `npm test` runs the same seeds each time. Each soak draws others. */
function seedsOf(few: number, many: number): number[] {
  if (SEED !== undefined) return [Number(SEED)];
  if (!isSoak) return Array.from({ length: few }, (_, i) => i + 1);
  const rng = systemRng();
  return Array.from({ length: many }, () => Math.floor(rng.float() * 2 ** 31));
}

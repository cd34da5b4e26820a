// Two proofs of the books at the same moment, on PostgreSQL: the loop and an operator, or two operators. Each transfer counts once.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openBooks } from '../../../control-plane/money/ledger/books.ts';
import { proofState } from '../../../control-plane/money/ledger/proof-store.ts';
import { createLog } from '../../../shared/log.ts';
import { type Interleaved, interleave } from '../../kit/interleave.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3, 4, 5];
const HOUR_MS = 3_600_000;

let world: World;
let interleaved: Interleaved;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave));
  await world.customer(1_000);
  await world.customer(2_000);
  await world.clock.advance(HOUR_MS);
});
afterEach(() => world.close());

test.each(SEEDS)('in the order of seed %d, two proofs find no faults, and both are noted', async (seed) => {
  const log = createLog('test', 'silent');
  const { clock } = world;
  const [first, second] = [1, 2].map(() => openBooks({ db: interleaved.db, clock, log, proofs: () => world.brings() }));
  const verify =
    (books = world.books) =>
    (): Promise<string[]> =>
      books.verify();
  const results = await interleaved.run(seed, [verify(first), verify(second)]);
  expect(results).toEqual([1, 2].map(() => ({ status: 'fulfilled', value: [] })));
  expect(await proofState(world.db.read)).toMatchObject({ transfers: 2, faults: 0, whole_proven_ms: clock.now() });
  expect(await world.books.verify()).toEqual([]);
});

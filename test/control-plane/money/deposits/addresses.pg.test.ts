// Addresses on PostgreSQL: deposits that are made at the same moment never get the same one, in any order of their statements.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { insertAddresses, takePositions } from '../../../../control-plane/money/deposits/addresses-store.ts';
import type { Deposit } from '../../../../control-plane/money/deposits/store.ts';
import type { DepositChain } from '../../../../shared/api/deposit.ts';
import { noteRead, offlineDeposits } from '../../../kit/deposits.ts';
import { interleave, type Interleaved } from '../../../kit/interleave.ts';
import { openWorldOver, type World } from '../../../kit/world.ts';

const SEEDS = Array.from({ length: process.env['SOAK'] === '1' ? 100 : 10 }, (_, seed) => seed);
const AT_ONCE = 4;

let world: World;
let over: Interleaved;
beforeEach(async () => {
  const settings = { deposits: offlineDeposits(['ethereum', 'solana']) };
  ({ world, over } = await openWorldOver(interleave, { settings }));
  for (const chain of ['ethereum', 'solana'] as const) await noteRead(world, chain);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** Each deposit has an organisation of its own, so that none waits for the lock of another. */
async function atOnce(seed: number, chain: DepositChain): Promise<Deposit[]> {
  const owners = await Promise.all(Array.from({ length: AT_ONCE }, () => world.customer(0)));
  const request = { asset: 'usdc', chain, amount_usd_cents: 2_500 } as const;
  const operations = owners.map(
    ({ orgId }) =>
      () =>
        over.db.tx('deposits.create', async (tx) => {
          await tx.lock('org', orgId);
          return world.rooms.deposits.create(tx, orgId, request);
        }),
  );
  const results = await over.run(seed, operations);
  return results.map((result) => {
    if (result.status === 'rejected') throw result.reason;
    return result.value as Deposit;
  });
}

test.each(SEEDS)('four deposits at once have four derived addresses (seed %i)', async (seed) => {
  const made = await atOnce(seed, 'ethereum');
  expect(new Set(made.map(({ address }) => address)).size).toBe(AT_ONCE);
  expect(made.map(({ position }) => position).toSorted((a, b) => a - b)).toEqual([0, 1, 2, 3]);
});

test.each(SEEDS)('four deposits at once have four imported addresses (seed %i)', async (seed) => {
  await world.db.tx('test.import', async (tx) => {
    const position = await takePositions(tx, 'solana', AT_ONCE);
    await insertAddresses(tx, 'solana', ['a', 'b', 'c', 'd'], { position, nowMs: 0 });
  });
  const made = await atOnce(seed, 'solana');
  expect(made.map(({ address }) => address).toSorted()).toEqual(['a', 'b', 'c', 'd']);
});

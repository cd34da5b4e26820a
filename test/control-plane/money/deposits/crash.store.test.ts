// A process dies before or after each of its transactions, between the payment and the credit. The next process credits the deposit once, and
// once more with what came after the credit.
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { type EvmChain, startEvmChain } from '../../../kit/evm-chain.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, settingsFor, TOKEN } from './deposit-world.ts';

const START_MS = Date.UTC(2026, 0, 1);
/** Longer than the lease of a watcher that is gone. */
const LEASE_MS = 121_000;

let chain: EvmChain;
beforeAll(async () => {
  chain = await startEvmChain(START_MS - 10 * MINUTE_MS);
  await chain.finalize(START_MS - 5 * MINUTE_MS);
});
afterAll(() => chain.close());

interface Death {
  /** The number of the transaction at which the process dies. */
  at: number;
  when: 'before' | 'after';
}

/** A database whose process dies as told. What it asks after that fails. */
function mortal(db: Db, deathOf: () => Death | undefined): Db {
  let count = 0;
  const death = deathOf();
  return {
    ...db,
    tx: async (name, body) => {
      if (!name.startsWith('deposits.')) return db.tx(name, body);
      count += 1;
      if (death === undefined || count < death.at) return db.tx(name, body);
      if (count === death.at && death.when === 'after') await db.tx(name, body);
      throw new Error('this process is dead');
    },
  };
}

test('a deposit is credited once, whenever a process dies', async () => {
  let death: Death | undefined;
  let process: DepositWorld = await openDepositWorld(settingsFor(chain), {
    processOn: ({ db, clock }) => ({ db: mortal(db, () => death), clock }),
  });
  await process.settle();
  let deaths = 0;
  let cents = 0;
  for (const when of ['before', 'after'] as const) {
    for (let at = 1; ; at += 1) {
      const { world } = process;
      const { id, address } = await process.create();
      const paidMs = world.clock.now() + MINUTE_MS;
      death = { at, when };
      const dying = await process.restart();
      await world.clock.advance(LEASE_MS);
      let isAlive = await settles(dying);
      await world.clock.advance(LEASE_MS);
      await chain.pay(address, 25n * TOKEN, paidMs);
      isAlive &&= await settles(dying);
      await chain.finalize(paidMs + MINUTE_MS);
      isAlive &&= await settles(dying);
      await chain.pay(address, 5n * TOKEN, paidMs + 2 * MINUTE_MS);
      await chain.finalize(paidMs + 3 * MINUTE_MS);
      isAlive &&= await settles(dying);
      death = undefined;
      process = await dying.restart();
      await process.settle();
      // The next process notices that the lease of the dead one does not move.
      await world.clock.advance(LEASE_MS);
      await process.settle();
      expect([when, at, await process.status(id)]).toEqual([when, at, 'credited_overpaid']);
      cents += 3_000;
      expect(await process.cents()).toBe(cents);
      await process.world.clock.advance(10 * MINUTE_MS);
      if (isAlive) break;
      deaths += 1;
    }
  }
  // The process died before and after each step: the watcher saw three changes, and the driver moved the deposit to detected, confirming,
  // settled, screening and credited. Then it counted the second payment, and credited it.
  expect(deaths).toBeGreaterThanOrEqual(20);
  await process.world.verify();
  await process.world.close();
});

/** False if the process has died. */
function settles(dying: DepositWorld): Promise<boolean> {
  return dying.settle().then(
    () => true,
    (error: unknown) => {
      expect(String(error)).toContain('this process is dead');
      return false;
    },
  );
}

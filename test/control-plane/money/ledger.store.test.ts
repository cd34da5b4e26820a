// The ledger: double entry, replays, holds, and the proof that finds a fault.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { badDebt, funding, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import type { NewTransfer } from '../../../control-plane/money/ledger/store.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const alice = wallet('alice');

function transfer(patch: Partial<NewTransfer> = {}): NewTransfer {
  return {
    id: 't1',
    debit: funding,
    credit: alice,
    amountUcents: 1000n,
    kind: 'funding',
    subjectId: 'alice',
    effectiveMs: 5,
    ...patch,
  };
}

const post = (...transfers: NewTransfer[]): Promise<void> =>
  world.db.tx('test', (tx) => world.rooms.ledger.post(tx, 'batch', transfers));
const balance = async (): Promise<bigint[]> => {
  const { postedUcents, heldUcents, availableUcents } = await world.rooms.ledger.balance(world.db.read, alice);
  return [postedUcents, heldUcents, availableUcents];
};

describe('transfers', () => {
  test('move money and keep amounts that a JavaScript number cannot hold', async () => {
    await post(transfer({ amountUcents: 9_007_199_254_740_993n }));
    await post(transfer({ id: 't2', amountUcents: 2n }));
    expect(await balance()).toEqual([9_007_199_254_740_995n, 0n, 9_007_199_254_740_995n]);
  });

  test('are a no-op the second time', async () => {
    await post(transfer());
    await post(transfer());
    expect(await balance()).toEqual([1000n, 0n, 1000n]);
  });

  test('are refused if the id belongs to a different transfer', async () => {
    await post(transfer());
    await expect(post(transfer({ amountUcents: 999n }))).rejects.toThrow('exists with other fields');
  });

  test('that a wallet does not cover change nothing, and neither do the earlier legs of the batch', async () => {
    await post(transfer());
    const legs = [
      transfer({ id: 'a', debit: alice, credit: revenue, amountUcents: 600n }),
      transfer({ id: 'b', debit: alice, credit: badDebt, amountUcents: 401n }),
    ];
    await expect(post(...legs)).rejects.toMatchObject({ code: 'insufficient_balance' });
    expect(await balance()).toEqual([1000n, 0n, 1000n]);
  });

  test('can spend the whole balance and no unit more', async () => {
    await post(transfer());
    await post(transfer({ id: 'all', debit: alice, credit: revenue, amountUcents: 1000n }));
    expect(await balance()).toEqual([0n, 0n, 0n]);
  });

  test('can be neither changed nor deleted', async () => {
    await post(transfer());
    for (const statement of [sql`update transfers set amount_ucents = 1`, sql`delete from transfers`]) {
      await expect(world.db.tx('tamper', (tx) => tx.run(statement))).rejects.toThrow('immutable');
    }
  });

  test('of many concurrent callers are all counted', async () => {
    const callers = Array.from({ length: 100 }, (_, i) => post(transfer({ id: `c${i}`, amountUcents: 7n })));
    await Promise.all(callers);
    expect(await balance()).toEqual([700n, 0n, 700n]);
  });
});

describe('holds', () => {
  const hold = (amount: bigint): Promise<void> =>
    world.db.tx('hold', (tx) => world.rooms.ledger.setHold(tx, 'test:h', alice, amount));

  test('make money unavailable, can be changed, and give it back', async () => {
    await post(transfer());
    await hold(1000n);
    expect(await balance()).toEqual([1000n, 1000n, 0n]);
    await hold(300n);
    expect(await balance()).toEqual([1000n, 300n, 700n]);
    await hold(0n);
    expect(await balance()).toEqual([1000n, 0n, 1000n]);
  });

  test('that exceed the balance by one unit are refused', async () => {
    await post(transfer());
    await expect(hold(1001n)).rejects.toMatchObject({ code: 'insufficient_balance' });
    expect(await balance()).toEqual([1000n, 0n, 1000n]);
  });

  test('keep a transfer from spending the held money', async () => {
    await post(transfer());
    await hold(1n);
    const spend = transfer({ id: 's', debit: alice, credit: revenue, amountUcents: 1000n });
    await expect(post(spend)).rejects.toMatchObject({ code: 'insufficient_balance' });
  });

  test('cover as much as the balance allows', async () => {
    await post(transfer());
    const covered = await world.db.tx('cover', (tx) => world.rooms.ledger.coverHold(tx, 'test:h', alice, 5000n));
    expect(covered).toBe(1000n);
  });
});

test('the proof finds a balance that does not match its entries', async () => {
  await post(transfer());
  await world.db.tx('tamper', (tx) =>
    tx.run(sql`update ledger_accounts set credits_ucents = 1001 where owner_id = 'alice'`),
  );
  const faults = await world.books.verify();
  expect(faults).toEqual(['customer_wallet:alice: credits kept 1001, entries sum to 1000']);
  await world.db.tx('mend', (tx) =>
    tx.run(sql`update ledger_accounts set credits_ucents = 1000 where owner_id = 'alice'`),
  );
});

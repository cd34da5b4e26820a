// The operator has a chain read again, because the node was on a fork: what is not in the books is taken back and found again.
import { describe, expect, test } from 'vitest';
import { type Deposit, findDeposit } from '../../../../control-plane/money/deposits/store.ts';
import { transfersOf } from '../../../../control-plane/money/deposits/transfers-store.ts';
import { MINUTE_MS, TOKEN } from './deposit-world.ts';
import { at, chain, decide, deposits, openDepositsForEachTest, operator, reopen } from './deposits-of-test.ts';

openDepositsForEachTest();

const rewind = (block: number) =>
  operator.ask('POST', '/admin/deposits/chains/ethereum/rewind', { block, reason: 'the node was on a fork' });
const transfers = async (id: string): Promise<string[]> =>
  (await transfersOf(deposits.world.db.read, id)).map(
    ({ status, is_counted: isCounted, booking }) => `${status} ${isCounted} ${booking}`,
  );

/** A deposit with a final transfer on a fork. The fork has ended, and the right chain has the transfer in another block, if it is kept. */
async function onFork(units: bigint, isKept: boolean): Promise<{ deposit: Deposit; hash: string; right: number }> {
  const deposit = await deposits.create();
  const right = await chain.head();
  const hash = await chain.pay(deposit.address, units, at(10));
  await chain.finalize(at(12));
  await deposits.settle();
  const depth = (await chain.head()) - right;
  await (isKept ? chain.reorg(depth, hash) : chain.reorg(depth));
  await chain.finalize(at(14));
  await deposits.settle();
  return { deposit, hash, right };
}

describe('a deposit whose transfer was final on a fork', () => {
  test('is credited with the transfer in its right block', async () => {
    const { deposit, right, hash } = await onFork(10n * TOKEN, true);
    expect(await rewind(right)).toMatchObject({ read_from: right + 1, orphaned_transfers: 1, booked_deposits: [] });
    expect(await transfers(deposit.id)).toEqual(['orphaned false null']);
    await deposits.settle();
    expect(await deposits.find(deposit.id)).toMatchObject({ status: 'confirming', tx_hash: hash, note: null });
    await chain.pay(deposit.address, 15n * TOKEN, at(20));
    await chain.finalize(at(22));
    await deposits.settle();
    expect(await deposits.find(deposit.id)).toMatchObject({ status: 'credited', credited_cents: 2_500 });
    expect(await deposits.cents()).toBe(2_500);
  });

  test('waits for tokens again if the right chain does not have the transfer, and loses its note', async () => {
    await reopen({ second: { rpcUrl: 'http://127.0.0.1:9', fromUnits: 25n * TOKEN } });
    const { deposit, right } = await onFork(25n * TOKEN, false);
    expect((await deposits.find(deposit.id)).note).toContain('the second node gave no answer');
    await rewind(right);
    await deposits.settle();
    expect(await deposits.find(deposit.id)).toMatchObject({ status: 'created', tx_hash: null, note: null });
  });

  test('that is held for its sender is neither credited nor screened without the transfer', async () => {
    await reopen({ oracle: chain.payer });
    const { deposit, right } = await onFork(25n * TOKEN, true);
    expect(await deposits.status(deposit.id)).toBe('held_screening');
    expect(await transfers(deposit.id)).toEqual(['final true null']);
    await rewind(right);
    await expect(decide(deposit.id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    await deposits.world.clock.advance(5 * MINUTE_MS);
    await deposits.settle();
    expect(await transfers(deposit.id)).toEqual(['final true null']);
    expect(await decide(deposit.id, 'credit')).toMatchObject({ status: 'credited', credited: '25.00' });
    expect(await deposits.cents()).toBe(2_500);
  });

  test('that is held can be refused if the transfer does not come back', async () => {
    await reopen({ oracle: chain.payer });
    const { deposit, right } = await onFork(25n * TOKEN, false);
    await rewind(right);
    await deposits.settle();
    expect(await deposits.status(deposit.id)).toBe('held_screening');
    expect(await decide(deposit.id, 'reject')).toMatchObject({ status: 'failed_screening' });
    expect(await transfers(deposit.id)).toEqual(['orphaned false null']);
  });
});

test('what is in the books stays there, and the operator is shown its deposits', async () => {
  const late = await deposits.create();
  const { deposit, right } = await onFork(25n * TOKEN, true);
  expect(await deposits.status(deposit.id)).toBe('credited');
  await chain.pay(late.address, TOKEN, at(90));
  expect(await rewind(right)).toEqual({
    chain: 'ethereum',
    read_from: right + 1,
    orphaned_transfers: 0,
    booked_deposits: [deposit.id],
  });
  expect(await transfers(deposit.id)).toEqual(['final true wallet']);
  await chain.finalize(at(92));
  await deposits.settle();
  expect(await transfers(deposit.id)).toEqual(['final true wallet']);
  expect([await deposits.status(deposit.id), await deposits.status(late.id)]).toEqual(['credited', 'expired_received']);
  expect(await rewind(right)).toMatchObject({ booked_deposits: [deposit.id, late.id].toSorted() });
  const head = await chain.head();
  await expect(rewind(head)).rejects.toMatchObject({ code: 'conflict' });
  await expect(rewind(head + 1)).rejects.toMatchObject({ code: 'conflict' });
  expect(await findDeposit(deposits.world.db.read, deposit.id)).toMatchObject({ credited_cents: 2_500 });
});

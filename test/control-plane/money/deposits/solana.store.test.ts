// Deposits on Solana: addresses come from an imported list, and every way to pay ends in its status.
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { address as readAddress } from '@solana/kit';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChainSettings } from '../../../../control-plane/money/deposits/settings.ts';
import { readSolanaAddress, tokenAccountOf } from '../../../../control-plane/money/deposits/chain-addresses.ts';
import type { Deposit } from '../../../../control-plane/money/deposits/store.ts';
import { depositSettingsOf } from '../../../kit/deposits.ts';
import { openOperator, type Operator } from '../../../kit/operator.ts';
import { startSolanaChain, type SolanaChain } from '../../../kit/solana-chain.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, TOKEN } from './deposit-world.ts';

const START_MS = Date.UTC(2026, 0, 1);
const at = (minutes: number): number => START_MS + minutes * MINUTE_MS;

let chain: SolanaChain;
let deposits: DepositWorld;
let operator: Operator;
beforeEach(async () => {
  chain = await startSolanaChain(START_MS - 5 * MINUTE_MS);
  await open();
  // Nobody can be asked about senders on Solana, so a list decides.
  await operator.ask('POST', '/admin/deposits/screening', { source: 'x', addresses: [await chain.newAddress()] });
});
afterEach(async () => {
  await deposits.world.verify();
  await deposits.world.close();
  chain.close();
});

async function open(changes: Partial<ChainSettings> = {}): Promise<void> {
  const { usdc, usdt } = chain.mints;
  const nodes = { rpcUrl: chain.url, second: null, finality: 'finalized', oracle: null } as const;
  const settings = { ...nodes, contracts: { usdc, usdt }, blocksPerQuery: Number.MAX_SAFE_INTEGER / 1_000, ...changes };
  deposits = await openDepositWorld({ ...depositSettingsOf(new Map([['solana', settings]])), evmKey: null });
  operator = openOperator(deposits.world);
  await deposits.settle();
}

const importAll = (addresses: string[]) => operator.ask('POST', '/admin/deposits/addresses', { addresses });

async function create(): Promise<Deposit> {
  await importAll([await chain.newAddress()]);
  return deposits.create({ chain: 'solana' });
}

async function settleAt(minutes: number): Promise<void> {
  chain.advance(at(minutes));
  await deposits.settle();
}

test('the token account of an owner is where wallets send to', async () => {
  for (const mint of Object.values(chain.mints)) {
    const owner = await chain.newAddress();
    const [account] = await findAssociatedTokenPda({
      owner: readAddress(owner),
      mint: readAddress(mint),
      tokenProgram: TOKEN_PROGRAM_ADDRESS,
    });
    expect(tokenAccountOf(owner, mint)).toBe(account);
    expect([readSolanaAddress(owner), readSolanaAddress(account)]).toEqual([owner, undefined]);
  }
});

describe('a payment on Solana', () => {
  test('of the exact amount is credited', async () => {
    const { id, address } = await create();
    const signature = await chain.pay(address, 25n * TOKEN, at(10));
    await settleAt(11);
    expect(await deposits.find(id)).toMatchObject({ status: 'credited', tx_hash: signature, credited_cents: 2_500 });
    expect(await deposits.cents()).toBe(2_500);
    await settleAt(12);
    expect(await deposits.cents()).toBe(2_500);
  });

  test('in two parts, too little, too much and late each has its status', async () => {
    const made = [await create(), await create(), await create(), await create(), await create()];
    const [parts, under, over, late, none] = made;
    await chain.pay(parts?.address ?? '', 10n * TOKEN, at(10));
    await chain.pay(under?.address ?? '', 24n * TOKEN, at(11));
    await chain.pay(over?.address ?? '', 26n * TOKEN, at(12));
    await deposits.settle();
    await chain.pay(parts?.address ?? '', 15n * TOKEN, at(13));
    await chain.pay(late?.address ?? '', 25n * TOKEN, at(61));
    await settleAt(62);
    const statuses = await Promise.all(made.map(({ id }) => deposits.status(id)));
    expect(statuses).toEqual(['credited', 'credited_underpaid', 'credited_overpaid', 'expired_received', 'expired']);
    expect(await deposits.cents()).toBe(2_500 + 2_400 + 2_600);
    expect(none?.address).not.toBe(late?.address);
  });

  test('in another token, or one that failed, does not count', async () => {
    const [other, alike, failed] = [await create(), await create(), await create()];
    await chain.pay(other.address, 25n * TOKEN, at(10), { mint: chain.mints.usdt });
    await chain.pay(alike.address, 25n * TOKEN, at(11), { mint: chain.mints.lookAlike });
    await chain.pay(failed.address, 2n ** 60n, at(12));
    await settleAt(62);
    const statuses = await Promise.all([other, alike, failed].map(({ id }) => deposits.status(id)));
    expect(statuses).toEqual(['expired_received', 'expired', 'expired']);
  });

  test('from a listed sender is never credited', async () => {
    await operator.ask('POST', '/admin/deposits/screening', { source: 'x', addresses: [chain.payer] });
    const { id, address } = await create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await settleAt(11);
    expect(await deposits.status(id)).toBe('failed_screening');
  });

  test('is found by its signature, and its address shows what it has', async () => {
    const { id, address } = await create();
    await settleAt(31 * 24 * 60);
    const tx_hash = await chain.pay(address, 25n * TOKEN, at(31 * 24 * 60 + 1));
    await settleAt(31 * 24 * 60 + 2);
    expect(await deposits.status(id)).toBe('expired');
    await operator.ask('POST', `/admin/deposits/${id}/rescan`, { tx_hash, reason: 'the customer named it' });
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired_received');
    expect((await operator.ask('GET', '/admin/deposits/balances?chain=solana'))['data']).toEqual([
      { index: 0, address, chain: 'solana', asset: 'usdc', received: '25.00', balance: '25.00' },
    ]);
  });
});

describe('a node of Solana', () => {
  test('that is down or lags expires nothing that was paid in time', async () => {
    const { id, address } = await create();
    chain.fault = 'down';
    await chain.pay(address, 25n * TOKEN, at(59));
    chain.advance(at(70));
    await deposits.world.clock.advance(90 * MINUTE_MS);
    await expect(deposits.settle()).rejects.toMatchObject({ name: 'OutboundError' });
    chain.fault = { lagSlots: 2 };
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
    chain.fault = undefined;
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });

  test.each([
    ['a mint of other decimals', () => ({ usdc: chain.mints.withNineDecimals }), '9 decimals'],
    ['a mint that is none', () => ({ usdc: chain.payer }), 'none of the token program'],
  ])('with %s pauses the chain', async (_what, contracts, reason) => {
    await deposits.world.close();
    await open({ contracts: contracts() });
    await importAll([await chain.newAddress()]);
    await expect(deposits.create({ chain: 'solana' })).rejects.toMatchObject({ code: 'deposits_unavailable' });
    const { data } = await operator.ask('GET', '/admin/deposits/chains');
    expect(data).toMatchObject([{ chain: 'solana', paused: expect.stringContaining(reason) }]);
  });
});

describe('the imported addresses', () => {
  test('are each used for one deposit, and run out', async () => {
    const pool = [await chain.newAddress(), await chain.newAddress()];
    expect(await importAll(pool)).toEqual({ imported: 2 });
    const used = [await deposits.create({ chain: 'solana' }), await deposits.create({ chain: 'solana' })];
    expect(used.map(({ address }) => address)).toEqual(pool);
    await expect(deposits.create({ chain: 'solana' })).rejects.toMatchObject({ code: 'deposit_addresses_exhausted' });
    await settleAt(61);
    await expect(deposits.create({ chain: 'solana' })).rejects.toMatchObject({ code: 'deposit_addresses_exhausted' });
    const { data } = await operator.ask('GET', '/admin/deposits/addresses?family=solana');
    expect(data).toMatchObject(pool.map((address, index) => ({ index, address, deposit_id: used[index]?.id })));
  });

  test('and the sanctioned ones let other work go on while a long list is checked', async () => {
    const addresses = await Promise.all(Array.from({ length: 1_000 }, () => chain.newAddress()));
    const turns = vi.spyOn(deposits.world.clock, 'nextTurn');
    expect(await importAll(addresses)).toEqual({ imported: 1_000 });
    const ofImport = turns.mock.calls.length;
    await operator.ask('POST', '/admin/deposits/screening', { source: 'x', addresses });
    expect([ofImport >= 10, turns.mock.calls.length - ofImport >= 10]).toEqual([true, true]);
  });

  test('that are retired are given to no deposit, and are not imported again', async () => {
    const address = await chain.newAddress();
    await importAll([address]);
    const retire = (chars: number): Promise<unknown> =>
      operator.ask('POST', '/admin/deposits/addresses/retire', { reason: 'r'.repeat(chars) });
    await expect(retire(1_001)).rejects.toThrow('reason');
    expect(await retire(1_000)).toEqual({ retired: 1 });
    await expect(deposits.create({ chain: 'solana' })).rejects.toMatchObject({ code: 'deposit_addresses_exhausted' });
    await expect(importAll([address])).rejects.toMatchObject({ code: 'validation_failed' });
  });

  test.each([
    ['of another chain', async () => '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266', 'one of an EVM chain'],
    ['of a token account', async () => tokenAccountOf(chain.payer, chain.mints.usdc), 'the address of a key pair'],
    ['that is none', async () => 'nobody', 'the address of a key pair'],
    ['that is in the list twice', async (good: string) => good, 'twice'],
    ['that was imported before', async () => known, 'again'],
  ])('are all refused with one %s, which is named', async (_what, bad, rule) => {
    known = await chain.newAddress();
    await importAll([known]);
    const good = await chain.newAddress();
    await expect(importAll([good, await bad(good)])).rejects.toMatchObject({
      code: 'validation_failed',
      errors: [{ field: 'addresses[1]', rule: expect.stringContaining(rule) }],
    });
    const { data } = await operator.ask('GET', '/admin/deposits/addresses?family=solana');
    expect(data).toMatchObject([{ address: known }]);
  });
});

let known = '';

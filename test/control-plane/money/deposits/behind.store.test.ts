// A token account that is behind, because its node cannot answer about it or because it has very many transactions, is behind alone.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Deposit } from '../../../../control-plane/money/deposits/store.ts';
import { brought } from '../../../../control-plane/brings.ts';
import { createLog } from '../../../../shared/log.ts';
import { depositSettingsOf } from '../../../kit/deposits.ts';
import { openOperator, type Operator } from '../../../kit/operator.ts';
import { type Loss, type SolanaChain, startSolanaChain } from '../../../kit/solana-chain.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, TOKEN } from './deposit-world.ts';

const START_MS = Date.UTC(2026, 0, 1);
const at = (minutes: number): number => START_MS + minutes * MINUTE_MS;
const DAY_MINUTES = 24 * 60;
/** More transactions than a tick reads. */
const DUST = 230;

let chain: SolanaChain;
let deposits: DepositWorld;
let operator: Operator;
let lines: { msg: string; deposits?: string[]; detail?: string }[];
beforeEach(async () => {
  chain = await startSolanaChain(at(-5));
  lines = [];
  const { usdc, usdt } = chain.mints;
  const nodes = { rpcUrl: chain.url, second: null, finality: 'finalized', oracle: null } as const;
  const settings = { ...nodes, contracts: { usdc, usdt }, blocksPerQuery: Number.MAX_SAFE_INTEGER / 1_000 };
  const log = createLog('test', 'info', {
    write: (line) => void lines.push(JSON.parse(line) as (typeof lines)[number]),
  });
  deposits = await openDepositWorld({ ...depositSettingsOf(new Map([['solana', settings]])), evmKey: null }, { log });
  operator = openOperator(deposits.world);
  await deposits.settle();
  await operator.ask('POST', '/admin/deposits/screening', { source: 'x', addresses: [await chain.newAddress()] });
});
afterEach(async () => {
  await deposits.world.verify();
  await deposits.world.close();
  chain.close();
});

/** New deposits, in the order in which the watcher reads them. */
async function create(count: number): Promise<Deposit[]> {
  const addresses = await Promise.all(Array.from({ length: count }, () => chain.newAddress()));
  await operator.ask('POST', '/admin/deposits/addresses', { addresses });
  const made: Deposit[] = [];
  for (const _address of addresses) made.push(await deposits.create({ chain: 'solana' }));
  return made.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

async function settleAt(minutes: number): Promise<void> {
  chain.advance(at(minutes));
  await deposits.settle();
}

async function tickAt(minutes: number): Promise<void> {
  chain.advance(at(minutes));
  for (const { tick } of deposits.world.rooms.deposits.watchers) await tick();
  await deposits.world.drive();
}

const statuses = (of: readonly Deposit[]) => Promise.all(of.map(({ id }) => deposits.status(id)));
const behind = async (): Promise<unknown> => (await shownChain())['accounts_behind'];
const measured = () =>
  brought(deposits.world.brings(), 'measures')
    .find(({ name }) => name === 'svc_deposit_accounts_behind')
    ?.read();

describe('an account with a transaction about which the node cannot answer', () => {
  test.each<Loss>(['pruned', 'no time', 'an error'])('is behind alone, and waits (%s)', async (loss) => {
    const made = await create(3);
    const [first, second] = made;
    const lost = await chain.pay(first?.address ?? '', 25n * TOKEN, at(10));
    chain.lost.set(lost, loss);
    await chain.pay(second?.address ?? '', 25n * TOKEN, at(11));
    await settleAt(12);
    expect(await statuses(made)).toEqual(['created', 'credited', 'created']);
    expect([await behind(), await measured()]).toEqual([1, [{ labels: { chain: 'solana' }, value: 1 }]]);
    await settleAt(62);
    expect(await statuses(made)).toEqual(['created', 'credited', 'expired']);
    chain.lost.clear();
    await settleAt(63);
    expect(await statuses(made)).toEqual(['credited', 'credited', 'expired']);
    expect([await behind(), await deposits.cents()]).toEqual([0, 5_000]);
  });

  test('is named in the log once when it falls behind, and once when it goes on', async () => {
    const [first] = await create(1);
    chain.lost.set(await chain.pay(first?.address ?? '', 25n * TOKEN, at(10)), 'pruned');
    for (const minutes of [11, 12, 13]) await settleAt(minutes);
    const accounts = () => lines.filter(({ msg }) => msg.includes('token account'));
    expect(accounts()).toMatchObject([
      { deposits: [first?.id], detail: expect.stringContaining('lost the transaction') },
    ]);
    chain.lost.clear();
    for (const minutes of [14, 15]) await settleAt(minutes);
    expect(accounts().slice(1)).toMatchObject([{ deposits: [first?.id] }]);
  });

  test('is named once also if it is read in parts, because strangers have sent it very many', async () => {
    const [first] = await create(1);
    chain.lost.set(await chain.pay(first?.address ?? '', 25n * TOKEN, at(1)), 'pruned');
    for (let i = 0; i < DUST; i += 1) await chain.pay(first?.address ?? '', 1n, at(2));
    for (const minutes of [3, 4, 5, 6, 7, 8, 9]) await tickAt(minutes);
    const accounts = () => lines.filter(({ msg }) => msg.includes('token account')).map(({ msg }) => msg);
    expect(accounts()).toEqual([expect.stringContaining('its deposit waits')]);
    chain.lost.clear();
    for (const minutes of [10, 11, 12, 13]) await tickAt(minutes);
    expect(accounts().slice(1)).toEqual(['a token account is read again']);
    expect(await behind()).toBe(0);
  });

  test('is credited with its other payments', async () => {
    const made = await create(1);
    const address = made[0]?.address ?? '';
    await chain.pay(address, 15n * TOKEN, at(10));
    chain.lost.set(await chain.pay(address, 5n * TOKEN, at(11)), 'an error');
    await settleAt(12);
    expect(await statuses(made)).toEqual(['confirming']);
    await chain.pay(address, 10n * TOKEN, at(20));
    await settleAt(21);
    expect([await statuses(made), await deposits.cents()]).toEqual([['credited'], 2_500]);
    chain.lost.clear();
    await settleAt(22);
    expect([await statuses(made), await deposits.cents()]).toEqual([['credited_overpaid'], 3_000]);
  });

  test('with too little is not credited before all is read', async () => {
    const made = await create(1);
    const address = made[0]?.address ?? '';
    await chain.pay(address, 20n * TOKEN, at(10));
    chain.lost.set(await chain.pay(address, 5n * TOKEN, at(11)), 'pruned');
    await settleAt(62);
    expect(await statuses(made)).toEqual(['confirming']);
    chain.lost.clear();
    await settleAt(63);
    expect([await statuses(made), await deposits.cents()]).toEqual([['credited'], 2_500]);
  });

  test('stays behind after a rewind', async () => {
    const made = await create(1);
    chain.lost.set(await chain.pay(made[0]?.address ?? '', 25n * TOKEN, at(10)), 'pruned');
    await settleAt(62);
    const final = Number((await shownChain())['final']);
    await deposits.world.rooms.deposits.decisions.rewind('solana', final - 1);
    await deposits.world.drive();
    expect([await statuses(made), await behind()]).toEqual([['created'], 1]);
    chain.lost.clear();
    await settleAt(63);
    expect(await statuses(made)).toEqual(['credited']);
  });

  test('expires, and counts as behind no more, when nobody watches it any more', async () => {
    const made = await create(1);
    chain.lost.set(await chain.pay(made[0]?.address ?? '', 25n * TOKEN, at(10)), 'pruned');
    await settleAt(30 * DAY_MINUTES);
    expect([await statuses(made), await behind()]).toEqual([['created'], 1]);
    await settleAt(31 * DAY_MINUTES);
    expect([await statuses(made), await behind()]).toEqual([['expired'], 0]);
  });
});

describe('an account with very many tiny transfers', () => {
  test('is read on beside the others, and loses none of its payments', async () => {
    const made = await create(3);
    const [first, second, third] = made;
    await chain.pay(first?.address ?? '', 25n * TOKEN, at(1));
    for (let i = 0; i < DUST; i += 1) await chain.pay(first?.address ?? '', 1n, at(2));
    await chain.pay(second?.address ?? '', 25n * TOKEN, at(3));
    await tickAt(4);
    expect(await statuses(made)).toEqual(['confirming', 'credited', 'created']);
    await chain.pay(first?.address ?? '', 5n * TOKEN, at(5));
    await chain.pay(third?.address ?? '', 25n * TOKEN, at(6));
    await tickAt(62);
    expect((await statuses(made))[2]).toBe('credited');
    for (const minutes of [63, 64]) await tickAt(minutes);
    expect(await deposits.find(first?.id ?? '')).toMatchObject({ credited_units: 30n * TOKEN + BigInt(DUST) });
    expect(await behind()).toBe(0);
    expect(lines.filter(({ msg }) => msg.includes('token account'))).toEqual([]);
  });
});

async function shownChain(): Promise<Record<string, unknown>> {
  const { data } = await operator.ask('GET', '/admin/deposits/chains');
  return (data as Record<string, unknown>[])[0] ?? {};
}

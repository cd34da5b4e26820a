// Rows of deposits, their transfers, addresses and chains: which rows a change concerns, and the order of lists.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Db, Tx } from '../../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import * as addresses from '../../../../control-plane/money/deposits/addresses-store.ts';
import * as chains from '../../../../control-plane/money/deposits/chains-store.ts';
import { waitingDeposits } from '../../../../control-plane/money/deposits/overview.ts';
import * as store from '../../../../control-plane/money/deposits/store.ts';
import * as transfers from '../../../../control-plane/money/deposits/transfers-store.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';

let db: Db;
/** The place of the last address. */
let position: number;
beforeEach(async () => {
  position = 0;
  db = await openTestDb(SCHEMA, virtualClock());
});
afterEach(() => db.close());

const run = <T>(change: (tx: Tx) => Promise<T>): Promise<T> => db.tx('change', change);
const DEPOSIT: store.Deposit = {
  id: '',
  org_id: 'o',
  status: 'created',
  chain: 'base',
  asset: 'usdc',
  family: 'evm',
  amount_cents: 100,
  due_units: 1_000_000n,
  address: '',
  position: 0,
  tx_hash: null,
  credited_units: null,
  credited_cents: null,
  note: null,
  created_ms: 100,
  expires_ms: 500,
  watched_until_ms: 1_000,
  due_ms: null,
};
const add = (id: string, patch: Partial<store.Deposit> = {}): Promise<void> => {
  position += 1;
  return run((tx) => store.insertDeposit(tx, { ...DEPOSIT, id, address: `0x${id}`, position, ...patch }));
};
interface Seen extends Partial<Omit<transfers.NewTransfer, 'found'>> {
  hash?: string;
  index?: number;
  block?: number;
  blockHash?: string;
  units?: bigint;
}
const see = (
  id: string,
  { hash = `0x${id}`, index = 0, block = 10, blockHash = 'h', units = 5n, ...patch }: Seen = {},
): Promise<boolean> =>
  run((tx) =>
    transfers.upsertTransfer(tx, {
      id,
      depositId: 'd',
      chain: 'base',
      isFinal: false,
      ...patch,
      found: {
        txHash: hash,
        logIndex: index,
        block: { number: block, hash: blockHash, ms: 1 },
        from: '0xf',
        to: '0xt',
        asset: 'usdc',
        units,
      },
    } as transfers.NewTransfer),
  );
const idsOf = (rows: readonly { id: string }[]): string[] => rows.map(({ id }) => id);
const page = { count: 9 };

describe('a transfer', () => {
  const statusOf = async (): Promise<string[]> =>
    (await transfers.transfersOf(db.read, 'd')).map(
      (row) => `${row.id} ${row.status} ${row.block_number}${row.block_hash}`,
    );

  test('is stored once, follows its block, and never changes again once it is final', async () => {
    expect([await see('a'), await see('a2', { hash: '0xa' })]).toEqual([true, false]);
    expect(await see('a3', { hash: '0xa', block: 11, blockHash: 'i' })).toBe(true);
    expect(await statusOf()).toEqual(['a seen 11i']);
    expect(await see('a4', { hash: '0xa', block: 11, blockHash: 'i', isFinal: true })).toBe(true);
    expect(await see('a5', { hash: '0xa', block: 12, blockHash: 'j' })).toBe(false);
    expect(await statusOf()).toEqual(['a final 11i']);
    expect(await see('b', { hash: '0xa', index: 1 })).toBe(true);
    expect(await see('c', { hash: '0xa', chain: 'ethereum' })).toBe(true);
  });

  test('belongs to the deposit that its new block names at its place: a reorganisation may shift the places', async () => {
    const units = async (depositId: string): Promise<string[]> =>
      (await transfers.transfersOf(db.read, depositId)).map((row) => `${row.log_index}: ${row.units} ${row.status}`);
    await see('a', { hash: '0xt', index: 5, depositId: 'd-a', units: 3n });
    await see('b', { hash: '0xt', index: 6, depositId: 'd-b', units: 4n });
    await run((tx) => transfers.orphan(tx, 'base', { above: 9, upTo: null }));
    await see('a2', { hash: '0xt', index: 6, depositId: 'd-a', units: 3n, blockHash: 'i' });
    await see('b2', { hash: '0xt', index: 7, depositId: 'd-b', units: 4n, blockHash: 'i' });
    expect(await units('d-a')).toEqual(['5: 3 orphaned', '6: 3 seen']);
    expect(await units('d-b')).toEqual(['7: 4 seen']);
  });

  test('of a deposit is listed by its block, its place in the block, and its id', async () => {
    await see('late', { block: 11 });
    await see('second', { block: 10, index: 2 });
    await see('b', { block: 10, index: 1 });
    await see('a', { block: 10, index: 1 });
    await see('foreign', { depositId: 'd-2' });
    expect(idsOf(await transfers.transfersOf(db.read, 'd'))).toEqual(['a', 'b', 'second', 'late']);
  });

  test('is gone with its block, unless it is final, of another chain, or in another block', async () => {
    for (const [id, block] of [
      ['below', 9],
      ['first', 10],
      ['last', 12],
      ['above', 13],
    ] as const)
      await see(id, { block, depositId: id });
    await see('final', { block: 11, depositId: 'final', isFinal: true });
    await see('elsewhere', { block: 11, depositId: 'elsewhere', chain: 'ethereum' });
    const orphan = (above: number, upTo: number | null): Promise<string[]> =>
      run((tx) => transfers.orphan(tx, 'base', { above, upTo }));
    expect((await orphan(9, 12)).toSorted()).toEqual(['first', 'last']);
    expect(await orphan(9, 12)).toEqual([]);
    expect((await orphan(8, null)).toSorted()).toEqual(['above', 'below']);
  });

  test('is booked from one place to another, and counted', async () => {
    for (const id of ['a', 'b', 'c']) await see(id, { isFinal: true, units: 7n, depositId: id });
    const book = (ids: string[], from: transfers.Booking | null, to: transfers.Booking): Promise<number> =>
      run((tx) => transfers.setBooking(tx, ids, { from, to }));
    expect(await book(['a', 'b'], null, 'suspense')).toBe(2);
    expect(await book(['a', 'c'], 'suspense', 'wallet')).toBe(1);
    expect(await book(['a', 'b'], null, 'returned')).toBe(0);
    expect(await transfers.countInSuspense(db.read)).toBe(1);
    expect(await transfers.bookedUnits(db.read)).toEqual([
      { chain: 'base', asset: 'usdc', booking: 'suspense', units: 7n },
      { chain: 'base', asset: 'usdc', booking: 'wallet', units: 7n },
    ]);
    await run((tx) => transfers.setCounted(tx, ['a', 'b']));
    const counted = async (id: string): Promise<boolean | undefined> =>
      (await transfers.transfersOf(db.read, id))[0]?.is_counted;
    expect([await counted('a'), await counted('b'), await counted('c')]).toEqual([true, true, false]);
  });

  test('that is final is summed up by address and asset, in pages of addresses', async () => {
    for (const id of ['d-1', 'd-2', 'd-3']) await add(id);
    await see('a', { depositId: 'd-1', isFinal: true, units: 1n });
    await see('b', { depositId: 'd-1', isFinal: true, units: 2n });
    await see('c', { depositId: 'd-2' });
    await see('d', { depositId: 'd-3', isFinal: true, units: 4n });
    await see('e', { depositId: 'd-3', isFinal: true, chain: 'ethereum' });
    const received = async (after: number, limit: number): Promise<string[]> =>
      (await transfers.receivedAfter(db.read, 'base', after, limit)).map((row) => `${row.position} ${row.units}`);
    expect(await received(0, 9)).toEqual(['1 3', '3 4']);
    expect(await received(0, 1)).toEqual(['1 3']);
    expect(await received(1, 9)).toEqual(['3 4']);
    expect(await received(3, 9)).toEqual([]);
  });
});

describe('deposits are listed', () => {
  beforeEach(async () => {
    await add('b');
    await add('a');
    await add('held', { status: 'held_screening', created_ms: 99, org_id: 'o-2' });
    await add('noted', { status: 'credited', created_ms: 98, note: 'why' });
    await add('late', { status: 'expired', created_ms: 101 });
    await see('t', { depositId: 'late', isFinal: true });
    await run((tx) => transfers.setBooking(tx, ['t'], { from: null, to: 'suspense' }));
    // What is in the wallet waits for nobody.
    await see('in the wallet', { depositId: 'b', isFinal: true });
    await run((tx) => transfers.setBooking(tx, ['in the wallet'], { from: null, to: 'wallet' }));
  });

  test('from new to old, by organisation, status, and whether they wait for the operator', async () => {
    const like = async (filter: store.DepositFilter): Promise<string[]> =>
      idsOf(await store.depositsLike(db.read, filter, page));
    expect(await like({})).toEqual(['late', 'b', 'a', 'held', 'noted']);
    expect(await like({ isWaiting: true })).toEqual(['late', 'held', 'noted']);
    expect(await like({ isWaiting: true, orgId: 'o' })).toEqual(['late', 'noted']);
    expect(await like({ isWaiting: false, status: 'created' })).toEqual(['b', 'a']);
    expect(idsOf(await store.depositsOfOrg(db.read, 'o', page))).toEqual(['late', 'b', 'a', 'noted']);
    expect(idsOf(await store.depositsAfter(db.read, 'a', 2))).toEqual(['b', 'held']);
    expect(await store.countWaiting(db.read)).toEqual({ held: 1, noted: 1, suspense: 1 });
    expect(await store.countByStatus(db.read)).toEqual([
      { status: 'created', count: 2 },
      { status: 'held_screening', count: 1 },
    ]);
    expect([await store.countUndecided(db.read, 'o'), await store.countUndecided(db.read, 'o-2')]).toEqual([2, 1]);
  });

  test('for the overview of the operator from old to new, each once', async () => {
    const waiting = async (limit: number): Promise<string[]> =>
      idsOf(await waitingDeposits(db.read, { limit, nowMs: 0 }));
    expect(await waiting(9)).toEqual(['noted', 'held', 'late']);
    expect(await waiting(1)).toEqual(['noted']);
    await run((tx) => store.setDue(tx, 'b', null, 'x'));
    await run((tx) => store.setDue(tx, 'a', null, 'y'));
    expect(await waiting(9)).toEqual(['noted', 'held', 'a', 'b', 'late']);
  });

  test('when they are due, and while their addresses are watched', async () => {
    await run((tx) => store.setDue(tx, 'b', 5, null));
    await run((tx) => store.setDue(tx, 'a', 5, null));
    await run((tx) => store.setDue(tx, 'late', 4, null));
    const due = (nowMs: number, limit = 9): Promise<string[]> => store.dueDeposits(db.read, nowMs, limit);
    expect([await due(3), await due(4), await due(5), await due(5, 2)]).toEqual([
      [],
      ['late'],
      ['late', 'a', 'b'],
      ['late', 'a'],
    ]);
    await add('solana', { family: 'solana', chain: 'solana' });
    await add('short', { watched_until_ms: 999 });
    const watched = async (ms: number): Promise<string[]> => idsOf(await store.watchedDeposits(db.read, 'evm', ms));
    expect(await watched(1_000)).toEqual(['a', 'b', 'held', 'late', 'noted']);
    expect(await watched(999)).toContain('short');
    expect(await watched(1_001)).toEqual([]);
  });
});

test('a new block wakes the deposits of its chain that may move on, and those that it touches', async () => {
  await add('detected', { status: 'detected' });
  await add('confirming', { status: 'confirming' });
  await add('expired', { expires_ms: 199 });
  await add('fresh', { expires_ms: 200 });
  await add('settled', { status: 'settled' });
  await add('retrying', { status: 'detected', due_ms: 900 });
  await add('elsewhere', { status: 'detected', chain: 'ethereum' });
  await add('touched', { status: 'credited' });
  await run((tx) => store.wake(tx, { chain: 'base', finalMs: 200, touched: ['touched'] }, 7));
  expect((await store.dueDeposits(db.read, 7, 9)).toSorted()).toEqual(['confirming', 'detected', 'expired', 'touched']);
  await run((tx) => store.wake(tx, { chain: 'base', finalMs: 201, touched: [] }, 8));
  expect(await store.dueDeposits(db.read, 8, 9)).toContain('fresh');
});

test('a deposit moves from the status that was read, and loses its note', async () => {
  await add('a', { note: 'why' });
  await add('b', { note: 'why' });
  const move = (): Promise<boolean> =>
    run((tx) => store.setStatus(tx, 'a', { from: 'created', to: 'detected' }, { due_ms: 5, tx_hash: '0x1' }));
  expect([await move(), await move()]).toEqual([true, false]);
  expect(await store.findDeposit(db.read, 'a')).toMatchObject({
    status: 'detected',
    note: null,
    due_ms: 5,
    tx_hash: '0x1',
  });
  expect(await store.findDeposit(db.read, 'b')).toMatchObject({ status: 'created', note: 'why' });
});

describe('addresses', () => {
  test('of a family have places one after another', async () => {
    const take = (family: 'evm' | 'solana', count: number): Promise<number> =>
      run((tx) => addresses.takePositions(tx, family, count));
    expect([await take('evm', 3), await take('evm', 2), await take('solana', 1), await take('evm', 1)]).toEqual([
      0, 3, 0, 5,
    ]);
  });

  test('that were imported are given out once, the first one first, until they are retired', async () => {
    const nowMs = 1;
    await run((tx) => addresses.insertAddresses(tx, 'evm', ['0xa', '0xb', '0xc'], { position: 5, nowMs }));
    await run((tx) => addresses.insertAddresses(tx, 'solana', ['S'], { position: 0, nowMs }));
    const derived = {
      family: 'evm',
      position: 9,
      address: '0xd',
      key_fingerprint: 'k',
      deposit_id: 'd-9',
      created_ms: 1,
    };
    await run((tx) => addresses.insertAddress(tx, derived));
    const take = (id: string) => run((tx) => addresses.takeFreeAddress(tx, 'evm', id));
    expect([await take('d-1'), await take('d-2')]).toEqual([
      { position: 5, address: '0xa' },
      { position: 6, address: '0xb' },
    ]);
    expect(await addresses.addressPools(db.read)).toEqual([
      { family: 'evm', free: 1, total: 3 },
      { family: 'solana', free: 1, total: 1 },
    ]);
    expect(await run((tx) => addresses.retireFree(tx, 'evm'))).toBe(1);
    expect(await take('d-3')).toBeUndefined();
    expect(await run((tx) => addresses.takeFreeAddress(tx, 'solana', 'd-4'))).toEqual({ position: 0, address: 'S' });
    expect([...(await addresses.knownAddresses(db.read, 'evm', ['0xa', '0xc', '0xz', 'S']))].toSorted()).toEqual([
      '0xa',
      '0xc',
    ]);
    const after = async (at: number, limit: number): Promise<number[]> =>
      (await addresses.addressesAfter(db.read, 'evm', at, limit)).map((row) => row.position);
    expect([await after(4, 9), await after(5, 2)]).toEqual([
      [5, 6, 7, 9],
      [6, 7],
    ]);
  });

  test.each([0, 1_000, 1_001])('that come as a list of %d are all stored, each at its place', async (count) => {
    const list = Array.from({ length: count }, (_, i) => `0x${String(i).padStart(4, '0')}`);
    await run((tx) => addresses.insertAddresses(tx, 'evm', list, { position: 5, nowMs: 1 }));
    const stored = await addresses.addressesAfter(db.read, 'evm', 4, 9_999);
    expect(stored.map((row) => row.address)).toEqual(list);
    expect(stored.map((row) => row.position)).toEqual(list.map((_, i) => i + 5));
    expect((await addresses.knownAddresses(db.read, 'evm', [...list, '0xother'])).size).toBe(count);
  });

  test('of sanctioned senders are stored once each', async () => {
    const list = (...all: string[]): Promise<number> => run((tx) => addresses.addSanctioned(tx, all, 'list', 1));
    expect([await list('0xa', '0xb'), await list('0xb', '0xc')]).toEqual([2, 1]);
    expect(await addresses.findSanctioned(db.read, '0xb')).toEqual({ address: '0xb', source: 'list' });
    expect(await addresses.findSanctioned(db.read, '0xz')).toBeUndefined();
    expect(await addresses.countSanctioned(db.read)).toBe(3);
  });
});

describe('a chain', () => {
  const block = (number: number) => ({ number, hash: `h${number}`, ms: number * 10 });
  const kept = async (chain: 'base' | 'ethereum' = 'base'): Promise<number[]> =>
    (await chains.checkpoints(db.read, chain)).map((row) => row.number);
  const keep = (chain: 'base' | 'ethereum', above: number, finalNumber: number, added: number | null): Promise<void> =>
    run((tx) => chains.setCheckpoints(tx, chain, { above, finalNumber, added: added === null ? null : block(added) }));
  beforeEach(async () => {
    for (const chain of ['base', 'ethereum', 'base'] as const) await run((tx) => chains.addChain(tx, chain, 1));
  });

  test('is read, paused and set back by itself', async () => {
    await run((tx) => chains.pause(tx, 'base', 'no node', 2));
    expect(await chains.findChain(db.read, 'base')).toMatchObject({
      paused_reason: 'no node',
      updated_ms: 2,
      head_number: null,
    });
    await run((tx) => chains.setRead(tx, 'base', { head: block(9), final: block(7) }, 3));
    const read = { head_number: 9, head_ms: 90, final_number: 7, final_hash: 'h7', final_ms: 70, paused_reason: null };
    expect(await chains.findChain(db.read, 'base')).toMatchObject({ ...read, updated_ms: 3 });
    await run((tx) => chains.rewind(tx, 'base', block(5), 4));
    expect(await chains.findChain(db.read, 'base')).toMatchObject({
      ...read,
      final_number: 5,
      final_hash: 'h5',
      final_ms: 50,
    });
    expect((await chains.allChains(db.read)).map((row) => [row.id, row.updated_ms])).toEqual([
      ['base', 4],
      ['ethereum', 1],
    ]);
  });

  test('keeps the checkpoints above its final block, without those of a branch that is gone', async () => {
    for (const number of [11, 12, 13]) await keep('base', number - 1, 10, number);
    await keep('ethereum', 10, 10, 11);
    expect([await kept(), await kept('ethereum')]).toEqual([[13, 12, 11], [11]]);
    await keep('base', 12, 11, null);
    expect(await kept()).toEqual([12]);
    await keep('base', 12, 12, 12);
    expect([await kept(), await kept('ethereum')]).toEqual([[], [11]]);
    await keep('base', 20, 12, 13);
    await keep('base', 20, 12, 14);
    await keep('ethereum', 20, 10, 14);
    await run((tx) => chains.rewind(tx, 'base', block(13), 4));
    expect([await kept(), await kept('ethereum')]).toEqual([[13], [14, 11]]);
  });
});

test('transfers of one deposit are booked even if they are more than a statement has room for', async () => {
  const strangers = Array.from({ length: 70_000 }, (_, i) => `deptx_stranger_${i}`);
  await add('d');
  await see('a', { isFinal: true });
  await see('b', { isFinal: true });
  const found = await transfers.transfersOf(db.read, 'd');
  const ids = [found[0]?.id ?? '', ...strangers, found[1]?.id ?? ''];
  await run((tx) => transfers.setCounted(tx, ids));
  expect(await run((tx) => transfers.setBooking(tx, ids, { from: null, to: 'suspense' }))).toBe(2);
  const booked = { is_counted: true, booking: 'suspense' };
  expect(await transfers.transfersOf(db.read, 'd')).toEqual(found.map((each) => ({ ...each, ...booked })));
});

test('deposits with new transfers become due even if they are more than a statement has room for', async () => {
  for (const id of ['first', 'last', 'other']) await add(id);
  const others = Array.from({ length: 70_000 }, (_, i) => `dep_other_${i}`);
  const touched = ['first', ...others, 'last'];
  await run((tx) => store.wake(tx, { chain: 'base', finalMs: 1, touched }, 7));
  expect(await store.dueDeposits(db.read, 7, 10)).toEqual(['first', 'last']);
});

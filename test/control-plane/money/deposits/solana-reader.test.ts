// Pure: which token balances of a transaction on Solana are a payment to us.
import { beforeEach, describe, expect, test } from 'vitest';
import { CHAINS } from '../../../../control-plane/money/deposits/chains.ts';
import type { AccountMark, AccountReader, ReadAccounts } from '../../../../control-plane/money/deposits/reader.ts';
import { type Rpc, RpcError } from '../../../../control-plane/money/deposits/rpc.ts';
import { type Screen, screenAll } from '../../../../control-plane/money/deposits/screening.ts';
import { openSolanaReader } from '../../../../control-plane/money/deposits/solana.ts';
import { TOKEN_PROGRAM, tokenAccountOf } from '../../../../control-plane/money/deposits/chain-addresses.ts';
import type { TokenBalance } from '../../../kit/solana-chain.ts';

const { usdc = '' } = CHAINS.solana.contracts;
const OWNER = 'CuieVDEDtLo7FypA9SbLM9saXFdb1dsshEkyErMqkRQq';
const ACCOUNT = tokenAccountOf(OWNER, usdc);
const NEWER_PROGRAM = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';

const balance = (
  accountIndex: number,
  amount: number,
  owner: string,
  change: Partial<TokenBalance> = {},
): TokenBalance => ({
  accountIndex,
  mint: usdc,
  owner,
  programId: TOKEN_PROGRAM,
  uiTokenAmount: { amount: String(amount) },
  ...change,
});

/** A node with one answer for each method. */
function readerOf(answers: Record<string, unknown>): AccountReader {
  const rpc: Rpc = {
    call: async (method, _params, result) => result.parse(answers[method]),
    close: async () => undefined,
  };
  return openSolanaReader({ contracts: { usdc } }, rpc);
}

const meta = {
  err: null as object | null,
  preTokenBalances: [balance(1, 100, 'sender'), balance(3, 50, 'other')],
  postTokenBalances: [balance(1, 70, 'sender'), balance(3, 40, 'other'), balance(2, 40, OWNER)],
};
const accountKeys = ['feepayer', 'from', ACCOUNT, 'from2'];

const paid = (changed: object = {}, keys = accountKeys) =>
  readerOf({
    getTransaction: {
      slot: 7,
      blockTime: 9,
      meta: { ...meta, ...changed },
      transaction: { message: { accountKeys: keys } },
    },
  }).transfersOf('signature', OWNER);

describe('a transaction on Solana', () => {
  test('pays what it added to the token account of the address, and is from all who have lost', async () => {
    const block = { number: 7, hash: '7', ms: 9_000 };
    const transfer = { txHash: 'signature', logIndex: 2, to: OWNER, asset: 'usdc', units: 40n, block };
    expect(await paid()).toEqual([{ ...transfer, from: 'sender,other' }]);
  });

  // Whoever is sanctioned could move more from a clean wallet to another one in the same transaction.
  test('is from a sanctioned sender also if somebody else has lost more', async () => {
    const [transfer] = (await paid()) ?? [];
    const senders = [{ chain: 'solana', address: transfer?.from ?? '' }] as const;
    const screened: string[] = [];
    const screen: Screen = async (_chain, address) => {
      screened.push(address);
      return address === 'other' ? 'hit' : 'clear';
    };
    expect(await screenAll(screen, senders)).toBe('hit');
    expect(screened).toEqual(['sender', 'other']);
  });

  test('pays only the difference to what was there before', async () => {
    const preTokenBalances = [...meta.preTokenBalances, balance(2, 15, OWNER)];
    expect(await paid({ preTokenBalances })).toMatchObject([{ units: 25n }]);
  });

  test('may name the account in a lookup table', async () => {
    const loadedAddresses = { writable: [ACCOUNT], readonly: [] };
    const postTokenBalances = [balance(3, 40, OWNER)];
    expect(
      await paid({ loadedAddresses, postTokenBalances, preTokenBalances: [] }, ['feepayer', 'a', 'b']),
    ).toMatchObject([{ units: 40n, logIndex: 3, from: 'feepayer' }]);
  });

  test.each([
    ['has failed', { err: { InstructionError: [0, 'Custom'] } }],
    ['takes tokens away', { preTokenBalances: [balance(2, 41, OWNER)] }],
    ['is of the newer token program', { postTokenBalances: [balance(2, 40, OWNER, { programId: NEWER_PROGRAM })] }],
    ['is of another mint', { postTokenBalances: [balance(2, 40, OWNER, { mint: 'another' })] }],
    ['is to an account that belongs to somebody else now', { postTokenBalances: [balance(2, 40, 'thief')] }],
  ])('is no payment if it %s', async (_what, change) => {
    expect(await paid(change)).toEqual([]);
  });

  test('has amounts of 64 bits: a longer one is not read, because reading millions of digits takes seconds', async () => {
    const largest = String(2n ** 64n - 1n);
    const paidAmount = (amount: string) =>
      paid({ preTokenBalances: [], postTokenBalances: [balance(2, 0, OWNER, { uiTokenAmount: { amount } })] });
    expect(await paidAmount(largest)).toMatchObject([{ units: 2n ** 64n - 1n }]);
    await expect(paidAmount(`${largest}0`)).rejects.toThrow('amount');
  });

  test('is unknown if the node does not have it, and waits if it has no time yet', async () => {
    expect(await readerOf({ getTransaction: null }).transfersOf('signature', OWNER)).toBeUndefined();
    const early = { slot: 7, blockTime: null, meta, transaction: { message: { accountKeys } } };
    const asked = readerOf({ getTransaction: early }).transfersOf('signature', OWNER);
    await expect(asked).rejects.toThrow('slot 7 has no time yet');
  });
});

describe('a token account', () => {
  /** One transaction in each slot up to `tip`. The balance comes from the slot `balanceSlot`. */
  interface Node {
    tip: number;
    balanceSlot: number;
    balance: bigint | null;
    /** The transaction about which the node gives no answer. */
    failsAt?: string;
    /** After this number of calls, the node refuses everything. */
    callsMax?: number;
    /** After this number of transactions, the node refuses all others, and answers all other calls. */
    transactionsMax?: number;
  }
  let node: Node;
  let calls: string[];
  let isOver: () => boolean;
  beforeEach(() => {
    node = { tip: 2_000, balanceSlot: 2_000, balance: 40n };
    calls = [];
    isOver = () => false;
  });

  const dataOf = (units: bigint): string => {
    const data = Buffer.alloc(8);
    data.writeBigUInt64LE(units);
    return data.toString('base64');
  };
  const answer = (method: string, params: readonly unknown[]): unknown => {
    if (calls.length >= (node.callsMax ?? Infinity)) throw new RpcError(-1, 'too many requests');
    if (method === 'getSlot') {
      calls.push(`slot of a node at ${(params[0] as { minContextSlot: number }).minContextSlot}`);
      return node.tip;
    }
    if (method === 'getMultipleAccounts') {
      calls.push('balances');
      const value = (params[0] as string[]).map(() =>
        node.balance === null ? null : { data: [dataOf(node.balance), 'base64'] },
      );
      return { context: { slot: node.balanceSlot }, value };
    }
    if (method === 'getSignaturesForAddress') {
      const { before = `s${node.tip + 1}`, minContextSlot } = params[1] as { before?: string; minContextSlot: number };
      calls.push(`page before ${before} of a node at ${minContextSlot}`);
      const newest = before === 'unknown' ? 0 : Number(before.slice(1)) - 1;
      const count = Math.min(1_000, newest);
      return Array.from({ length: count }, (_, i) => ({ signature: `s${newest - i}`, slot: newest - i, err: null }));
    }
    const signature = String(params[0]);
    if (calls.filter((call) => /^s\d/.test(call)).length >= (node.transactionsMax ?? Infinity))
      throw new RpcError(429, 'too many requests of one kind');
    if (signature === node.failsAt) throw new RpcError(-1, 'history is not available');
    calls.push(signature);
    return { slot: Number(signature.slice(1)), blockTime: 1, meta, transaction: { message: { accountKeys } } };
  };
  const rpc: Rpc = {
    call: async (method, params, result) => result.parse(answer(method, params)),
    close: async () => {},
  };
  const reader = openSolanaReader({ contracts: { usdc } }, rpc);
  interface ToRead {
    mark: AccountMark;
    suspects: string[];
    owners: string[];
    transactionsMax: number;
  }
  const OTHER = '9Yg2yYcvyc6XGFhWVtiHkWNjCG3JjqjKL3ZmKZ7e3dHr';
  const read = (
    [from, to]: [number, number],
    { mark, suspects = [], owners = [OWNER], transactionsMax = 1_000 }: Partial<ToRead> = {},
  ): Promise<ReadAccounts> =>
    reader.accounts({
      range: { from, to },
      addresses: owners,
      marks: new Map(mark === undefined ? [] : [[mark.account, mark]]),
      suspects: new Set(suspects),
      isCatchUp: (mark?.behind ?? null) !== null,
      transactionsMax,
      mayEnd: () => isOver(),
    });
  const markOf = (patch: Partial<AccountMark> = {}): AccountMark => ({
    account: ACCOUNT,
    owner: OWNER,
    units: 40n,
    readTo: 1_000,
    behind: null,
    ...patch,
  });
  const behindAt = (to: number, before: string | null, failure: string | null = null): Partial<AccountMark> => ({
    units: null,
    behind: { to, before, failure, hasFailed: failure !== null },
  });

  test('is read from its newest transaction to the oldest of the range, over pages', async () => {
    const { transfers, marks, isDone } = await read([999, 2_000], { mark: markOf({ units: 0n, readTo: 1_998 }) });
    expect(transfers.map(({ block }) => block.number)).toEqual([2_000, 1_999]);
    expect([marks, isDone]).toEqual([[markOf({ readTo: 2_000 })], true]);
    node = { ...node, tip: 1_100, balanceSlot: 1_100 };
    const other = await read([100, 1_100], { mark: markOf({ ...behindAt(1_100, 's102'), readTo: 99 }) });
    expect(other.transfers.map(({ block }) => block.number)).toEqual([101, 100]);
  });

  test('of an address to which nobody has sent anything is asked for nothing', async () => {
    node.balance = null;
    expect(await read([999, 2_000])).toEqual({ transfers: [], marks: [], isDone: true });
    expect(calls).toEqual(['balances']);
  });

  test('that its owner has closed is read once more', async () => {
    node.balance = null;
    const { transfers, marks } = await read([1_001, 2_000], { mark: markOf({ readTo: 1_999 }) });
    expect(transfers).toHaveLength(1);
    expect(marks).toEqual([markOf({ units: 0n, readTo: 2_000 })]);
    calls = [];
    await read([2_001, 2_010], { mark: markOf({ units: 0n, readTo: 2_000 }) });
    expect(calls).toEqual(['balances']);
  });

  test('with the balance of the last read is read only if it is suspect', async () => {
    const mark = markOf({ readTo: 1_998 });
    expect(await read([1_999, 2_000], { mark })).toEqual({ transfers: [], marks: [], isDone: true });
    expect(calls).toEqual(['balances']);
    const { transfers, marks } = await read([2_000, 2_000], { mark, suspects: [ACCOUNT] });
    expect(transfers.map(({ block }) => block.number)).toEqual([2_000, 1_999]);
    expect(marks).toEqual([markOf({ readTo: 2_000 })]);
  });

  test('that was read up to the end of the range is not read again', async () => {
    await read([1_001, 2_000], { mark: markOf({ units: null, readTo: 2_000 }), suspects: [ACCOUNT] });
    expect(calls).toEqual(['balances']);
  });

  test('with a transaction after the range is read again the next time, whatever its balance is', async () => {
    node = { ...node, tip: 2_001, balanceSlot: 2_001 };
    const { transfers, marks } = await read([2_000, 2_000]);
    expect(calls.slice(0, 3)).toEqual(['balances', 'page before s2002 of a node at 2001', 's2000']);
    expect(transfers.map(({ block }) => block.number)).toEqual([2_000]);
    expect(marks).toEqual([markOf({ units: null, readTo: 2_000 })]);
  });

  test('with very many transactions is read in parts, which lose none', async () => {
    const first = await read([1_701, 2_000]);
    expect(first).toMatchObject({ isDone: true, marks: [markOf({ ...behindAt(2_000, 's1801'), readTo: 1_700 })] });
    const second = await read([1_701, 2_000], { mark: first.marks[0] as AccountMark });
    expect(second).toMatchObject({ isDone: true, marks: [markOf({ units: null, readTo: 2_000 })] });
    const slots = [...first.transfers, ...second.transfers].map(({ block }) => block.number);
    expect(slots).toEqual(Array.from({ length: 300 }, (_, i) => 2_000 - i));
  });

  test('with more transactions than its turn allows is behind, and the next one has its turn', async () => {
    const { transfers, marks, isDone } = await read([1_997, 2_000], { owners: [OWNER, OTHER], transactionsMax: 3 });
    const both = [markOf(), markOf({ account: tokenAccountOf(OTHER, usdc), owner: OTHER })];
    expect(marks).toEqual(both.map((mark) => ({ ...mark, ...behindAt(2_000, 's1998'), readTo: 1_996 })));
    expect([transfers.length, isDone]).toEqual([3, true]);
    const exactly = await read([1_998, 2_000], { transactionsMax: 3 });
    expect(exactly.marks).toEqual([markOf({ readTo: 2_000 })]);
  });

  test('that is behind is read to the end of the range in which it fell behind, and then further', async () => {
    node = { ...node, tip: 2_050, balanceSlot: 2_050 };
    const mark = markOf({ ...behindAt(2_000, 's1999'), readTo: 1_997 });
    const first = await read([2_001, 2_050], { mark });
    expect(first.transfers.map(({ block }) => block.number)).toEqual([1_998]);
    expect(first.marks).toEqual([markOf({ ...behindAt(2_050, null), readTo: 2_000 })]);
    const second = await read([2_001, 2_050], { mark: first.marks[0] as AccountMark });
    expect(second.transfers).toHaveLength(50);
    expect(second.marks).toEqual([markOf({ readTo: 2_050 })]);
  });

  // A node that has forgotten a transaction, or never had it, lists nothing before it and says no word about that.
  test('is read again from its newest transaction if the node does not know the one at which the read was interrupted', async () => {
    const mark = markOf({ ...behindAt(2_000, 'unknown'), readTo: 1_997 });
    const first = await read([2_001, 2_001], { mark });
    expect([first.transfers, first.marks]).toEqual([[], [{ ...mark, ...behindAt(2_000, null) }]]);
    const second = await read([2_001, 2_001], { mark: first.marks[0] as AccountMark });
    expect([second.transfers.length, second.marks]).toEqual([3, [markOf({ readTo: 2_001 })]]);
  });

  test('is left when the time is over, after one transaction at least', async () => {
    isOver = () => true;
    const { transfers, marks, isDone } = await read([1_001, 2_000]);
    expect([transfers.length, isDone]).toEqual([1, true]);
    expect(marks).toEqual([markOf(behindAt(2_000, 's2000'))]);
    const later = markOf({ readTo: 100 });
    node.tip = 5_000;
    expect((await read([101, 200], { mark: { ...later, units: 1n } })).marks).toEqual([
      markOf({ ...behindAt(200, 's4002'), readTo: 100 }),
    ]);
  });

  test('that is read leaves the next one to the next tick if the time is over', async () => {
    isOver = () => true;
    node = { ...node, tip: 1_999 };
    const { marks, isDone } = await read([2_000, 2_000], { owners: [OWNER, OTHER] });
    expect([marks, isDone]).toEqual([[markOf({ readTo: 2_000 })], false]);
  });

  test('is left as it is if the node refuses all calls', async () => {
    node.callsMax = 1;
    await expect(read([2_000, 2_000], { owners: [OWNER, OTHER] })).rejects.toThrow('too many requests');
    calls = [];
    node.callsMax = 3;
    const asked = await read([2_000, 2_000], { owners: [OWNER, OTHER] });
    expect(asked).toMatchObject({ isDone: false, marks: [markOf({ readTo: 2_000 })] });
    expect(asked.transfers).toHaveLength(1);
  });

  // Many nodes limit the calls of each kind. Such a refusal says nothing about the transaction.
  test('is read to its end by a node that refuses most transactions of a tick', async () => {
    node.transactionsMax = 4;
    let mark: AccountMark | undefined;
    const slots: number[] = [];
    for (let tick = 0; tick < 3; tick += 1) {
      calls = [];
      const { transfers, marks } = await read([1_991, 2_000], { ...(mark !== undefined && { mark }) });
      slots.push(...transfers.map(({ block }) => block.number));
      [mark] = marks;
    }
    expect(slots).toEqual([2_000, 1_999, 1_998, 1_997, 1_996, 1_995, 1_994, 1_993, 1_992, 1_991]);
    expect(mark).toMatchObject({ readTo: 2_000, behind: null });
  });

  test('that a node refuses in the middle keeps what was read, and the next one waits for the next tick', async () => {
    node.transactionsMax = 2;
    const { transfers, marks, isDone } = await read([1_991, 2_000], { owners: [OWNER, OTHER] });
    expect([transfers.length, isDone]).toEqual([2, false]);
    expect(marks).toEqual([markOf({ ...behindAt(2_000, 's1999'), readTo: 1_990 })]);
  });

  const NO_HISTORY = 'history is not available';

  test('with a transaction about which the node gives no answer is behind, and its other transactions count', async () => {
    node.failsAt = 's1999';
    const { transfers, marks, isDone } = await read([1_998, 2_000], { owners: [OWNER, OTHER] });
    expect(transfers.map(({ to, block }) => [to, block.number])).toEqual([
      [OWNER, 2_000],
      [OWNER, 1_998],
    ]);
    expect(marks[0]).toEqual(markOf({ ...behindAt(2_000, null, NO_HISTORY), readTo: 1_997 }));
    expect([marks.length, isDone]).toEqual([2, true]);
    expect(calls).toContain('slot of a node at 2000');
    const again = await read([2_001, 2_001], { mark: marks[0] as AccountMark });
    expect(again.marks).toEqual([markOf({ ...behindAt(2_001, null, NO_HISTORY), readTo: 1_997 })]);
    delete node.failsAt;
    const mended = await read([2_001, 2_001], { mark: again.marks[0] as AccountMark });
    expect([mended.transfers.length, mended.marks]).toEqual([3, [markOf({ readTo: 2_001 })]]);
  });

  test('that is read in parts stays behind if one part has a transaction without an answer', async () => {
    node.failsAt = 's2000';
    const first = await read([1_997, 2_000], { transactionsMax: 2 });
    expect(first.marks).toEqual([markOf({ ...behindAt(2_000, 's1999', NO_HISTORY), readTo: 1_996 })]);
    const second = await read([2_001, 2_001], { mark: first.marks[0] as AccountMark });
    expect(second.marks).toEqual([markOf({ ...behindAt(2_000, null, NO_HISTORY), readTo: 1_996 })]);
    expect(second.transfers.map(({ block }) => block.number)).toEqual([1_998, 1_997]);
  });

  test('without data holds nothing', async () => {
    const empty: Rpc = {
      call: async (method, params, result) =>
        result.parse(
          method === 'getMultipleAccounts'
            ? { context: { slot: 2_000 }, value: [{ data: ['', 'base64'] }] }
            : answer(method, params),
        ),
      close: async () => {},
    };
    const all = { isCatchUp: false, transactionsMax: 1, mayEnd: () => false };
    const asked = { addresses: [OWNER], marks: new Map(), suspects: new Set<string>(), ...all };
    const found = await openSolanaReader({ contracts: { usdc } }, empty).accounts({
      ...asked,
      range: { from: 2_000, to: 2_000 },
    });
    expect(found.marks).toEqual([markOf({ units: 0n, readTo: 2_000 })]);
  });
});

// Pure: which token balances of a transaction on Solana are a payment to us.
import { beforeEach, describe, expect, test } from 'vitest';
import { CHAINS } from '../../../../control-plane/money/deposits/chains.ts';
import type { ChainReader } from '../../../../control-plane/money/deposits/reader.ts';
import type { Rpc } from '../../../../control-plane/money/deposits/rpc.ts';
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
function readerOf(answers: Record<string, unknown>): ChainReader {
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
  test('pays what it added to the token account of the address, and is from whoever lost the most', async () => {
    const block = { number: 7, hash: '7', ms: 9_000 };
    const transfer = { txHash: 'signature', logIndex: 2, from: 'sender', to: OWNER, asset: 'usdc', units: 40n, block };
    expect(await paid()).toEqual([transfer]);
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

  test('is unknown if the node does not have it, and waits if it has no time yet', async () => {
    expect(await readerOf({ getTransaction: null }).transfersOf('signature', OWNER)).toBeUndefined();
    const early = { slot: 7, blockTime: null, meta, transaction: { message: { accountKeys } } };
    const asked = readerOf({ getTransaction: early }).transfersOf('signature', OWNER);
    await expect(asked).rejects.toThrow('slot 7 has no time yet');
  });
});

describe('a node of Solana', () => {
  const mint = (owner: string, decimals: number) => ({
    value: { owner, data: { parsed: { type: 'mint', info: { decimals } } } },
  });
  const getGenesisHash = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';

  test.each([
    ['of another network', { getGenesisHash: 'devnet' }, 'the network devnet'],
    [
      'with a mint of the newer program',
      { getGenesisHash, getAccountInfo: mint(NEWER_PROGRAM, 6) },
      'none of the token program',
    ],
    ['with a mint of other decimals', { getGenesisHash, getAccountInfo: mint(TOKEN_PROGRAM, 9) }, '9 decimals'],
    ['without the mint', { getGenesisHash, getAccountInfo: { value: null } }, 'none of the token program'],
  ])('%s is an obstacle', async (_what, answers, reason) => {
    expect(await readerOf(answers).obstacle()).toContain(reason);
  });

  test('of the main network with the mint is none', async () => {
    expect(await readerOf({ getGenesisHash, getAccountInfo: mint(TOKEN_PROGRAM, 6) }).obstacle()).toBeUndefined();
  });

  describe('with pages of signatures', () => {
    const page = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) => ({ signature: `s${from - i}`, slot: from - i, err: null }));
    let asked: unknown[];
    /** One transaction in each slot. */
    const rpc: Rpc = {
      call: async (method, params, result) => {
        if (method === 'getMultipleAccounts') return result.parse({ value: [{}] });
        if (method === 'getTransaction') {
          asked.push(params[0]);
          return result.parse({ slot: 1, blockTime: 1, meta, transaction: { message: { accountKeys } } });
        }
        const { before } = params[1] as { before?: string };
        return result.parse(before === undefined ? page(2_000, 1_000) : page(1_000, 1_000));
      },
      close: async () => undefined,
    };
    const reader = openSolanaReader({ contracts: { usdc } }, rpc);
    beforeEach(() => {
      asked = [];
    });

    test('they are read until they are older than the range, the oldest first', async () => {
      const { transfers, readTo } = await reader.transfers({ from: 999, to: 1_001 }, [OWNER]);
      expect([transfers.length, readTo]).toEqual([3, 1_001]);
      expect(asked).toEqual(['s999', 's1000', 's1001']);
    });

    test.each([
      [200, 1_300],
      [201, 1_299],
    ])('of a range with %d transactions, those up to slot %d are read', async (count, readTo) => {
      const read = await reader.transfers({ from: 1_301 - count, to: 1_300 }, [OWNER]);
      expect([read.transfers.length, read.readTo]).toEqual([200, readTo]);
      expect(asked.at(-1)).toBe(`s${readTo}`);
    });
  });
});

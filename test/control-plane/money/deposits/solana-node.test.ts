// Pure: whether a node of Solana may be watched, and which balance it shows.
import { describe, expect, test } from 'vitest';
import { TOKEN_PROGRAM } from '../../../../control-plane/money/deposits/chain-addresses.ts';
import { CHAINS } from '../../../../control-plane/money/deposits/chains.ts';
import type { AccountReader } from '../../../../control-plane/money/deposits/reader.ts';
import type { Rpc } from '../../../../control-plane/money/deposits/rpc.ts';
import { openSolanaReader } from '../../../../control-plane/money/deposits/solana.ts';

const { usdc = '' } = CHAINS.solana.contracts;
const OWNER = 'CuieVDEDtLo7FypA9SbLM9saXFdb1dsshEkyErMqkRQq';
const NEWER_PROGRAM = 'TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb';

/** A node with one answer for each method. */
function readerOf(answers: Record<string, unknown>): AccountReader {
  const rpc: Rpc = {
    call: async (method, _params, result) => result.parse(answers[method]),
    close: async () => undefined,
  };
  return openSolanaReader({ contracts: { usdc } }, rpc);
}

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

  // Whoever collects the tokens may close the empty account, because that pays back its rent. The other balances of the page must still be shown.
  test.each([
    [null, 0n],
    [{ data: ['KAAAAAAAAAA=', 'base64'] }, 40n],
  ])('that shows %j as the token account of an address tells its balance', async (account, units) => {
    const getMultipleAccounts = { context: { slot: 7 }, value: [account] };
    expect(await readerOf({ getMultipleAccounts }).balance('usdc', OWNER)).toBe(units);
    expect(await readerOf({ getMultipleAccounts }).balance('usdt', OWNER)).toBe(0n);
  });

  test('of the main network with the mint is none', async () => {
    expect(await readerOf({ getGenesisHash, getAccountInfo: mint(TOKEN_PROGRAM, 6) }).obstacle()).toBeUndefined();
  });
});

// A real EVM chain of the test's own (anvil), with tokens and an oracle for sanctions, behind a node that can fail or lag.
import { createRequire } from 'node:module';
import { z } from 'zod';
import { serveJsonRpc } from './json-rpc.ts';
import { freePort } from './ports.ts';
import { eventually, startProgram } from './processes.ts';

export interface EvmChain {
  /** JSON-RPC of a node that obeys `fault`. */
  url: string;
  tokens: { usdc: string; usdt: string; lookAlike: string; withEighteenDecimals: string };
  oracle: string;
  /** An account that the oracle knows as sanctioned. */
  sanctioned: string;
  /** A sender that nothing is wrong with. */
  payer: string;
  /**
   * Whoever asks `url` gets no answer (`down`), one of a node that lacks the newest blocks, or an error for one method or for
   * many blocks at once.
   */
  fault: 'down' | { lagBlocks: number } | { fails: string } | { rangeMax: number } | undefined;
  /** Sends token units in a new block of this time. Returns the hash of the transaction. */
  pay(to: string, units: bigint, atMs: number, options?: { token?: string; from?: string }): Promise<string>;
  /** Adds empty blocks of this time and later ones, a second apart. */
  mine(atMs: number, count?: number): Promise<void>;
  /** Adds empty blocks until a block of this time is final. */
  finalize(atMs: number): Promise<void>;
  /** Replaces the newest blocks. What they had is gone, except for the transaction `kept`, which is in the last new block. */
  reorg(depth: number, kept?: string): Promise<void>;
  /** The newest block of the chain itself. */
  head(): Promise<number>;
  /** Takes the chain back to what it was when it was started, at a new time. */
  reset(): Promise<void>;
  close(): Promise<void>;
}

const require = createRequire(import.meta.url);
/** Number of blocks on top of a block that make it final. */
const FINAL_BLOCKS = 4;

const SOURCE = `// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.0;
contract Token {
  uint8 public decimals;
  mapping(address => uint256) public balanceOf;
  event Transfer(address indexed from, address indexed to, uint256 value);
  constructor(uint8 d) { decimals = d; }
  function transfer(address to, uint256 value) external returns (bool) {
    emit Transfer(msg.sender, to, value);
    unchecked { balanceOf[to] += value; }
    return true;
  }
}
contract Oracle {
  address immutable bad;
  constructor(address a) { bad = a; }
  function isSanctioned(address a) external view returns (bool) { return a == bad; }
}`;

/** `startMs` is the time of the first block. `chainId` 1 makes it look like Ethereum. */
export async function startEvmChain(startMs: number, { chainId = 1 } = {}): Promise<EvmChain> {
  const port = await freePort();
  const args = [
    '--port',
    port,
    '--chain-id',
    chainId,
    '--no-mining',
    '--slots-in-an-epoch',
    FINAL_BLOCKS / 2,
    '--timestamp',
    seconds(startMs),
  ];
  const anvil = startProgram({ command: anvilFile(), args: args.map(String) });
  const call = (method: string, ...params: unknown[]): Promise<unknown> =>
    ask(`http://127.0.0.1:${port}`, method, params);
  await eventually('anvil answers', 15_000, async () => call('eth_chainId').catch(() => undefined));
  // The first accounts are the first addresses of the deposits, if the same phrase is the operator's.
  const [sanctioned = '', payer = ''] = z
    .array(z.string())
    .parse(await call('eth_accounts'))
    .slice(-2);
  const node = await serveJsonRpc(
    () => made.fault === 'down',
    (method, params) => answer(made, call, { method, params }),
  );
  const { tokens, oracle } = await deployAll(call, { from: payer, atMs: startMs, sanctioned });
  let snapshot = await call('evm_snapshot');
  const head = async (): Promise<number> => Number(await call('eth_blockNumber'));
  const mine = async (atMs: number, count = 1): Promise<void> => {
    for (let i = 0; i < count; i += 1) await call('evm_mine', seconds(atMs) + i);
  };
  const made: EvmChain = {
    url: node.url,
    tokens,
    oracle,
    sanctioned,
    payer,
    fault: undefined,
    head,
    mine,
    finalize: (atMs) => mine(atMs, FINAL_BLOCKS + 1),
    pay: async (to, units, atMs, { token = tokens.usdc, from = payer } = {}) => {
      const data = `0xa9059cbb${to.slice(2).padStart(64, '0')}${units.toString(16).padStart(64, '0')}`;
      const hash = await call('eth_sendTransaction', { from, to: token, data, gas: '0x30000' });
      await mine(atMs);
      return z.string().parse(hash);
    },
    reorg: async (depth, kept) => {
      const raw = kept === undefined ? undefined : await call('eth_getRawTransactionByHash', kept);
      await call('anvil_reorg', depth, raw === undefined ? [] : [[raw, depth - 1]]);
    },
    reset: async () => {
      made.fault = undefined;
      await call('evm_revert', snapshot);
      snapshot = await call('evm_snapshot');
    },
    close: async () => {
      node.close();
      await anvil.stop();
    },
  };
  return made;
}

type Call = (method: string, ...params: unknown[]) => Promise<unknown>;

async function deployAll(
  call: Call,
  { from, atMs, sanctioned }: { from: string; atMs: number; sanctioned: string },
): Promise<Pick<EvmChain, 'tokens' | 'oracle'>> {
  const bytecodes = compile();
  const deploy = async (name: 'Token' | 'Oracle', argument: string): Promise<string> => {
    const data = `0x${bytecodes[name]}${argument.padStart(64, '0')}`;
    const hash = await call('eth_sendTransaction', { from, data, gas: '0x200000' });
    await call('evm_mine', seconds(atMs) + 1 + Number(await call('eth_blockNumber')));
    return z.object({ contractAddress: z.string() }).parse(await call('eth_getTransactionReceipt', hash))
      .contractAddress;
  };
  const tokens = {
    usdc: await deploy('Token', '6'),
    usdt: await deploy('Token', '6'),
    lookAlike: await deploy('Token', '6'),
    withEighteenDecimals: await deploy('Token', '12'),
  };
  return { tokens, oracle: await deploy('Oracle', sanctioned.slice(2)) };
}

/** The program itself: its launcher would be ended without it. */
function anvilFile(): string {
  const machine = process.arch === 'x64' ? 'amd64' : process.arch;
  return createRequire(require.resolve('@foundry-rs/anvil/package.json')).resolve(
    `@foundry-rs/anvil-${process.platform}-${machine}/bin/anvil`,
  );
}

function seconds(ms: number): number {
  return Math.floor(ms / 1_000);
}

const Answered = z.object({ result: z.unknown().optional(), error: z.unknown().optional() });

async function ask(url: string, method: string, params: readonly unknown[]): Promise<unknown> {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method, params });
  const reply = await fetch(url, { method: 'POST', headers: { 'content-type': 'application/json' }, body });
  const { result, error } = Answered.parse(await reply.json());
  if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`);
  return result;
}

const Filter = z.looseObject({ fromBlock: z.string(), toBlock: z.string() });

/** What the node says, with its fault. */
async function answer(
  { fault }: EvmChain,
  call: Call,
  { method, params }: { method: string; params: unknown[] },
): Promise<unknown> {
  if (fault === undefined || fault === 'down') return call(method, ...params);
  if ('fails' in fault && fault.fails === method) throw new Error('planted');
  if ('rangeMax' in fault) refuseRange(method, params, fault.rangeMax);
  if (!('lagBlocks' in fault)) return call(method, ...params);
  const last = Number(await call('eth_blockNumber')) - fault.lagBlocks;
  if (method === 'eth_getBlockByNumber') {
    const [which] = params;
    const number = which === 'latest' ? last : which === 'finalized' ? last - FINAL_BLOCKS : Number(which);
    return number > last ? null : call(method, `0x${number.toString(16)}`, false);
  }
  if (method !== 'eth_getLogs') return call(method, ...params);
  const filter = Filter.parse(params[0]);
  // A node that lacks a block answers as if nothing were in it.
  if (Number(filter.fromBlock) > last) return [];
  return call(method, { ...filter, toBlock: `0x${Math.min(last, Number(filter.toBlock)).toString(16)}` });
}

function refuseRange(method: string, params: readonly unknown[], rangeMax: number): void {
  if (method !== 'eth_getLogs') return;
  const { fromBlock, toBlock } = Filter.parse(params[0]);
  if (Number(toBlock) - Number(fromBlock) >= rangeMax) throw new Error('query exceeds max block range');
}

const Compiled = z.object({
  contracts: z.object({
    'a.sol': z.record(
      z.enum(['Token', 'Oracle']),
      z.object({ evm: z.object({ bytecode: z.object({ object: z.string() }) }) }),
    ),
  }),
});

function compile(): Record<'Token' | 'Oracle', string> {
  const solc = require('solc') as { compile(input: string): string };
  const settings = { outputSelection: { '*': { '*': ['evm.bytecode.object'] } } };
  const input = { language: 'Solidity', sources: { 'a.sol': { content: SOURCE } }, settings };
  const { contracts } = Compiled.parse(JSON.parse(solc.compile(JSON.stringify(input))));
  const { Token, Oracle } = contracts['a.sol'];
  return { Token: Token.evm.bytecode.object, Oracle: Oracle.evm.bytecode.object };
}

// Reads an EVM chain over JSON-RPC. No filters of the node are used: behind a load balancer they vanish without an error.
import { z } from 'zod';
import { DEPOSIT_ASSETS, type DepositAsset, type DepositChain } from '../../../shared/api/deposit.ts';
import { CHAINS, TOKEN_DECIMALS } from './chains.ts';
import { readEvmAddress } from '../payouts/address.ts';
import type { Block, BlockRange, BlockReader, FoundTransfer } from './reader.ts';
import { isTooMany, NO_ANSWER, type Rpc, RpcError } from './rpc.ts';
import type { ChainSettings } from './settings.ts';

/** keccak256 of `Transfer(address,address,uint256)`. */
const TRANSFER = '0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef';
/** Selectors of `decimals()`, `balanceOf(address)` and `isSanctioned(address)`. */
const DECIMALS = '0x313ce567';
const BALANCE_OF = '0x70a08231';
const IS_SANCTIONED = '0xdf592f7d';
/** Number of addresses in one query. Nodes accept up to 1,000. */
const ADDRESSES_PER_QUERY = 500;
const SECOND_MS = 1_000;

const Quantity = z
  .string()
  .regex(/^0x[0-9a-f]+$/i)
  .transform(Number)
  .pipe(z.int());
const Word = z.string().regex(/^0x[0-9a-f]{64}$/i);
const BlockAnswer = z.object({ number: Quantity, hash: z.string(), timestamp: Quantity });
const LogAnswer = z.object({
  address: z.string(),
  topics: z.array(z.string()),
  data: z.string(),
  blockNumber: Quantity,
  blockHash: z.string(),
  transactionHash: z.string(),
  logIndex: Quantity,
  removed: z.boolean().optional(),
});
type LogAnswer = z.infer<typeof LogAnswer>;
const LogAnswers = z.array(LogAnswer);
const Receipt = z.object({ status: Quantity, blockNumber: Quantity, blockHash: z.string(), logs: LogAnswers });

type Settings = Pick<ChainSettings, 'finality' | 'contracts' | 'oracle'>;

export function openEvmReader(chain: DepositChain, settings: Settings, rpc: Rpc): BlockReader {
  const { contracts, finality, oracle } = settings;
  const assetOf = assetsByContract(contracts);
  const blockBy = async (which: string): Promise<Block | undefined> => {
    const answer = await rpc.call('eth_getBlockByNumber', [which, false], BlockAnswer.nullable());
    return answer === null ? undefined : { number: answer.number, hash: answer.hash, ms: answer.timestamp * SECOND_MS };
  };
  const presentBlock = async (which: string): Promise<Block> => {
    const block = await blockBy(which);
    if (block === undefined) throw new RpcError(NO_ANSWER, `the node has no block ${which}`);
    return block;
  };
  const ask = (to: string, data: string): Promise<string> => rpc.call('eth_call', [{ to, data }, 'latest'], z.string());
  const transfersIn = async (logs: readonly LogAnswer[]): Promise<FoundTransfer[]> => {
    const blocks = new Map<number, Block>();
    const transfers: FoundTransfer[] = [];
    for (const log of logs) {
      const block = blocks.get(log.blockNumber) ?? (await presentBlock(hex(log.blockNumber)));
      blocks.set(log.blockNumber, block);
      // The chain has changed between two answers of the node. The next tick reads the block again.
      if (block.hash !== log.blockHash)
        throw new RpcError(NO_ANSWER, `block ${block.number} has changed while it was read`);
      const transfer = transferOf(log, block, assetOf);
      if (transfer !== undefined) transfers.push(transfer);
    }
    return transfers.toSorted((a, b) => a.block.number - b.block.number || a.logIndex - b.logIndex);
  };
  return {
    obstacle: () => obstacleOf(chain, contracts, rpc),
    tip: async () => {
      // The final block is read first, so that it is never above the head.
      const final = finality === 'finalized' ? await presentBlock('finalized') : undefined;
      const head = await presentBlock('latest');
      const number = Math.max(0, head.number - (typeof finality === 'number' ? finality : 0));
      return { head, final: final ?? (await presentBlock(hex(number))) };
    },
    block: (number) => blockBy(hex(number)),
    transfers: async (range, addresses) => {
      const tokens = [...assetOf.keys()];
      const parts: LogAnswer[][] = [];
      for (let first = 0; first < addresses.length; first += ADDRESSES_PER_QUERY) {
        const asked = { range, addresses: addresses.slice(first, first + ADDRESSES_PER_QUERY) };
        parts.push(await inHalves(asked, (part) => query(part, tokens, rpc)));
      }
      // Strangers may have sent more transfers than a function has room for arguments.
      return { transfers: await transfersIn(parts.flat()), readTo: range.to };
    },
    transfersOf: async (txHash, address) => {
      const receipt = await rpc.call('eth_getTransactionReceipt', [txHash], Receipt.nullable());
      if (receipt === null) return undefined;
      if (receipt.status !== 1) return [];
      return transfersIn(
        receipt.logs.filter(({ topics }) => topics[0] === TRANSFER && topics[2]?.toLowerCase() === padded(address)),
      );
    },
    balance: async (asset, address) => {
      const answer = await ask(contracts[asset] ?? '', BALANCE_OF + padded(address).slice(2));
      return numberIn(answer, `the contract of ${asset} gave no balance: is the node up to date?`);
    },
    isSanctioned: async (address) => {
      if (oracle === null) return null;
      const answer = await ask(oracle, IS_SANCTIONED + padded(address).slice(2));
      return numberIn(answer, 'the oracle for sanctions gave no answer: is its address right?') !== 0n;
    },
  };
}

/** The key is the address of the contract in lower case. */
function assetsByContract(contracts: Settings['contracts']): ReadonlyMap<string, DepositAsset> {
  return new Map(
    DEPOSIT_ASSETS.flatMap((asset) => {
      const contract = contracts[asset];
      return contract === undefined ? [] : [[contract.toLowerCase(), asset] as const];
    }),
  );
}

/** The number that a contract has answered with. A node answers `0x` if it knows no contract there. @throws RpcError with `otherwise` */
function numberIn(answer: string, otherwise: string): bigint {
  const word = Word.safeParse(answer);
  if (!word.success) throw new RpcError(NO_ANSWER, otherwise);
  return BigInt(word.data);
}

/** A contract of another network, or of another token, would credit tokens that are worth nothing. */
async function obstacleOf(
  chain: DepositChain,
  contracts: Settings['contracts'],
  rpc: Rpc,
): Promise<string | undefined> {
  const chainId = await rpc.call('eth_chainId', [], Quantity);
  const wanted = CHAINS[chain].chainId;
  if (chainId !== wanted) return `the node is of the chain with the id ${chainId}, and ${chain} has ${wanted}`;
  for (const asset of DEPOSIT_ASSETS) {
    const contract = contracts[asset];
    if (contract === undefined) continue;
    const answer = await decimalsOf(contract, rpc);
    if (answer !== TOKEN_DECIMALS)
      return `the contract of ${asset} has ${answer} decimals and must have ${TOKEN_DECIMALS}`;
  }
  return undefined;
}

async function decimalsOf(contract: string, rpc: Rpc): Promise<number | 'no'> {
  try {
    const answer = Word.safeParse(await rpc.call('eth_call', [{ to: contract, data: DECIMALS }, 'latest'], z.string()));
    return answer.success ? Number(BigInt(answer.data)) : 'no';
  } catch (error) {
    // The node answers with an error if the contract has no such function.
    if (error instanceof RpcError && !isTooMany(error)) return 'no';
    throw error;
  }
}

/** What one query asks for. */
interface Asked {
  range: BlockRange;
  addresses: readonly string[];
}

function query({ range, addresses }: Asked, tokens: readonly string[], rpc: Rpc): Promise<LogAnswer[]> {
  const blocks = { fromBlock: hex(range.from), toBlock: hex(range.to) };
  const filter = { ...blocks, address: tokens, topics: [TRANSFER, null, addresses.map(padded)] };
  return rpc.call('eth_getLogs', [filter], LogAnswers);
}

/**
 * If the node refuses a query, asks for its two halves. Nodes refuse a range that is too wide or has too many results, each with an error
 * text of its own.
 */
async function inHalves(asked: Asked, ask: (part: Asked) => Promise<LogAnswer[]>): Promise<LogAnswer[]> {
  try {
    return await ask(asked);
  } catch (error) {
    const halves = halvesOf(asked);
    const isRefused = error instanceof RpcError && error.code !== NO_ANSWER && !isTooMany(error);
    if (!isRefused || halves === undefined) throw error;
    const first = await inHalves(halves[0], ask);
    return [...first, ...(await inHalves(halves[1], ask))];
  }
}

/** The blocks are halved first. A single block may have more results than a node returns, so its addresses are halved. */
function halvesOf({ range, addresses }: Asked): [Asked, Asked] | undefined {
  const { from, to } = range;
  const middle = Math.floor((from + to) / 2);
  if (from < to)
    return [
      { range: { from, to: middle }, addresses },
      { range: { from: middle + 1, to }, addresses },
    ];
  const half = Math.ceil(addresses.length / 2);
  if (half === addresses.length) return undefined;
  return [
    { range, addresses: addresses.slice(0, half) },
    { range, addresses: addresses.slice(half) },
  ];
}

function transferOf(
  log: LogAnswer,
  block: Block,
  assetOf: ReadonlyMap<string, DepositAsset>,
): FoundTransfer | undefined {
  const asset = assetOf.get(log.address.toLowerCase());
  const [topic, from = '', to = ''] = log.topics;
  const units = Word.safeParse(log.data);
  if (asset === undefined || topic !== TRANSFER || log.removed === true || !units.success) return undefined;
  // A transfer of zero tokens is ignored, because anyone can send it.
  if (BigInt(units.data) === 0n) return undefined;
  const { transactionHash: txHash, logIndex } = log;
  return { txHash, logIndex, block, from: addressIn(from), to: addressIn(to), asset, units: BigInt(units.data) };
}

function addressIn(topic: string): string {
  const address = readEvmAddress(`0x${topic.slice(-40).toLowerCase()}`);
  if (address === undefined) throw new RpcError(NO_ANSWER, 'a transfer has no address');
  return address;
}

function padded(address: string): string {
  return `0x${address.slice(2).toLowerCase().padStart(64, '0')}`;
}

function hex(number: number): string {
  return `0x${number.toString(16)}`;
}

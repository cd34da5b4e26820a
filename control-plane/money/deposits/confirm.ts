// Before a deposit is credited, the node is asked again for the receipt of each transfer, and a second node too if the deposit is large.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import { messageOf } from '../../../shared/errors.ts';
import { sumOf } from './plan.ts';
import type { ChainReader } from './reader.ts';
import { isNodeError } from './rpc.ts';
import type { Deposit } from './store.ts';
import type { Transfer } from './transfers-store.ts';

/** The nodes of a chain. */
export interface Nodes {
  first: ChainReader;
  /** Null: one node is enough for every amount. */
  second: { reader: ChainReader; fromUnits: bigint } | null;
}

export type NodesOf = (chain: DepositChain) => Nodes | undefined;

/** The reason why the transfers must not be credited now; undefined if all nodes that are asked confirm the transfers. */
export async function doubtAbout(
  { chain, address }: Deposit,
  transfers: readonly Transfer[],
  nodesOf: NodesOf,
): Promise<string | undefined> {
  const nodes = nodesOf(chain);
  if (nodes === undefined) return `${chain} is not in the configuration any more`;
  const readers: [who: string, reader: ChainReader][] = [['the node', nodes.first]];
  if (nodes.second !== null && sumOf(transfers) >= nodes.second.fromUnits)
    readers.push(['the second node', nodes.second.reader]);
  // One transaction may hold hundreds of transfers: its receipt is read once.
  const ofTransaction = Map.groupBy(transfers, ({ tx_hash: txHash }) => txHash);
  for (const [who, reader] of readers) {
    for (const [txHash, ofIt] of ofTransaction) {
      const doubt = await doubtOf(txHash, ofIt, address, reader);
      if (doubt !== undefined) return `${who} ${doubt}`;
    }
  }
  return undefined;
}

async function doubtOf(
  txHash: string,
  transfers: readonly Transfer[],
  address: string,
  reader: ChainReader,
): Promise<string | undefined> {
  try {
    const found = await reader.transfersOf(txHash, address);
    if (found === undefined) return `does not know the transaction ${txHash}`;
    const isThere = (transfer: Transfer): boolean =>
      found.some(
        ({ logIndex, block, asset, units }) =>
          logIndex === transfer.log_index &&
          block.hash === transfer.block_hash &&
          asset === transfer.asset &&
          units === transfer.units,
      );
    return transfers.every(isThere) ? undefined : `has another result of the transaction ${txHash}`;
  } catch (error) {
    if (isNodeError(error)) return `gave no answer: ${messageOf(error)}`;
    throw error;
  }
}

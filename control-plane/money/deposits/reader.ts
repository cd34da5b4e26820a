// The requests of a watcher to a chain. They are the same for every kind of chain.
import type { DepositAsset } from '../../../shared/api/deposit.ts';

export interface Block {
  number: number;
  hash: string;
  /** The time of the block as the chain states it. */
  ms: number;
}

/** A range of blocks. Both ends are included. */
export interface BlockRange {
  from: number;
  to: number;
}

/** A transfer of a token of ours to an address of ours, as a block has it. */
export interface FoundTransfer {
  txHash: string;
  /** The position of the transfer in its block or transaction. */
  logIndex: number;
  block: Block;
  from: string;
  to: string;
  asset: DepositAsset;
  units: bigint;
}

/** Every function but `obstacle` throws OutboundError or RpcError if the node gives no answer that can be used. */
export interface ChainReader {
  /** Why this chain must not be watched with these settings; undefined if nothing is wrong. */
  obstacle(): Promise<string | undefined>;
  /** The newest block, and the newest final one. */
  tip(): Promise<{ head: Block; final: Block }>;
  /** Undefined if the node does not have the block. */
  block(number: number): Promise<Block | undefined>;
  /** Transfers to these addresses, in the order of the chain. If there are very many, those up to the block `readTo` of the range. */
  transfers(range: BlockRange, addresses: readonly string[]): Promise<{ transfers: FoundTransfer[]; readTo: number }>;
  /** Transfers of one transaction to the address; undefined if the node does not know the transaction. */
  transfersOf(txHash: string, address: string): Promise<FoundTransfer[] | undefined>;
  /** The tokens at the address now. */
  balance(asset: DepositAsset, address: string): Promise<bigint>;
  /** Whether the oracle of the chain calls the address sanctioned; null if the chain has no oracle. */
  isSanctioned(address: string): Promise<boolean | null>;
}

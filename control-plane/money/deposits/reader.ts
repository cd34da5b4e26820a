// What a watcher asks of a chain, whatever kind it is of.
import type { DepositAsset } from '../../../shared/api/deposit.ts';

export interface Block {
  number: number;
  hash: string;
  /** The time of the chain. */
  ms: number;
}

/** Blocks, both included. */
export interface BlockRange {
  from: number;
  to: number;
}

/** A transfer of a token of ours to an address of ours, as a block has it. */
export interface FoundTransfer {
  txHash: string;
  /** The place in its block or transaction. */
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
  /** Undefined if the node does not have it. */
  block(number: number): Promise<Block | undefined>;
  /** Transfers to these addresses, in the order of the chain. */
  transfers(range: BlockRange, addresses: readonly string[]): Promise<FoundTransfer[]>;
  /** Transfers of one transaction to the address; undefined if the node does not know the transaction. */
  transfersOf(txHash: string, address: string): Promise<FoundTransfer[] | undefined>;
  /** The tokens at the address now. */
  balance(asset: DepositAsset, address: string): Promise<bigint>;
  /** Null if nobody on this chain can be asked. */
  isSanctioned(address: string): Promise<boolean | null>;
}

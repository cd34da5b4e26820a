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
  /** The address of the sender. On Solana, several accounts may have paid: then the addresses of all, the one that paid the most first. */
  from: string;
  to: string;
  asset: DepositAsset;
  units: bigint;
}

/** Stands between the addresses of several senders. */
export const SENDERS_SEPARATOR = ',';

/** Every function but `obstacle` throws OutboundError or RpcError if the node gives no answer that can be used. */
interface NodeReader {
  /** Why this chain must not be watched with these settings; undefined if nothing is wrong. */
  obstacle(): Promise<string | undefined>;
  /** The newest block, and the newest final one. */
  tip(): Promise<{ head: Block; final: Block }>;
  /** Transfers of one transaction to the address; undefined if the node does not know the transaction. */
  transfersOf(txHash: string, address: string): Promise<FoundTransfer[] | undefined>;
  /** The tokens at the address now. */
  balance(asset: DepositAsset, address: string): Promise<bigint>;
  /** Whether the oracle of the chain calls the address sanctioned; null if the chain has no oracle. */
  isSanctioned(address: string): Promise<boolean | null>;
}

/** Reads a chain whose nodes find the transfers to many addresses in a range of blocks. */
export interface BlockReader extends NodeReader {
  /** Undefined if the node does not have the block. */
  block(number: number): Promise<Block | undefined>;
  /** Transfers to these addresses, in the order of the chain. If there are very many, those up to the block `readTo` of the range. */
  transfers(range: BlockRange, addresses: readonly string[]): Promise<{ transfers: FoundTransfer[]; readTo: number }>;
}

/** Reads a chain whose nodes list the transactions of one token account at a time. All its blocks are final. */
export interface AccountReader extends NodeReader {
  /** The time of the block is null if the node does not know it. */
  block(number: number): Promise<(Omit<Block, 'ms'> & { ms: number | null }) | undefined>;
  /** Number of addresses in one call of `accounts`. */
  addressesPerQuery: number;
  /** Transfers in the accounts of these addresses, and how far each account is read now. */
  accounts(asked: AskedAccounts): Promise<ReadAccounts>;
}

export type ChainReader = BlockReader | AccountReader;

/**
 * How far a token account was read. Example: the 20 newest of 50 new transactions are read, while the chain is read up to block 120:
 * `{ units: null, readTo: 100, behind: { to: 120, before: '20th newest', failure: null, hasFailed: false } }`.
 */
export interface AccountMark {
  /** The address of the token account. */
  account: string;
  /** The address of the deposit that owns it. */
  owner: string;
  /** What was in the account. While it is the same, the account has probably no new transaction. Null: the account must be read again. */
  units: bigint | null;
  /** All transactions up to this block are read. */
  readTo: number;
  /** Null: the account is not behind its chain. */
  behind: Behind | null;
}

/** Why and how an account is behind. It is read on beside the others, and its deposit does not expire meanwhile. */
interface Behind {
  /** The block up to which the account is read when its read ends. */
  to: number;
  /** Transactions are read from the newest to the oldest. This one was the last; null if the read begins again at the newest. */
  before: string | null;
  /** What the node said about a transaction of this read instead of an answer; null if it has answered about all so far. */
  failure: string | null;
  /** Whether the node gave no answer about a transaction in this read or in one before it, since the account has been behind. */
  hasFailed: boolean;
}

export interface AskedAccounts {
  range: BlockRange;
  addresses: readonly string[];
  /** The key is the address of the token account. */
  marks: ReadonlyMap<string, AccountMark>;
  /** Token accounts whose transactions are read even if their balance is the same. */
  suspects: ReadonlySet<string>;
  /** True: only accounts that are behind are read. False: only the others. */
  isCatchUp: boolean;
  /** Number of transactions of one account. If it has more, it is behind. */
  transactionsMax: number;
  /** Whether the time is over. Asked between two transactions, and after each page of them. */
  mayEnd(): boolean;
}

export interface ReadAccounts {
  transfers: FoundTransfer[];
  /** The marks that have changed. */
  marks: AccountMark[];
  /** False: not all accounts had their turn. The next call goes on from the marks. */
  isDone: boolean;
}

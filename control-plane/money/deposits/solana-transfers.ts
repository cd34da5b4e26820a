// Reads a transaction of Solana and what it has paid to token accounts of ours.
import { z } from 'zod';
import type { DepositAsset } from '../../../shared/api/deposit.ts';
import { TOKEN_PROGRAM } from './chain-addresses.ts';
import { type Block, type FoundTransfer, SENDERS_SEPARATOR } from './reader.ts';
import { NO_ANSWER, type Rpc, RpcError } from './rpc.ts';

/** What is read with this commitment is never reorganised. */
export const FINALIZED = { commitment: 'finalized' } as const;
const SECOND_MS = 1_000;

/** A token account of an address of ours. */
export interface Account {
  /** The address of a deposit. */
  owner: string;
  asset: DepositAsset;
  mint: string;
  /** The address of the token account itself. */
  address: string;
}

export const Slot = z.int().min(0);
/** A number of 64 bits. To read one of millions of digits would take seconds. */
const Amount = z
  .string()
  .regex(/^\d{1,20}$/)
  .transform(BigInt);
/** The tokens of one account before or after a transaction. `accountIndex` is its place among the accounts of the transaction. */
const TokenBalance = z.object({
  accountIndex: z.int(),
  mint: z.string(),
  owner: z.string().optional(),
  programId: z.string().optional(),
  uiTokenAmount: z.object({ amount: Amount }),
});
type TokenBalance = z.infer<typeof TokenBalance>;
const Transaction = z.object({
  slot: Slot,
  blockTime: z.int().nullable(),
  meta: z.object({
    err: z.unknown(),
    preTokenBalances: z.array(TokenBalance).nullish(),
    postTokenBalances: z.array(TokenBalance).nullish(),
    loadedAddresses: z.object({ writable: z.array(z.string()), readonly: z.array(z.string()) }).nullish(),
  }),
  transaction: z.object({ message: z.object({ accountKeys: z.array(z.string()) }) }),
});
type Transaction = z.infer<typeof Transaction>;

/**
 * The transfers of a transaction to these accounts. Undefined if the node does not know the transaction.
 * @throws OutboundError, RpcError if the node gives no answer that can be used
 */
export async function readTransfers(
  signature: string,
  accounts: readonly Account[],
  rpc: Rpc,
): Promise<FoundTransfer[] | undefined> {
  const options = { ...FINALIZED, encoding: 'json', maxSupportedTransactionVersion: 0 };
  const tx = await rpc.call('getTransaction', [signature, options], Transaction.nullable());
  if (tx === null) return undefined;
  if (tx.blockTime === null) throw new RpcError(NO_ANSWER, `slot ${tx.slot} has no time yet`);
  if (tx.meta.err !== null) return [];
  const block = blockAt(tx.slot, tx.blockTime);
  return accounts.flatMap((account) => {
    const payment = paymentTo(account, tx);
    return payment === undefined ? [] : [{ ...payment, txHash: signature, block }];
  });
}

export function blockAt(slot: number, seconds: number): Block {
  return { number: slot, hash: String(slot), ms: seconds * SECOND_MS };
}

/** What the transaction has added to the account. Undefined if it has added nothing. */
function paymentTo(account: Account, tx: Transaction): Omit<FoundTransfer, 'txHash' | 'block'> | undefined {
  const { owner, asset, address } = account;
  const { meta } = tx;
  const index = accountKeysOf(tx).indexOf(address);
  if (index < 0) return undefined;
  const after = balanceAt(index, meta.postTokenBalances);
  if (after === undefined || !isBalanceOf(account, after)) return undefined;
  const units = changeAt(index, meta);
  if (units <= 0n) return undefined;
  return { logIndex: index, from: sendersOf(account, tx), to: owner, asset, units };
}

/** All accounts of the transaction: those that it names itself, and then those from lookup tables. Indexes of accounts count in this order. */
function accountKeysOf({ meta, transaction }: Transaction): string[] {
  const { writable = [], readonly = [] } = meta.loadedAddresses ?? {};
  return [...transaction.message.accountKeys, ...writable, ...readonly];
}

function balanceAt(index: number, balances: readonly TokenBalance[] | null | undefined): TokenBalance | undefined {
  return balances?.find(({ accountIndex }) => accountIndex === index);
}

/** The owner of a token account can give the account away. */
function isBalanceOf({ owner, mint }: Account, balance: TokenBalance): boolean {
  const { programId = TOKEN_PROGRAM } = balance;
  return balance.mint === mint && balance.owner === owner && programId === TOKEN_PROGRAM;
}

/** The units that the transaction has added to the account at this index. Negative: it has taken them away. */
function changeAt(index: number, { preTokenBalances, postTokenBalances }: Transaction['meta']): bigint {
  const before = balanceAt(index, preTokenBalances)?.uiTokenAmount.amount ?? 0n;
  const after = balanceAt(index, postTokenBalances)?.uiTokenAmount.amount ?? 0n;
  return after - before;
}

/**
 * The owners of all accounts that have lost such tokens, the one that has lost the most first. All of them count. Otherwise a sanctioned sender
 * could move more from another wallet of its own in the same transaction, and not be checked.
 */
function sendersOf({ mint }: Account, { meta, transaction }: Transaction): string {
  const losses = (meta.preTokenBalances ?? [])
    .filter((balance) => balance.mint === mint)
    .map(({ accountIndex, owner }) => ({ owner, change: changeAt(accountIndex, meta) }))
    .filter(({ change }) => change < 0n)
    .toSorted((a, b) => (a.change < b.change ? -1 : 1));
  const owners = new Set(losses.flatMap(({ owner }) => owner ?? []));
  const senders = [...owners].join(SENDERS_SEPARATOR);
  // Newly made tokens have no sender. In that case the sender is the account that has paid for the transaction.
  return senders === '' ? (transaction.message.accountKeys[0] ?? '') : senders;
}

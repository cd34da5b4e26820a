// Reads Solana over JSON-RPC, with the commitment `finalized` alone: what is read is never reorganised. A block is a slot.
import { z } from 'zod';
import { DEPOSIT_ASSETS, type DepositAsset } from '../../../shared/api/deposit.ts';
import { messageOf } from '../../../shared/errors.ts';
import { TOKEN_DECIMALS } from './chains.ts';
import {
  type AccountMark,
  type AccountReader,
  type AskedAccounts,
  type Block,
  type BlockRange,
  type FoundTransfer,
  type ReadAccounts,
  SENDERS_SEPARATOR,
} from './reader.ts';
import { isNodeError, isTooMany, NO_ANSWER, type Rpc, RpcError } from './rpc.ts';
import type { ChainSettings } from './settings.ts';
import { TOKEN_PROGRAM, tokenAccountOf } from './chain-addresses.ts';

/** The main network. */
const GENESIS_HASH = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
const FINALIZED = { commitment: 'finalized' } as const;
/** Limits that the nodes set. */
const ACCOUNTS_PER_QUERY = 100;
const SIGNATURES_PER_QUERY = 1_000;
/**
 * Number of transactions and accounts after which the watcher stores what was found. Thousands of tiny transfers to an address cost their sender
 * a few dollars.
 */
const READ_MAX = 200;
/** To derive the address of a token account takes a third of a millisecond, and each tick needs all of them. */
const OWNERS_KEPT = 50_000;
/** The place of the balance in the data of a token account. */
const BALANCE = { offset: 64, length: 8 } as const;
const SECOND_MS = 1_000;

const Slot = z.int().min(0);
/** A number of 64 bits. To read one of millions of digits would take seconds. */
const Amount = z
  .string()
  .regex(/^\d{1,20}$/)
  .transform(BigInt);
const Accounts = z.object({
  context: z.object({ slot: Slot }),
  value: z.array(z.object({ data: z.tuple([z.base64(), z.string()]) }).nullable()),
});
const Mint = z.object({
  value: z
    .object({
      owner: z.string(),
      data: z.object({ parsed: z.object({ type: z.string(), info: z.object({ decimals: z.int().optional() }) }) }),
    })
    .nullable(),
});
const Signatures = z.array(z.object({ signature: z.string(), slot: Slot, err: z.unknown() }));
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

/** A token account of an address of ours. */
interface Account {
  owner: string;
  asset: DepositAsset;
  mint: string;
  address: string;
}

export function openSolanaReader({ contracts }: Pick<ChainSettings, 'contracts'>, rpc: Rpc): AccountReader {
  const known = new Map<string, Account[]>();
  const accountsOf = (owner: string): Account[] => {
    const found = known.get(owner);
    if (found !== undefined) return found;
    const accounts = tokenAccounts(owner, contracts);
    if (known.size >= OWNERS_KEPT) known.clear();
    known.set(owner, accounts);
    return accounts;
  };
  return {
    obstacle: () => obstacleOf(contracts, rpc),
    tip: async () => {
      const slot = await rpc.call('getSlot', [FINALIZED], Slot);
      const seconds = await rpc.call('getBlockTime', [slot], z.int().nullable());
      if (seconds === null) throw new RpcError(NO_ANSWER, `slot ${slot} has no time yet`);
      const block = blockAt(slot, seconds);
      return { head: block, final: block };
    },
    // Most nodes do not know the times of old slots.
    block: async (slot) => ({ number: slot, hash: String(slot), ms: null }),
    addressesPerQuery: Math.floor(ACCOUNTS_PER_QUERY / DEPOSIT_ASSETS.length),
    accounts: (asked) => readAccounts(asked.addresses.flatMap(accountsOf), asked, rpc),
    transfersOf: async (signature, address) => {
      const tx = await transactionOf(signature, rpc);
      return tx === null ? undefined : found(signature, tx, accountsOf(address));
    },
    balance: async (asset, address) => {
      const account = accountsOf(address).find((each) => each.asset === asset);
      if (account === undefined) return 0n;
      // Its owner may have closed the account, and then a node answers `getTokenAccountBalance` with an error.
      return (await balancesOf([account], 0, rpc)).balances[0] ?? 0n;
    },
    isSanctioned: async () => null,
  };
}

function tokenAccounts(owner: string, contracts: ChainSettings['contracts']): Account[] {
  return DEPOSIT_ASSETS.flatMap((asset) => {
    const mint = contracts[asset];
    return mint === undefined ? [] : [{ owner, asset, mint, address: tokenAccountOf(owner, mint) }];
  });
}

function blockAt(slot: number, seconds: number): Block {
  return { number: slot, hash: String(slot), ms: seconds * SECOND_MS };
}

async function obstacleOf(contracts: ChainSettings['contracts'], rpc: Rpc): Promise<string | undefined> {
  const genesis = await rpc.call('getGenesisHash', [], z.string());
  if (genesis !== GENESIS_HASH) return `the node is of the network ${genesis}, and not of the main one`;
  for (const asset of DEPOSIT_ASSETS) {
    const mint = contracts[asset];
    if (mint === undefined) continue;
    const answer = await rpc.call('getAccountInfo', [mint, { ...FINALIZED, encoding: 'jsonParsed' }], z.unknown());
    const { data } = Mint.safeParse(answer);
    const facts = data?.value;
    if (facts?.owner !== TOKEN_PROGRAM || facts.data.parsed.type !== 'mint')
      return `the mint of ${asset} is none of the token program`;
    const { decimals } = facts.data.parsed.info;
    if (decimals !== TOKEN_DECIMALS)
      return `the mint of ${asset} has ${decimals} decimals and must have ${TOKEN_DECIMALS}`;
  }
  return undefined;
}

/**
 * Reads the accounts that may have a new transaction. One query tells the balances of all. A balance may come from a slot after the range.
 * So it is kept only if the account has no transaction after the range.
 */
async function readAccounts(accounts: readonly Account[], asked: AskedAccounts, rpc: Rpc): Promise<ReadAccounts> {
  const { range, marks, suspects, isCatchUp, transactionsMax, mayEnd } = asked;
  const { slot, balances } = await balancesOf(accounts, range.to, rpc);
  const read: ReadAccounts = { transfers: [], marks: [], isDone: true };
  let count = 0;
  const isOver = (): boolean => {
    count += 1;
    return count >= READ_MAX || mayEnd();
  };
  for (const [i, account] of accounts.entries()) {
    const mark = marks.get(account.address);
    // A token account is made by the first transfer to it, so most addresses have none. Its owner may close it later.
    const units = balances[i] ?? (mark === undefined ? undefined : 0n);
    if (units === undefined || (mark?.readTo ?? -1) >= range.to) continue;
    const isBehind = mark !== undefined && mark.behind !== null;
    if (isBehind !== isCatchUp) continue;
    if (mark?.units === units && !suspects.has(account.address)) continue;
    if (read.marks.length > 0 && isOver()) return { ...read, isDone: false };
    let left = transactionsMax;
    const mayLeave = (): boolean => {
      left -= 1;
      return isOver() || left <= 0;
    };
    try {
      const part = await readAccount(account, { mark, range, slot, units, mayLeave }, rpc);
      read.transfers.push(...part.transfers);
      read.marks.push(part.mark);
    } catch (error) {
      // Nodes limit the number of calls. What was read before is kept, so that the next tick has less to read.
      if (read.marks.length === 0 || !isNodeError(error)) throw error;
      return { ...read, isDone: false };
    }
  }
  return read;
}

/** The balances, and the slot from which they come. Null: there is no such account. A node that lacks the slot `minSlot` refuses to answer. */
async function balancesOf(
  accounts: readonly Account[],
  minSlot: number,
  rpc: Rpc,
): Promise<{ slot: number; balances: (bigint | null)[] }> {
  const options = { ...FINALIZED, encoding: 'base64', dataSlice: BALANCE, minContextSlot: minSlot };
  const addresses = accounts.map(({ address }) => address);
  const { context, value } = await rpc.call('getMultipleAccounts', [addresses, options], Accounts);
  if (value.length !== accounts.length) throw new RpcError(NO_ANSWER, 'the node left out accounts');
  return { slot: context.slot, balances: value.map((each) => (each === null ? null : unitsIn(each.data[0]))) };
}

/** Anyone can send the native coin to the address of a token account that does not exist. It has no data then. */
function unitsIn(base64: string): bigint {
  const data = Buffer.from(base64, 'base64');
  return data.length < BALANCE.length ? 0n : data.readBigUInt64LE();
}

interface ToRead {
  mark: AccountMark | undefined;
  range: BlockRange;
  /** The slot of the balance, and the balance. */
  slot: number;
  units: bigint;
  /** Asked between two transactions, and after each page. True: what is left is read later. */
  mayLeave(): boolean;
}

/**
 * Reads the transactions of an account from the newest one, or from where the mark says, to the oldest one that was not read. A transaction about
 * which the node gives no answer keeps the account behind. The others count all the same.
 */
async function readAccount(
  account: Account,
  { mark, range, slot, units, mayLeave }: ToRead,
  rpc: Rpc,
): Promise<{ transfers: FoundTransfer[]; mark: AccountMark }> {
  const { address, owner } = account;
  const readTo = mark?.readTo ?? range.from - 1;
  const interrupted = mark?.behind?.before === null ? null : (mark?.behind ?? null);
  const to = interrupted?.to ?? range.to;
  let { before, failure } = interrupted ?? { before: null, failure: null };
  const transfers: FoundTransfer[] = [];
  const markAt = (at: Pick<AccountMark, 'units' | 'readTo' | 'behind'>): AccountMark => ({
    account: address,
    owner,
    ...at,
  });
  const hadFailed = mark?.behind?.hasFailed ?? false;
  const unfinished = (at: string | null): AccountMark =>
    markAt({ units: null, readTo, behind: { to, before: at, failure, hasFailed: hadFailed || failure !== null } });
  // A read that was interrupted does not see what has come after the range.
  let isLater = before !== null;
  let isFirst = true;
  for (;;) {
    const page = await answerOf(signaturesOf(address, { before, slot }, rpc), slot, rpc);
    if ('failure' in page) {
      ({ failure } = page);
      return { transfers, mark: unfinished(null) };
    }
    // The read was interrupted before a transaction that the node has listed. If it lists none now, it does not know where the read was interrupted.
    if (page.answer.length === 0 && before !== null && before === interrupted?.before)
      return { transfers, mark: unfinished(null) };
    for (const { signature, slot: at, err } of page.answer.filter((each) => each.slot > readTo)) {
      isLater ||= at > to;
      if (at > to || err !== null) continue;
      if (!isFirst && mayLeave()) return { transfers, mark: unfinished(before) };
      const asking = answerOf(transfersIn(signature, account, rpc), slot, rpc);
      const part = await (isFirst ? asking : unlessNodeFails(asking));
      if (part === undefined) return { transfers, mark: unfinished(before) };
      isFirst = false;
      if ('failure' in part) ({ failure } = part);
      else transfers.push(...part.answer);
      before = signature;
    }
    const last = page.answer.at(-1);
    if (last === undefined || page.answer.length < SIGNATURES_PER_QUERY || last.slot <= readTo) break;
    before = last.signature;
    // The last one is left too, so that the next page is never empty.
    if (mayLeave()) return { transfers, mark: unfinished(page.answer.at(-2)?.signature ?? null) };
  }
  if (failure !== null) return { transfers, mark: unfinished(null) };
  const behind = to < range.to ? { to: range.to, before: null, failure: null, hasFailed: hadFailed } : null;
  return { transfers, mark: markAt({ units: isLater ? null : units, readTo: to, behind }) };
}

/**
 * Resolves with the answer of the node. If it has none to this question, but answers another one from the same slot, resolves with what it said.
 * @throws OutboundError, RpcError if the node answers nothing now, or refuses calls because there were too many
 */
async function answerOf<T>(asked: Promise<T>, slot: number, rpc: Rpc): Promise<{ answer: T } | { failure: string }> {
  try {
    return { answer: await asked };
  } catch (error) {
    if (!isNodeError(error) || isTooMany(error)) throw error;
    const isAlive = await rpc.call('getSlot', [{ ...FINALIZED, minContextSlot: slot }], Slot).then(
      () => true,
      () => false,
    );
    if (!isAlive) throw error;
    return { failure: messageOf(error) };
  }
}

/** Undefined if the node answers nothing now. What was read of the account before is kept then, so that the next tick goes on there. */
async function unlessNodeFails<T>(asked: Promise<T>): Promise<T | undefined> {
  try {
    return await asked;
  } catch (error) {
    if (!isNodeError(error)) throw error;
    return undefined;
  }
}

/** A page of the transactions of an account, the newest first. A node that lacks the slot of the balance refuses to answer. */
function signaturesOf(
  address: string,
  { before, slot }: { before: string | null; slot: number },
  rpc: Rpc,
): Promise<z.infer<typeof Signatures>> {
  const page = { limit: SIGNATURES_PER_QUERY, minContextSlot: slot, ...(before !== null && { before }) };
  return rpc.call('getSignaturesForAddress', [address, { ...FINALIZED, ...page }], Signatures);
}

async function transfersIn(signature: string, account: Account, rpc: Rpc): Promise<FoundTransfer[]> {
  const tx = await transactionOf(signature, rpc);
  if (tx === null) throw new RpcError(NO_ANSWER, `the node lost the transaction ${signature}`);
  return found(signature, tx, [account]);
}

function transactionOf(signature: string, rpc: Rpc): Promise<Transaction | null> {
  return rpc.call(
    'getTransaction',
    [signature, { ...FINALIZED, encoding: 'json', maxSupportedTransactionVersion: 0 }],
    Transaction.nullable(),
  );
}

function found(signature: string, tx: Transaction, accounts: readonly Account[]): FoundTransfer[] {
  const { slot, blockTime } = tx;
  if (blockTime === null) throw new RpcError(NO_ANSWER, `slot ${slot} has no time yet`);
  if (tx.meta.err !== null) return [];
  const block = blockAt(slot, blockTime);
  return accounts.flatMap((account) => received(tx, account).map((part) => ({ ...part, txHash: signature, block })));
}

/** What the transaction added to the account. */
function received(
  { meta, transaction }: Transaction,
  { owner, asset, mint, address }: Account,
): Pick<FoundTransfer, 'logIndex' | 'from' | 'to' | 'asset' | 'units'>[] {
  const { accountKeys } = transaction.message;
  const keys = [...accountKeys, ...(meta.loadedAddresses?.writable ?? []), ...(meta.loadedAddresses?.readonly ?? [])];
  const index = keys.indexOf(address);
  const amountIn = (balances: TokenBalance[] | null | undefined, at: number): bigint =>
    balances?.find(({ accountIndex }) => accountIndex === at)?.uiTokenAmount.amount ?? 0n;
  const changeAt = (at: number): bigint => amountIn(meta.postTokenBalances, at) - amountIn(meta.preTokenBalances, at);
  const after = meta.postTokenBalances?.find(({ accountIndex }) => accountIndex === index);
  const isOurs = after?.mint === mint && after.owner === owner && (after.programId ?? TOKEN_PROGRAM) === TOKEN_PROGRAM;
  if (index < 0 || !isOurs || changeAt(index) <= 0n) return [];
  const senders = (meta.preTokenBalances ?? [])
    .filter((each) => each.mint === mint && changeAt(each.accountIndex) < 0n)
    .toSorted((a, b) => (changeAt(a.accountIndex) < changeAt(b.accountIndex) ? -1 : 1));
  // All of them count. Otherwise a sanctioned sender could move more from another wallet of its own in the same transaction, and not be checked.
  const owners = [...new Set(senders.flatMap((each) => each.owner ?? []))].join(SENDERS_SEPARATOR);
  // Newly made tokens have no sender. In that case the sender is the account that has paid for the transaction.
  const from = owners === '' ? (accountKeys[0] ?? '') : owners;
  return [{ logIndex: index, from, to: owner, asset, units: changeAt(index) }];
}

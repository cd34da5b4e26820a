// Reads Solana over JSON-RPC, with the commitment `finalized` alone: what is read is never reorganised. A block is a slot.
import { z } from 'zod';
import { DEPOSIT_ASSETS, type DepositAsset } from '../../../shared/api/deposit.ts';
import { TOKEN_DECIMALS } from './chains.ts';
import type { Block, BlockRange, ChainReader, FoundTransfer } from './reader.ts';
import { NO_ANSWER, type Rpc, RpcError } from './rpc.ts';
import type { ChainSettings } from './settings.ts';
import { TOKEN_PROGRAM, tokenAccountOf } from './chain-addresses.ts';

/** The main network. */
const GENESIS_HASH = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
const FINALIZED = { commitment: 'finalized' } as const;
/** Limits that the nodes set. */
const ACCOUNTS_PER_QUERY = 100;
const SIGNATURES_PER_QUERY = 1_000;
/**
 * Number of transactions after which the watcher looks at the time again. Thousands of tiny transfers to an address cost their sender a few dollars.
 * A tick that read them all would take so long that the watchdog ends the process.
 */
const TRANSACTIONS_MAX = 200;
const SECOND_MS = 1_000;

const Slot = z.int().min(0);
const Amount = z.string().regex(/^\d+$/).transform(BigInt);
const Balance = z.object({ value: z.object({ amount: Amount }) });
const Accounts = z.object({ value: z.array(z.unknown().nullable()) });
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

export function openSolanaReader({ contracts }: Pick<ChainSettings, 'contracts'>, rpc: Rpc): ChainReader {
  const accountsOf = (owner: string): Account[] =>
    DEPOSIT_ASSETS.flatMap((asset) => {
      const mint = contracts[asset];
      return mint === undefined ? [] : [{ owner, asset, mint, address: tokenAccountOf(owner, mint) }];
    });
  const blockAt = (slot: number, seconds: number): Block => ({
    number: slot,
    hash: String(slot),
    ms: seconds * SECOND_MS,
  });
  const found = (signature: string, tx: Transaction, accounts: readonly Account[]): FoundTransfer[] => {
    const { slot, blockTime } = tx;
    if (blockTime === null) throw new RpcError(NO_ANSWER, `slot ${slot} has no time yet`);
    if (tx.meta.err !== null) return [];
    const block = blockAt(slot, blockTime);
    return accounts.flatMap((account) => received(tx, account).map((part) => ({ ...part, txHash: signature, block })));
  };
  const transactionOf = (signature: string): Promise<Transaction | null> =>
    rpc.call(
      'getTransaction',
      [signature, { ...FINALIZED, encoding: 'json', maxSupportedTransactionVersion: 0 }],
      Transaction.nullable(),
    );
  return {
    obstacle: () => obstacleOf(contracts, rpc),
    tip: async () => {
      const slot = await rpc.call('getSlot', [FINALIZED], Slot);
      const seconds = await rpc.call('getBlockTime', [slot], z.int().nullable());
      if (seconds === null) throw new RpcError(NO_ANSWER, `slot ${slot} has no time yet`);
      const block = blockAt(slot, seconds);
      return { head: block, final: block };
    },
    // The time is 0: most nodes do not know the times of old slots, and no decision needs them.
    block: async (slot) => blockAt(slot, 0),
    transfers: async (range, addresses) => {
      const signed: Signed[] = [];
      for (const account of await existing(addresses.flatMap(accountsOf), range, rpc))
        signed.push(...(await signaturesOf(account, range, rpc)));
      const { first, readTo } = firstOf(signed, range);
      const transfers: FoundTransfer[] = [];
      for (const { account, signature } of first) {
        const tx = await transactionOf(signature);
        if (tx === null) throw new RpcError(NO_ANSWER, `the node lost the transaction ${signature}`);
        transfers.push(...found(signature, tx, [account]));
      }
      return { transfers, readTo };
    },
    transfersOf: async (signature, address) => {
      const tx = await transactionOf(signature);
      return tx === null ? undefined : found(signature, tx, accountsOf(address));
    },
    balance: async (asset, address) => {
      const account = accountsOf(address).find((each) => each.asset === asset);
      if (account === undefined) return 0n;
      return (await rpc.call('getTokenAccountBalance', [account.address, FINALIZED], Balance)).value.amount;
    },
    isSanctioned: async () => null,
  };
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

/** A token account is made by the first transfer to it, so most addresses have none. A node that lacks the newest slot refuses to answer. */
async function existing(accounts: readonly Account[], { to }: BlockRange, rpc: Rpc): Promise<Account[]> {
  const found: Account[] = [];
  for (let first = 0; first < accounts.length; first += ACCOUNTS_PER_QUERY) {
    const part = accounts.slice(first, first + ACCOUNTS_PER_QUERY);
    const options = { ...FINALIZED, encoding: 'base64', dataSlice: { offset: 0, length: 0 }, minContextSlot: to };
    const { value } = await rpc.call('getMultipleAccounts', [part.map(({ address }) => address), options], Accounts);
    found.push(...part.filter((_, i) => value[i] !== null && value[i] !== undefined));
  }
  return found;
}

/** A transaction of an account of ours. */
interface Signed {
  account: Account;
  slot: number;
  signature: string;
}

/** The transactions that are read at once, in the order of their slots. A slot is read as a whole or not at all. */
function firstOf(signed: readonly Signed[], { to }: BlockRange): { first: Signed[]; readTo: number } {
  const ordered = signed.toSorted((a, b) => a.slot - b.slot);
  const readTo = ordered.length > TRANSACTIONS_MAX ? (ordered[TRANSACTIONS_MAX - 1]?.slot ?? to) : to;
  return { first: ordered.filter(({ slot }) => slot <= readTo), readTo };
}

/** The transactions of these slots. Failed ones are left out. */
async function signaturesOf(account: Account, { from, to }: BlockRange, rpc: Rpc): Promise<Signed[]> {
  const { address } = account;
  const signatures: Signed[] = [];
  let before: string | undefined;
  for (;;) {
    const options = {
      ...FINALIZED,
      limit: SIGNATURES_PER_QUERY,
      minContextSlot: to,
      ...(before !== undefined && { before }),
    };
    const page = await rpc.call('getSignaturesForAddress', [address, options], Signatures);
    const inRange = page.filter(({ slot, err }) => slot >= from && slot <= to && err === null);
    signatures.push(...inRange.map(({ signature, slot }) => ({ account, slot, signature })));
    const last = page.at(-1);
    if (last === undefined || page.length < SIGNATURES_PER_QUERY || last.slot < from) return signatures;
    before = last.signature;
  }
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
  // Newly made tokens have no sender. In that case the sender is the account that has paid for the transaction.
  const from = senders[0]?.owner ?? accountKeys[0] ?? '';
  return [{ logIndex: index, from, to: owner, asset, units: changeAt(index) }];
}

// Reads Solana over JSON-RPC, with the commitment `finalized` alone. A block is a slot.
import { z } from 'zod';
import { DEPOSIT_ASSETS } from '../../../shared/api/deposit.ts';
import { TOKEN_PROGRAM, tokenAccountOf } from './chain-addresses.ts';
import { TOKEN_DECIMALS } from './chains.ts';
import type { AccountMark, AccountReader, AskedAccounts, ReadAccounts } from './reader.ts';
import { isNodeError, NO_ANSWER, type Rpc, RpcError } from './rpc.ts';
import type { ChainSettings } from './settings.ts';
import { readAccount } from './solana-account.ts';
import { type Account, blockAt, FINALIZED, readTransfers, Slot } from './solana-transfers.ts';

/** The main network. */
const GENESIS_HASH = '5eykt4UsFv8P8NJdTREpY1vzqKqZKvdpKuc147dw2N9d';
/** Limit that the nodes set. */
const ACCOUNTS_PER_QUERY = 100;
/**
 * Number of transactions and accounts after which the watcher stores what was found. Thousands of tiny transfers to an address cost their sender
 * a few dollars.
 */
const READ_MAX = 200;
/** To derive the address of a token account takes a third of a millisecond, and each tick needs all of them. */
const OWNERS_KEPT = 50_000;
/** The place of the balance in the data of a token account. */
const BALANCE = { offset: 64, length: 8 } as const;

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

export function openSolanaReader({ contracts }: Pick<ChainSettings, 'contracts'>, rpc: Rpc): AccountReader {
  const accountsByOwner = new Map<string, Account[]>();
  const accountsOf = (owner: string): Account[] => {
    const derived = accountsByOwner.get(owner);
    if (derived !== undefined) return derived;
    const accounts = tokenAccounts(owner, contracts);
    if (accountsByOwner.size >= OWNERS_KEPT) accountsByOwner.clear();
    accountsByOwner.set(owner, accounts);
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
    transfersOf: (signature, address) => readTransfers(signature, accountsOf(address), rpc),
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
  const { range, marks, transactionsMax, mayEnd } = asked;
  const { slot, balances } = await balancesOf(accounts, range.to, rpc);
  const read: ReadAccounts = { transfers: [], marks: [], isDone: true };
  let count = 0;
  /** Counts one more transaction or account. True: the call ends before it. */
  const endsHere = (): boolean => {
    count += 1;
    return count >= READ_MAX || mayEnd();
  };
  for (const [i, account] of accounts.entries()) {
    const mark = marks.get(account.address);
    // A token account is made by the first transfer to it, so most addresses have none. Its owner may close it later.
    const units = balances[i] ?? (mark === undefined ? undefined : 0n);
    if (units === undefined || !isDue(account, { mark, units }, asked)) continue;
    if (read.marks.length > 0 && endsHere()) return { ...read, isDone: false };
    let left = transactionsMax;
    const mayLeave = (): boolean => {
      left -= 1;
      return endsHere() || left <= 0;
    };
    try {
      const part = await readAccount({ account, mark, range, slot, units, mayLeave }, rpc);
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

/** Whether this call reads the transactions of an account that has these units now. */
function isDue(
  { address }: Account,
  { mark, units }: { mark: AccountMark | undefined; units: bigint },
  { range, suspects, isCatchUp }: AskedAccounts,
): boolean {
  if (mark === undefined) return !isCatchUp;
  const isBehind = mark.behind !== null;
  if (isBehind !== isCatchUp || mark.readTo >= range.to) return false;
  return mark.units !== units || suspects.has(address);
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

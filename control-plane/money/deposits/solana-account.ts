// Reads the transactions of one token account of Solana, from the newest to the oldest. A read may be interrupted, and a later one goes on from the
// mark that it left. Example: t4 and all before it were read, and five transactions have come since.
//
//   read   transactions                    the mark says
//   1      t9, t8, then its turn is over   behind, the next read begins before t8
//   2      t7, t6, t5                      all up to t9 is read
import { z } from 'zod';
import { messageOf } from '../../../shared/errors.ts';
import type { AccountMark, BlockRange, FoundTransfer } from './reader.ts';
import { isNodeError, isTooMany, NO_ANSWER, type Rpc, RpcError } from './rpc.ts';
import { type Account, FINALIZED, readTransfers, Slot } from './solana-transfers.ts';

/** Limit that the nodes set. */
const SIGNATURES_PER_QUERY = 1_000;

const Page = z.array(z.object({ signature: z.string(), slot: Slot, err: z.unknown() }));
type Page = z.infer<typeof Page>;

export interface ToRead {
  account: Account;
  /** How far the account was read before. Undefined: it was never read. */
  mark: AccountMark | undefined;
  range: BlockRange;
  /** The slot of the balance, and the balance. */
  slot: number;
  units: bigint;
  /** Asked before each transaction but the first, and after each page. True: what is left is read later. */
  mayLeave(): boolean;
}

interface ReadPart {
  transfers: FoundTransfer[];
  mark: AccountMark;
}

/** A read under way. */
interface Read {
  asked: ToRead;
  /** The read is of the slots after `readTo` and up to `to`. */
  readTo: number;
  to: number;
  /** The transaction at which the read before was interrupted. Null: this read began at the newest one. */
  startedAt: string | null;
  /** The last transaction that was read. The next page begins before it; null: at the newest one. */
  before: string | null;
  /** What the node said about a transaction instead of an answer. */
  failure: string | null;
  /** Whether a transaction was read. */
  hasProgress: boolean;
  /** Whether the account may have transactions after `to`. The balance may contain them, so it tells nothing about this read. */
  mayHaveLater: boolean;
  transfers: FoundTransfer[];
}

/**
 * Reads the transactions of an account from the newest one, or from where the mark says, to the oldest one that was not read. A transaction about
 * which the node gives no answer keeps the account behind. The others count all the same.
 * @throws OutboundError, RpcError if the node answers nothing before the first transaction is read, or lists no page
 */
export async function readAccount(asked: ToRead, rpc: Rpc): Promise<ReadPart> {
  const read = beginRead(asked);
  for (;;) {
    const listed = await answerOf(pageOf(read, rpc), asked.slot, rpc);
    if ('failure' in listed) return beginAgainLater({ ...read, failure: listed.failure });
    const page = listed.answer;
    // The node has listed the transaction at which the read was interrupted. If it lists none before it, it does not know that one any more.
    if (page.length === 0 && read.before !== null && read.before === read.startedAt) return beginAgainLater(read);
    const isAllRead = await readPage(read, page, rpc);
    if (!isAllRead) return goOnLater(read);
    const last = page.at(-1);
    if (last === undefined || page.length < SIGNATURES_PER_QUERY || last.slot <= read.readTo) return finished(read);
    // The last transaction of the page is left too, so that the next read finds one. An empty page would mean that the node has forgotten the mark.
    if (asked.mayLeave()) return goOnLater({ ...read, before: page.at(-2)?.signature ?? null });
    read.before = last.signature;
  }
}

function beginRead(asked: ToRead): Read {
  const { mark, range } = asked;
  const behind = mark?.behind ?? null;
  const interrupted = behind !== null && behind.before !== null ? behind : null;
  const startedAt = interrupted?.before ?? null;
  return {
    asked,
    readTo: mark?.readTo ?? range.from - 1,
    to: interrupted?.to ?? range.to,
    startedAt,
    before: startedAt,
    failure: interrupted?.failure ?? null,
    hasProgress: false,
    // A read that goes on does not see what has come after its range.
    mayHaveLater: interrupted !== null,
    transfers: [],
  };
}

/** Reads those transactions of a page that belong to the read. Resolves with whether it came to the end of the page. */
async function readPage(read: Read, page: Page, rpc: Rpc): Promise<boolean> {
  const { account, slot, mayLeave } = read.asked;
  for (const { signature, slot: at, err } of page) {
    if (at > read.to) read.mayHaveLater = true;
    if (at > read.to || at <= read.readTo || err !== null) continue;
    if (read.hasProgress && mayLeave()) return false;
    // If the node fails before the first transaction, nothing is lost, so the caller gets the error.
    const asking = answerOf(transfersIn(signature, account, rpc), slot, rpc);
    const found = await (read.hasProgress ? unlessNodeFails(asking) : asking);
    if (found === undefined) return false;
    if ('failure' in found) read.failure = found.failure;
    else read.transfers.push(...found.answer);
    read.before = signature;
    read.hasProgress = true;
  }
  return true;
}

/** All transactions of the read are listed. If the node had no answer about one of them, the next read asks for all again. */
function finished(read: Read): ReadPart {
  const { asked, to, failure, transfers, mayHaveLater } = read;
  if (failure !== null) return beginAgainLater(read);
  const hadFailed = asked.mark?.behind?.hasFailed ?? false;
  // The range may have grown since the account fell behind. Then the account stays behind until that is read too.
  const behind = to < asked.range.to ? { to: asked.range.to, before: null, failure, hasFailed: hadFailed } : null;
  return { transfers, mark: markOf(asked, { units: mayHaveLater ? null : asked.units, readTo: to, behind }) };
}

/** The next read begins at the newest transaction again. */
function beginAgainLater(read: Read): ReadPart {
  return goOnLater({ ...read, before: null });
}

/** The next read goes on where this one is. */
function goOnLater({ asked, readTo, to, before, failure, transfers }: Read): ReadPart {
  const hadFailed = asked.mark?.behind?.hasFailed ?? false;
  const behind = { to, before, failure, hasFailed: hadFailed || failure !== null };
  return { transfers, mark: markOf(asked, { units: null, readTo, behind }) };
}

function markOf({ account }: ToRead, at: Pick<AccountMark, 'units' | 'readTo' | 'behind'>): AccountMark {
  return { account: account.address, owner: account.owner, ...at };
}

/** A page of the transactions of an account, the newest first. A node that lacks the slot of the balance refuses to answer. */
function pageOf({ asked, before }: Read, rpc: Rpc): Promise<Page> {
  const { account, slot } = asked;
  const options = {
    ...FINALIZED,
    limit: SIGNATURES_PER_QUERY,
    minContextSlot: slot,
    ...(before !== null && { before }),
  };
  return rpc.call('getSignaturesForAddress', [account.address, options], Page);
}

async function transfersIn(signature: string, account: Account, rpc: Rpc): Promise<FoundTransfer[]> {
  const transfers = await readTransfers(signature, [account], rpc);
  if (transfers === undefined) throw new RpcError(NO_ANSWER, `the node lost the transaction ${signature}`);
  return transfers;
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

// Reads a chain account by account. A pass reads all token accounts up to one block. It ends early if its time is over or the node fails, and the
// next tick, maybe of another process, goes on from the rows of the chain and of the accounts.
//
// Example: the final block is 100, the tip is 120, and deposits d1 to d90 are watched. One query has the accounts of 50 deposits.
//
//   tick   reads                                     stores
//   1      d1 to d50, then the time is over          pass up to 120, after d50; the final block stays 100
//   2      d51 to d90, while the tip moves to 140    final block 120, no pass
//   3      d1 to d50 ...                             a pass up to 140
//
// A query tells the balances of many accounts. Only accounts whose balance has changed are read. If tokens come and go between two ticks, the
// balance stays the same. So each tick also reads some of the others, those first that were not read for longest.
//
// An account is behind if the node gives no answer about one of its transactions, or if it has more than its turn allows: strangers can send it very
// many. The pass does not wait for it. After the pass, what is left of the tick is shared among all accounts that are behind.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db } from '../../base/db/db.ts';
import { watchedAccounts } from './accounts-store.ts';
import { CHAINS } from './chains.ts';
import type { Pass } from './chains-store.ts';
import type { AccountMark, AccountReader, AskedAccounts, Block, FoundTransfer, ReadAccounts } from './reader.ts';
import { isNodeError } from './rpc.ts';
import { watchedDeposits } from './store.ts';

/** Number of accounts that a tick reads although their balance is the same. */
const SUSPECTS_PER_TICK = 20;
/** Number of transactions of one account that a pass waits for. */
const TRANSACTIONS_PER_TURN = 20;
/** Number of transactions that the accounts which are behind share in a tick. */
const TRANSACTIONS_PER_CATCH_UP = 200;

interface Asked {
  chain: DepositChain;
  reader: AccountReader;
  /** The last block whose transfers are all stored. */
  final: Block;
  pass: Pass;
  /** Whether the time of the tick is over. */
  isLate(): boolean;
}

interface ReadPass {
  transfers: FoundTransfer[];
  marks: AccountMark[];
  /** The marks of all watched accounts before. */
  known: readonly AccountMark[];
  /** The place at which the next tick goes on; null if all accounts are read. */
  pass: Pass | null;
  depositOf: ReadonlyMap<string, string>;
}

export async function readPass({ chain, reader, final, pass, isLate }: Asked, { db }: { db: Db }): Promise<ReadPass> {
  const { family } = CHAINS[chain];
  const watched = await watchedDeposits(db.read, family, final.ms);
  const known = await watchedAccounts(db.read, chain, family, final.ms);
  const suspects = known.filter(({ behind }) => behind === null).slice(0, SUSPECTS_PER_TICK);
  const marks = new Map(known.map((mark) => [mark.account, mark]));
  const common = {
    range: { from: final.number + 1, to: pass.number },
    marks,
    suspects: new Set(suspects.map(({ account }) => account)),
    mayEnd: isLate,
  };
  const turn = { ...common, isCatchUp: false, transactionsMax: TRANSACTIONS_PER_TURN };
  const depositOf = new Map(watched.map(({ id, address }) => [address, id]));
  const read: ReadPass = { transfers: [], marks: [], known, pass, depositOf };
  const keep = ({ transfers, marks: changed }: ReadAccounts): void => {
    read.transfers.push(...transfers);
    read.marks.push(...changed);
    for (const mark of changed) marks.set(mark.account, mark);
  };
  const left = watched.filter(({ id }) => id > pass.after);
  for (let first = 0; first < left.length; first += reader.addressesPerQuery) {
    if (first > 0 && isLate()) return read;
    const part = left.slice(first, first + reader.addressesPerQuery);
    const addresses = part.map(({ address }) => address);
    const found = await readPart(reader, { ...turn, addresses }, { mayFail: first > 0 });
    keep(found);
    if (!found.isDone) return read;
    read.pass = { ...pass, after: part.at(-1)?.id ?? pass.after };
  }
  const addresses = ownersBehind([...marks.values()], pass.number).slice(0, reader.addressesPerQuery);
  if (addresses.length > 0 && !isLate()) {
    const transactionsMax = Math.floor(TRANSACTIONS_PER_CATCH_UP / addresses.length);
    keep(await readPart(reader, { ...common, addresses, isCatchUp: true, transactionsMax }, { mayFail: true }));
  }
  return { ...read, pass: null };
}

/**
 * The owners of the accounts that are behind. Each pass begins with another one, so that accounts at which the node takes long do not keep the
 * others from their turn.
 */
function ownersBehind(marks: readonly AccountMark[], passNumber: number): string[] {
  const owners = [...new Set(marks.filter(({ behind }) => behind !== null).map(({ owner }) => owner))];
  const first = owners.length === 0 ? 0 : passNumber % owners.length;
  return [...owners.slice(first), ...owners.slice(0, first)];
}

/** `mayFail`: a part was read before. If the node fails now, what was read is kept, and the next tick goes on there. */
async function readPart(
  reader: AccountReader,
  asked: AskedAccounts,
  { mayFail }: { mayFail: boolean },
): Promise<ReadAccounts> {
  try {
    return await reader.accounts(asked);
  } catch (error) {
    if (!mayFail || !isNodeError(error)) throw error;
    return { transfers: [], marks: [], isDone: false };
  }
}

/** Tells the operator once about which accounts the node gives no answer, and once that they are read again. */
export function logFailures(
  { chain, log }: { chain: DepositChain; log: Log },
  { marks, known, depositOf }: Pick<ReadPass, 'marks' | 'known' | 'depositOf'>,
): void {
  const failed = new Set(known.filter(({ behind }) => behind?.hasFailed).map(({ account }) => account));
  const last = [...new Map(marks.map((mark) => [mark.account, mark])).values()];
  const depositsOf = (of: readonly AccountMark[]): string[] => [
    ...new Set(of.flatMap(({ owner }) => depositOf.get(owner) ?? [])),
  ];
  const failing = last.filter(({ account, behind }) => behind?.hasFailed && !failed.has(account));
  const mended = last.filter(({ account, behind }) => behind === null && failed.has(account));
  const [first] = failing;
  if (first !== undefined)
    log.error(
      { chain, deposits: depositsOf(failing), detail: first.behind?.failure },
      'the node gives no answer about a transaction of a token account; its deposit waits, the others go on. If this lasts, set rpc_url to a node that keeps all transactions',
    );
  if (mended.length > 0) log.info({ chain, deposits: depositsOf(mended) }, 'a token account is read again');
}

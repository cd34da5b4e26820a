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
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Db } from '../../base/db/db.ts';
import { watchedAccounts } from './accounts-store.ts';
import { CHAINS } from './chains.ts';
import type { Pass } from './chains-store.ts';
import type { AccountMark, AccountReader, Block, FoundTransfer, ReadAccounts } from './reader.ts';
import { isNodeError } from './rpc.ts';
import { watchedDeposits } from './store.ts';

/** Number of accounts that a tick reads although their balance is the same. */
const SUSPECTS_PER_TICK = 20;

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
  /** The place at which the next tick goes on; null if all accounts are read. */
  pass: Pass | null;
  depositOf: ReadonlyMap<string, string>;
}

export async function readPass({ chain, reader, final, pass, isLate }: Asked, { db }: { db: Db }): Promise<ReadPass> {
  const { family } = CHAINS[chain];
  const watched = await watchedDeposits(db.read, family, final.ms);
  const known = await watchedAccounts(db.read, chain, family, final.ms);
  const common = {
    range: { from: final.number + 1, to: pass.number },
    marks: new Map(known.map((mark) => [mark.account, mark])),
    suspects: new Set(known.slice(0, SUSPECTS_PER_TICK).map(({ account }) => account)),
    mayEnd: isLate,
  };
  const depositOf = new Map(watched.map(({ id, address }) => [address, id]));
  const read: ReadPass = { transfers: [], marks: [], pass, depositOf };
  const left = watched.filter(({ id }) => id > pass.after);
  for (let first = 0; first < left.length; first += reader.addressesPerQuery) {
    if (first > 0 && isLate()) return read;
    const part = left.slice(first, first + reader.addressesPerQuery);
    const addresses = part.map(({ address }) => address);
    const { transfers, marks, isDone } = await readPart(reader, { ...common, addresses }, first === 0);
    read.transfers.push(...transfers);
    read.marks.push(...marks);
    if (!isDone) return read;
    read.pass = { ...pass, after: part.at(-1)?.id ?? pass.after };
  }
  return { ...read, pass: null };
}

/** If the node fails after a part was read, what was read is kept. */
async function readPart(
  reader: AccountReader,
  asked: Parameters<AccountReader['accounts']>[0],
  isFirst: boolean,
): Promise<ReadAccounts> {
  try {
    return await reader.accounts(asked);
  } catch (error) {
    if (isFirst || !isNodeError(error)) throw error;
    return { transfers: [], marks: [], isDone: false };
  }
}

// Reads a chain in ranges of blocks. Each tick reads twice (see watch.ts):
//
//   final pass   (final cursor, final block]: a transfer is final, or what was seen there is gone
//   head pass    (checkpoint, head]: a transfer is seen. A checkpoint whose hash has changed means that the chain was reorganised: the watcher
//                goes back to the newest checkpoint that still holds, and what was seen above it is gone until it is found again
//
// Example: one query has 500 blocks, and the chain was read up to the final block 1,000 and the head 1,060.
//
//   the node shows                          the tick reads
//   final 1,010, head 1,072                 1,001 to 1,010 as final, and 1,061 to 1,072 as seen
//   final 1,010, another block at 1,060     1,001 to 1,010 as final, and all above the checkpoint before 1,060 once more as seen
//   final 15,000, head 15,064               1,001 to 11,000 as final, in 20 queries; the rest is left to the next ticks
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Db } from '../../base/db/db.ts';
import { CHAINS } from './chains.ts';
import { type Checkpoint, checkpoints } from './chains-store.ts';
import type { Block, BlockReader, FoundTransfer } from './reader.ts';
import { watchedDeposits } from './store.ts';

/** Number of ranges that a tick reads at most in each pass, so that it ends soon even if there is much to catch up with. */
const RANGES_PER_PASS = 20;

interface Asked {
  chain: DepositChain;
  reader: BlockReader;
  blocksPerQuery: number;
  /** How far the chain was read before. */
  before: { head: Omit<Block, 'hash'>; final: Block };
  tip: { head: Block; final: Block };
  /** Whether the time of the tick is over. */
  isLate(): boolean;
}

interface Ranges extends Asked {
  /** The addresses of deposits that are watched. */
  addresses: readonly string[];
}

export interface ReadBlocks {
  /** How far the chain is read now. The hash of the head is null if no block above the final one was read. */
  head: Omit<Block, 'hash'> & { hash: string | null };
  final: Block;
  /** Transfers seen above this block are gone, unless this tick has found them again. Null: no block has changed. */
  branch: number | null;
  finalFound: FoundTransfer[];
  headFound: FoundTransfer[];
  depositOf: ReadonlyMap<string, string>;
}

/** @throws Error if the node does not have a block that it has shown before */
export async function readBlocks(asked: Asked, { db }: { db: Db }): Promise<ReadBlocks> {
  const { chain, reader, before, tip } = asked;
  const watched = await watchedDeposits(db.read, CHAINS[chain].family, before.final.ms);
  const depositOf = new Map(watched.map(({ id, address }) => [address, id]));
  const ranges = { ...asked, addresses: [...depositOf.keys()] };
  const { final, finalFound } = await readFinal(ranges);
  const head = { ...before.head, hash: null };
  const stay: ReadBlocks = { head, final, branch: null, finalFound, headFound: [], depositOf };
  // While final blocks are left to read, nothing above the final block is read: those blocks will be final when their turn comes.
  if (final.number < tip.final.number) return stay;
  const candidates = [...(await checkpoints(db.read, chain)), before.final];
  const base = await newestThatHolds(candidates, reader);
  // The node is behind what it, or another node, has shown before. That is no reorganisation.
  if (base === undefined || tip.head.number < base.number) return stay;
  const branch = base === candidates[0] ? null : base.number;
  const above = Math.max(base.number, final.number);
  return { ...stay, branch, ...(await readHead(above, ranges)) };
}

/** Reads the blocks that have become final. */
async function readFinal(ranges: Ranges): Promise<{ final: Block; finalFound: FoundTransfer[] }> {
  const { final: before } = ranges.before;
  const { final: tip } = ranges.tip;
  if (tip.number <= before.number) return { final: before, finalFound: [] };
  const upTo = lastOfPass(before.number, tip, ranges);
  const { transfers, readTo } = await transfersBetween(before.number, upTo, ranges);
  return { final: await blockAt(readTo, tip, ranges.reader), finalFound: transfers };
}

/** Reads the blocks after `above` up to the head. */
async function readHead(above: number, ranges: Ranges): Promise<{ head: Block; headFound: FoundTransfer[] }> {
  const { head: tip } = ranges.tip;
  // The last block is read before the transfers. If the chain is reorganised in between, the next tick finds that the hash has changed.
  const end = await blockAt(lastOfPass(above, tip, ranges), tip, ranges.reader);
  const { transfers, readTo } = await transfersBetween(above, end.number, ranges);
  return { head: await blockAt(readTo, end, ranges.reader), headFound: transfers };
}

function lastOfPass(above: number, end: Block, { blocksPerQuery }: Ranges): number {
  return Math.min(end.number, above + blocksPerQuery * RANGES_PER_PASS);
}

/** Reads the blocks after `above`, range by range, at least one range. Ends before `upTo` if the time is over. */
async function transfersBetween(
  above: number,
  upTo: number,
  { reader, blocksPerQuery, addresses, isLate }: Ranges,
): Promise<{ transfers: FoundTransfer[]; readTo: number }> {
  const parts: FoundTransfer[][] = [];
  let readTo = above;
  while (readTo < upTo && (readTo === above || !isLate())) {
    const to = Math.min(upTo, readTo + blocksPerQuery);
    const part = await reader.transfers({ from: readTo + 1, to }, addresses);
    parts.push(part.transfers);
    ({ readTo } = part);
  }
  return { transfers: parts.flat(), readTo };
}

/** The block with this number. `end` is a block that was read before: it may be the one. */
async function blockAt(number: number, end: Block, reader: BlockReader): Promise<Block> {
  if (number === end.number) return end;
  const block = await reader.block(number);
  if (block === undefined) throw new Error(`the node lost block ${number}`);
  return block;
}

/** The newest of these checkpoints that is still in the chain. Undefined if the node does not have one of these blocks yet. */
async function newestThatHolds(
  candidates: readonly Checkpoint[],
  reader: BlockReader,
): Promise<Checkpoint | undefined> {
  for (const candidate of candidates) {
    const block = await reader.block(candidate.number);
    if (block === undefined) return undefined;
    if (block.hash === candidate.hash) return candidate;
  }
  return candidates.at(-1);
}

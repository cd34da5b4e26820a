// Watches one chain. Each tick reads blocks twice: up to the head, so that customers see early that their tokens are on the way, and up to the
// final block, which decides. The reads happen first, then one transaction stores what they found, unless somebody else was faster.
//
//   final pass   (final cursor, final block]: a transfer is final, or what was seen there is gone
//   head pass    (checkpoint, head]: a transfer is seen. A checkpoint whose hash has changed means that the chain was reorganised: the watcher
//                goes back to the newest checkpoint that still holds, and what was seen above it is gone until it is found again
//
// A chain that is read account by account has final blocks only (account-pass.ts).
//
// The tip is read before the addresses. So whoever gets an address after that pays in a block that is not read yet.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import {
  type Held,
  isHeld,
  isFree,
  releaseLease,
  renewLease,
  seeLease,
  type SeenLease,
  takeLease,
} from '../../base/db/lease.ts';
import { logFailures, readPass } from './account-pass.ts';
import { setMark } from './accounts-store.ts';
import { CHAINS } from './chains.ts';
import * as chains from './chains-store.ts';
import type { AccountMark, AccountReader, Block, BlockReader, ChainReader, FoundTransfer } from './reader.ts';
import { wake, watchedDeposits } from './store.ts';
import { orphan, upsertTransfer } from './transfers-store.ts';

/** Number of ranges that a tick reads at most, so that it ends soon even if there is much to catch up with. */
const RANGES_PER_TICK = 20;
/** A tick begins no further range or account after this time: a slow node would keep it so long that the watchdog ends the process. */
const READ_MS_MAX = 60_000;

export interface WatchDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  /** Called after a commit that made deposits due. */
  nudge(): void;
}

export interface Watcher {
  chain: DepositChain;
  /** Resolves with `again` if there is more to read now. @throws OutboundError, RpcError if the node gives no answer that can be used */
  tick(): Promise<'again' | void>;
  close(): Promise<void>;
}

interface Watched<Reader = ChainReader> {
  chain: DepositChain;
  reader: Reader;
  lease: WatchLease;
  blocksPerQuery: number;
}

/** How far a chain was read before this tick. */
interface Cursors {
  head: Omit<Block, 'hash'>;
  final: Block;
  /** The pass over accounts that the last tick has not ended. */
  pass: chains.Pass | null;
}

/** What a tick has read. */
interface Reading {
  before: Cursors;
  head: Omit<Block, 'hash'> & { hash: string | null };
  final: Block;
  /** Transfers seen above this block are gone, unless this tick has found them again. Null: no block has changed. */
  branch: number | null;
  finalFound: FoundTransfer[];
  headFound: FoundTransfer[];
  depositOf: ReadonlyMap<string, string>;
  /** Null on a chain that is read in ranges of blocks, or if nothing was read. */
  accounts: { marks: AccountMark[]; known: readonly AccountMark[]; pass: chains.Pass | null } | null;
}

export function openWatcher(watched: Watched, deps: WatchDeps): Watcher {
  const { chain, reader, lease } = watched;
  const { db, clock, log } = deps;
  let isChecked = false;

  const pause = async (reason: string): Promise<void> => {
    log.error(
      { chain, reason },
      'deposits on this chain are paused: nothing is credited until the operator has mended it',
    );
    await db.tx('deposits.pause', async (tx) => {
      await tx.lock('deposit_chain', chain);
      await chains.addChain(tx, chain, clock.now());
      await chains.pause(tx, chain, reason, clock.now());
    });
  };

  return {
    chain,
    close: () => lease.release(),
    tick: async () => {
      const held = await lease.hold();
      if (held === undefined) return;
      const obstacle = isChecked ? undefined : await reader.obstacle();
      if (obstacle !== undefined) return pause(obstacle);
      isChecked = true;
      const tip = await reader.tip();
      const row = await chains.findChain(db.read, chain);
      const before = row === undefined ? undefined : cursorsOf(row);
      if (before === undefined) {
        await begin(held, tip.final, watched, deps);
        return 'again';
      }
      if (tip.final.number >= before.final.number) {
        const final = await reader.block(before.final.number);
        if (final?.hash !== before.final.hash)
          return pause(`block ${before.final.number} was final and has changed: see the manual about rewind`);
      }
      const reading =
        'accounts' in reader
          ? await readAccounts(before, tip.final, { ...watched, reader }, deps)
          : await readBlocks(before, tip, { ...watched, reader }, deps);
      const isFurther = reading.final.number > before.final.number || reading.accounts !== null;
      const isNew = isFurther || reading.head.number !== before.head.number;
      if (isNew || reading.branch !== null || row?.paused_reason !== null) await store(held, reading, watched, deps);
      return reading.final.number < tip.final.number ? 'again' : undefined;
    },
  };
}

/** A watcher renews its lease at each tick. If it has not renewed for this long, it counts as dead. A tick takes much less time. */
const WATCH_LEASE_MS = 120_000;

/**
 * One process watches a chain at a time. A process that was paused notices in its next transaction that another one has taken over.
 */
interface WatchLease {
  /** Renews the lease, or takes it if it is free or its holder is gone; undefined while another process has it. */
  hold(): Promise<Held | undefined>;
  release(): Promise<void>;
}

export function openWatchLease(name: string, { db, clock, ids }: { db: Db; clock: Clock; ids: Ids }): WatchLease {
  const holder = ids.uuid();
  let held: Held | undefined;
  let seen: SeenLease | undefined;
  let sinceMs = clock.monotonicMs();
  return {
    hold: async () => {
      if (held !== undefined && (await renewLease(db, held))) return held;
      held = undefined;
      const now = await seeLease(db, name);
      if (now?.epoch !== seen?.epoch || now?.beat !== seen?.beat) sinceMs = clock.monotonicMs();
      seen = now;
      const mayTake = isFree(seen) || clock.monotonicMs() - sinceMs >= WATCH_LEASE_MS;
      if (mayTake) held = await takeLease(db, { name, holder }, seen);
      return held;
    },
    release: async () => {
      if (held !== undefined) await releaseLease(db, held);
      held = undefined;
    },
  };
}

function cursorsOf(row: chains.ChainRow): Cursors | undefined {
  const { head_number: head, head_ms: headMs, final_number: final, final_hash: hash, final_ms: finalMs } = row;
  if (head === null || headMs === null || final === null || hash === null || finalMs === null) return undefined;
  const { pass_number: number, pass_ms: ms, pass_after: after } = row;
  const pass = number === null || ms === null || after === null ? null : { number, ms, after };
  return { head: { number: head, ms: headMs }, final: { number: final, hash, ms: finalMs }, pass };
}

/** Begins at the present final block. Every deposit of the chain is made after it, so no earlier block can have a transfer for us. */
async function begin(held: Held, final: Block, { chain }: Watched, { db, clock }: WatchDeps): Promise<void> {
  await db.tx('deposits.begin', async (tx) => {
    await tx.lock('deposit_chain', chain);
    if (!(await isHeld(tx, held))) return;
    await chains.addChain(tx, chain, clock.now());
    const row = await chains.findChain(tx, chain);
    if (row === undefined || cursorsOf(row) !== undefined) return;
    await chains.setRead(tx, chain, { head: final, final }, clock.now());
  });
}

/** Goes on with the pass of the last tick, or begins one up to the tip. */
async function readAccounts(
  before: Cursors,
  tip: Block,
  { chain, reader }: Watched<AccountReader>,
  { db, clock }: WatchDeps,
): Promise<Reading> {
  const startedMs = clock.monotonicMs();
  const isLate = (): boolean => clock.monotonicMs() - startedMs >= READ_MS_MAX;
  const { final } = before;
  const stay = { before, final, head: { ...before.head, hash: null }, branch: null, headFound: [] };
  if (before.pass === null && tip.number <= final.number)
    return { ...stay, finalFound: [], depositOf: new Map(), accounts: null };
  const begun = before.pass ?? { number: tip.number, ms: tip.ms, after: '' };
  const asked = { chain, reader, final, pass: begun, isLate };
  const { transfers, depositOf, pass, ...marks } = await readPass(asked, { db });
  const read = { ...stay, finalFound: transfers, depositOf, accounts: { ...marks, pass } };
  if (pass !== null) return read;
  const { number, ms } = begun;
  const hash = (await reader.block(number))?.hash;
  if (hash === undefined) throw new Error(`the node lost block ${number}`);
  return { ...read, final: { number, hash, ms }, head: { number, ms, hash: null } };
}

async function readBlocks(
  before: Cursors,
  tip: { head: Block; final: Block },
  { chain, reader, blocksPerQuery }: Watched<BlockReader>,
  { db, clock }: WatchDeps,
): Promise<Reading> {
  const watched = await watchedDeposits(db.read, CHAINS[chain].family, before.final.ms);
  const depositOf = new Map(watched.map(({ id, address }) => [address, id]));
  const addresses = [...depositOf.keys()];
  const blocksMax = blocksPerQuery * RANGES_PER_TICK;
  const startedMs = clock.monotonicMs();
  const isLate = (): boolean => clock.monotonicMs() - startedMs >= READ_MS_MAX;
  /** Reads range by range, at least one. Ends before `upTo` if the time is over. */
  const found = async (above: number, upTo: number): Promise<{ transfers: FoundTransfer[]; upTo: number }> => {
    const parts: FoundTransfer[][] = [];
    let readTo = above;
    while (readTo < upTo && (readTo === above || !isLate())) {
      const to = Math.min(upTo, readTo + blocksPerQuery);
      const part = await reader.transfers({ from: readTo + 1, to }, addresses);
      parts.push(part.transfers);
      ({ readTo } = part);
    }
    return { transfers: parts.flat(), upTo: readTo };
  };
  const blockAt = async (number: number, end: Block): Promise<Block> =>
    number === end.number
      ? end
      : ((await reader.block(number)) ?? Promise.reject(new Error(`the node lost block ${number}`)));
  const farthest = (above: number, end: Block): number => Math.min(end.number, above + blocksMax);

  const isAhead = tip.final.number > before.final.number;
  const finalEnd = isAhead ? farthest(before.final.number, tip.final) : before.final.number;
  const { transfers: finalFound, upTo: finalNumber } = await found(before.final.number, finalEnd);
  const final = isAhead ? await blockAt(finalNumber, tip.final) : before.final;
  const reading = { before, final, finalFound, depositOf, accounts: null };
  const stay = { ...reading, head: { ...before.head, hash: null }, branch: null, headFound: [] };
  // While final blocks are left to read, nothing above the final block is read: those blocks will be final when their turn comes.
  if (final.number < tip.final.number) return stay;
  const marks = [...(await chains.checkpoints(db.read, chain)), before.final];
  const base = await newestThatHolds(marks, reader);
  // The node is behind what it, or another node, has shown before. That is no reorganisation.
  if (base === undefined || tip.head.number < base.number) return stay;
  const above = Math.max(base.number, final.number);
  const headEnd = await blockAt(farthest(above, tip.head), tip.head);
  const branch = base === marks[0] ? null : base.number;
  const { transfers: headFound, upTo: headNumber } = await found(above, headEnd.number);
  const head = headNumber < headEnd.number ? await blockAt(headNumber, headEnd) : headEnd;
  return { ...reading, head, branch, headFound };
}

/** The newest of these checkpoints that is still in the chain. Undefined if the node does not have one of these blocks yet. */
async function newestThatHolds(
  marks: readonly chains.Checkpoint[],
  reader: BlockReader,
): Promise<chains.Checkpoint | undefined> {
  for (const mark of marks) {
    const block = await reader.block(mark.number);
    if (block === undefined) return undefined;
    if (block.hash === mark.hash) return mark;
  }
  return marks.at(-1);
}

async function store(
  held: Held,
  reading: Reading,
  { chain }: Watched,
  { db, clock, ids, log, nudge }: WatchDeps,
): Promise<void> {
  const { before, final, branch, finalFound, headFound, accounts, depositOf } = reading;
  const isStored = await db.tx('deposits.read', async (tx) => {
    await tx.lock('deposit_chain', chain);
    if (!(await isHeld(tx, held))) return false;
    const row = await chains.findChain(tx, chain);
    // Another process has read further, or the operator has rewound the chain.
    if (row?.final_number !== before.final.number || row.final_hash !== before.final.hash) return false;
    if (row.head_number !== before.head.number || row.pass_number !== (before.pass?.number ?? null)) return false;
    const touched = new Set<string>();
    const note = async (found: readonly FoundTransfer[], isFinal: boolean): Promise<void> => {
      for (const transfer of found) {
        const depositId = depositOf.get(transfer.to);
        if (depositId === undefined) continue;
        const id = ids.prefixed('deptx');
        if (await upsertTransfer(tx, { id, depositId, chain, found: transfer, isFinal })) touched.add(depositId);
      }
    };
    if (branch !== null) for (const id of await orphan(tx, chain, { above: branch, upTo: null })) touched.add(id);
    await note(finalFound, true);
    for (const id of await orphan(tx, chain, { above: before.final.number, upTo: final.number })) touched.add(id);
    await note(headFound, false);
    await keepCursors(tx, chain, reading, clock.now());
    if (accounts !== null) await keepAccounts(tx, chain, accounts);
    await wake(tx, { chain, finalMs: final.ms, touched: [...touched] }, clock.now());
    return true;
  });
  if (isStored && accounts !== null) logFailures({ chain, log }, { ...accounts, depositOf });
  nudge();
}

async function keepAccounts(
  tx: Tx,
  chain: DepositChain,
  { marks, pass }: NonNullable<Reading['accounts']>,
): Promise<void> {
  for (const mark of marks) await setMark(tx, chain, mark);
  await chains.setPass(tx, chain, pass);
}

async function keepCursors(
  tx: Tx,
  chain: DepositChain,
  { head, final, branch }: Reading,
  nowMs: number,
): Promise<void> {
  const above = branch ?? Number.MAX_SAFE_INTEGER;
  const { hash } = head;
  const added = hash === null ? null : { number: head.number, hash };
  await chains.setRead(tx, chain, { head: head.number < final.number ? final : head, final }, nowMs);
  await chains.setCheckpoints(tx, chain, { above, finalNumber: final.number, added });
}

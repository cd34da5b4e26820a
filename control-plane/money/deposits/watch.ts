// Watches one chain. Each tick reads what is new: up to the head, so that customers see early that their tokens are on the way, and up to the final
// block, which decides. The reads happen first, then one transaction stores what they found, unless somebody else was faster.
//
// Most chains are read in ranges of blocks (block-pass.ts). A chain that is read account by account has final blocks only (account-pass.ts).
//
// The tip is read before the addresses. So whoever gets an address after that pays in a block that is not read yet.
import type { DepositChain } from '../../../shared/api/deposit.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { type Held, isHeld } from '../../base/db/lease.ts';
import { logFailures, readPass } from './account-pass.ts';
import { setMark } from './accounts-store.ts';
import { readBlocks, type ReadBlocks } from './block-pass.ts';
import * as chains from './chains-store.ts';
import type { AccountMark, AccountReader, Block, ChainReader, FoundTransfer } from './reader.ts';
import { wake } from './store.ts';
import { orphan, upsertTransfer } from './transfers-store.ts';
import type { WatchLease } from './watch-lease.ts';

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

interface Watched {
  chain: DepositChain;
  reader: ChainReader;
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
interface Reading extends ReadBlocks {
  before: Cursors;
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
      const startedMs = clock.monotonicMs();
      const isLate = (): boolean => clock.monotonicMs() - startedMs >= READ_MS_MAX;
      const reading: Reading =
        'accounts' in reader
          ? await readAccounts({ chain, reader, before, tip: tip.final, isLate }, deps)
          : { before, accounts: null, ...(await readBlocks({ ...watched, reader, before, tip, isLate }, deps)) };
      const isFurther = reading.final.number > before.final.number || reading.accounts !== null;
      const isNew = isFurther || reading.head.number !== before.head.number;
      if (isNew || reading.branch !== null || row?.paused_reason !== null) await store(held, reading, watched, deps);
      return reading.final.number < tip.final.number ? 'again' : undefined;
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

interface AccountTick {
  chain: DepositChain;
  reader: AccountReader;
  before: Cursors;
  tip: Block;
  isLate(): boolean;
}

/** Goes on with the pass of the last tick, or begins one up to the tip. */
async function readAccounts(
  { chain, reader, before, tip, isLate }: AccountTick,
  { db }: Pick<WatchDeps, 'db'>,
): Promise<Reading> {
  const { final } = before;
  const stay = { before, final, head: { ...before.head, hash: null }, branch: null, headFound: [] };
  if (before.pass === null && tip.number <= final.number)
    return { ...stay, finalFound: [], depositOf: new Map(), accounts: null };
  const begun = before.pass ?? { number: tip.number, ms: tip.ms, after: '' };
  const { transfers, depositOf, pass, ...marks } = await readPass(
    { chain, reader, final, pass: begun, isLate },
    { db },
  );
  const read = { ...stay, finalFound: transfers, depositOf, accounts: { ...marks, pass } };
  if (pass !== null) return read;
  const { number, ms } = begun;
  const hash = (await reader.block(number))?.hash;
  if (hash === undefined) throw new Error(`the node lost block ${number}`);
  return { ...read, final: { number, hash, ms }, head: { number, ms, hash: null } };
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
    const keepFound = async (found: readonly FoundTransfer[], status: 'seen' | 'final'): Promise<void> => {
      for (const transfer of found) {
        const depositId = depositOf.get(transfer.to);
        if (depositId === undefined) continue;
        const added = { id: ids.prefixed('deptx'), depositId, chain, found: transfer, isFinal: status === 'final' };
        if (await upsertTransfer(tx, added)) touched.add(depositId);
      }
    };
    if (branch !== null) for (const id of await orphan(tx, chain, { above: branch, upTo: null })) touched.add(id);
    await keepFound(finalFound, 'final');
    for (const id of await orphan(tx, chain, { above: before.final.number, upTo: final.number })) touched.add(id);
    await keepFound(headFound, 'seen');
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

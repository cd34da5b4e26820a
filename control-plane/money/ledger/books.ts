// Proves the books repeatedly: new transfers each hour, everything each night.
//
// A proof is a generator. It yields after each piece of its work, so that other writers run in between. The loop works on a proof for a minute,
// leaves it at a `yield`, and continues it in its next tick. At its end, a proof returns the faults in words.
//
// Example: at 14:00 a new transfer does not agree with its row. The hourly proof finds that, and the full proof follows at once. If the full proof
// confirms the fault, it is logged as an alarm, and the full proof runs each hour until it finds no fault.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Query } from '../../base/db/db.ts';
import {
  firstWithin,
  forgetProven,
  noteProven,
  proofState,
  type ProofState,
  subjectsAfter,
  totalsOf,
} from './proof-store.ts';
import { lastOf, type PagedProof, type RoomProof, type Rowless, type SubjectProof } from './charges.ts';
import { SETTLED_MS } from './month.ts';
import { accountFaults, advance } from './verify.ts';

const PIECE = 500;
/** A rental of a year has 26,000 transfers. A piece about several subjects reads at most this many: some 15 milliseconds. */
const TRANSFERS_PER_PIECE = 10_000;
/** A tick of the loop ends after this time and the next one continues, because a long tick counts as hanging. */
const SLICE_MS = 60_000;
const DAY_MS = 86_400_000;
/** The nightly proof begins at 02:00 UTC. */
const NIGHT_MS = 2 * 3_600_000;
/** A fault names at most this many ids, because there may be tens of thousands. */
const NAMED = 20;
/** One proof logs at most this many faults. */
const LOGGED = 200;

export interface Books {
  /** Works on the due proof for a limited time. True if more work is due now. */
  run(signal: AbortSignal): Promise<boolean>;
  /** Proves everything that is there now and returns the faults in words; empty if all agree. */
  verify(): Promise<string[]>;
}

type Proof = AsyncGenerator<void, string[]>;

/** The proofs that a room provides. */
export interface Proofs {
  /** Compares the rows of the room with the ledger, in pieces. */
  charges?: RoomProof;
  /** Reads all rows about one subject, then about the next one. */
  subjects?: SubjectProof;
  /** Proofs of tables that grow for ever, in pieces. Every proof runs them. */
  pages?: readonly PagedProof[];
  /** Short proofs, each in one transaction: broken invariants in words. */
  invariants?: readonly ((query: Query) => Promise<string[]>)[];
}

interface BooksDeps {
  db: Db;
  clock: Clock;
  log: Log;
  /** The proofs of all rooms, in the order of the house. */
  proofs(): readonly Proofs[];
}

export function openBooks(deps: BooksDeps): Books {
  const { clock } = deps;
  let current: Proof | undefined;
  const verifications = openVerifications(deps);
  return {
    run: async (signal) => {
      if (verifications.count() > 0) return false;
      const untilMs = clock.monotonicMs() + SLICE_MS;
      const proof = current ?? proveDue(deps);
      current = undefined;
      while (!signal.aborted && clock.monotonicMs() < untilMs) {
        if ((await proof.next()).done === true || verifications.count() > 0) return false;
      }
      current = proof;
      return !signal.aborted;
    },
    verify: () => {
      current = undefined;
      return verifications.verify();
    },
  };
}

/** Two proofs at once would undo each other's progress. So operators wait for each other, and the loop has nothing to do meanwhile. */
function openVerifications(deps: BooksDeps): Pick<Books, 'verify'> & { count(): number } {
  let count = 0;
  let last: Promise<unknown> = Promise.resolve();
  // A proof that is at work has read a part of the books already. All who come meanwhile wait for the same next one.
  let next: Promise<string[]> | undefined;
  const begin = (): Promise<string[]> => {
    count += 1;
    const proof = last.then(() => {
      next = undefined;
      return resultOf(proveWhole(deps));
    });
    const end = (): void => void (count -= 1);
    last = proof.then(end, end);
    return proof;
  };
  return { verify: () => (next ??= begin()), count: () => count };
}

async function resultOf(proof: Proof): Promise<string[]> {
  for (;;) {
    const step = await proof.next();
    if (step.done === true) return step.value;
  }
}

/** The proof that is due now. A fault in new transfers is reported only if the full proof confirms it. */
async function* proveDue(deps: BooksDeps): Proof {
  const { db, clock } = deps;
  if (isWholeDue(await proofState(db.read), clock.now())) return yield* proveWhole(deps);
  const faults = yield* prove(deps, false);
  if (faults.length > 0) return yield* proveWhole(deps);
  await db.tx('books.proven', (tx) => noteProven(tx, { isWhole: false, faults: 0, nowMs: clock.now() }));
  return faults;
}

/**
 * The full proof is due once a night, and again if it did not come to its end. If the last proof found faults, the full proof is due every
 * time, so that the alarm stays until it finds none.
 */
function isWholeDue(
  { faults, whole_proven_ms: provenMs, whole_begun_ms: begunMs }: ProofState,
  nowMs: number,
): boolean {
  const nightOf = (ms: number): number => Math.floor((ms - NIGHT_MS) / DAY_MS);
  return faults > 0 || provenMs === null || begunMs !== null || nightOf(nowMs) !== nightOf(provenMs);
}

/** The full proof, which logs its faults. */
async function* proveWhole(deps: BooksDeps): Proof {
  const { db, clock, log } = deps;
  await db.tx('books.again', (tx) => forgetProven(tx, clock.now()));
  const faults = yield* prove(deps, true);
  await db.tx('books.proven', (tx) => noteProven(tx, { isWhole: true, faults: faults.length, nowMs: clock.now() }));
  for (const fault of faults.slice(0, LOGGED)) log.error({ fault }, 'the books do not agree: stop payouts');
  if (faults.length > 0) log.error({ faults: faults.length }, 'this many faults were found in the books');
  return faults;
}

async function* prove({ db, clock, proofs }: BooksDeps, isWhole: boolean): Proof {
  const rooms = proofs().flatMap(({ charges }) => charges ?? []);
  const found = new Set<string>();
  const note = (faults: readonly string[]): void => faults.forEach((fault) => found.add(fault));
  const reach = { untilMs: clock.now() - SETTLED_MS, limit: PIECE };
  for (;;) {
    const subjectIds = await db.tx('books.transfers', (tx) => advance(tx, reach));
    if (subjectIds === undefined) break;
    yield;
    if (!isWhole) note(yield* proveNew(db, subjectIds.toSorted(), rooms));
  }
  if (isWhole) {
    note(yield* proveRooms(db, rooms));
    for (const { subjects } of proofs()) if (subjects !== undefined) note(yield* proveSubjects(db, subjects));
  }
  for (const page of [accountFaults, ...proofs().flatMap(({ pages = [] }) => pages)]) note(yield* provePages(db, page));
  for (const invariant of proofs().flatMap(({ invariants = [] }) => invariants)) {
    note(await db.snapshot('books.invariant', invariant));
    yield;
  }
  return [...found];
}

/**
 * The faults of the subjects of new transfers. Retention never deletes rows that are this new, so a charge without a row is a fault. After a
 * crash, the nightly proof reads the subjects that were left out.
 */
async function* proveNew(db: Db, subjectIds: readonly string[], rooms: readonly RoomProof[]): Proof {
  const faults: string[] = [];
  for (let left = subjectIds; left.length > 0;) {
    const ids = left;
    const piece = await db.snapshot('books.new', async (query) => {
      const within = await firstWithin(query, ids, TRANSFERS_PER_PIECE);
      return { count: within.length, faults: await faultsOf(query, within, rooms) };
    });
    faults.push(...piece.faults);
    left = left.slice(piece.count);
    yield;
  }
  return faults;
}

async function faultsOf(query: Query, subjectIds: readonly string[], rooms: readonly RoomProof[]): Promise<string[]> {
  const posted = await totalsOf(query, subjectIds);
  const faults: string[] = [];
  for (const room of rooms) {
    const proof = await room.prove(query, posted);
    faults.push(
      ...proof.faults,
      ...proof.rowless.ids.map((id) => `${id}: the ledger has charged for it, it has no row`),
    );
  }
  return faults;
}

async function* proveSubjects(db: Db, { subjectsAfter: after, prove: proveOne }: SubjectProof): Proof {
  const faults: string[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const ids: string[] = await after(db.read, afterId, PIECE);
    for (const id of ids) {
      faults.push(...(await db.snapshot('books.subject', (query) => proveOne(query, id))));
      yield;
    }
    afterId = ids.at(-1);
  }
  return faults;
}

async function* provePages(db: Db, prove: PagedProof): Proof {
  const faults: string[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const from: string = afterId;
    const page = await db.snapshot('books.page', (query) => prove(query, from, PIECE));
    faults.push(...page.faults);
    afterId = page.lastId;
    yield;
  }
  return faults;
}

async function* proveRooms(db: Db, rooms: readonly RoomProof[]): Proof {
  const faults: string[] = [];
  for (const room of rooms) {
    const forgottenBefore = await room.forgottenUcents?.(db.read);
    const rowless: Rowless = { ucents: 0n, ids: [] };
    // Both sides are read: a row whose charge is missing in the ledger can only be found from the rows.
    for (const side of [subjectsAfter, room.subjectsAfter]) {
      faults.push(...(yield* proveSide(db, room, side, rowless)));
    }
    // If retention has deleted rows in the meantime, the sums cannot be compared. The next proof compares them.
    const hasForgottenMore = (await room.forgottenUcents?.(db.read)) !== forgottenBefore;
    const forgottenUcents = forgottenBefore ?? 0n;
    if (!hasForgottenMore && rowless.ucents !== forgottenUcents) {
      faults.push(
        `the ledger has charged ${rowless.ucents} for what has no row, ${forgottenUcents} of it was forgotten; among them ${rowless.ids.join(', ')}`,
      );
    }
  }
  return faults;
}

/** The faults of the subjects that `side` lists. Adds to `rowless` what the ledger has charged for subjects without a row. */
async function* proveSide(db: Db, room: RoomProof, side: RoomProof['subjectsAfter'], rowless: Rowless): Proof {
  const faults: string[] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const from: string = afterId;
    const piece = await db.snapshot('books.room', async (query) => {
      const ids = await side(query, from, PIECE);
      const within = await firstWithin(query, ids, TRANSFERS_PER_PIECE);
      return {
        lastId: within.length < ids.length ? within.at(-1) : lastOf(ids, PIECE),
        proof: await room.prove(query, await totalsOf(query, within)),
      };
    });
    faults.push(...piece.proof.faults);
    rowless.ucents += piece.proof.rowless.ucents;
    rowless.ids.push(...piece.proof.rowless.ids.slice(0, NAMED - rowless.ids.length));
    afterId = piece.lastId;
    yield;
  }
  return faults;
}

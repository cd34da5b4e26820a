// Earnings of a supplier: its account's entries in whole cents from new to old, those of one machine, and the sums of its machines.
import type { Clock } from '../../../shared/clock.ts';
import { centsFloor } from '../../../shared/money.ts';
import {
  earnedBySubject,
  earnedBySubjects,
  earnedByTheseSubjects,
  earnedEntries,
  type EntryCursor,
  type SupplierEntry,
} from '../ledger/suppliers.ts';
import type { Db, Query } from '../../base/db/db.ts';

/** The totals with which a walk through the entries, from new to old, goes on. */
export interface Level {
  /** The sum of all earnings up to the next entry of the walk, including it. */
  totalUcents: bigint;
  /** The lowest sum at any entry that is newer than the next one. */
  leastUcents: bigint;
}

export interface Earning {
  entry: SupplierEntry;
  amountCents: bigint;
  isPaid: boolean;
  /** The totals with which the walk goes on after this entry. */
  next: Level;
}

/**
 * Computes the cents of each entry, and whether it is paid. Cents are differences of the rounded total, so they add up across pages.
 * Payouts cover the oldest entries first, and a claw-back covers itself. So an entry counts as paid if the total at this entry, or at a
 * newer one, was at most the amount that was paid out.
 */
export function earningsFrom(level: Level, entries: readonly SupplierEntry[], paidUcents: bigint): Earning[] {
  const earnings: Earning[] = [];
  let { totalUcents, leastUcents } = level;
  for (const entry of entries) {
    if (totalUcents < leastUcents) leastUcents = totalUcents;
    const beforeUcents = totalUcents - entry.amount_ucents;
    const amountCents = centsFloor(totalUcents) - centsFloor(beforeUcents);
    const isPaid = centsFloor(leastUcents) <= centsFloor(paidUcents);
    totalUcents = beforeUcents;
    earnings.push({ entry, amountCents, isPaid, next: { totalUcents, leastUcents } });
  }
  return earnings;
}

/**
 * The entries of one machine are searched among all entries of its supplier: PIECE_ENTRIES in one query, and at most SCANNED_ENTRIES_MAX
 * for one page.
 */
const PIECE_ENTRIES = 1_000;
const SCANNED_ENTRIES_MAX = 5_000;

/** A machine, and the functions with which a room above tells what ran on it. */
export interface OfMachine {
  machineId: string;
  machinesOf: MachinesOf;
  /** Ids of everything that ran on these machines. */
  subjectsOf(query: Query, machineIds: readonly string[]): Promise<string[]>;
}

/** A walk through the entries of a supplier, from new to old, and the place that it has reached. */
export interface Walk extends Level {
  /** The entry after which the walk goes on; undefined at the start. */
  after: EntryCursor | undefined;
}

export interface WalkedEarnings {
  earnings: Earning[];
  /** The place at which the next page begins, if this page reached its limit of searched entries; undefined otherwise. */
  cutAt: Walk | undefined;
}

/**
 * At most `limit` entries of one machine. All entries of the supplier are read for it, because whether an entry is paid depends on all
 * newer ones.
 */
export async function earningsOfMachine(
  query: Query,
  { machineId, machinesOf }: Pick<OfMachine, 'machineId' | 'machinesOf'>,
  { supplierId, paidUcents, start }: { supplierId: string; paidUcents: bigint; start: Walk },
  limit: number,
): Promise<WalkedEarnings> {
  const found: Earning[] = [];
  let at = start;
  for (let scanned = 0; scanned < SCANNED_ENTRIES_MAX; scanned += PIECE_ENTRIES) {
    const entries = await earnedEntries(query, supplierId, at.after, PIECE_ENTRIES);
    const machines = await machinesOf(query, [...new Set(entries.map((entry) => entry.subject_id))]);
    for (const earning of earningsFrom(at, entries, paidUcents)) {
      const { entry, next } = earning;
      if (machines.get(entry.subject_id) === machineId) found.push(earning);
      if (found.length === limit) return { earnings: found, cutAt: undefined };
      at = { ...next, after: { postedMs: entry.posted_ms, id: entry.id } };
    }
    if (entries.length < PIECE_ENTRIES) return { earnings: found, cutAt: undefined };
  }
  return { earnings: found, cutAt: at };
}

/** Number of subjects in one query. */
const SUBJECTS = 1_000;

/** What a machine earned over its whole life. Other work of the process goes on in between. */
export async function earnedOnMachine(
  supplierId: string,
  { machineId, machinesOf, subjectsOf }: OfMachine,
  { db, clock }: { db: Pick<Db, 'read'>; clock: Pick<Clock, 'nextTurn'> },
): Promise<bigint> {
  const query = db.read;
  const subjectIds = await subjectsOf(query, [machineId]);
  let sum = 0n;
  for (let from = 0; from < subjectIds.length; from += SUBJECTS) {
    const ids = subjectIds.slice(from, from + SUBJECTS);
    // A job that moved to another machine is counted for that machine, as in the list of entries.
    const machines = await machinesOf(query, ids);
    sum += await earnedBySubjects(
      query,
      supplierId,
      ids.filter((id) => machines.get(id) === machineId),
    );
    await clock.nextTurn();
  }
  return sum;
}

/** The machine of each instance. A room above provides this function. */
export type MachinesOf = (query: Query, instanceIds: readonly string[]) => Promise<Map<string, string>>;

/** Limit of rentals and jobs that are looked up for one page. If its machines have had more, all entries of the supplier in that time are read. */
const SUBJECTS_MAX = 10_000;
/** Machines whose rentals are asked for together. */
const MACHINES = 20;

/** What these machines of a supplier earned since a time. It reads along what ran on them, so a page costs the same for a large supplier. */
export async function earnedByMachine(
  query: Query,
  { supplierId, machineIds, sinceMs }: { supplierId: string; machineIds: readonly string[]; sinceMs: number },
  { machinesOf, subjectsOf }: Pick<OfMachine, 'machinesOf' | 'subjectsOf'>,
): Promise<Map<string, bigint>> {
  const subjectIds = await subjectsOfMachines(query, machineIds, subjectsOf);
  const earned =
    subjectIds === undefined
      ? await earnedBySubject(query, supplierId, sinceMs)
      : await earnedInPieces(query, supplierId, { subjectIds, sinceMs });
  const machines = await machinesOf(
    query,
    earned.map(({ subject_id: instanceId }) => instanceId),
  );
  const sums = new Map<string, bigint>();
  for (const { subject_id: instanceId, amount_ucents: ucents } of earned) {
    const machineId = machines.get(instanceId);
    if (machineId !== undefined) sums.set(machineId, (sums.get(machineId) ?? 0n) + ucents);
  }
  return sums;
}

async function earnedInPieces(
  query: Query,
  supplierId: string,
  { subjectIds, sinceMs }: { subjectIds: readonly string[]; sinceMs: number },
): ReturnType<typeof earnedBySubject> {
  const pieces: Awaited<ReturnType<typeof earnedBySubject>>[] = [];
  for (let from = 0; from < subjectIds.length; from += SUBJECTS) {
    const piece = subjectIds.slice(from, from + SUBJECTS);
    pieces.push(await earnedByTheseSubjects(query, supplierId, { subjectIds: piece, sinceMs }));
  }
  return pieces.flat();
}

/** Ids of everything that ran on the machines, each once. Undefined if these are more than SUBJECTS_MAX. */
async function subjectsOfMachines(
  query: Query,
  machineIds: readonly string[],
  subjectsOf: OfMachine['subjectsOf'],
): Promise<string[] | undefined> {
  const found = new Set<string>();
  for (let from = 0; from < machineIds.length; from += MACHINES) {
    const piece = machineIds.slice(from, from + MACHINES);
    for (const id of await subjectsOf(query, piece)) found.add(id);
    if (found.size > SUBJECTS_MAX) return undefined;
  }
  return [...found];
}

// The lease decides which process may write. It changes hands because of what a candidate observes, never because of a wall clock.
//
// A holder adds one to `beat` every few seconds. A candidate watches that number with its own monotonic clock. If the number has not
// changed for LEASE_MS, the candidate takes the lease with a compare-and-set. Two rules keep two processes from writing:
// - Each transaction of a holder first checks that it still holds the lease (`fence`). So a process that was paused writes nothing when it
// resumes.
// - A holder that could not renew for RENEWED_MS_MAX ends itself. That is sooner than another process may take over.
// Example: A writes beat 41, then 42, and hangs. B sees 42 at 10:00:00 on its own clock and still 42 at 10:00:15. B takes the lease with
// epoch 8. A resumes at 10:00:40: its next transaction is refused, because the epoch is not 7 any more.
import { z } from 'zod';
import { int, text } from './columns.ts';
import { type Db, type Query, sql } from './db.ts';

/** A candidate takes the lease after `beat` has not changed for this long. */
export const LEASE_MS = 15_000;
export const RENEW_MS = 3_000;
/** A holder that could not renew for this long ends itself. */
export const RENEWED_MS_MAX = 10_000;

/**
 * Created before the lease is requested, and before anything else changes. `epoch` is part of a unique key on purpose: on PostgreSQL a
 * takeover, which changes it, waits for the transactions that hold `for key share` of the row, and a renewal does not. Without that, a busy
 * process could not renew its own lease.
 */
export const LEASES_TABLE =
  'create table if not exists leases (name TEXT not null primary key, holder TEXT not null, epoch INTEGER not null, beat INTEGER not null, unique (name, epoch)) STRICT';

/** A lease that a process holds. */
export interface Held {
  name: string;
  /** Unique to this process start. */
  holder: string;
  /** Grows each time the lease changes hands. */
  epoch: number;
}

const LeaseRow = z.object({ holder: text, epoch: int, beat: int });
export type SeenLease = z.infer<typeof LeaseRow>;

/** The `holder` of a lease that nobody holds. */
const FREE = '';

export function isFree(seen: SeenLease | undefined): boolean {
  return seen === undefined || seen.holder === FREE;
}

export function seeLease(db: Pick<Db, 'read'>, name: string): Promise<SeenLease | undefined> {
  return db.read.one(LeaseRow, sql`select holder, epoch, beat from leases where name = ${name}`);
}

/** Takes the lease if it is unchanged since it was read; undefined if it has changed. */
export async function takeLease(
  db: Db,
  { name, holder }: Pick<Held, 'name' | 'holder'>,
  seen: SeenLease | undefined,
): Promise<Held | undefined> {
  const { holder: before, epoch, beat } = seen ?? { holder: FREE, epoch: 0, beat: 0 };
  const row = await db.tx('lease.take', (tx) =>
    tx.one(
      LeaseRow,
      sql`insert into leases (name, holder, epoch, beat) values (${name}, ${holder}, 1, 0)
          on conflict (name) do update set epoch = leases.epoch + 1, holder = excluded.holder, beat = 0
          where leases.holder = ${before} and leases.epoch = ${epoch} and leases.beat = ${beat}
          returning holder, epoch, beat`,
    ),
  );
  return row === undefined ? undefined : { name, holder, epoch: row.epoch };
}

/** Proves that the holder is alive; false if it no longer holds the lease. */
export async function renewLease(db: Pick<Db, 'tx'>, { name, holder, epoch }: Held): Promise<boolean> {
  const changed = await db.tx('lease.renew', (tx) =>
    tx.run(sql`update leases set beat = beat + 1 where name = ${name} and holder = ${holder} and epoch = ${epoch}`),
  );
  return changed === 1;
}

/**
 * Whether this process still holds the lease. Called only in a transaction of the holder that has first locked a row which the transactions
 * of the next holder lock too.
 */
export async function isHeld(query: Query, { name, holder, epoch }: Held): Promise<boolean> {
  const row = await query.one(LeaseRow, sql`select holder, epoch, beat from leases where name = ${name}`);
  return row?.holder === holder && row.epoch === epoch;
}

/** Frees the lease, so that the next process can start at once. */
export async function releaseLease(db: Db, { name, holder, epoch }: Held): Promise<void> {
  await db.tx('lease.release', (tx) =>
    tx.run(sql`update leases set holder = ${FREE} where name = ${name} and holder = ${holder} and epoch = ${epoch}`),
  );
}

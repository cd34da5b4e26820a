// The lease: which process may write. It changes hands by what is seen to change, never by what somebody's clock says.
//
// A holder adds one to `beat` every few seconds. Whoever wants the lease watches that number with his own monotonic clock, and takes the
// lease once it has stood still for long enough, if nothing has changed by then (compare-and-set). Two rules keep two from writing:
// - Each transaction of a holder asks first whether it still is the holder (`fence`). A process that was paused writes nothing when it wakes.
// - A holder that has not renewed for RENEWED_MS_MAX ends itself, which is sooner than another one may take over.
// Example: A beats 41, 42, and hangs. B sees 42 at its own 10:00:00 and still 42 at 10:00:15: it takes the lease with epoch 8. A wakes at
// 10:00:40: its next transaction is refused, because the epoch is not 7 any more.
import { z } from 'zod';
import { int, text } from './columns.ts';
import { type Db, sql } from './db.ts';

/** What a candidate must see standing still for so long. */
export const LEASE_MS = 15_000;
export const RENEW_MS = 3_000;
/** A holder that could not renew for so long ends itself. */
export const RENEWED_MS_MAX = 10_000;

/** Made before the lease is asked for, and before anything else is changed. */
export const LEASES_TABLE =
  'create table if not exists leases (name TEXT not null primary key, holder TEXT not null, epoch INTEGER not null, beat INTEGER not null) STRICT';

/** A lease as somebody holds it. */
export interface Held {
  name: string;
  /** Unique to this process start. */
  holder: string;
  /** Grows at every change of hands. */
  epoch: number;
}

const LeaseRow = z.object({ holder: text, epoch: int, beat: int });
export type SeenLease = z.infer<typeof LeaseRow>;

/** Nobody has it. */
const FREE = '';

export function isFree(seen: SeenLease | undefined): boolean {
  return seen === undefined || seen.holder === FREE;
}

export function seeLease(db: Db, name: string): Promise<SeenLease | undefined> {
  return db.read.one(LeaseRow, sql`select holder, epoch, beat from leases where name = ${name}`);
}

/** Takes the lease if it is still as it was seen; undefined if something has changed. */
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

/** Shows that the holder lives; false if it is the holder no more. */
export async function renewLease(db: Db, { name, holder, epoch }: Held): Promise<boolean> {
  const changed = await db.tx('lease.renew', (tx) =>
    tx.run(sql`update leases set beat = beat + 1 where name = ${name} and holder = ${holder} and epoch = ${epoch}`),
  );
  return changed === 1;
}

/** Lets the next process start at once. */
export async function releaseLease(db: Db, { name, holder, epoch }: Held): Promise<void> {
  await db.tx('lease.release', (tx) =>
    tx.run(sql`update leases set holder = ${FREE} where name = ${name} and holder = ${holder} and epoch = ${epoch}`),
  );
}

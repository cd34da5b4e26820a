// The control planes that serve on one PostgreSQL database. One of them is the primary: it holds the lease `primary`, runs all loops and has the
// links of all hosts. The others are secondaries, which serve beside it.
//
// A secondary holds a lease of its own, `member/<id>`, and each of its transactions checks it (see lease.ts). If it is not renewed any more, the
// primary deletes it: from then on the secondary writes nothing, and what it had begun can be ended by others. So what lives in one process, such
// as a request to a model, names the member in its row.
//
// Example: secondary B answers a chat, whose receipt names B, and hangs. 15 seconds later the primary deletes `member/B`. Its next sweep finds an
// open receipt of a member that is not there, and closes it free of charge. B resumes: its transaction is refused, and it ends itself.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { int, text } from './columns.ts';
import { type Db, DbError, sql } from './db.ts';
import { type Held, LEASE_MS, takeLease } from './lease.ts';

/** The control planes of a database, as one of them sees them. */
export interface Members {
  /** The id of this process. It is new at each start. */
  id: string;
  /** The ids of the secondaries that may write now, without this process. */
  others(): Promise<ReadonlySet<string>>;
}

const PREFIX = 'member/';
const SECONDARIES = sql`name like ${`${PREFIX}%`}`;

const HolderRow = z.object({ holder: text });
const SecondaryRow = z.object({ name: text, holder: text, epoch: int, beat: int });
type SecondaryRow = z.infer<typeof SecondaryRow>;
const UrlRow = z.object({ url: text });

export function membersOf(db: Pick<Db, 'read'>, id: string): Members {
  return {
    id,
    others: async () => {
      const rows = await db.read.all(
        HolderRow,
        sql`select holder from leases where ${SECONDARIES} and holder <> ${id}`,
      );
      return new Set(rows.map(({ holder }) => holder));
    },
  };
}

/**
 * Takes the lease of a secondary for the control plane with this id. The caller must fence its transactions by it, and renew it.
 * @throws DbError `database_in_use` if another process has taken the lease of this id
 */
export async function joinMembers(db: Db, id: string): Promise<Held> {
  const held = await takeLease(db, { name: `${PREFIX}${id}`, holder: id }, undefined);
  if (held === undefined) throw new DbError('database_in_use', `another control plane is the member ${id}`);
  return held;
}

/** Says where other control planes reach this one, and forgets where those were that have ended. */
export async function announce(db: Db, { id, url }: { id: string; url: string }): Promise<void> {
  await db.tx('members.announce', (tx) =>
    tx.run(
      sql`insert into control_planes (id, url) values (${id}, ${url}) on conflict (id) do update set url = excluded.url`,
    ),
  );
  await db.tx('members.forget', (tx) =>
    tx.run(sql`delete from control_planes where id <> ${id} and id not in (select holder from leases)`),
  );
}

/** The address at which the control plane is reached; undefined if it has not said so. */
export async function addressOf(db: Pick<Db, 'read'>, id: string): Promise<string | undefined> {
  return (await db.read.one(UrlRow, sql`select url from control_planes where id = ${id}`))?.url;
}

/** The name of a control plane in log lines and messages: its address, or its id, which its own log names. */
export async function nameOf(db: Pick<Db, 'read'>, id: string): Promise<string> {
  // A database of an older version has no addresses.
  const url = await addressOf(db, id).catch(() => undefined);
  return url ?? `member ${id}`;
}

/** Deletes the lease of the secondary with this id. Transactions that are fenced by it are refused from then on. */
export async function leaveMembers(db: Db, id: string): Promise<void> {
  await db.tx('members.leave', (tx) => tx.run(sql`delete from leases where name = ${`${PREFIX}${id}`}`));
}

/** Ends all secondaries. A new primary calls it before it changes the schema, because they know only the schema before. */
export async function endSecondaries(db: Db): Promise<void> {
  await db.tx('members.end_all', (tx) => tx.run(sql`delete from leases where ${SECONDARIES}`));
}

/** The secondaries, as the primary with this id sees them. */
export interface Secondaries {
  count(): Promise<number>;
  /** Ends those whose leases have not changed for LEASE_MS on our clock. Returns how many there were. */
  endDead(): Promise<number>;
}

export function openSecondaries(id: string, { db, clock, log }: { db: Db; clock: Clock; log: Log }): Secondaries {
  /** What was seen of each lease last, and since when it is the same. */
  const seen = new Map<string, { beat: number; sinceMs: number }>();
  /** Notes what is seen now. True if it is the same for too long. */
  const isDead = ({ name, beat }: SecondaryRow): boolean => {
    const nowMs = clock.monotonicMs();
    const before = seen.get(name);
    if (before?.beat === beat) return nowMs - before.sinceMs >= LEASE_MS;
    seen.set(name, { beat, sinceMs: nowMs });
    return false;
  };
  return {
    count: async () => (await membersOf(db, id).others()).size,
    endDead: async () => {
      const rows = await db.read.all(
        SecondaryRow,
        sql`select name, holder, epoch, beat from leases where ${SECONDARIES} and holder <> ${id}`,
      );
      const names = new Set(rows.map(({ name }) => name));
      for (const name of seen.keys()) if (!names.has(name)) seen.delete(name);
      let ended = 0;
      for (const row of rows) {
        if (!isDead(row) || !(await endSecondary(db, row))) continue;
        ended += 1;
        log.warn(
          { member: row.holder },
          `a control plane beside this one has not renewed its lease for ${LEASE_MS / 1000} s: it may write nothing any more until it is started again`,
        );
      }
      return ended;
    },
  };
}

/** Deletes the lease of a secondary. False: the secondary has renewed it meanwhile. */
async function endSecondary(db: Db, { name, epoch, beat }: SecondaryRow): Promise<boolean> {
  const ended = await db.tx('members.end', (tx) =>
    tx.run(sql`delete from leases where name = ${name} and epoch = ${epoch} and beat = ${beat}`),
  );
  return ended === 1;
}

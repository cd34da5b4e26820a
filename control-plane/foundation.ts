// The base of the control plane: the order of the rooms, the lease that allows only one control plane on a database, and the newest schema.
import { existsSync } from 'node:fs';
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Ids } from '../shared/ids.ts';
import type { Log } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import { refuseHalfRestored } from './base/db/backup.ts';
import { type Db, DbError } from './base/db/db.ts';
import type { OnCommit } from './base/db/group-commit.ts';
import {
  type Held,
  isFree,
  LEASE_MS,
  releaseLease,
  RENEW_MS,
  RENEWED_MS_MAX,
  renewLease,
  seeLease,
  takeLease,
} from './base/db/lease.ts';
import { migrate, prepareDatabase, type RoomMigrations } from './base/db/migrate.ts';
import { openPostgres } from './base/db/postgres.ts';
import { openSqlite } from './base/db/sqlite.ts';
import type { Config } from './config.ts';

/** The rooms in order: a room imports only rooms before it. A new room is its folder and one line here. */
export const ROOMS = [
  'base/db',
  'base/http',
  'base/blobs',
  'base/outbound',
  'base/systemd',
  'base/mail',
  'base/events',
  'base/accounts',
  'base/users',
  'base/operations',
  'money/ledger',
  'money/credits',
  'money/metering',
  'money/payouts',
  'money/corrections',
  'money/deposits',
  'money/bill',
  'fleet/supply',
  'fleet/link',
  'fleet/placement',
  'fleet/workloads',
  'fleet/metrics',
  'rental/launch',
  'rental/endpoints',
  'rental/reservations',
  'rental/instances',
  'rental/edge',
  'rental/outages',
  'rental/journal',
  'rental/webhooks',
  'models/catalog',
  'models/replicas',
  'models/gateway',
  'models/videos',
  'models/files',
  'models/finetuning',
  'admin',
  'docs',
  'console',
] as const;

/** The migrations of each room that has some. */
export const SCHEMA: RoomMigrations[] = ROOMS.map((room) => ({
  room,
  directory: new URL(`./${room}/migrations/`, import.meta.url),
})).filter(({ directory }) => existsSync(directory));

const LEASE = 'primary';
/** Time between two reads of a lease that another process holds. */
const POLL_MS = 500;

export interface Foundation {
  db: Db;
  /** Number of the start: each start on the database has a higher one. */
  epoch: number;
  /** `fn` is called once this process must not write any more and should end; at once if that is so already. */
  onLost(fn: () => void): void;
  close(): Promise<void>;
}

interface Deps {
  clock: Clock;
  ids: Ids;
  rng: Rng;
  log: Log;
  onCommit?: OnCommit;
  /** SQLite calls it if the disk is full; true if it freed space. */
  makeRoom?: (() => boolean) | undefined;
  /**
   * PostgreSQL: called once if another control plane serves. Then this one waits until it can take over, however long that is. If this is left out,
   * the wait ends with `database_in_use`.
   */
  onStandBy?: ((db: Db) => Promise<void>) | undefined;
}

/** Takes the lease before it changes the schema, so that a newer version that is started too early cannot change a database in use. */
export async function openFoundation(database: Config['database'], deps: Deps): Promise<Foundation> {
  const opened = 'sqlite' in database ? openOnSqlite(database.sqlite, deps) : openOnPostgres(database.postgres, deps);
  const { db, migrating, take, keep } = opened;
  try {
    await prepareDatabase(db);
    const held = await take();
    let isLost = false;
    let whenLost = (): void => undefined;
    const stop = keep(held, (why) => {
      deps.log.fatal({ why }, 'this control plane may not write any more, and ends');
      isLost = true;
      whenLost();
    });
    await migrate(migrating, SCHEMA, deps).catch((error: unknown) => {
      stop();
      throw error;
    });
    return {
      db,
      epoch: held.epoch,
      // A long migration may have kept the lease from being renewed before anybody could be told.
      onLost: (fn) => (isLost ? fn() : (whenLost = fn)),
      close: async () => {
        stop();
        // The next process will wait until the lease times out.
        await releaseLease(db, held).catch((error: unknown) =>
          deps.log.warn({ err: error }, 'the lease was not released'),
        );
        await db.close();
      },
    };
  } catch (error) {
    await db.close();
    const isOurs = error instanceof DbError && error.code !== 'unavailable';
    if (isOurs || 'sqlite' in database) throw error;
    const why = messageOf(error instanceof DbError ? error.cause : error);
    throw new Error(`the database that database.postgres names cannot be used: ${why}`, { cause: error });
  }
}

interface Opened {
  db: Db;
  /** The same database. Its statements may take any time. */
  migrating: Db;
  /** @throws DbError `database_in_use` if another running control plane holds the lease */
  take(): Promise<Held>;
  /** Keeps the lease until the returned function is called. */
  keep(held: Held, onLost: (why: string) => void): () => void;
}

/** The file lock proves that no other process uses the database. The lease only counts the starts. */
function openOnSqlite(path: string, deps: Deps): Opened {
  refuseHalfRestored(path);
  const db = openSqlite(path, deps);
  return {
    db,
    migrating: db,
    take: async () => {
      const held = await takeLease(db, { name: LEASE, holder: deps.ids.uuid() }, await seeLease(db, LEASE));
      if (held === undefined)
        throw new DbError('database_in_use', 'another control plane holds the lease on this database');
      return held;
    },
    keep: () => () => undefined,
  };
}

function openOnPostgres(url: string, deps: Deps): Opened {
  const db = openPostgres(url, deps);
  return {
    db,
    migrating: { ...db, ...db.patient },
    take: async () => {
      const held = await waitForLease(db, deps.ids.uuid(), deps);
      db.fence(held);
      return held;
    },
    keep: (held, onLost) => keepRenewing(db.keeper, held, deps, onLost),
  };
}

async function waitForLease(
  db: Db,
  holder: string,
  { clock, onStandBy }: Pick<Deps, 'clock' | 'onStandBy'>,
): Promise<Held> {
  let seen = await seeLease(db, LEASE);
  // Measured from the first answer: a slow server must not use up the time after which a dead holder is noticed.
  const startedMs = clock.monotonicMs();
  let sinceMs = startedMs;
  let standsBy = false;
  for (;;) {
    const now = await seeLease(db, LEASE);
    const nowMs = clock.monotonicMs();
    const isRenewed = now?.holder !== seen?.holder || now?.epoch !== seen?.epoch || now?.beat !== seen?.beat;
    if (isRenewed) sinceMs = nowMs;
    seen = now;
    const mayTake = isFree(seen) || nowMs - sinceMs >= LEASE_MS;
    const held = mayTake ? await takeLease(db, { name: LEASE, holder }, seen) : undefined;
    if (held !== undefined) return held;
    if (onStandBy === undefined && nowMs - startedMs > LEASE_MS + RENEWED_MS_MAX) {
      throw new DbError(
        'database_in_use',
        'another control plane serves on this database: stop it first, or give the command on its machine',
      );
    }
    if (isRenewed && !standsBy) {
      standsBy = true;
      await onStandBy?.(db);
    }
    await clock.sleep(POLL_MS);
  }
}

/** Calls `onLost` once, if another process has the lease or if ours was not renewed in time for any reason. */
function keepRenewing(
  keeper: Pick<Db, 'tx'>,
  held: Held,
  { clock, log }: Deps,
  onLost: (why: string) => void,
): () => void {
  let cancelNext = (): void => undefined;
  let cancelDeadline = (): void => undefined;
  let isOver = false;
  const stop = (): void => {
    isOver = true;
    cancelNext();
    cancelDeadline();
  };
  const lose = (why: string): void => {
    if (isOver) return;
    stop();
    onLost(why);
  };
  const watch = (fromMs: number): void => {
    cancelDeadline();
    const leftMs = RENEWED_MS_MAX - (clock.monotonicMs() - fromMs);
    cancelDeadline = clock.after(leftMs, () => lose(`the lease was not renewed for ${RENEWED_MS_MAX / 1000} s`));
  };
  const renew = async (): Promise<void> => {
    const startedMs = clock.monotonicMs();
    try {
      if (!(await renewLease(keeper, held))) return lose('another control plane has taken this database over');
      if (!isOver) watch(startedMs);
    } catch (error) {
      if (error instanceof DbError && error.code === 'lease_lost') return lose(error.message);
      log.error({ err: error }, 'the lease could not be renewed; it will be retried');
    }
    if (!isOver) cancelNext = clock.after(RENEW_MS, () => void renew());
  };
  watch(clock.monotonicMs());
  cancelNext = clock.after(RENEW_MS, () => void renew());
  return stop;
}

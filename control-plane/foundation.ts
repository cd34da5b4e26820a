// What everything stands on: the database at its newest schema, and the lease that makes this the only control plane on it.
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Ids } from '../shared/ids.ts';
import type { Log } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import { type Db, DbError } from './base/db/db.ts';
import type { OnCommit } from './base/db/group-commit.ts';
import { holdLease, releaseLease } from './base/db/lease.ts';
import { migrate } from './base/db/migrate.ts';
import { openPostgres } from './base/db/postgres.ts';
import { openSqlite } from './base/db/sqlite.ts';
import type { Config } from './config.ts';
import { SCHEMA } from './schema.ts';

const LEASE = 'primary';
/** A control plane that died on PostgreSQL is followed after this long; on SQLite the file lock proves its death at once. */
const LEASE_MS = 15_000;
const RENEW_MS = 5_000;

export interface Foundation {
  db: Db;
  /** Grows with every start. */
  epoch: number;
  /** Called once another process has taken over: nothing may be written any more, so the process should end. */
  onLost(fn: () => void): void;
  close(): Promise<void>;
}

interface Deps {
  clock: Clock;
  ids: Ids;
  rng: Rng;
  log: Log;
  onCommit?: OnCommit;
}

/** @throws DbError `database_in_use` where another control plane holds it */
export async function openFoundation(database: Config['database'], deps: Deps): Promise<Foundation> {
  const { clock, ids, log } = deps;
  const db = 'sqlite' in database ? openSqlite(database.sqlite, deps) : openPostgres(database.postgres, deps);
  try {
    await migrate(db, SCHEMA, deps);
    const holder = ids.uuid();
    const epoch = await takeLease(db, holder, clock);
    let whenLost = (): void => undefined;
    const stopRenewing = keepRenewing(db, holder, deps, () => {
      log.fatal('another control plane has taken this database over');
      whenLost();
    });
    return {
      db,
      epoch,
      onLost: (fn) => (whenLost = fn),
      close: async () => {
        stopRenewing();
        await releaseLease(db, LEASE, holder);
        await db.close();
      },
    };
  } catch (error) {
    await db.close();
    if (error instanceof DbError || 'sqlite' in database) throw error;
    throw new Error(`the database that database.postgres names cannot be used: ${messageOf(error)}`, { cause: error });
  }
}

async function takeLease(db: Db, holder: string, clock: Clock): Promise<number> {
  const patienceMs = LEASE_MS + RENEW_MS;
  const startedMs = clock.monotonicMs();
  for (;;) {
    const epoch = await renew(db, holder, clock, db.dialect === 'sqlite');
    if (epoch !== undefined) return epoch;
    if (clock.monotonicMs() - startedMs > patienceMs) {
      throw new DbError('database_in_use', 'another control plane holds the lease on this database');
    }
    await clock.sleep(500);
  }
}

function renew(db: Db, holder: string, clock: Clock, force: boolean): Promise<number | undefined> {
  const nowMs = clock.now();
  return holdLease(db, { name: LEASE, holder, nowMs, untilMs: nowMs + LEASE_MS, force });
}

function keepRenewing(db: Db, holder: string, { clock, log }: Deps, onLost: () => void): () => void {
  let cancel = (): void => undefined;
  let stopped = false;
  const again = (): void => {
    cancel = clock.after(RENEW_MS, () => {
      renew(db, holder, clock, false)
        .then((epoch) => (epoch === undefined ? onLost() : undefined))
        .catch((error: unknown) => log.error({ err: error }, 'the lease could not be renewed; it is tried again'))
        .finally(() => {
          if (!stopped) again();
        });
    });
  };
  again();
  return () => {
    stopped = true;
    cancel();
  };
}

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
  LEASE_MS,
  releaseLease,
  RENEWED_MS_MAX,
  seeLease,
  type SeenLease,
  takeLease,
} from './base/db/lease.ts';
import { keepRenewing, openSight, POLL_MS } from './base/db/lease-keeping.ts';
import {
  addressOf,
  announce,
  endSecondaries,
  joinMembers,
  leaveMembers,
  type Members,
  membersOf,
} from './base/db/members.ts';
import { isCurrent, migrate, prepareDatabase, type RoomMigrations } from './base/db/migrate.ts';
import { openPostgres, type PostgresDb } from './base/db/postgres.ts';
import { openSqlite } from './base/db/sqlite.ts';
import type { Primary } from './base/http/pass-on.ts';
import type { Config } from './config.ts';
import { followPrimary } from './secondary.ts';

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

export interface Foundation {
  db: Db;
  /** This process among the control planes of its database. */
  members: Members;
  /** Number of the start: each start on the database has a higher one. 0 until this process is the primary. */
  epoch(): number;
  /** Who serves what only the primary serves. */
  primary(): Primary;
  /** `fn` is called when this process takes the place of the primary. It serves everything when that has ended. */
  onPrimary(fn: () => Promise<void>): void;
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
  /** PostgreSQL: where other control planes reach this one. With it, this one need not wait: it may serve beside one that has such a URL too. */
  peerUrl?: string | undefined;
}

/** Takes the lease before it changes the schema, so that a newer version that is started too early cannot change a database in use. */
export async function openFoundation(database: Config['database'], deps: Deps): Promise<Foundation> {
  const id = deps.ids.uuid();
  const { lose, onLost } = openLoss(deps.log);
  const { db, enter } = openOn(database, { ...deps, id, lose });
  try {
    await prepareDatabase(db);
    const place = await enter();
    return {
      db,
      members: membersOf(db, id),
      epoch: place.epoch,
      primary: place.primary,
      onPrimary: place.onPrimary,
      onLost,
      close: async () => {
        // The next process will wait until the lease times out.
        await place.leave().catch((error: unknown) => deps.log.warn({ err: error }, 'the lease was not released'));
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

/** `enter` takes a place among the control planes of the database, and brings it to our schema. */
function openOn(database: Config['database'], deps: EnterDeps): { db: Db; enter(): Promise<Place> } {
  if ('postgres' in database) {
    const db = openPostgres(database.postgres, deps);
    return { db, enter: () => enter(db, deps) };
  }
  refuseHalfRestored(database.sqlite);
  const db = openSqlite(database.sqlite, deps);
  return { db, enter: () => enterAlone(db, deps) };
}

/** A long migration may keep the lease from being renewed before anybody could be told. So `onLost` also tells of what was lost before. */
function openLoss(log: Log): { lose(why: string): void; onLost: Foundation['onLost'] } {
  let isLost = false;
  let whenLost = (): void => undefined;
  return {
    lose: (why) => {
      if (isLost) return;
      log.fatal({ why }, 'this control plane may not write any more, and ends');
      isLost = true;
      whenLost();
    },
    onLost: (fn) => (isLost ? fn() : (whenLost = fn)),
  };
}

/** The place of this process among the control planes of its database. */
interface Place extends Pick<Foundation, 'primary' | 'onPrimary'> {
  epoch(): number;
  leave(): Promise<void>;
}

interface EnterDeps extends Deps {
  id: string;
  lose(why: string): void;
}

/** The file lock proves that no other process uses the database. The lease only counts the starts. */
async function enterAlone(db: Db, deps: EnterDeps): Promise<Place> {
  const held = await takeLease(db, { name: LEASE, holder: deps.id }, await seeLease(db, LEASE));
  if (held === undefined)
    throw new DbError('database_in_use', 'another control plane holds the lease on this database');
  await migrate(db, SCHEMA, deps);
  return placeOfPrimary(held, () => releaseLease(db, held));
}

function placeOfPrimary({ epoch }: Held, leave: () => Promise<void>): Place {
  return { epoch: () => epoch, primary: () => 'self', onPrimary: () => undefined, leave };
}

/** @throws DbError `database_in_use` if another running control plane holds the lease, and this one may neither stand by nor serve beside it */
async function enter(db: PostgresDb, deps: EnterDeps): Promise<Place> {
  const held = await waitForLease(db, deps);
  if (held === undefined) return serveBeside(db, deps);
  db.fence(held);
  const stop = keepRenewing(db.keeper, held, deps, deps.lose);
  try {
    if (!(await isCurrent(db, SCHEMA))) await endSecondaries(db);
    await migrate({ ...db, ...db.patient }, SCHEMA, deps);
    if (deps.peerUrl !== undefined) await announce(db, { id: deps.id, url: deps.peerUrl });
  } catch (error) {
    stop();
    throw error;
  }
  return placeOfPrimary(held, () => {
    stop();
    return releaseLease(db, held);
  });
}

/** The lease of the primary; undefined if this process may serve beside its holder. */
async function waitForLease(db: Db, { clock, id, onStandBy, peerUrl }: EnterDeps): Promise<Held | undefined> {
  const look = openSight(db, LEASE, clock);
  // Measured from the first answer: a slow server must not use up the time after which a dead holder is noticed.
  let startedMs: number | undefined;
  let standsBy = false;
  for (;;) {
    const { seen, isRenewed, mayTake } = await look();
    startedMs ??= clock.monotonicMs();
    const held = mayTake ? await takeLease(db, { name: LEASE, holder: id }, seen) : undefined;
    if (held !== undefined) return held;
    if (onStandBy === undefined && clock.monotonicMs() - startedMs > LEASE_MS + RENEWED_MS_MAX) {
      throw new DbError(
        'database_in_use',
        'another control plane serves on this database: stop it first, or give the command on its machine',
      );
    }
    if (isRenewed && !standsBy) {
      standsBy = true;
      await onStandBy?.(db);
    }
    if (standsBy && peerUrl !== undefined && (await mayServeBeside(db, seen))) return undefined;
    await clock.sleep(POLL_MS);
  }
}

/** The holder of the lease must have said where it is reached, and the schema must be ours. */
async function mayServeBeside(db: Db, seen: SeenLease | undefined): Promise<boolean> {
  if (seen === undefined || !(await isCurrent(db, SCHEMA))) return false;
  return (await addressOf(db, seen.holder)) !== undefined;
}

async function serveBeside(db: PostgresDb, deps: EnterDeps): Promise<Place> {
  const { id, peerUrl, lose } = deps;
  const membership = await joinMembers(db, id);
  db.fence(membership);
  let stop = keepRenewing(db.keeper, membership, deps, lose);
  let held: Held | undefined;
  let whenPrimary = async (): Promise<void> => undefined;
  if (peerUrl !== undefined) await announce(db, { id, url: peerUrl });
  const following = followPrimary(db, {
    ...deps,
    lease: LEASE,
    fits: () => isCurrent(db, SCHEMA),
    onLost: lose,
    onTaken: async (taken) => {
      held = taken;
      stop();
      db.fence(taken);
      stop = keepRenewing(db.keeper, taken, deps, lose);
      await whenPrimary();
    },
  });
  return {
    epoch: () => held?.epoch ?? 0,
    primary: following.primary,
    onPrimary: (fn) => void (whenPrimary = fn),
    leave: async () => {
      await following.stop();
      stop();
      if (held !== undefined) await releaseLease(db, held);
      await leaveMembers(db, id);
    },
  };
}

// The base of the control plane: the order of the rooms, the lease that makes this process the primary or a secondary, and the newest schema.
import { existsSync } from 'node:fs';
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Ids } from '../shared/ids.ts';
import type { Log } from '../shared/log.ts';
import type { Rng } from '../shared/rng.ts';
import { refuseHalfRestored } from './base/db/backup.ts';
import { type Db, DbError } from './base/db/db.ts';
import type { OnCommit } from './base/db/group-commit.ts';
import { type Held, isFree, releaseLease, seeLease, type SeenLease, takeLease } from './base/db/lease.ts';
import { type Former, keepRenewing, openSight, POLL_MS } from './base/db/lease-keeping.ts';
import {
  addressOf,
  announce,
  endSecondaries,
  joinMembers,
  leaveMembers,
  type Members,
  membersOf,
  nameOf,
} from './base/db/members.ts';
import { assertMigratable, isCurrent, migrate, prepareDatabase, type RoomMigrations } from './base/db/migrate.ts';
import { openPostgres, type PostgresDb } from './base/db/postgres.ts';
import { beginPrimacy, type Primacy } from './base/db/primacy.ts';
import { openSqlite } from './base/db/sqlite.ts';
import type { Primary } from './base/http/pass-on.ts';
import type { Config } from './config.ts';
import { type Following, followPrimary } from './secondary.ts';

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
  'rental/notices',
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
const NOT_RELEASED = 'a lease was not released: another control plane can take over only when it runs out';

export interface Foundation {
  db: Db;
  /** This process among the control planes of its database. */
  members: Members;
  /** Number of the start: each start on the database has a higher one. 0 until this process is the primary. */
  epoch(): number;
  /** Since when this process is the primary, and how it became that; undefined until it is. */
  primacy(): Primacy | undefined;
  /** Who serves what only the primary serves. */
  primary(): Primary;
  /**
   * From now on, this process looks for the primary. `fn` is called when it takes the place of the primary. It serves everything when that has
   * ended. Called once.
   */
  onPrimary(fn: () => Promise<void>): void;
  /** Resolves when this process does not take the place of the primary any more. If it is just doing so, that ends first. */
  stay(): Promise<void>;
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
   * PostgreSQL: called once if another control plane serves, with its name. Then this one waits until it can take over, however long that is. If
   * this is left out, the wait ends with `database_in_use` as soon as the other one has renewed its lease.
   */
  onStandBy?: ((db: Db, primary: string) => Promise<void>) | undefined;
  /** PostgreSQL: where other control planes reach this one. With it, this one need not wait: it may serve beside one that has such a URL too. */
  peerUrl?: string | undefined;
  /** Ends the start: what this process holds is given back, and the promise rejects with the reason. A migration in progress is not waited for. */
  stopping?: AbortSignal | undefined;
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
      primacy: place.primacy,
      primary: place.primary,
      onPrimary: place.onPrimary,
      stay: place.stay,
      onLost,
      close: async () => {
        // The next process will wait until the lease times out.
        await place.leave().catch((error: unknown) => deps.log.warn({ err: error }, NOT_RELEASED));
        await db.close();
      },
    };
  } catch (error) {
    await unlessStopped(db.close(), deps.stopping);
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
    onLost: (fn) => {
      if (isLost) fn();
      else whenLost = fn;
    },
  };
}

/** The place of this process among the control planes of its database. */
interface Place extends Pick<Foundation, 'epoch' | 'primacy' | 'primary' | 'onPrimary' | 'stay'> {
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
  await unlessStopped(migrate(db, SCHEMA, deps), deps.stopping);
  const primacy = await beginPrimacy(db, undefined, deps);
  return placeOfPrimary(held, primacy, () => releaseLease(db, held));
}

/** Waits for `what`, but no longer than until the start ends. @throws the reason of `stopping` */
async function unlessStopped<T>(what: Promise<T>, stopping: AbortSignal | undefined): Promise<T> {
  if (stopping === undefined) return what;
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const stop = (): void => reject(stopping.reason);
  stopping.addEventListener('abort', stop, { once: true });
  if (stopping.aborted) stop();
  return Promise.race([what, stopped]);
}

function placeOfPrimary({ epoch }: Held, primacy: Primacy, leave: () => Promise<void>): Place {
  const stay = async (): Promise<void> => undefined;
  return { epoch: () => epoch, primacy: () => primacy, primary: () => 'self', onPrimary: () => undefined, stay, leave };
}

/** @throws DbError `database_in_use` if another running control plane holds the lease, and this one may neither stand by nor serve beside it */
async function enter(db: PostgresDb, deps: EnterDeps): Promise<Place> {
  const { held, membership, former } = await waitForLease(db, deps);
  if (held === undefined) return serveBeside(db, membership, deps);
  db.fence(held);
  const stop = keepRenewing({ ...db, ...db.keeper }, held, deps, deps.lose);
  const { stopping } = deps;
  let primacy: Primacy;
  try {
    stopping?.throwIfAborted();
    primacy = await beginPrimacy(db, former, deps);
    if (!(await isCurrent(db, SCHEMA))) await endSecondaries(db);
    await unlessStopped(migrate({ ...db, ...db.patient }, SCHEMA, deps), stopping);
    if (deps.peerUrl !== undefined) await announce(db, { id: deps.id, url: deps.peerUrl });
  } catch (error) {
    stop();
    // Otherwise, the next process would wait until the lease times out.
    await releaseLease(db, held).catch((cause: unknown) => deps.log.warn({ err: cause }, NOT_RELEASED));
    throw error;
  }
  return placeOfPrimary(held, primacy, () => {
    stop();
    return releaseLease(db, held);
  });
}

/** The lease of the primary, taken in the place of `former`, or our own beside its holder. */
type Entry =
  | { held: Held; membership?: undefined; former: Former | undefined }
  | { held?: undefined; membership: Held; former?: undefined };

async function waitForLease(db: Db, { clock, id, onStandBy, peerUrl, stopping }: EnterDeps): Promise<Entry> {
  const look = openSight(db, LEASE, clock);
  let standsBy = false;
  for (;;) {
    const { seen, hasChanged, mayTake, former } = await look();
    // A process that is too old leaves the lease and the secondaries to those that can use the database.
    if (mayTake) await assertMigratable(db, SCHEMA);
    const held = mayTake ? await takeLease(db, { name: LEASE, holder: id }, seen) : undefined;
    if (held !== undefined) return { held, former };
    if (hasChanged && !standsBy) {
      const name = await nameOf(db, seen?.holder ?? '');
      if (onStandBy === undefined)
        throw new DbError(
          'database_in_use',
          `another control plane (${name}) serves on this database: stop it first, or give the command on its machine`,
        );
      standsBy = true;
      await onStandBy(db, name);
    }
    const membership = standsBy && peerUrl !== undefined ? await join(db, seen, { id, peerUrl }) : undefined;
    if (membership !== undefined) return { membership };
    await clock.sleep(POLL_MS, stopping);
    stopping?.throwIfAborted();
  }
}

/** Our lease beside the holder of the lease `seen`; undefined if we may not serve beside it. */
async function join(
  db: Db,
  seen: SeenLease | undefined,
  { id, peerUrl }: { id: string; peerUrl: string },
): Promise<Held | undefined> {
  if (isFree(seen) || !(await mayServeBeside(db, seen, peerUrl))) return undefined;
  const membership = await joinMembers(db, id);
  // Another one may have taken the lease of the primary meanwhile, and ended the secondaries before we were one. One that takes it later ends us
  // too. The holder has said where it is reached, so it changes the schema no more.
  const now = await seeLease(db, LEASE);
  if (now?.epoch === seen?.epoch && now?.holder === seen?.holder && (await isCurrent(db, SCHEMA))) return membership;
  await leaveMembers(db, id);
  return undefined;
}

/**
 * The holder of the lease must have said where it is reached, and the schema must be ours.
 * @throws DbError `database_in_use` if the holder is reached where we say that we are
 */
async function mayServeBeside(db: Db, seen: SeenLease | undefined, peerUrl: string): Promise<boolean> {
  if (seen === undefined || !(await isCurrent(db, SCHEMA))) return false;
  const url = await addressOf(db, seen.holder);
  if (url !== peerUrl) return url !== undefined;
  throw new DbError(
    'database_in_use',
    `the control plane that serves on this database has the same peer_url (${url}): give each its own`,
  );
}

async function serveBeside(db: PostgresDb, membership: Held, deps: EnterDeps): Promise<Place> {
  const { id, peerUrl, lose } = deps;
  db.fence(membership);
  if (peerUrl !== undefined) await announce(db, { id, url: peerUrl });
  let stop = keepRenewing({ ...db, ...db.keeper }, membership, deps, lose);
  let held: Held | undefined;
  let primacy: Primacy | undefined;
  const giveBack = async (): Promise<void> => {
    // The lease of the primary allows our transactions, so it is given back last.
    await leaveMembers(db, id);
    if (held !== undefined) await releaseLease(db, held);
  };
  const follow = (whenPrimary: () => Promise<void>): Following =>
    followPrimary(db, {
      ...deps,
      lease: LEASE,
      onLost: lose,
      onTaken: async (taken, former) => {
        held = taken;
        stop();
        db.fence(taken);
        stop = keepRenewing({ ...db, ...db.keeper }, taken, deps, lose);
        primacy = await beginPrimacy(db, former, deps);
        await whenPrimary();
      },
      giveBack,
    });
  let following: Following | undefined;
  const stay = async (): Promise<void> => following?.stop();
  return {
    epoch: () => held?.epoch ?? 0,
    primacy: () => primacy,
    primary: () => following?.primary() ?? 'unknown',
    onPrimary: (fn) => {
      following = follow(fn);
    },
    stay,
    leave: async () => {
      await stay();
      stop();
      await giveBack();
    },
  };
}

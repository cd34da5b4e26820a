// The operator's backup of a SQLite database, and its restore: in the place of a SQLite database, or into an empty one on PostgreSQL. A backup runs
// while the daemon serves, a restore while it is stopped.
import {
  chmodSync,
  chownSync,
  constants,
  copyFileSync,
  existsSync,
  linkSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { isoTime } from '../shared/clock.ts';
import type { Fields } from './base/http/operator.ts';
import { backupSqlite, checkSqlite, flush, restoringPath } from './base/db/backup.ts';
import { copyRows, NotEmpty } from './base/db/copy.ts';
import { lockSqlite } from './base/db/sqlite.ts';
import { assertSecretFits } from './base/http/sealing.ts';
import { endAllSessions } from './base/users/session-store.ts';
import type { Config } from './config.ts';
import { setAllOffline } from './fleet/supply/supply.ts';
import { openFoundation } from './foundation.ts';
import type { Core } from './settings.ts';

/** Suffixes of the files that SQLite keeps beside a database file. */
const SIDE_FILES = ['-wal', '-shm'];

/** A database on PostgreSQL is backed up with its own tools. */
export class NotOnSqlite extends Error {
  readonly exitCode = 2;
}

/**
 * Writes a snapshot of the database to `file`, which must not exist yet.
 * @throws NotOnSqlite, DbError `bad_backup`
 */
export async function backup(config: Config, file: string): Promise<Fields> {
  if ('postgres' in config.database) throw new NotOnSqlite('the database is on PostgreSQL: back it up with pg_dump');
  const path = config.database.sqlite;
  if (!existsSync(path)) throw new Error(`database.sqlite names ${path}, where no database is`);
  const bytes = await backupSqlite(path, file);
  return { backup: file, bytes, also_keep: config.secret_file };
}

/**
 * Restores a backup of a SQLite database, into the database that the configuration names now. On PostgreSQL, that must be empty.
 * @throws DbError `database_in_use` while a daemon runs, `bad_backup`, `migration`; Error if the secret is missing or different; on SQLite, Error
 * without `force` if a database exists; on PostgreSQL, NotEmpty
 */
export async function restore(
  config: Config,
  request: { file: string; force: boolean },
  core: Omit<Core, 'db'>,
): Promise<Fields> {
  if (!existsSync(request.file)) throw new Error(`there is no backup at ${request.file}`);
  const { database } = config;
  if ('sqlite' in database) return restoreOnSqlite(database.sqlite, request, core);
  return restoreOnPostgres({ ...config, database }, request.file, core);
}

/**
 * First it checks a copy for everything that a start would refuse, and only then moves files. The previous database is
 * kept beside the new one. After an interruption, there is the previous database, the restored one, or none. If there is none, the daemon does not
 * start until a restore has run to its end.
 */
async function restoreOnSqlite(
  path: string,
  request: { file: string; force: boolean },
  core: Omit<Core, 'db'>,
): Promise<Fields> {
  const unlock = lockSqlite(path);
  try {
    giveToDaemon(`${path}.lock`);
    if (existsSync(path) && !request.force) {
      throw new Error(`${path} is there already; with --force it is put aside and the backup takes its place`);
    }
    const staged = `${path}.restore-check`;
    const restoring = restoringPath(path);
    try {
      await stage(request.file, staged, core);
      renameSync(staged, restoring);
      const aside = putAside(path, `${path}.before-restore-${isoTime(core.clock.now()).replaceAll(/[-:]|\.\d+/g, '')}`);
      renameSync(restoring, path);
      flush(dirname(path));
      return { restored: path, kept_aside: aside };
    } finally {
      removeStaged(staged);
      if (existsSync(path)) rmSync(restoring, { force: true });
    }
  } finally {
    unlock();
  }
}

/**
 * Copies all rows in one transaction, so an interruption leaves the database empty and the restore can run again. The lease keeps a daemon from
 * starting on it meanwhile.
 */
async function restoreOnPostgres(
  { database, secret_file: secretFile }: Config & { database: { postgres: string } },
  file: string,
  core: Omit<Core, 'db'>,
): Promise<Fields> {
  const staged = join(dirname(secretFile), 'restore-check.db');
  // The file may be the database itself, which a daemon must not change meanwhile.
  const unlock = existsSync(`${file}.lock`) ? lockSqlite(file) : undefined;
  try {
    await stage(file, staged, core);
    const foundation = await openFoundation(database, core);
    try {
      const rows = await foundation.db.tx('restore.copy', (tx) => copyRows(staged, tx));
      return { restored: placeOf(database.postgres), rows };
    } catch (error) {
      if (!(error instanceof NotEmpty)) throw error;
      throw new NotEmpty(
        `${placeOf(database.postgres)} is not empty (${error.message}): make a new database, name it as database.postgres, and restore before the daemon has run on it`,
      );
    } finally {
      await foundation.close();
    }
  } finally {
    removeStaged(staged);
    unlock?.();
  }
}

/** The server and the name of the database, without a password. */
function placeOf(url: string): string {
  const { host, pathname } = new URL(url);
  return `${host}${pathname}`;
}

/** Makes a copy with the newest schema for the daemon, and checks that it opens with our secret. */
async function stage(file: string, staged: string, core: Omit<Core, 'db'>): Promise<void> {
  removeStaged(staged);
  copyFileSync(file, staged, constants.COPYFILE_EXCL);
  // A database that was put aside may have its last commits in its write-ahead log only.
  if (existsSync(`${file}-wal`)) copyFileSync(`${file}-wal`, `${staged}-wal`);
  chmodSync(staged, 0o600);
  checkSqlite(staged);
  const foundation = await openFoundation({ sqlite: staged }, core);
  try {
    await assertSecretFits(foundation.db, core.sealing);
    // The backup has an old state of the hosts. So no workload may be placed on a host before the host has reported what it runs.
    await foundation.db.tx('restore.offline', (tx) => setAllOffline(tx, core.clock.now()));
    // Its sessions may have ended since, for example because somebody else had one of them.
    await foundation.db.tx('restore.sessions', endAllSessions);
  } finally {
    await foundation.close();
  }
  giveToDaemon(staged);
  flush(staged);
}

function removeStaged(staged: string): void {
  for (const end of ['', '.lock', ...SIDE_FILES]) rmSync(`${staged}${end}`, { force: true });
}

/** The operator runs as root and the daemon does not, so the file gets the owner of its directory. */
function giveToDaemon(file: string): void {
  const { uid, gid } = statSync(dirname(file));
  chownSync(file, uid, gid);
}

/**
 * Moves the database with its write-ahead log and returns the new place; null if there was none. The log has both names before the database
 * moves, so that an interruption never parts them. A log that stays behind would be applied to the restored database.
 */
function putAside(path: string, aside: string): string | null {
  const there = existsSync(path);
  if (existsSync(`${path}-wal`)) linkSync(`${path}-wal`, `${aside}-wal`);
  flush(dirname(path));
  if (there) renameSync(path, aside);
  for (const end of SIDE_FILES) rmSync(`${path}${end}`, { force: true });
  return there ? aside : null;
}

// The operator's backup and restore of a SQLite database. A backup runs while the daemon serves, a restore while it is stopped.
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
import { dirname } from 'node:path';
import { isoTime } from '../shared/clock.ts';
import type { Fields } from './base/http/operator.ts';
import { backupSqlite, checkSqlite, flush, restoringPath } from './base/db/backup.ts';
import { lockSqlite } from './base/db/sqlite.ts';
import { assertSecretFits } from './base/http/sealing.ts';
import { endAllSessions } from './base/users/session-store.ts';
import type { Config } from './config.ts';
import { setAllOffline } from './fleet/supply/supply.ts';
import { openFoundation } from './foundation.ts';
import type { Core } from './settings.ts';

/** Suffixes of the files that SQLite keeps beside a database file. */
const SIDE_FILES = ['-wal', '-shm'];

/** The database is on PostgreSQL, which has its own backup tools. */
export class NotOnSqlite extends Error {
  readonly exitCode = 2;
}

/**
 * Writes a snapshot of the database to `file`, which must not exist yet.
 * @throws NotOnSqlite, DbError `bad_backup`
 */
export async function backup(config: Config, file: string): Promise<Fields> {
  const path = sqlitePath(config, 'back it up with pg_dump');
  if (!existsSync(path)) throw new Error(`database.sqlite names ${path}, where no database is`);
  const bytes = await backupSqlite(path, file);
  return { backup: file, bytes, also_keep: config.secret_file };
}

/**
 * Restores a backup. First it checks a copy for everything that a start would refuse, and only then moves files. The previous database is
 * kept beside the new one. After an interruption, there is the previous database, the restored one, or none. If there is none, the daemon does not
 * start until a restore has run to its end.
 * @throws NotOnSqlite; DbError `database_in_use` while a daemon runs, `bad_backup`, `migration`; Error without `force` if a database
 * exists, or if the secret is missing or different
 */
export async function restore(
  config: Config,
  request: { file: string; force: boolean },
  core: Omit<Core, 'db'>,
): Promise<Fields> {
  const path = sqlitePath(config, 'restore it with pg_restore');
  if (!existsSync(request.file)) throw new Error(`there is no backup at ${request.file}`);
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
      for (const end of ['', '.lock', ...SIDE_FILES]) rmSync(`${staged}${end}`, { force: true });
      if (existsSync(path)) rmSync(restoring, { force: true });
    }
  } finally {
    unlock();
  }
}

function sqlitePath({ database }: Config, instead: string): string {
  if ('sqlite' in database) return database.sqlite;
  throw new NotOnSqlite(`the database is on PostgreSQL: ${instead}`);
}

/** Makes a copy with the newest schema for the daemon, and checks that it opens with our secret. */
async function stage(file: string, staged: string, core: Omit<Core, 'db'>): Promise<void> {
  for (const end of ['', ...SIDE_FILES]) rmSync(`${staged}${end}`, { force: true });
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

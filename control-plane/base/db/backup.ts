// Copies a SQLite database that may be in use. The copy is a snapshot, and it is checked before it gets its final name.
import { closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { DbError, fileError } from './db.ts';
import { lockSqlite } from './sqlite.ts';

/**
 * Writes a snapshot of the database at `source` to the new file `target` (mode 0600) and returns its size in bytes. Writers are not
 * blocked, in this process or another. `target` appears complete, flushed and checked, or not at all.
 * @throws DbError `bad_backup` if the copy is damaged, `not_a_database` if `source` is another file; Error if `source` does not exist,
 * `target` exists already, or another backup writes it
 */
export async function backupSqlite(source: string, target: string): Promise<number> {
  if (existsSync(target)) throw new Error(`${target} exists already: name a new file`);
  if (!existsSync(dirname(target))) throw new Error(`there is no directory ${dirname(target)}`);
  const part = `${target}.part`;
  // The kernel releases the lock if this process is killed. The next backup to this file then begins anew.
  const unlock = lockPart(part);
  try {
    rmSync(part, { force: true });
    await writePart(source, part);
    // Unlike a rename, a link never replaces a file that was created in the meantime.
    linkSync(part, target);
  } finally {
    rmSync(part, { force: true });
    rmSync(`${part}.lock`, { force: true });
    unlock();
  }
  flush(dirname(target));
  return statSync(target).size;
}

/**
 * Merges the write-ahead log into the file at `path`, so that the file can be copied alone. @throws DbError `bad_backup` if it is not a
 * sound database
 */
export function checkSqlite(path: string): void {
  let found: unknown[];
  try {
    const database = new Database(path, { fileMustExist: true });
    try {
      database.pragma('journal_mode = DELETE');
      found = database.prepare('pragma integrity_check').pluck().all();
    } finally {
      database.close();
    }
  } catch (error) {
    throw new DbError('bad_backup', `${path} is not a database that can be read`, error);
  }
  if (found.length !== 1 || found[0] !== 'ok') {
    throw new DbError('bad_backup', `${path} is damaged: ${found.slice(0, 3).join('; ')}`);
  }
}

/** Waits until the file or directory at `path` is on disk. For a directory this covers the names in it. */
export function flush(path: string): void {
  const descriptor = openSync(path, 'r');
  fsyncSync(descriptor);
  closeSync(descriptor);
}

/** The checked database that a restore is about to put at `path`. */
export function restoringPath(path: string): string {
  return `${path}.restoring`;
}

/**
 * Refuses to start if a restore was interrupted, because the start would make an empty database.
 * @throws DbError `half_restored`
 */
export function refuseHalfRestored(path: string): void {
  if (existsSync(path) || !existsSync(restoringPath(path))) return;
  throw new DbError(
    'half_restored',
    `the restore of ${path} was interrupted: run it again. The database that was there is ${path}.before-restore-<time>`,
  );
}

/** @throws Error if another backup writes this file */
function lockPart(part: string): () => void {
  try {
    return lockSqlite(part);
  } catch (error) {
    if (!(error instanceof DbError) || error.code !== 'database_in_use') throw error;
    throw new Error(`another backup is writing ${part}: wait for it, or name another file`, { cause: error });
  }
}

/** Writes a checked and flushed copy of the database at `source`. */
async function writePart(source: string, part: string): Promise<void> {
  // The file is created here to set its mode: SQLite keeps the mode of an existing file.
  closeSync(openSync(part, 'wx', 0o600));
  await copySnapshot(source, part).catch((error: unknown) => {
    throw fileError(source, error);
  });
  checkSqlite(part);
  flush(part);
}

async function copySnapshot(source: string, target: string): Promise<void> {
  const database = new Database(source, { readonly: true, fileMustExist: true, timeout: 5000 });
  try {
    // One read transaction spans all steps. Without it, every commit of another process would restart the copy.
    database.exec('BEGIN');
    database.prepare('select count(*) from sqlite_schema').get();
    await database.backup(target);
  } finally {
    database.close();
  }
}

// Copies of a SQLite database that may be in use: a snapshot beside its writers, checked before it gets its name.
import { closeSync, existsSync, fsyncSync, linkSync, openSync, rmSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import Database from 'better-sqlite3';
import { DbError } from './db.ts';

/**
 * Writes a snapshot of the database at `source` to the new file `target`, mode 0600; returns its size in bytes. Nobody waits for it:
 * the writer goes on, in this process or another. `target` appears whole, flushed and checked, or not at all.
 * @throws DbError `bad_backup` where the copy is damaged; Error where `source` is not there or `target` is
 */
export async function backupSqlite(source: string, target: string): Promise<number> {
  if (existsSync(target)) throw new Error(`${target} exists already: name a new file`);
  if (!existsSync(dirname(target))) throw new Error(`there is no directory ${dirname(target)}`);
  const part = `${target}.part`;
  rmSync(part, { force: true });
  // Made here, for its mode: SQLite keeps that of a file that exists.
  closeSync(openSync(part, 'wx', 0o600));
  try {
    await copySnapshot(source, part);
    checkSqlite(part);
    flush(part);
    // Unlike a rename, it never replaces a file that has come meanwhile.
    linkSync(part, target);
  } finally {
    rmSync(part, { force: true });
  }
  flush(dirname(target));
  return statSync(target).size;
}

/** Makes the file at `path` one that needs no other beside it. @throws DbError `bad_backup` where it is not a sound database */
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

/** Waits until what is at `path` (a directory: the names in it) is on the disk. */
export function flush(path: string): void {
  const descriptor = openSync(path, 'r');
  fsyncSync(descriptor);
  closeSync(descriptor);
}

async function copySnapshot(source: string, target: string): Promise<void> {
  const database = new Database(source, { readonly: true, fileMustExist: true, timeout: 5000 });
  try {
    // One read transaction over all steps: without it, every foreign commit would make the copy begin again.
    database.exec('BEGIN');
    database.prepare('select count(*) from sqlite_schema').get();
    await database.backup(target);
  } finally {
    database.close();
  }
}

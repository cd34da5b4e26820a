// The secret file: the first start on a database makes it, and nothing else ever does.
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { openSecretFile, type SecretFile } from '../../control-plane/secret-file.ts';
import { systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { systemRng } from '../../shared/rng.ts';
import { openTestDb } from '../kit/databases.ts';
import { withoutRoot } from '../kit/without-root.ts';

let directory: string;
let path: string;
let db: Db;
beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'secret-'));
  path = join(directory, 'secret');
  db = await openTestDb(SCHEMA);
});
afterEach(async () => {
  await db.close();
  rmSync(directory, { recursive: true });
});

function open(rng = systemRng()): SecretFile {
  return openSecretFile({ secret_file: path }, { ids: createIds(systemClock(), systemRng()), rng });
}

test('is created once, is readable only by its owner, and stays', async () => {
  const first = await open().secretOf(db);
  expect(first).toHaveLength(32);
  expect(await open().secretOf(db)).toEqual(first);
  expect(statSync(path).mode & 0o777).toBe(0o600);
  expect(readFileSync(path, 'utf8').trim()).toBe(first.toString('hex'));
  expect(readdirSync(directory)).toEqual(['secret']);
});

test('that exists is read without writing anything, because the disk may be full', async () => {
  const first = await open().secretOf(db);
  const bytes = (): never => {
    throw new Error('another secret is made');
  };
  expect(await open({ ...systemRng(), bytes }).secretOf(db)).toEqual(first);
});

test('that is missing beside its database is not made again', async () => {
  await open().secretOf(db);
  rmSync(path);
  await expect(open().secretOf(db)).rejects.toThrow(`secret_file names ${path}, which does not exist, although`);
  await expect(open().assertKnown(db.read)).rejects.toThrow('mount the disk that has it, or put the file back');
  expect(readdirSync(directory)).toEqual([]);
});

test('is never made by a process that stands by, even before the one that serves has noted its own', async () => {
  await expect(open().assertKnown(db.read)).rejects.toThrow('each control plane of the database has the same one');
  expect(existsSync(path)).toBe(false);
});

test('of another database is refused', async () => {
  await open().secretOf(db);
  writeFileSync(path, `${'ab'.repeat(32)}\n`);
  await expect(open().secretOf(db)).rejects.toThrow('does not hold the secret that this database was written under');
  await expect(open().assertKnown(db.read)).rejects.toThrow('does not hold the secret');
});

// Root may have put it back.
test('that this user may not read is reported with its setting', async () => {
  await open().secretOf(db);
  chmodSync(path, 0);
  chmodSync(directory, 0o755);
  await expect(withoutRoot(async () => open())).rejects.toThrow(
    `secret_file names ${path}, which may not be read by this user`,
  );
});

test('with damaged content is refused, not replaced', () => {
  writeFileSync(path, 'short');
  expect(() => open()).toThrow('64 hexadecimal characters');
  expect(readFileSync(path, 'utf8')).toBe('short');
});

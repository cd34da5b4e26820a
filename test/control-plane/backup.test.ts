// Backup and restore with the operator's commands, on real files.
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { backup, NotOnSqlite, restore } from '../../control-plane/backup.ts';
import { int } from '../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../control-plane/base/db/db.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { type Config, readConfig } from '../../control-plane/config.ts';
import { onlineMachineIds } from '../../control-plane/fleet/supply/store.ts';
import { openHouse } from '../../control-plane/house.ts';
import { existingSecret } from '../../control-plane/secret-file.ts';
import { type Clock, systemClock } from '../../shared/clock.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';

const log = createLog('test', 'silent');
let dir: string;
let config: Config;
let path: string;
const at = (name: string): string => join(dir, name);
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'backup-'));
  path = at('a.db');
  config = configOf({ sqlite: path });
});
afterEach(() => rmSync(dir, { recursive: true }));

function configOf(database: object): Config {
  const file = at('config.yaml');
  const paths = { secret_file: at('secret'), admin_socket: at('admin.sock') };
  writeFileSync(file, JSON.stringify({ database, ...paths }));
  return readConfig(file);
}

/** Creates the schema and the secret, as a daemon does. */
async function startOnce(): Promise<void> {
  const house = await openHouse(config, log);
  await house.close();
}

function restoreFrom(
  file: string,
  options: { force?: boolean; secret?: Uint8Array; clock?: Clock } = {},
): Promise<unknown> {
  const [clock, rng] = [options.clock ?? systemClock(), systemRng()];
  const ids = createIds(clock, rng);
  const secret = options.secret ?? Buffer.from(readFileSync(config.secret_file, 'utf8').trim(), 'hex');
  const core = { clock, rng, ids, log, sealing: openSealing(secret, ids) };
  return restore(config, { file, force: options.force === true }, core);
}

const Count = z.object({ count: int });
const orgsIn = async (db: Db): Promise<number | undefined> =>
  (await db.read.one(Count, sql`select count(*) as count from orgs`))?.count;
const addOrgs = (db: Db, ids: readonly string[]): Promise<unknown> =>
  Promise.all(
    ids.map((id) =>
      db.tx('add', (tx) => tx.run(sql`insert into orgs (id, name, created_ms) values (${id}, 'org', 0)`)),
    ),
  );

async function withDb<T>(work: (db: Db) => Promise<T>): Promise<T> {
  const db = openSqlite(path, { clock: systemClock() });
  try {
    return await work(db);
  } finally {
    await db.close();
  }
}

// On PostgreSQL, a standby would otherwise find the mistake only when it takes over.
test('a password file that is missing is named before the database is opened', async () => {
  const smtp = { host: 'mail.example.com', from: 'gpu@example.com', username: 'gpu', password_file: at('absent') };
  config = { ...config, smtp: { ...smtp, port: 587, security: 'starttls' } };
  await expect(startOnce()).rejects.toThrow('smtp.password_file');
  expect(existsSync(path)).toBe(false);
});

describe('a backup', () => {
  test('is a snapshot while writers go on, in one file that only its owner can read', async () => {
    await startOnce();
    await withDb(async (db) => {
      await addOrgs(db, ['before']);
      let isOver = false;
      const writing = (async () => {
        for (let i = 0; !isOver; i += 1) await addOrgs(db, [`${i}a`, `${i}b`]);
      })();
      await backup(config, at('copy.db'));
      isOver = true;
      await writing;
    });
    expect(statSync(at('copy.db')).mode & 0o777).toBe(0o600);
    expect(readdirSync(dir).filter((name) => name.startsWith('copy'))).toEqual(['copy.db']);
    // Both rows of one commit, or neither.
    await restoreFrom(at('copy.db'), { force: true });
    expect(((await withDb(orgsIn)) ?? 0) % 2).toBe(1);
  });
  test('never replaces a file, and leaves nothing if it fails', async () => {
    await startOnce();
    writeFileSync(at('taken'), 'mine');
    await expect(backup(config, at('nowhere/copy.db'))).rejects.toThrow('there is no directory');
    await expect(backup(config, at('taken'))).rejects.toThrow('name a new file');
    expect(readFileSync(at('taken'), 'utf8')).toBe('mine');
    writeFileSync(path, Buffer.alloc(8192, 1));
    await expect(backup(config, at('copy.db'))).rejects.toThrow(`${path} is not a SQLite database`);
    expect(readdirSync(dir).filter((name) => name.startsWith('copy'))).toEqual([]);
  });
  test('refuses a second one to the same file while the first is at work, which ends whole', async () => {
    await startOnce();
    const first = backup(config, at('copy.db'));
    await expect(backup(config, at('copy.db'))).rejects.toThrow('another backup is writing');
    await first;
    expect(readdirSync(dir).filter((name) => name.startsWith('copy'))).toEqual(['copy.db']);
    expect(await restoreFrom(at('copy.db'), { force: true })).toMatchObject({ restored: path });
  });
  test('begins anew after one to the same file was killed', async () => {
    await startOnce();
    writeFileSync(at('copy.db.part'), 'half');
    writeFileSync(at('copy.db.part.lock'), '');
    await backup(config, at('copy.db'));
    expect(readdirSync(dir).filter((name) => name.startsWith('copy'))).toEqual(['copy.db']);
  });
  test('of PostgreSQL is refused with one sentence and exit code 2', async () => {
    const refusal = backup(configOf({ postgres: 'postgres://x@127.0.0.1/x' }), at('copy.db'));
    await expect(refusal).rejects.toThrow('back it up with pg_dump');
    await expect(refusal).rejects.toBeInstanceOf(NotOnSqlite);
    await expect(refusal).rejects.toMatchObject({ exitCode: 2 });
  });
});

describe('a restore', () => {
  beforeEach(async () => {
    await startOnce();
    await backup(config, at('copy.db'));
    await withDb((db) => addOrgs(db, ['later']));
  });

  /** Expects a refusal that changes nothing. */
  async function expectRefusal(work: Promise<unknown>, message: RegExp | string): Promise<void> {
    await expect(work).rejects.toThrow(message);
    expect(await withDb(orgsIn)).toBe(1);
    expect(readdirSync(dir).filter((name) => /restor/.test(name))).toEqual([]);
  }

  test('refuses to overwrite without --force', () => expectRefusal(restoreFrom(at('copy.db')), '--force'));
  test('refuses a file that does not exist', () => expectRefusal(restoreFrom(at('gone.db')), 'there is no backup at'));
  test('refuses a missing secret, and creates none', () => {
    rmSync(config.secret_file);
    expect(() => existingSecret(config)).toThrow('put the file back');
    expect(existsSync(config.secret_file)).toBe(false);
  });
  test('refuses while a daemon runs', async () => {
    const daemon = openSqlite(path, { clock: systemClock() });
    await expect(restoreFrom(at('copy.db'), { force: true })).rejects.toMatchObject({ code: 'database_in_use' });
    await daemon.close();
  });
  test('refuses another secret', () =>
    expectRefusal(restoreFrom(at('copy.db'), { force: true, secret: new Uint8Array(32) }), 'secret_file'));
  test('refuses a file that is not a database', async () => {
    writeFileSync(at('junk'), 'junk'.repeat(5000));
    await expectRefusal(restoreFrom(at('junk'), { force: true }), 'bad_backup');
  });
  test('refuses a damaged backup', async () => {
    const bytes = readFileSync(at('copy.db'));
    bytes.fill(0xff, 4096 * 3, 4096 * 6);
    writeFileSync(at('copy.db'), bytes);
    await expectRefusal(restoreFrom(at('copy.db'), { force: true }), 'bad_backup');
  });

  test('replaces the database, which is kept beside it with all its files', async () => {
    chmodSync(at('copy.db'), 0o644);
    const { kept_aside: aside } = z
      .object({ kept_aside: z.string() })
      .parse(await restoreFrom(at('copy.db'), { force: true }));
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(await withDb(orgsIn)).toBe(0);
    await startOnce();
    path = aside;
    expect(await withDb(orgsIn)).toBe(1);
  });
  test.runIf(process.getuid?.() === 0)(
    'by root gives every file to the user of the daemon, also if it is refused',
    async () => {
      const [daemon, folder] = [65_534, at('new-machine')];
      mkdirSync(folder);
      chownSync(folder, daemon, daemon);
      path = join(folder, 'a.db');
      config = configOf({ sqlite: path });
      const owners = (): object =>
        Object.fromEntries(readdirSync(folder).map((name) => [name, statSync(join(folder, name)).uid]));
      writeFileSync(at('junk'), 'junk'.repeat(5000));
      await expect(restoreFrom(at('junk'))).rejects.toMatchObject({ code: 'bad_backup' });
      expect(owners()).toEqual({ 'a.db.lock': daemon });
      await restoreFrom(at('copy.db'));
      expect(owners()).toEqual({ 'a.db': daemon, 'a.db.lock': daemon });
    },
  );
  test('takes the write-ahead log of a database that was put aside with it', async () => {
    await withDb(async (db) => {
      await addOrgs(db, ['in the log']);
      for (const end of ['', '-wal']) copyFileSync(`${path}${end}`, at(`aside.db${end}`));
    });
    await restoreFrom(at('aside.db'), { force: true });
    expect(await withDb(orgsIn)).toBe(2);
    expect(readdirSync(dir).filter((name) => name.startsWith('aside'))).toEqual(['aside.db', 'aside.db-wal']);
  });
  test('that cannot put the write-ahead log aside leaves the database with its newest commits', async () => {
    await withDb(async (db) => {
      await addOrgs(db, ['in the log']);
      for (const end of ['', '-wal']) copyFileSync(`${path}${end}`, at(`crashed.db${end}`));
    });
    path = at('crashed.db');
    config = configOf({ sqlite: path });
    const clock = { ...systemClock(), now: () => Date.UTC(2026, 10, 29) };
    mkdirSync(`${path}.before-restore-20261129T000000Z-wal`);
    await expect(restoreFrom(at('copy.db'), { force: true, clock })).rejects.toThrow('before-restore');
    expect(await withDb(orgsIn)).toBe(2);
  });
  // The state after a power failure between the two renames.
  test('that was interrupted keeps the daemon from a start with an empty database until it has run again', async () => {
    const aside = `${path}.before-restore-20261129T000000Z`;
    renameSync(path, aside);
    copyFileSync(at('copy.db'), `${path}.restoring`);
    writeFileSync(at('junk'), 'junk'.repeat(5000));
    await expect(restoreFrom(at('junk'))).rejects.toMatchObject({ code: 'bad_backup' });
    await expect(startOnce()).rejects.toThrow(/restore of .* was interrupted: run it again/);
    expect(existsSync(path)).toBe(false);
    expect(await restoreFrom(at('copy.db'))).toMatchObject({ restored: path });
    await startOnce();
    expect(await withDb(orgsIn)).toBe(0);
    path = aside;
    expect(await withDb(orgsIn)).toBe(1);
  });
  test('needs no --force on a new machine, and does not apply a write-ahead log that was left there', async () => {
    rmSync(path);
    writeFileSync(`${path}-wal`, 'left over');
    await restoreFrom(at('copy.db'));
    expect(existsSync(`${path}-wal`)).toBe(false);
    expect(await withDb(orgsIn)).toBe(0);
  });
});

test('marks all machines offline until each host reports what it runs', async () => {
  await startOnce();
  await withDb((db) =>
    db.tx('add', async (tx) => {
      await tx.run(
        sql`insert into suppliers (id, org_id, status, created_ms, updated_ms) values ('s', 'o', 'active', 0, 0)`,
      );
      await tx.run(
        sql`insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier, online, created_ms, updated_ms)
            values ('m', 's', 'listed', 'unverified', 'eu', 1, 'on_demand', 1, 0, 0)`,
      );
    }),
  );
  await backup(config, at('copy.db'));
  await restoreFrom(at('copy.db'), { force: true });
  expect(await withDb((db) => onlineMachineIds(db.read, '', 10))).toEqual([]);
});

test('ends all sessions, because somebody may have ended one of them since the backup', async () => {
  await startOnce();
  await withDb((db) =>
    db.tx('add', async (tx) => {
      await tx.run(
        sql`insert into users (id, email, name, is_operator, is_vouched, created_ms) values ('u', 'a@b.c', 'A', 1, 1, 0)`,
      );
      await tx.run(
        sql`insert into sessions (id, user_id, token_hash, client_ip, network, user_agent, is_strong, confirmed_ms, created_ms, used_ms, expires_ms)
            values ('ses_1', 'u', 'h', '192.0.2.1', '192.0.2.1', 'x', 1, 0, 0, 0, ${Number.MAX_SAFE_INTEGER})`,
      );
    }),
  );
  await backup(config, at('copy.db'));
  await restoreFrom(at('copy.db'), { force: true });
  const sessions = sql`select count(*) as count from sessions`;
  expect(await withDb((db) => db.read.one(Count, sessions))).toEqual({ count: 0 });
});

// A full disk: uploads stop before it is full. If it is full nevertheless, callers are asked to retry, and nothing is half done.
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { openDiskBlobs } from '../../control-plane/base/blobs/local-disk.ts';
import { countRow } from '../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../control-plane/base/db/db.ts';
import { migrate } from '../../control-plane/base/db/migrate.ts';
import { openBallast } from '../../control-plane/base/db/ballast.ts';
import { openReadiness } from '../../control-plane/base/db/readiness.ts';
import { openSqlite } from '../../control-plane/base/db/sqlite.ts';
import { openMetrics } from '../../control-plane/base/http/metrics.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { type Http, openHttp } from '../../control-plane/base/http/server.ts';
import { SCHEMA } from '../../control-plane/foundation.ts';
import { insertFile } from '../../control-plane/models/files/store.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { systemRng } from '../../shared/rng.ts';
import { mountSmallDisk, type SmallDisk } from '../kit/disks.ts';
import { type VirtualClock, virtualClock } from '../kit/virtual-clock.ts';
import { LAUNCH, openWorld, type World, type WorldAccount } from '../kit/world.ts';

const MIB = 1024 ** 2;

let disk: SmallDisk;
let clock: VirtualClock;
let db: Db;
beforeEach(async () => {
  disk = mountSmallDisk(48 * MIB);
  clock = virtualClock();
  db = openSqlite(join(disk.dir, 'a.db'), { clock });
  await migrate(db, SCHEMA, { clock });
});
afterEach(async () => {
  await db.close();
  disk.remove();
});

const log = createLog('test', 'silent');
const presignedUrls = { signer: () => Promise.reject(new Error('nobody asks for a URL here')) };
const signal = new AbortController().signal;
const hasRoom = (): boolean => true;
/** Writes about a megabyte, which exceeds the cache, so some of it reaches the disk before the commit. */
const write = (times = 1): Promise<unknown> =>
  db.tx('write', async (tx) => {
    for (let i = 0; i < times; i += 1)
      await tx.run(sql`insert into orgs (id, name, created_ms) values (${crypto.randomUUID()}, ${'x'.repeat(MIB)}, 0)`);
  });
const orgs = async (): Promise<number | undefined> =>
  (await db.read.one(countRow, sql`select count(*) as count from orgs`))?.count;

test('one customer uploads until uploads are refused: everybody else can write, and the customer can delete', async () => {
  const reserve = { share: 0.1, bytes: 16 * MIB };
  const blobs = openDiskBlobs(join(disk.dir, 'blobs'), {
    clock,
    ids: createIds(clock, systemRng()),
    log,
    reserve,
    presignedUrls,
  });
  const upload = async (): Promise<string> => {
    const key = blobs.newKey('files');
    const pieces = (async function* () {
      for (let i = 0; i < 5; i += 1) yield Buffer.alloc(MIB, i);
    })();
    await blobs.write(key, pieces, { bytesMax: 5 * MIB, signal });
    return key;
  };
  const kept: string[] = [];
  const refused = await (async () => {
    for (;;) {
      try {
        kept.push(await upload());
      } catch (error) {
        return error;
      }
    }
  })();
  expect(refused).toMatchObject({ code: 'storage_full' });
  expect(kept.length).toBeGreaterThan(2);
  expect(disk.freeBytes()).toBeGreaterThanOrEqual(reserve.bytes);
  expect(disk.freeBytes()).toBeLessThan(reserve.bytes + 6 * MIB);
  // The alert `BlobsDiskFills` fires now.
  const { bytes = 0, freeBytes = 0, reserveBytes = 0 } = (await blobs.disk()) ?? {};
  expect(reserveBytes).toBe(reserve.bytes);
  expect(freeBytes - reserveBytes).toBeLessThan(0.1 * bytes);
  await write();
  expect(await orgs()).toBe(1);
  expect(await openReadiness({ db, clock, log, hasRoom }).check()).toEqual([]);
  for (const key of kept.slice(0, 2)) await blobs.remove(key);
  await upload();
});

test('an upload that leaves exactly the reserve fits; one more page is refused and leaves nothing', async () => {
  const page = 4096;
  const store = (reserveBytes: number) =>
    openDiskBlobs(join(disk.dir, 'blobs'), {
      presignedUrls,
      clock,
      ids: createIds(clock, systemRng()),
      log,
      reserve: { share: 0, bytes: reserveBytes },
    });
  const one = async (reserveBytes: number, bytes: number): Promise<unknown> => {
    const blobs = store(reserveBytes);
    const pieces = (async function* () {
      yield Buffer.alloc(bytes);
    })();
    return blobs.write(blobs.newKey('files'), pieces, { bytesMax: MIB, signal });
  };
  await one(0, page);
  const free = disk.freeBytes();
  // The incomplete file exists but has no page yet.
  await expect(one(free - 8 * page + 1, 8 * page)).rejects.toMatchObject({ code: 'storage_full' });
  expect(disk.freeBytes()).toBe(free);
  expect(await one(free - 8 * page, 8 * page)).toMatchObject({ bytes: 8 * page });
});

test('writes fail with one error, reads go on, readiness reports it, and writes work again once there is space', async () => {
  const readiness = openReadiness({ db, clock, log, hasRoom });
  expect(await readiness.check()).toEqual([]);
  await write();
  disk.fill();
  const failures = await Promise.allSettled([write(), write(), write()]);
  expect(failures.map((each) => each.status)).toEqual(['rejected', 'rejected', 'rejected']);
  await expect(write()).rejects.toMatchObject({ code: 'disk_full' });
  expect(await orgs()).toBe(1);
  expect(await readiness.check()).toEqual([]);
  await clock.advance(1_000);
  expect(await readiness.check()).toEqual(['the disk of the database is full']);
  disk.empty();
  await clock.advance(1_000);
  expect(await readiness.check()).toEqual([]);
  await write();
  expect(await orgs()).toBe(2);
});

test('a database that never commits is not ready, and is probed once for any number of callers', async () => {
  let asked = 0;
  const hung = {
    ...db,
    tx: () => {
      asked += 1;
      return new Promise<never>(() => undefined);
    },
  };
  const readiness = openReadiness({ db: hung, clock, log, hasRoom });
  const both = [readiness.check(), readiness.check()];
  await clock.advance(5_000);
  expect(await Promise.all(both)).toEqual(Array(2).fill(['the database does not commit in time']));
  await readiness.check();
  expect(asked).toBe(1);
});

async function serve(world: World, hasRoom: () => boolean): Promise<Http> {
  const ids = createIds(clock, systemRng());
  const secret = new Uint8Array(32).fill(3);
  const readiness = openReadiness({ db, clock, log, hasRoom });
  const http = openHttp(
    {
      db,
      clock,
      ids,
      log,
      metrics: openMetrics(),
      authenticate: world.rooms.accounts.authenticate,
      ready: readiness.check,
      hasRoom,
    },
    {
      epoch: () => 1,
      audience: 'public',
      baseUrl: 'https://api.example.com/v1',
      trustProxy: [],
      sealing: openSealing(secret, ids),
      strictResponses: true,
    },
  );
  http.register(brought(world.brings(), 'routes'));
  return http;
}

test('a customer gets 503 with Retry-After while the disk is full, reads go on, and the same request succeeds later', async () => {
  const first = await openWorld();
  const world = await first.restart(db);
  const { orgId } = await world.customer(1_000);
  const { key } = await world.rooms.accounts.createKey({
    orgId,
    name: 'k',
    scopes: ['full_access', 'supply: write'],
    expiresMs: null,
  });
  const http = await serve(world, hasRoom);
  const call = (method: 'GET' | 'POST', url: string) =>
    http.inject({ method, url, headers: { authorization: `Bearer ${key}`, 'idempotency-key': 'same' } });
  disk.fill();
  const refused = await call('POST', '/v1/community/supplier');
  expect([refused.status, refused.headers['retry-after']]).toEqual([503, '30']);
  expect(JSON.parse(refused.body)).toMatchObject({ code: 'unavailable' });
  expect((await call('GET', '/v1/balance')).status).toBe(200);
  expect((await call('GET', '/readyz')).status).toBe(503);
  expect((await call('GET', '/healthz')).status).toBe(200);
  disk.empty();
  expect((await call('POST', '/v1/community/supplier')).status).toBe(200);
  await http.close();
  await world.close();
  db = openSqlite(join(disk.dir, 'a.db'), { clock });
});

const BALLAST_BYTES = 8 * MIB;

interface Ballasted {
  world: World;
  http: Http;
  who: WorldAccount;
  call(
    method: 'GET' | 'POST' | 'DELETE',
    url: string,
    body?: object,
  ): Promise<{ status: number; retryAfter: string | undefined; body: string }>;
  /** The errors in the log. */
  errors: string[];
  close(): Promise<void>;
}

/** A service on the small disk, with a ballast beside its database. */
async function openBallasted(): Promise<Ballasted> {
  await db.close();
  const errors: string[] = [];
  const noisy = createLog('test', 'error', { write: (line) => void errors.push(line) });
  const path = join(disk.dir, 'a.db');
  const ballast = openBallast(`${path}.ballast`, BALLAST_BYTES, { clock, rng: systemRng(), log: noisy });
  db = openSqlite(path, { clock, makeRoom: ballast.release });
  await ballast.restore();
  const first = await openWorld();
  const world = await first.restart(db);
  await first.close();
  const who = await world.customer(10_000);
  const scopes = ['full_access', 'supply: write', 'instances: write', 'instances: read', 'files: write'];
  const { key, id } = await world.rooms.accounts.createKey({ orgId: who.orgId, name: 'k', scopes, expiresMs: null });
  const http = await serve(world, ballast.hasRoom);
  return {
    world,
    http,
    who: { orgId: who.orgId, principalId: id },
    errors,
    call: async (method, url, body) => {
      const headers = {
        authorization: `Bearer ${key}`,
        'idempotency-key': crypto.randomUUID(),
        'content-type': 'application/json',
      };
      const reply = await http.inject({
        method,
        url,
        headers,
        ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
      });
      return { status: reply.status, retryAfter: reply.headers['retry-after'], body: reply.body };
    },
    close: async () => {
      ballast.close();
      await http.close();
      await world.close();
      db = openSqlite(path, { clock });
    },
  };
}

test('on a really full disk, deletes work at once, rentals end and are billed, and everything that stores gets 503 until there is space', async () => {
  const { world, who, call, errors, close } = await openBallasted();
  await world.machine({ gpus: 2 });
  const rented = await world.run(who);
  const key = world.rooms.blobs.newKey('files');
  const stored = await world.rooms.blobs.write(key, Readable.from([Buffer.alloc(9)]), { bytesMax: 9, signal });
  const file = {
    id: 'file-mine',
    org_id: who.orgId,
    purpose: 'fine-tune' as const,
    filename: 'a.jsonl',
    bytes: stored.bytes,
    sha256: stored.sha256,
    blob_key: key,
    report: { valid: true, examples: 1, estimated_tokens: 1, problems_found: 0, problems: [], repeated_examples: 0 },
    created_ms: clock.now(),
  };
  await db.tx('test.file', (tx) => insertFile(tx, file));
  expect((await call('GET', '/readyz')).status).toBe(200);
  await clock.advance(60_000);

  disk.fill();
  expect(disk.freeBytes()).toBe(0);
  // No request before this one has met the full disk.
  expect((await call('DELETE', `/v1/instances/${rented}`)).status).toBe(202);
  expect((await call('DELETE', '/v1/files/file-mine')).status).toBe(200);
  await world.observe(rented, { phase: 'removed' });
  await world.drive();
  expect(await world.journal(rented)).toEqual(expect.arrayContaining(['instance.stopping', 'instance.terminated']));
  for (const url of ['/v1/instances', '/v1/community/supplier']) {
    expect(await call('POST', url, url === '/v1/instances' ? LAUNCH : undefined)).toMatchObject({
      status: 503,
      retryAfter: '30',
    });
  }
  expect((await call('GET', '/readyz')).body).toContain('the disk of the database is full');
  expect((await call('GET', '/readyz')).status).toBe(503);
  expect((await call('GET', '/v1/balance')).status).toBe(200);
  expect(errors.map((line) => (JSON.parse(line) as { msg: string }).msg)).toEqual([
    expect.stringContaining('the disk of the database is full: deletes and running instances go on'),
  ]);
  await clock.advance(60_000);
  expect((await call('POST', '/v1/community/supplier')).status).toBe(503);

  disk.empty();
  await expect.poll(async () => (await clock.advance(5_000), (await call('GET', '/readyz')).status)).toBe(200);
  expect((await call('POST', '/v1/community/supplier')).status).toBe(200);
  await world.verify();
  await close();
});

test('bodies that share a commit without space are retried together, whether a statement or the commit fails', async () => {
  await db.close();
  const path = join(disk.dir, 'a.db');
  const ballast = openBallast(`${path}.ballast`, BALLAST_BYTES, { clock, rng: systemRng(), log });
  db = openSqlite(path, { clock, makeRoom: ballast.release });
  await ballast.restore();
  disk.fill();
  await Promise.all([write(), write(4), write()]);
  expect(await orgs()).toBe(6);
  // Only the ballast can free space.
  disk.empty();
  disk.fill();
  await expect(Promise.all([write(), write(), write()])).rejects.toMatchObject({ code: 'disk_full' });
  ballast.close();
});

test('a start on a full disk uses up the ballast that the process before has left', async () => {
  await db.close();
  const path = join(disk.dir, 'a.db');
  const deps = { clock, rng: systemRng(), log };
  const before = openBallast(`${path}.ballast`, BALLAST_BYTES, deps);
  await before.restore();
  before.close();
  disk.fill();
  const ballast = openBallast(`${path}.ballast`, BALLAST_BYTES, deps);
  db = openSqlite(path, { clock, makeRoom: ballast.release });
  await write();
  expect([await orgs(), ballast.hasRoom(), ballast.release()]).toEqual([1, false, false]);
  await ballast.restore();
  expect(ballast.hasRoom()).toBe(false);
  disk.empty();
  await expect.poll(async () => (await clock.advance(5_000), ballast.hasRoom())).toBe(true);
  ballast.close();
});

test('the ballast is written only if twice its size is free, and its own writing never uses up the rest', async () => {
  const path = join(disk.dir, 'ballast');
  const lines: string[] = [];
  const noisy = createLog('test', 'info', { write: (line) => void lines.push(line) });
  const ballast = openBallast(path, BALLAST_BYTES, { clock, rng: systemRng(), log: noisy });
  disk.fill(2 * BALLAST_BYTES - 4096);
  await ballast.restore();
  expect([ballast.hasRoom(), ballast.release(), disk.freeBytes()]).toEqual([false, false, 2 * BALLAST_BYTES - 4096]);
  disk.empty();
  disk.fill(2 * BALLAST_BYTES);
  await expect.poll(async () => (await clock.advance(5_000), ballast.hasRoom())).toBe(true);
  expect(disk.freeBytes()).toBe(BALLAST_BYTES);
  expect(lines.map((line) => (JSON.parse(line) as { level: number }).level)).toEqual([50, 30]);
  expect([ballast.release(), disk.freeBytes(), ballast.release()]).toEqual([true, 2 * BALLAST_BYTES, false]);
  ballast.close();
});

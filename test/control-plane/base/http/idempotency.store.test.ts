// Idempotency-Key on a real database: replays, reuse, concurrency, crashes, refusals, the fence and retention.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { openIdempotency } from '../../../../control-plane/base/http/idempotency.ts';
import { refusalReply } from '../../../../control-plane/base/http/refusals.ts';
import type { WireReply } from '../../../../control-plane/base/http/route.ts';
import { type Clock, systemClock } from '../../../../shared/clock.ts';
import { fail } from '../../../../shared/errors.ts';
import { createIds } from '../../../../shared/ids.ts';
import { IDEMPOTENCY_KEEP_MS, IDEMPOTENCY_KEYS_PER_API_KEY_MAX } from '../../../../shared/limits.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { as, type Bench, openBench, openEffectsDb, problemOf } from './fixture.ts';

/** Waiting takes real time; the wall clock can be set. */
let now = 1_700_000_000_000;
const clock: Clock = { ...systemClock(), now: () => now };

let db: Db;
let bench: Bench;
beforeEach(async () => {
  db = await openEffectsDb(clock);
  bench = await openBench({ db, clock });
});
afterEach(async () => {
  await bench.close();
  await db.close();
});

const send = (on: Bench, key: string | undefined, payload: object = { name: 'a' }, token = 'all'): Promise<WireReply> =>
  on.http.inject({
    method: 'POST',
    url: '/v1/things',
    headers: as(token, key === undefined ? {} : { 'idempotency-key': key }),
    payload,
  });

describe('the Idempotency-Key header', () => {
  test('is required', async () => {
    const reply = await send(bench, undefined);
    expect(reply.status).toBe(400);
    expect(problemOf(reply)).toMatchObject({
      code: 'idempotency_key_required',
      errors: [{ field: 'Idempotency-Key' }],
    });
  });
  // Specification 2.1: Idempotency-Key has at most 255 characters.
  test('has 1 to 255 characters', async () => {
    expect((await send(bench, 'k')).status).toBe(202);
    expect((await send(bench, 'k'.repeat(255))).status).toBe(202);
    for (const key of ['', 'k'.repeat(256), 'a\tb']) {
      const reply = await send(bench, key);
      expect(reply.status).toBe(400);
      expect(problemOf(reply).code).toBe('idempotency_key_invalid');
    }
  });
});

test('one API key may use a limited number of keys in 24 hours; the next one gets 429 and stores nothing, other API keys are not affected', async () => {
  const used = IDEMPOTENCY_KEYS_PER_API_KEY_MAX - 1;
  const hourMs = Math.floor(now / 3_600_000) * 3_600_000 - 22 * 3_600_000;
  await send(bench, 'first');
  await db.tx('plant', (tx) =>
    tx.run(sql`insert into idempotency_counts (api_key_id, hour_ms, count)
               select api_key_id, ${hourMs}, ${used - 1} from idempotency_counts`),
  );
  expect((await send(bench, 'last')).status).toBe(202);
  const refused = await send(bench, 'one more');
  expect([refused.status, refused.headers['retry-after']]).toEqual([429, '3600']);
  expect(problemOf(refused).code).toBe('rate_limit_exceeded');
  // A replay uses no new key.
  expect((await send(bench, 'last')).headers['idempotent-replayed']).toBe('true');
  expect((await send(bench, 'k', {}, 'other')).status).not.toBe(429);
  now += 3 * 3_600_000;
  expect((await send(bench, 'one more')).status).toBe(202);
});

describe('a repeated request', () => {
  // Specification 8: An equal request has no second effect and gets the same answer.
  test('gets the same bytes, the operation id and the replay header, and has no second effect', async () => {
    const first = await send(bench, 'k1', { name: 'a', size: 2 });
    const again = await send(bench, 'k1', { size: 2, name: 'a' });
    expect(first.headers['idempotent-replayed']).toBeUndefined();
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(again.body).toBe(first.body);
    expect(again.status).toBe(first.status);
    expect(again.headers['operation-id']).toBe(first.headers['operation-id']);
    expect(again.headers['content-type']).toBe(first.headers['content-type']);
    expect(first.headers['x-volatile']).toBe('x');
    expect(again.headers['x-volatile']).toBeUndefined();
    expect(again.headers['x-request-id']).not.toBe(first.headers['x-request-id']);
    expect(await bench.effects()).toBe(1);
  });
  // Specification 8: Equal requests at the same time have one effect.
  test('sent fifty times at once has one effect and one answer', async () => {
    const replies = await Promise.all(Array.from({ length: 50 }, () => send(bench, 'k2')));
    expect(new Set(replies.map((reply) => `${reply.status} ${reply.body}`)).size).toBe(1);
    expect(replies.filter((reply) => reply.headers['idempotent-replayed'] === undefined)).toHaveLength(1);
    expect(await bench.effects()).toBe(1);
  });
  test('with another API key is a new request', async () => {
    await send(bench, 'k3');
    const reply = await send(bench, 'k3', { name: 'a' }, 'other');
    expect(reply.headers['idempotent-replayed']).toBeUndefined();
    expect(await bench.effects()).toBe(2);
  });
  test('with another body is refused', async () => {
    await send(bench, 'k4', { name: 'a' });
    for (const payload of [{ name: 'b' }, { name: 'a', size: 1 }, { name: 'a', parts: [] }]) {
      const reply = await send(bench, 'k4', payload);
      expect(reply.status).toBe(422);
      expect(problemOf(reply).code).toBe('idempotency_key_reused');
    }
    expect(await bench.effects()).toBe(1);
  });
  test('a day later is a new request', async () => {
    await send(bench, 'k5');
    now += IDEMPOTENCY_KEEP_MS - 1;
    expect((await send(bench, 'k5')).headers['idempotent-replayed']).toBe('true');
    now += 1;
    expect((await send(bench, 'k5', { name: 'b' })).headers['idempotent-replayed']).toBeUndefined();
    expect(await bench.effects()).toBe(2);
  });
});

describe('a refusal', () => {
  test.each(['insufficient_balance', 'conflict'])('of the business logic is stored: %s', async (refuse) => {
    const first = await send(bench, 'r1', { name: 'a', refuse });
    const again = await send(bench, 'r1', { name: 'a', refuse });
    expect(problemOf(first).code).toBe(refuse);
    expect(again).toMatchObject({ status: first.status, body: first.body });
    expect(again.headers['idempotent-replayed']).toBe('true');
    expect(await bench.effects()).toBe(0);
  });
  test.each(['validation_failed', 'rate_limit_exceeded', 'bug'])(
    'that may go away leaves the key free: %s',
    async (refuse) => {
      expect((await send(bench, 'r2', { name: 'a', refuse })).status).toBeGreaterThanOrEqual(400);
      const corrected = await send(bench, 'r2', { name: 'a' });
      expect(corrected.status).toBe(202);
      expect(corrected.headers['idempotent-replayed']).toBeUndefined();
      expect(await bench.effects()).toBe(1);
    },
  );
  test('by the schema or the scope does not use the key', async () => {
    expect((await send(bench, 'r3', { name: 5 })).status).toBe(422);
    expect((await send(bench, 'r3', { name: 'a' }, 'reader')).status).toBe(403);
    expect((await send(bench, 'r3')).status).toBe(202);
  });
});

test('a refusal that official clients must not try again says so when it is sent again too', async () => {
  const path = '/v1/videos';
  const request = { principalId: 'apk_all', method: 'POST', path, key: 'r4', query: {}, body: {} };
  const ids = createIds(clock, systemRng());
  const idempotency = openIdempotency({ clock, ids, log: createLog('test', 'silent'), db, epoch: () => 1 });
  const ask = (): Promise<WireReply> =>
    idempotency.run(request, {
      refusal: (error) => refusalReply(error, { requestId: 'req_1', path }),
      handle: async () => fail('conflict', 'a planted refusal'),
    });
  const [first, again] = [await ask(), await ask()];
  expect([first.status, first.headers['x-should-retry']]).toEqual([409, 'false']);
  expect(again).toEqual({ ...first, headers: { ...first.headers, 'idempotent-replayed': 'true' } });
});

describe('a claim', () => {
  const request = { principalId: 'apk_all', method: 'POST', path: '/v1/x', key: 'c1', query: {}, body: { a: 1 } };
  const deps = { clock, ids: createIds(clock, systemRng()), log: createLog('test', 'silent') };
  const refusal = (): WireReply => ({ status: 409, headers: {}, body: '' });
  const reply = { status: 201, body: { ok: true } };

  test('of a process that died before it finished is free at once, with any body', async () => {
    const died = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    const before = openIdempotency({ ...deps, db, epoch: () => 1 });
    const lost = before.run(request, {
      refusal,
      handle: async (settle) => {
        entered.resolve();
        await died.promise;
        await db.tx('late', (tx) => settle(tx, reply));
        return reply;
      },
    });
    await entered.promise;
    const after = openIdempotency({ ...deps, db, epoch: () => 2 });
    const taken = await after.run({ ...request, body: { a: 2 } }, { refusal, handle: async () => reply });
    expect(taken.status).toBe(201);
    died.resolve();
    // The fence: the request that lost the claim has its effect rolled back.
    await expect(lost).rejects.toMatchObject({ code: 'idempotency_key_in_use' });
  });

  test('of a request in progress makes a repeated one wait, then answers 409 with Retry-After; another body is refused at once', async () => {
    const go = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    // If the time were real, the test would wait two seconds.
    const fast: Clock = { ...clock, monotonicMs: () => clock.monotonicMs() * 40 };
    const idempotency = openIdempotency({ ...deps, clock: fast, db, epoch: () => 1 });
    const handle = async (): Promise<typeof reply> => {
      entered.resolve();
      await go.promise;
      return reply;
    };
    const first = idempotency.run(request, { refusal, handle });
    await entered.promise;
    await expect(idempotency.run(request, { refusal, handle })).rejects.toMatchObject({
      code: 'idempotency_key_in_use',
      details: { retryAfterSeconds: 1 },
    });
    await expect(idempotency.run({ ...request, body: {} }, { refusal, handle })).rejects.toMatchObject({
      code: 'idempotency_key_reused',
    });
    go.resolve();
    expect((await first).status).toBe(201);
    expect((await idempotency.run(request, { refusal, handle })).headers['idempotent-replayed']).toBe('true');
  });

  test('can be taken over after its lease', async () => {
    const go = Promise.withResolvers<void>();
    const entered = Promise.withResolvers<void>();
    const idempotency = openIdempotency({ ...deps, db, epoch: () => 1 });
    const slow = idempotency.run(request, {
      refusal,
      handle: async () => {
        entered.resolve();
        await go.promise;
        return reply;
      },
    });
    await entered.promise;
    now += 120_000;
    expect((await idempotency.run(request, { refusal, handle: async () => reply })).status).toBe(201);
    go.resolve();
    await expect(slow).rejects.toMatchObject({ code: 'idempotency_key_in_use' });
  });

  test('is made for each path and key that a request may have', async () => {
    const idempotency = openIdempotency({ ...deps, db, epoch: () => 1 });
    const handle = async (): Promise<typeof reply> => reply;
    // PostgreSQL compresses what it indexes, so the path has no pattern.
    const noise = Buffer.from(systemRng().bytes(7_500)).toString('base64url');
    const long = { ...request, path: `/v1/x/${noise}`, key: '\u00ff'.repeat(255) };
    expect((await idempotency.run(long, { refusal, handle })).status).toBe(201);
    expect((await idempotency.run(long, { refusal, handle })).headers['idempotent-replayed']).toBe('true');
    const other = await idempotency.run({ ...long, path: `${long.path}a` }, { refusal, handle });
    expect(other.headers['idempotent-replayed']).toBeUndefined();
  });

  test('whose effect is rolled back after settling stores no reply', async () => {
    const idempotency = openIdempotency({ ...deps, db, epoch: () => 1 });
    const failing = idempotency.run(request, {
      refusal,
      handle: (settle) =>
        db.tx('fails', async (tx) => {
          await settle(tx, reply);
          throw new Error('after settling');
        }),
    });
    await expect(failing).rejects.toThrow('after settling');
    const again = await idempotency.run(request, { refusal, handle: async () => reply });
    expect(again.headers['idempotent-replayed']).toBeUndefined();
  });
});

test('keys older than a day are deleted, and no younger ones', async () => {
  await send(bench, 'old');
  now += 1;
  await send(bench, 'young');
  now += IDEMPOTENCY_KEEP_MS - 1;
  expect(await bench.http.purgeIdempotencyKeys(new AbortController().signal)).toBe(1);
  expect((await send(bench, 'young')).headers['idempotent-replayed']).toBe('true');
});

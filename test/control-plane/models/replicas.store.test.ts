// Replicas on a real database: they wake for a caller, scale, drain and are replaced; the platform's revenue pays the supplier.
import { describe, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { PLATFORM_ORG } from '../../../control-plane/base/accounts/accounts.ts';
import { payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { failedMachines, lastReplicas } from '../../../control-plane/models/replicas/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import {
  anotherServer,
  chat,
  live,
  loop,
  openReplicasForEachTest,
  POOL,
  server,
  serverOf,
  startAll,
  tick,
  trusted,
  waiting,
} from './replica-world.ts';

openReplicasForEachTest();

describe('a tier without a running replica', () => {
  test('wakes for a caller, who waits and gets the answer', async () => {
    const { machineId } = await trusted();
    const answer = chat();
    await waiting(1);
    expect(await live()).toMatchObject([{ state: 'starting', pool_id: POOL }]);
    expect(await startAll()).toMatchObject([{ state: 'ready', machine_id: machineId }]);
    expect(await answer).toMatchObject({ status: 200, json: { model: 'acme/tiny' } });
    // The readiness check, then the call.
    expect(server.asked.map(({ body }) => body['max_tokens'])).toEqual([1, 1_024]);
    expect(server.asked[1]?.headers.host).toMatch(/^rep-.*\.replica$/);
  });

  test('starts once for many callers', async () => {
    await trusted();
    await trusted();
    const answers = [chat(), chat()];
    await waiting(2);
    expect(await live()).toHaveLength(1);
    await startAll();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200]);
  });

  test('starts as many replicas as the callers need, all at once, and never more than its maximum', async () => {
    for (let n = 0; n < 3; n += 1) await trusted();
    const answers = Array.from({ length: 7 }, () => chat());
    await waiting(7);
    await tick();
    expect(await live()).toHaveLength(2);
    await startAll();
    for (let second = 0; second < 5; second += 1) await tick();
    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual(answers.map(() => 200));
  });

  test('is not woken by a request that is refused for its own fault', async () => {
    await trusted();
    expect(await chat({ temperature: 9 })).toMatchObject({ status: 422 });
    await api.world.drive();
    expect(await live()).toEqual([]);
  });

  test('starts nothing on a machine that the operator does not trust', async () => {
    await api.world.machine({ dollars: 2 });
    const answer = chat();
    await waiting(1);
    expect(await live()).toEqual([]);
    const [row] = await lastReplicas(api.world.db.read, POOL, 1);
    expect(row?.ended_because).toContain('0 on machines that the operator trusts');
    for (let n = 0; n < 125; n += 1) await tick();
    expect(await answer).toMatchObject({ status: 503, json: { error: { code: 'upstream_unavailable' } } });
  });
});

describe('a caller who waits', () => {
  test('is refused with Retry-After after the start deadline, and pays nothing', async () => {
    await trusted();
    const answer = chat();
    await waiting(1);
    await tick(120_000);
    await tick();
    const { status, headers, json } = await answer;
    expect([status, json['error']]).toMatchObject([503, { code: 'upstream_unavailable' }]);
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
    const { json: balance } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(balance).toMatchObject({ held_cents: 0 });
  });

  test('does not notice that the first replica fails and another machine answers', async () => {
    const bad = await trusted(1);
    const good = await trusted(2);
    serverOf.set(bad.machineId, null);
    const answer = chat();
    await waiting(1);
    expect(await startAll()).toMatchObject([{ state: 'starting' }]);
    for (let n = 0; n < 5; n += 1) await tick();
    const [first] = await live();
    expect(first?.unready_because).toContain('nothing listens on port 8000 of the container');
    await api.world.observe(first?.instance_id ?? '', { phase: 'failed', failure_code: 'start_failed', detail: 'no' });
    await api.world.drive();
    const [second] = await live();
    expect(second?.instance_id).toBeTruthy();
    await startAll();
    await tick();
    expect(await live()).toMatchObject([{ state: 'ready', machine_id: good.machineId }]);
    expect((await answer).status).toBe(200);
  });
});

describe('a replica', () => {
  const ready = async (): Promise<string> => {
    const answer = chat();
    await waiting(1);
    await startAll();
    expect((await answer).status).toBe(200);
    return (await live())[0]?.id ?? '';
  };

  test('is a rental of the platform, which its revenue pays to the supplier', async () => {
    const { supplierId } = await trusted(3);
    const id = await ready();
    const instance = await findInstance(api.world.db.read, (await live())[0]?.instance_id ?? '');
    expect(instance).toMatchObject({ org_id: PLATFORM_ORG, name: `model ${POOL}`, status: 'running' });
    const { ledger } = api.world.rooms;
    const before = await ledger.balance(api.world.db.read, revenue);
    await api.world.clock.advance(3_600_000);
    await api.world.rooms.replicas.operator.drain(id);
    await tick();
    for (let n = 0; n < 20; n += 1) await tick();
    await api.world.observe(instance?.id ?? '', { phase: 'removed' });
    await api.world.drive();
    const earned = await ledger.balance(api.world.db.read, payable(supplierId));
    // 80 % of three dollars for an hour and some seconds.
    expect(Number(earned.postedUcents) / 1e8).toBeCloseTo(2.4, 1);
    const own = await ledger.balance(api.world.db.read, wallet(PLATFORM_ORG));
    const after = await ledger.balance(api.world.db.read, revenue);
    expect(own.postedUcents).toBeGreaterThan(0n);
    expect(before.postedUcents).toBeLessThan(0n);
    expect(after.postedUcents).toBeGreaterThan(before.postedUcents);
  });

  test('goes on for as long as it is needed, because its wallet is filled again', async () => {
    const { supplierId } = await trusted(4);
    const id = await ready();
    await api.world.rooms.replicas.operator.scale(POOL, { min: 1, max: 1 });
    const loops = brought(api.world.brings(), 'loops');
    const [metering, warnings] = ['metering', 'balance-warnings'].map((wanted) =>
      loops.find(({ name }) => name === wanted),
    );
    const signal = new AbortController().signal;
    for (let minute = 0; minute < 6 * 60; minute += 1) {
      await api.world.clock.advance(60_000);
      await metering?.run(signal);
      await loop('replica-funds');
    }
    await warnings?.run(signal);
    await api.world.drive();
    const [row] = await live();
    expect(row).toMatchObject({ id, state: 'ready' });
    expect(await api.world.journal(row?.instance_id ?? '')).not.toContain('instance.balance_low');
    const { postedUcents } = await api.world.rooms.ledger.balance(api.world.db.read, payable(supplierId));
    // 80 % of four dollars an hour. The last hour is posted a little later.
    expect(Number(postedUcents) / 1e8).toBeGreaterThanOrEqual(5 * 3.2);
  });

  test('drains after the idle time and gives its machine back, but never cuts a request', async () => {
    await trusted();
    await ready();
    const slow = Promise.withResolvers<void>();
    server.next({ after: slow.promise });
    const answer = chat();
    await server.came(3);
    for (let minute = 0; minute < 4; minute += 1) await tick(60_000);
    expect(await live()).toMatchObject([{ state: 'ready' }]);
    const [row] = await live();
    const { id = '', instance_id: instanceId = null } = row ?? {};
    await api.world.rooms.replicas.operator.drain(id);
    for (let n = 0; n < 30; n += 1) await tick();
    expect(await live()).toMatchObject([{ state: 'draining' }]);
    slow.resolve();
    expect((await answer).status).toBe(200);
    for (let n = 0; n < 3; n += 1) await tick();
    expect(await live()).toEqual([]);
    expect((await findInstance(api.world.db.read, instanceId ?? ''))?.status).toBe('stopping');
    await api.world.observe(instanceId ?? '', { phase: 'removed' });
    await api.world.drive();
    expect((await findInstance(api.world.db.read, instanceId ?? ''))?.status).toBe('terminated');
  });

  test('ends by itself when nobody has called for the idle time', async () => {
    await trusted();
    await ready();
    await tick(119_000);
    expect(await live()).toMatchObject([{ state: 'ready' }]);
    await tick();
    // The step of the clock looks like an absence, after which nothing drains for some seconds.
    for (let n = 0; n < 25; n += 1) await tick();
    expect(await live()).toEqual([]);
    const [row] = await lastReplicas(api.world.db.read, POOL, 1);
    expect(row?.ended_because).toBe('it was not needed any more');
  });

  test('that is lost is replaced on another machine while requests come', async () => {
    const first = await trusted(1);
    const second = await trusted(2);
    const lost = await anotherServer();
    serverOf.set(first.machineId, lost);
    await ready();
    await lost.close();
    const answer = chat();
    for (let n = 0; n < 40; n += 1) await tick();
    await startAll();
    await tick();
    expect(await live()).toMatchObject([{ state: 'ready', machine_id: second.machineId }]);
    expect((await answer).status).toBe(200);
  });

  test('that fails after hours is replaced elsewhere, and on its own machine if there is no other', async () => {
    const only = await api.world.machine({ dollars: 2, gpus: 2 });
    await api.world.rooms.supply.setTrusted(only.machineId, true);
    const broken = await anotherServer();
    serverOf.set(only.machineId, broken);
    await ready();
    await api.world.db.tx('test.age', (tx) =>
      tx.run(sql`update model_replicas set created_ms = created_ms - 10800000`),
    );
    await broken.close();
    const answer = chat();
    for (let n = 0; n < 40; n += 1) await tick();
    expect(await failedMachines(api.world.db.read, POOL, api.world.clock.now() - 60_000)).toEqual([only.machineId]);
    serverOf.delete(only.machineId);
    await startAll();
    await tick();
    expect(await live()).toMatchObject([{ state: 'ready', machine_id: only.machineId }]);
    expect((await answer).status).toBe(200);
  });

  test('is known to the next process, which answers with it at once', async () => {
    await trusted();
    await ready();
    const next = await api.restart();
    const found = next.world.rooms.replicas.loops.find(({ name }) => name === 'model-replicas');
    await found?.run(new AbortController().signal);
    const body = { model: POOL, messages: [{ role: 'user', content: 'hi' }] };
    expect((await next.call('POST', '/v1/chat/completions', { key: owner.key, body })).status).toBe(200);
    await next.world.rooms.gateway.close();
  });

  // Specification 8: Economy cold start: a server starts from zero, and the model shows how long that took (about 30 to 60 seconds).
  test('shows in GET /v1/models how long it took to wake', async () => {
    await trusted();
    const answer = chat();
    await waiting(1);
    await tick(20_000);
    await startAll();
    await answer;
    await loop('model-replicas');
    const { json } = await api.call('GET', '/v1/models', { key: owner.key });
    expect(json.data).toMatchObject([{ id: 'acme/tiny', cold_start_seconds: { p50: 20, p95: 20 } }]);
  });
});

// Commands that arrive at the same moment, on PostgreSQL, interleaved statement by statement: limits hold, nothing is sold twice, and the
// books agree, in whatever order the statements run.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { countRow, text } from '../../control-plane/base/db/columns.ts';
import { sql, type Tx } from '../../control-plane/base/db/db.ts';
import { openIdempotency, type Work } from '../../control-plane/base/http/idempotency.ts';
import { newReceipt } from '../kit/payers.ts';
import { freeOutcome, closeReceipt, openReceipt } from '../../control-plane/models/gateway/states.ts';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import { segmentsOf } from '../../control-plane/money/metering/store.ts';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { ServiceError } from '../../shared/errors.ts';
import { type Interleaved, interleave } from '../kit/interleave.ts';
import { someModels } from '../kit/models.ts';
import { whileTimePasses } from '../kit/virtual-clock.ts';
import { openWorldOver, type World, type WorldAccount } from '../kit/world.ts';

const HOUR_MS = 3_600_000;
const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3];

let world: World;
let interleaved: Interleaved;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave, {
    settings: { models: someModels(undefined) },
  }));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

/** The codes of the refusals. Throws for any other failure. */
function refusalsOf(results: readonly PromiseSettledResult<unknown>[]): string[] {
  return results.flatMap((result) => {
    if (result.status === 'fulfilled') return [];
    if (result.reason instanceof ServiceError) return [result.reason.code];
    throw result.reason;
  });
}

/** Starts the launch only: its id is found afterwards. */
const launch =
  (who: WorldAccount, request = {}) =>
  (): Promise<unknown> =>
    world.rooms.instances.create(
      who,
      { gpu_type: 'H100_SXM', gpu_count: 1, tier: 'on_demand', image: 'busybox', ...request },
      async () => undefined,
    );

const HeldRow = z.object({ held_by: text });
const held = (): Promise<{ held_by: string }[]> =>
  world.db.read.all(HeldRow, sql`select held_by from machine_gpus where held_by is not null`);

describe.each(SEEDS)('in the order of seed %d', (seed) => {
  test('two launches take one GPU each, or one of them waits for another host', async () => {
    const [one, two] = [await world.customer(100_000), await world.customer(100_000)];
    await world.machine({ gpus: 1 });
    expect(refusalsOf(await interleaved.run(seed, [launch(one), launch(two)]))).toEqual([]);
    expect(await held()).toHaveLength(1);
    await world.machine({ gpus: 2 });
    await world.drive();
    const holders = await held();
    expect(new Set(holders.map((row) => row.held_by)).size).toBe(holders.length);
  });

  test('launches on the GPUs of one host never take more than it has, and their ports differ', async () => {
    const who = await world.customer(100_000);
    const other = await world.customer(100_000);
    await world.machine({ gpus: 3 });
    await interleaved.run(seed, [launch(who, { gpu_count: 2 }), launch(other, { gpu_count: 2 }), launch(other)]);
    expect((await held()).length).toBeLessThanOrEqual(3);
    const ports = (await world.rooms.endpoints.openEndpoints(world.db.read)).map((row) => row.ssh_port);
    expect(new Set(ports).size).toBe(ports.length);
  });

  test('two launches that the balance covers once are one launch', async () => {
    await world.machine({ gpus: 2, dollars: 6 });
    // Ten minutes at $6 an hour are held for each launch.
    const who = await world.customer(150);
    expect(refusalsOf(await interleaved.run(seed, [launch(who), launch(who)]))).toEqual(['insufficient_balance']);
    expect(await held()).toHaveLength(1);
  });

  test('a rental that is removed, reported as gone and found unreachable at once ends once', async () => {
    await world.machine();
    const who = await world.customer(100_000);
    const id = await world.run(who);
    await world.clock.advance(HOUR_MS / 2);
    const rental = await findInstance(world.db.read, id);
    if (rental === undefined) throw new Error('the rental is gone');
    const { instances } = world.rooms;
    const confirm = (): Promise<unknown> =>
      interleaved.db.tx('test.confirm', async (tx) => {
        await instances.lock(tx, rental);
        return instances.confirmOutage(tx, rental, { sinceMs: world.clock.now() - 60_000, evidence: 'probes' });
      });
    const remove = (): Promise<unknown> => instances.remove(who, id, async () => undefined);
    const report = (): Promise<unknown> => world.observe(id, { phase: 'failed', detail: 'gone' });
    const results = await interleaved.run(seed, [remove, confirm, remove, report]);
    // The second removal may find that the rental has ended already.
    expect(refusalsOf(results).filter((code) => code !== 'not_found')).toEqual([]);
    await world.observe(id, { phase: 'removed' });
    await world.drive();
    expect((await findInstance(world.db.read, id))?.status).toBe('terminated');
    const types = await world.journal(id);
    expect(types.filter((type) => type === 'instance.terminated')).toHaveLength(1);
  });

  test('rentals of one machine that fail at once have one outage', async () => {
    await world.machine({ gpus: 3 });
    const ids: string[] = [];
    for (let count = 0; count < 3; count += 1) ids.push(await world.run(await world.customer(100_000)));
    // They were dead from their start on. So nothing is posted, and they do not wait for each other at the account of the supplier.
    const outage = { sinceMs: world.clock.now() - HOUR_MS, evidence: 'probes' };
    const { instances } = world.rooms;
    const fail = async (id: string): Promise<unknown> => {
      const rental = await findInstance(world.db.read, id);
      if (rental === undefined) throw new Error('the rental is gone');
      return interleaved.db.tx('test.confirm', async (tx) => {
        await instances.lock(tx, rental);
        return instances.confirmOutage(tx, rental, outage);
      });
    };
    const failing = ids.map((id) => () => fail(id));
    expect(refusalsOf(await interleaved.run(seed, failing))).toEqual([]);
    const rows = await world.db.read.all(
      z.object({ subject_id: text, outage_id: text }),
      sql`select subject_id, outage_id from free_times order by subject_id`,
    );
    expect(rows.map((row) => row.subject_id)).toEqual(ids.toSorted());
    expect(new Set(rows.map((row) => row.outage_id)).size).toBe(1);
  });

  test('rentals of one wallet that runs dry are charged side by side with requests to models', async () => {
    await world.machine({ gpus: 2, dollars: 2 });
    const who = await world.customer(200);
    await world.run(who);
    await world.run(who);
    await world.clock.advance(HOUR_MS / 3);
    const { metering, ledger } = world.rooms;
    const tick = (): Promise<unknown> => metering.tick(new AbortController().signal);
    const facts = { id: `rcp_${seed}`, held_ucents: 20_000_000n, opened_ms: world.clock.now() };
    const receipt = newReceipt(who, facts);
    const ask = async (): Promise<void> => {
      if ((await world.db.hot(openReceipt(receipt))) !== 'open') return;
      const outcome = { ...freeOutcome('completed'), charged_ucents: 10_000_000n };
      await world.db.hot(closeReceipt(receipt, outcome, { nowMs: world.clock.now(), attempts: [] }));
    };
    expect(refusalsOf(await interleaved.run(seed, [tick, ask, tick]))).toEqual([]);
    const { postedUcents, heldUcents } = await ledger.balance(world.db.read, wallet(who.orgId));
    expect(postedUcents).toBeGreaterThanOrEqual(heldUcents);
  });

  test('an own outage is credited once, whoever ticks and removes meanwhile', async () => {
    await world.machine({ gpus: 2 });
    const who = await world.customer(100_000);
    const [first, second] = [await world.run(who), await world.run(who)];
    await world.clock.advance(HOUR_MS);
    const { metering, instances } = world.rooms;
    const outage = { fromMs: world.clock.now() - HOUR_MS / 2, untilMs: world.clock.now(), evidence: 'we were away' };
    const credit = (): Promise<unknown> => metering.creditOwnOutage(outage);
    const tick = (): Promise<unknown> => metering.tick(new AbortController().signal);
    const remove = (): Promise<unknown> => instances.remove(who, first, async () => undefined);
    expect(refusalsOf(await interleaved.run(seed, [credit, tick, remove]))).toEqual([]);
    const nowMs = world.clock.now();
    const charged = await segmentsOf(world.db.read, [second]);
    // Half of the hour was the outage.
    expect(charged.reduce((sum, each) => sum + (each.ended_ms ?? nowMs) - each.started_ms, 0)).toBe(HOUR_MS / 2);
  });

  test('a token enrols one host', async () => {
    const made = await world.machine();
    const { supply } = world.rooms;
    const { token } = await world.db.tx('test.token', async (tx) => {
      await tx.lock('org', made.orgId);
      const row = { region: 'eu-west', priceUcentsPerHour: 1n, tier: 'on_demand' as const };
      const declared = { ...row, gpuCount: null, gpuType: null, vramPerGpuGb: null };
      return supply.registerMachine(tx, made.orgId, declared);
    });
    const enroll = (host: string) => (): Promise<unknown> =>
      supply.enroll({ token, public_key: host.padEnd(43, 'h'), inventory: { ...made.inventory, gpus: [] } });
    expect(refusalsOf(await interleaved.run(seed, [enroll('one'), enroll('two')]))).toEqual(['enrollment_token_used']);
  });

  test('two payouts pay what is owed once', async () => {
    const made = await world.machine();
    const { payouts } = world.rooms;
    const who = await world.customer(100_000);
    const id = await world.run(who);
    await world.clock.advance(2 * HOUR_MS);
    await world.end(who, id);
    const pay = (reference: string) => (): Promise<unknown> =>
      payouts.pay({ supplierId: made.supplierId, cents: null, reference });
    expect(refusalsOf(await interleaved.run(seed, [pay('a'), pay('b')]))).toEqual(['conflict']);
    const { unpaidCents } = await payouts.standing(world.db.read, made.supplierId);
    expect(unpaidCents).toBe(0n);
  });
});

test('a key that another process has revoked is refused at the next request, also where it is authenticated from memory', async () => {
  const { orgId, principalId, key } = await world.customer(100);
  const { accounts, gateway, ledger } = world.rooms;
  const caller = await accounts.authenticate(key, { confirmsKey: false });
  await world.db.tx('test.revoke', (tx) => tx.run(sql`update api_keys set revoked_ms = 1 where id = ${principalId}`));
  expect(await accounts.authenticate(key, { confirmsKey: false })).toBeUndefined();
  expect(await accounts.authenticate(key, { confirmsKey: true })).toEqual(caller);
  const body = { model: 'small', messages: [{ role: 'user' as const, content: 'hi' }] };
  const call = {
    caller: { orgId, principalId, scopes: [] },
    requestId: 'req_x',
    gone: new AbortController().signal,
    body,
  };
  await expect(gateway.completeChat(call)).rejects.toMatchObject({ code: 'unauthorized' });
  expect((await ledger.balance(world.db.read, wallet(orgId))).heldUcents).toBe(0n);
  expect(await accounts.authenticate(key, { confirmsKey: true })).toBeUndefined();
});

test('a repeated request holds nothing that the first one needs, while its packet waits for the wallet of that one', async () => {
  const who = await world.customer(100_000);
  const { db, clock, rooms, core } = world;
  const idempotency = openIdempotency({ ...core, db, epoch: () => 1 });
  const request = { ...who, method: 'POST', path: '/v1/videos', key: 'same', query: undefined, body: {} };
  const [held, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const reply = { status: 202, body: {} };
  const refusal = (error: ServiceError): never => {
    throw error;
  };
  const hold = (tx: Tx, ucents: bigint): Promise<void> =>
    rooms.ledger.setHold(tx, 'hold:test', wallet(who.orgId), ucents);
  // A video is submitted in this order: the wallet comes first, and the row of the key last.
  const submit: Work['handle'] = async (settle) => {
    await db.tx('test.submit', async (tx) => {
      await hold(tx, 1n);
      held.resolve();
      await go.promise;
      await hold(tx, 0n);
      await settle(tx, reply);
    });
    return reply;
  };
  const first = idempotency.run(request, { handle: submit, refusal });
  await held.promise;
  // The calls of a test go to two processes in turns, so each sends one packet with a repeated request and a paid one.
  const twice = <T>(call: (nth: number) => T): T[] => [0, 1].map(call);
  const again: Work['handle'] = () => Promise.reject(new Error('it was done twice'));
  const repeated = twice(() => idempotency.run(request, { handle: again, refusal }));
  const receipts = twice((nth) => newReceipt(who, { id: `rcp_${nth}`, held_ucents: 1n, opened_ms: clock.now() }));
  const opened = receipts.map((receipt) => db.hot(openReceipt(receipt)));
  const waiting = sql`select count(*) as count from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`;
  await expect.poll(() => db.read.one(countRow, waiting)).toEqual({ count: 2 });
  const free = sql`select 1 as count from idempotency_keys where idempotency_key = 'same' for update nowait`;
  expect(await db.tx('test.look', (tx) => tx.all(countRow, free))).toEqual([{ count: 1 }]);
  go.resolve();
  expect([await first, ...(await Promise.all(opened))]).toMatchObject([{ status: 202 }, 'open', 'open']);
  const replay = { headers: { 'idempotent-replayed': 'true' } };
  expect(await whileTimePasses(clock, Promise.all(repeated), 40)).toMatchObject([replay, replay]);
  for (const receipt of receipts)
    await db.hot(closeReceipt(receipt, freeOutcome('completed'), { nowMs: clock.now(), attempts: [] }));
});

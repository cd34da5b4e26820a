// The overview of operators: what the service does, what waits for a person, and whether its own work is in time.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { Overview } from '../../../shared/api/overview.ts';
import type { LoopStatus } from '../../../shared/loop.ts';
import { openOperator } from '../../kit/operator.ts';
import { runCommand } from '../../kit/operator-commands.ts';
import { openWorld, type World } from '../../kit/world.ts';
import { linkHost, loseHost } from '../../kit/machines.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.close();
});

const LOOP: LoopStatus = {
  name: 'watch',
  period_ms: 1_000,
  running: false,
  runs: 1,
  last_started_ms: 0,
  last_duration_ms: 4,
  last_success_ms: 0,
  last_error: null,
};

async function read(loops: readonly LoopStatus[] = [], startedMs = 0): Promise<Overview> {
  const secondaries = { count: async () => 2, endDead: async () => 0 };
  const operator = openOperator(world, { loops: () => [...loops], startedMs, epoch: () => 7, secondaries });
  const answer = await operator.ask('GET', '/admin/overview');
  await operator.http.close();
  return Overview.parse(answer);
}

describe('the figures', () => {
  test('are zero where nothing is', async () => {
    expect(await read()).toMatchObject({
      epoch: 7,
      secondaries: 2,
      ledger: { faults: 0, transfers: 0, new_proven_at: null },
      machines: { listed: 0, linked: 0 },
      gpus: { offered: 0, rented: 0, revenue_per_hour: '0.00' },
      outages: { machines: 0, rentals: 0 },
      launches: { asked: 0, ran: 0, failed: 0, median_seconds: null },
      disk: null,
      waiting: { count: 0, oldest: [] },
      models: [],
    });
  });

  test('count rented GPUs and what they bring, links, and launches with their median', async () => {
    const { machineId } = await world.machine({ gpus: 8, dollars: 2 });
    await world.machine({ gpus: 4, dollars: 3 });
    const who = await world.customer(1_000_000);
    await world.run(who, { gpu_count: 4 });
    const slow = await world.launch(who, { gpu_count: 2 });
    await world.clock.advance(90_000);
    await world.start(slow);
    const waits = await world.launch(who, { gpu_count: 2 });
    await loseHost(world, machineId);
    const { gpus, machines, launches, database_bytes: bytes } = await read();
    expect(gpus).toEqual({ offered: 4, rented: 6, revenue_per_hour: '12.00' });
    expect(machines).toEqual({ listed: 2, linked: 1 });
    expect(launches).toEqual({ seconds: 3_600, asked: 3, ran: 2, failed: 0, median_seconds: 90 });
    expect(bytes).toBeGreaterThan(100_000);
    await linkHost(world, machineId);
    await world.remove(who, waits);
    await world.drive();
    expect((await read()).launches).toMatchObject({ asked: 3, ran: 2, failed: 1 });
    await world.clock.advance(HOUR_MS);
    expect((await read()).launches.asked).toBe(0);
  });

  test('count rentals that are not charged, and the machines of them', async () => {
    await world.machine({ gpus: 2 });
    const who = await world.customer(1_000_000);
    const [first, second] = [await world.run(who), await world.run(who)];
    for (const id of [first, second]) {
      await world.db.tx('test.fail', (tx) =>
        world.rooms.metering.closeSegment(tx, id, world.clock.now(), 'the probes failed'),
      );
    }
    expect((await read()).outages).toEqual({ machines: 1, rentals: 2 });
  });

  test('count the transfers that were proven, in every proof once', async () => {
    await world.customer(1_000_000);
    await world.clock.advance(2 * MINUTE_MS);
    expect(await world.books.verify()).toEqual([]);
    const { transfers } = (await read()).ledger;
    expect(transfers).toBeGreaterThan(0);
    expect(await world.books.verify()).toEqual([]);
    expect((await read()).ledger).toMatchObject({ transfers, faults: 0 });
    expect((await read()).ledger.new_proven_at).not.toBeNull();
  });
});

describe('what waits for an operator', () => {
  test('is named with its command, oldest first, and is gone once it is decided', async () => {
    const { machineId } = await world.machine();
    await world.db.tx('test.wait', async (tx) => {
      await tx.run(sql`update machines set status = 'pending_verification', approved = 0 where id = ${machineId}`);
      await tx.run(sql`insert into machine_links (machine_id, first_ms) values (${machineId}, 4)
                       on conflict (machine_id) do update set first_ms = 4`);
      await tx.run(sql`insert into held_credits (id, kind, why, cause, subject_id, org_id, supplier_id, amount_ucents, wallet_ucents,
                         supplier_bps, from_ms, until_ms, evidence, state, created_ms)
                       values ('crd_1', 'credit', 'org_bound', 'outage', 'i', 'o', 's', 250000000, 0, 0, 0, 1, 'x', 'held', 3),
                         ('crd_2', 'credit', 'org_bound', 'outage', 'i', 'o', 's', 1, 0, 0, 0, 1, 'x', 'refused', 1)`);
      await tx.run(sql`insert into deposits (id, org_id, status, chain, asset, family, amount_cents, due_units, address, position,
                         created_ms, expires_ms, watched_until_ms)
                       values ('dep_1', 'o', 'held_screening', 'base', 'usdc', 'evm', 500000, 1, 'a', 1, 1, 0, 0),
                         ('dep_2', 'o', 'settled', 'base', 'usdc', 'evm', 1, 1, 'b', 2, 1, 0, 0)`);
      await tx.run(sql`insert into payouts (id, supplier_id, state, amount_ucents, created_ms)
                       values ('pay_1', 's', 'due', 100000000, 5), ('pay_2', 's', 'due', 50000000, 6), ('pay_3', 's', 'paid', 1, 0)`);
      await tx.run(sql`insert into disputes (id, instance_id, since_ms, reason, state, opened_ms)
                       values ('dis_1', 'i', 0, 'it was slow', 'open', 2), ('dis_2', 'j', 0, 'x', 'released', 1)`);
    });
    const { waiting } = await read();
    expect(waiting.oldest.map(({ kind, id, since }) => [kind, id, Date.parse(since)])).toEqual([
      ['deposit', 'dep_1', 1],
      ['dispute', 'dis_1', 2],
      ['credit', 'crd_1', 3],
      ['machine', machineId, 4],
      ['payout', 'pay_1', 5],
    ]);
    expect(waiting.count).toBe(5);
    expect(waiting.oldest.map(({ what }) => what)).toEqual([
      'The deposit of $5000.00 from the organisation o is held_screening.',
      'The rental i is disputed: it was slow',
      'A credit of $2.50 for the organisation o waits for your decision.',
      `The machine ${machineId} waits for your approval.`,
      '2 payouts are to be sent, $1.50 together.',
    ]);
    const dispute = waiting.oldest.find(({ kind }) => kind === 'dispute')?.command ?? '';
    expect(dispute).toBe('svc-control-plane admin dispute resolve dis_1 <--release or --refund> --note <text>');
    await runCommand(world, dispute.replace('<--release or --refund>', '--release').split(' ').slice(1));
    await world.rooms.supply.approve(machineId);
    expect((await read()).waiting.oldest.map(({ kind }) => kind)).not.toContain('machine');
    await world.db.tx('test.tidy', async (tx) => {
      for (const table of [sql`held_credits`, sql`deposits`, sql`payouts`, sql`disputes`])
        await tx.run(sql`delete from ${table}`);
    });
    expect((await read()).waiting).toEqual({ count: 0, oldest: [] });
  });

  test('names each batch that has payouts in flight, also one whose list nobody got', async () => {
    await world.db.tx('test.wait', (tx) =>
      tx.run(sql`insert into payouts (id, supplier_id, state, batch, amount_ucents, created_ms)
                 values ('a', 's', 'in_flight', 'monday', 100000000, 5), ('b', 's', 'in_flight', 'monday', 50000000, 3),
                   ('c', 's', 'in_flight', 'tuesday', 10000000, 7), ('d', 's', 'paid', 'sunday', 1, 0), ('e', 's', 'due', null, 1000000, 9)`),
    );
    const { waiting } = await read();
    expect(waiting.oldest.map(({ kind, id, what, since }) => [kind, id, what, Date.parse(since)])).toEqual([
      ['payout', 'monday', '2 payouts of the batch "monday" are to be entered as paid or failed, $1.50 together.', 3],
      ['payout', 'tuesday', '1 payout of the batch "tuesday" is to be entered as paid or failed, $0.10 together.', 7],
      ['payout', 'e', '1 payout is to be sent, $0.01 together.', 9],
    ]);
    await world.db.tx('test.tidy', (tx) => tx.run(sql`delete from payouts`));
  });

  test('names a machine whose identity two hosts have', async () => {
    const { machineId } = await world.machine();
    await world.rooms.supply.setCopied(machineId, true);
    expect((await read()).waiting.oldest).toMatchObject([{ kind: 'machine', id: machineId }]);
    await world.rooms.supply.setCopied(machineId, false);
    expect((await read()).waiting.count).toBe(0);
  });

  test.each([
    ['another driver', { driver_version: '570.86.10' }, 'the host runs the GPU driver 570.86.10'],
    ['another GPU', { uuid: 'GPU-foreign' }, 'the host showed what the operator has not approved: GPU-foreign'],
  ])('names a machine that has to be approved again for %s', async (_what, change, detail) => {
    const { machineId, inventory } = await world.machine();
    const sinceMs = world.clock.now();
    const gpus = inventory.gpus.map((gpu) => ({ ...gpu, ...change }));
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
    await world.clock.advance(HOUR_MS);
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus, agent_version: '9.9.9' });
    const { oldest } = (await read()).waiting;
    expect(oldest).toMatchObject([{ kind: 'machine', id: machineId, what: expect.stringContaining(detail) }]);
    expect(oldest.map(({ since }) => Date.parse(since))).toEqual([sinceMs]);
    await world.rooms.supply.approve(machineId);
    expect((await read()).waiting.count).toBe(0);
  });

  test('names overdue webhooks, and those that were given up in the last day', async () => {
    await world.clock.advance(2 * 24 * HOUR_MS);
    const nowMs = world.clock.now();
    await world.db.tx('test.webhooks', async (tx) => {
      const endpoint = (id: string, dueMs: number, status: string) =>
        tx.run(sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, due_ms, created_ms)
                   values (${id}, 'o', 'https://x', '[]', ${status}, 'x', ${dueMs}, 0)`);
      await endpoint('late', nowMs - 6 * MINUTE_MS, 'healthy');
      await endpoint('in time', nowMs - MINUTE_MS + 1, 'healthy');
      await endpoint('off', nowMs - 6 * MINUTE_MS, 'disabled');
      const delivery = (id: string, atMs: number, status: string, isTest = 0) =>
        tx.run(sql`insert into webhook_deliveries (id, endpoint_id, event_id, event_type, instance_id, instance_version, body, status, attempts,
                     max_attempts, next_trigger, deadline_ms, created_ms, completed_ms, is_test)
                   values (${id}, 'late', 'e', 't', 'i', 1, '{}', ${status}, 1, 1, 'x', 0, 0, ${atMs}, ${isTest})`);
      await delivery('a', nowMs - HOUR_MS, 'dead_lettered');
      await delivery('b', nowMs - 2 * HOUR_MS, 'dead_lettered');
      await delivery('old', nowMs - 25 * HOUR_MS, 'dead_lettered');
      await delivery('good', nowMs - HOUR_MS, 'delivered');
      await delivery('test', nowMs - HOUR_MS, 'dead_lettered', 1);
    });
    const { waiting, due } = await read([], nowMs);
    expect(waiting.oldest.map(({ what }) => what)).toEqual([
      '2 webhook deliveries were given up in the last 24 hours.',
      'Deliveries to the webhook endpoint late of the organisation o are overdue.',
    ]);
    expect(due.find(({ kind }) => kind === 'webhook_endpoints')).toEqual({
      kind: 'webhook_endpoints',
      count: 2,
      oldest_seconds: 360,
      per_minute: 0,
    });
  });
});

describe('loops', () => {
  test.each([
    ['ok', { last_success_ms: 10 * MINUTE_MS }],
    ['late', { last_success_ms: 10 * MINUTE_MS - 302_001 }],
    ['ok', { last_success_ms: 10 * MINUTE_MS - 302_000 }],
    ['failed', { last_success_ms: 10 * MINUTE_MS, last_error: 'no route' }],
    ['late', { last_success_ms: null }],
  ] as const)('are %s with %j', async (state, patch) => {
    await world.clock.advance(10 * MINUTE_MS - world.clock.now());
    const { loops, waiting } = await read([{ ...LOOP, ...patch }]);
    expect(loops).toMatchObject([{ name: 'watch', state }]);
    expect(waiting.oldest.map(({ kind }) => kind)).toEqual(state === 'ok' ? [] : ['loop']);
  });

  test('have a first run to end after a start', async () => {
    await world.clock.advance(10 * MINUTE_MS);
    const { loops } = await read([{ ...LOOP, last_started_ms: world.clock.now(), last_success_ms: null }]);
    expect(loops).toMatchObject([{ state: 'starting', last_success_at: null }]);
  });
});

test('due rows are counted with the age of the oldest', async () => {
  await world.machine();
  const id = await world.launch(await world.customer(1_000_000));
  const dueMs = world.clock.now();
  await world.db.tx('test.due', (tx) => tx.run(sql`update instances set due_ms = ${dueMs} where id = ${id}`));
  await world.clock.advance(7_000);
  const row = (await read()).due.find(({ kind }) => kind === 'instances');
  expect(row).toEqual({ kind: 'instances', count: 1, oldest_seconds: 7, per_minute: null });
});

test('a row is due at its time, and not a millisecond earlier', async () => {
  await world.machine();
  const id = await world.launch(await world.customer(1_000_000));
  for (const [inMs, count] of [
    [0, 1],
    [1, 0],
  ] as const) {
    const dueMs = world.clock.now() + inMs;
    await world.db.tx('test.due', (tx) => tx.run(sql`update instances set due_ms = ${dueMs} where id = ${id}`));
    expect((await read()).due.find(({ kind }) => kind === 'instances')).toMatchObject({ count });
  }
});

test('the command prints a table of each part, and the answer itself as JSON', async () => {
  await world.machine();
  const text = await runCommand(world, ['admin', 'overview']);
  for (const part of ['ledger', '1 of 1 machines', 'Needs you: 0', 'Due rows', 'video_jobs', 'Model servers\nnone'])
    expect(text).toContain(part);
  expect(text).toMatch(/rented +0 GPUs +on the market now: 1, rented or not; \$0\.00 an hour/);
  expect(Overview.parse(JSON.parse(await runCommand(world, ['admin', 'overview', '--json'])))).toMatchObject({
    machines: { listed: 1, linked: 1 },
  });
});

// The metrics of a small world at /metrics, and the alerts that use them.
import { existsSync, readFileSync, statfsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { parse } from 'yaml';
import { z } from 'zod';
import { sql } from '../../control-plane/base/db/db.ts';
import { FREE_COUNTED_MAX } from '../../control-plane/rental/endpoints/endpoints.ts';
import { certificateMeasure } from '../../control-plane/listeners.ts';
import { portMeasures } from '../../control-plane/rental/edge/public-ports.ts';
import { addMeasures, type Metrics, openMetrics } from '../../control-plane/base/http/metrics.ts';
import type { Gateway } from '../../control-plane/models/gateway/gateway.ts';
import { replicasBrings } from '../../control-plane/models/replicas/brings.ts';
import type { WakeCount } from '../../control-plane/models/replicas/replicas.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import { earnCents, nameDestination } from '../kit/payees.ts';
import { addDeposit, noteRead, offlineDeposits } from '../kit/deposits.ts';
import { fleetModels, someModels, videoModels } from '../kit/models.ts';
import { openWorld, type World } from '../kit/world.ts';
import { submitVideo } from './models/video-world.ts';
import { linkHost, loseHost } from '../kit/machines.ts';

let world: World;
let metrics: Metrics;
let loops: LoopStatus[];
beforeEach(async () => {
  const videos = videoModels([{ base_url: 'http://127.0.0.1:1/v1', engine: 'sglang' }]);
  world = await openWorld(1, { settings: { models: [...someModels(), ...videos] } });
  metrics = openMetrics();
  loops = [];
  const brings = world.brings({ loops: () => loops });
  const ofSockets = [...portMeasures({ unopened: () => 0 }), certificateMeasure({ api: undefined, apps: undefined })];
  addMeasures(metrics.registry, [...brought(brings, 'measures'), ...ofSockets]);
});
afterEach(() => world.close());

/** The scraped samples of one metric, without its name. */
async function scraped(name: string): Promise<string[]> {
  const lines = (await metrics.text()).split('\n');
  return lines.filter((line) => new RegExp(`^${name}[ {]`).test(line)).map((line) => line.slice(name.length).trim());
}

describe('the gauges', () => {
  test('count machines and unknown workloads', async () => {
    const { machineId } = await world.machine();
    await world.machine();
    await loseHost(world, machineId);
    expect((await scraped('svc_machines')).toSorted()).toEqual([
      '{status="listed",online="false"} 1',
      '{status="listed",online="true"} 1',
    ]);
    expect(await scraped('svc_machines_with_unknown_workloads')).toEqual(['0']);
    await world.db.tx('test.meet', (tx) => world.rooms.workloads.meet(tx, machineId, { epoch: 9, revision: 9 }));
    expect(await scraped('svc_machines_with_unknown_workloads')).toEqual(['0']);
    await linkHost(world, machineId);
    expect(await scraped('svc_machines_with_unknown_workloads')).toEqual(['1']);
    expect(await scraped('svc_agent_links')).toEqual(['0']);
    expect(await scraped('svc_verdicts_held')).toEqual(['0']);
  });
  test('count machines whose verification failed while they are listed', async () => {
    const { machineId, inventory } = await world.machine();
    expect(await scraped('svc_machines_failed')).toEqual(['0']);
    const gpus = inventory.gpus.map((gpu) => ({ ...gpu, uuid: 'GPU-other' }));
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
    expect(await scraped('svc_machines_failed')).toEqual(['1']);
    await world.rooms.supply.suspend(machineId);
    expect(await scraped('svc_machines_failed')).toEqual(['0']);
  });
  test('count held credits and flagged organisations', async () => {
    expect(await scraped('svc_credits_held')).toEqual([]);
    const time = { subjectId: 'i-1', orgId: 'o', supplierId: 's', machineId: 'm', cause: 'outage' as const };
    const worth = { rateUcentsPerHour: 25_050_000_000n, supplierBps: 8_000, countedMs: 3_600_000 };
    await world.db.tx('test.free', async (tx) => {
      await world.rooms.credits.begin(tx, { ...time, ...worth, fromMs: 0, evidence: 'probes' });
      await world.rooms.credits.end(tx, 'i-1', world.clock.now());
      await tx.run(sql`insert into credit_flags (org_id, flagged_ms, detail) values ('o', 1, 'x')`);
    });
    expect(await scraped('svc_credits_held')).toEqual(['{kind="credit"} 1']);
    expect(await scraped('svc_credits_held_dollars')).toEqual(['{kind="credit"} 150.5']);
    expect(await scraped('svc_tenants_flagged')).toEqual(['1']);
  });
  test('count the payouts that wait for the operator, and their amounts', async () => {
    expect(await scraped('svc_payouts_open')).toEqual([]);
    const { rooms } = world;
    for (const cents of [3_000, 4_050]) {
      const payee = await world.machine();
      await nameDestination(world, payee);
      await earnCents(world, payee.supplierId, cents);
    }
    await rooms.payouts.makeDue(new AbortController().signal);
    expect(await scraped('svc_payouts_open')).toEqual(['{state="due"} 2']);
    expect(await scraped('svc_payouts_open_dollars')).toEqual(['{state="due"} 70.5']);
    const [first] = await rooms.payouts.exportBatch('b');
    await rooms.payouts.sent(first?.id ?? '', '0x1');
    expect(await scraped('svc_payouts_open')).toEqual(['{state="in_flight"} 1']);
  });

  test('count deposits and those that wait, and show how far each chain was read', async () => {
    await world.close();
    world = await openWorld(1, { settings: { deposits: offlineDeposits(['base']) } });
    metrics = openMetrics();
    addMeasures(metrics.registry, brought(world.brings(), 'measures'));
    expect(await scraped('svc_deposits')).toEqual([]);
    expect(await scraped('svc_deposit_chain_paused')).toEqual([]);
    await noteRead(world, 'base');
    await addDeposit(world, 'dep_1', 'o');
    await world.clock.advance(90_000);
    expect(await scraped('svc_deposits')).toEqual(['{status="created"} 1']);
    const waiting = (held: number) => [`{reason="held"} ${held}`, '{reason="noted"} 0', '{reason="suspense"} 0'];
    expect(await scraped('svc_deposits_waiting')).toEqual(waiting(0));
    expect(await scraped('svc_deposit_chain_lag_seconds')).toEqual(['{chain="base"} 90']);
    expect(await scraped('svc_deposit_chain_paused')).toEqual(['{chain="base"} 0']);
    await world.db.tx('test.pause', async (tx) => {
      await tx.run(sql`update deposit_chains set paused_reason = 'x'`);
      await tx.run(sql`update deposits set status = 'held_screening'`);
    });
    expect(await scraped('svc_deposit_chain_paused')).toEqual(['{chain="base"} 1']);
    expect(await scraped('svc_deposits_waiting')).toEqual(waiting(1));
    expect(await scraped('svc_deposit_addresses_left_ratio')).toEqual([]);
    const address = (position: number, used: string | null, key: string | null) =>
      sql`insert into deposit_addresses (family, position, address, key_fingerprint, deposit_id, created_ms)
          values (${key === null ? 'solana' : 'evm'}, ${position}, ${`a${position}`}, ${key}, ${used}, 0)`;
    for (const each of [address(0, 'd', null), address(1, null, null), address(2, 'd', 'key')])
      await world.db.tx('test.address', (tx) => tx.run(each));
    expect(await scraped('svc_deposit_addresses_left_ratio')).toEqual(['{family="solana"} 0.5']);
  });
  test('show whether the database accepts writes, and how often the clock was set', async () => {
    expect(await scraped('svc_database_writable')).toEqual(['1']);
    expect(await scraped('svc_primary_since_timestamp_seconds')).toEqual(['{how="start"} 5']);
    await world.rooms.ownOutages.beat();
    world.clock.step(60_000);
    await world.rooms.ownOutages.beat();
    expect(await scraped('svc_clock_steps_total')).toEqual(['1']);
    const { tx } = world.core.db;
    world.core.db.tx = () => Promise.reject(new Error('disk full'));
    await world.clock.advance(1_000);
    expect(await scraped('svc_database_writable')).toEqual(['0']);
    world.core.db.tx = tx;
  });
  test('show the free space of the disk of the blobs before the first blob, which makes their folder', async () => {
    expect(existsSync(world.blobsDirectory)).toBe(false);
    const { blocks, bsize } = statfsSync(dirname(world.blobsDirectory));
    expect(await scraped('svc_blobs_disk_bytes')).toEqual([String(blocks * bsize)]);
    const [free = ''] = await scraped('svc_blobs_disk_free_bytes');
    expect(Number(free)).toBeGreaterThan(0);
    expect(Number(free)).toBeLessThan(blocks * bsize);
    expect(await scraped('svc_blobs_disk_reserve_bytes')).toEqual(['0']);
  });
  test('count the outcomes of requests to models, and what their servers refuse', async () => {
    expect(await scraped('svc_inference_requests_total')).toEqual([]);
    // One organisation alone cannot take a server out of use.
    const callers = [await world.customer(100), await world.customer(100)];
    const callOf = (i: number): Parameters<Gateway['completeChat']>[0] => ({
      caller: { orgId: callers[i % 2]?.orgId ?? '', principalId: callers[i % 2]?.principalId ?? '', scopes: [] },
      requestId: 'req_x',
      gone: new AbortController().signal,
      body: { model: 'small', messages: [{ role: 'user' as const, content: 'hi' }] },
    });
    // Nobody listens at this address.
    for (const count of [1, 2, 3, 4, 5]) {
      expect(await scraped('svc_inference_upstream_out')).toEqual(
        count === 1 ? [] : ['{upstream="http://127.0.0.1:9/v1",upstream_model="upstream/secret-name"} 0'],
      );
      await expect(world.rooms.gateway.completeChat(callOf(count))).rejects.toMatchObject({
        code: 'upstream_unavailable',
      });
      expect(await scraped('svc_inference_requests_total')).toEqual([
        `{model="acme/small-chat",ending="upstream_failed"} ${count}`,
      ]);
      expect(await scraped('svc_inference_upstream_failures_total')).toEqual([
        `{upstream="http://127.0.0.1:9/v1"} ${count}`,
      ]);
    }
    expect(await scraped('svc_inference_upstream_out')).toEqual([
      '{upstream="http://127.0.0.1:9/v1",upstream_model="upstream/secret-name"} 1',
    ]);
    expect(await scraped('svc_inference_open_requests')).toEqual(['0']);
  });
  test('count video jobs by status and outcome, and what their servers refuse', async () => {
    const who = await world.customer(100);
    const [first] = [await submitVideo(world, who), await submitVideo(world, who)];
    expect(await scraped('svc_videos')).toEqual(['{status="queued"} 2']);
    await world.drive();
    expect(await scraped('svc_inference_upstream_failures_total')).toEqual(['{upstream="http://127.0.0.1:1/v1"} 2']);
    await world.rooms.videos.cancel(who.orgId, first, async () => undefined);
    expect(await scraped('svc_videos')).toEqual(['{status="queued"} 1']);
    expect(await scraped('svc_videos_total')).toEqual(['{model="acme/director",status="cancelled"} 1']);
  });
  test.each([
    [FREE_COUNTED_MAX + 1, FREE_COUNTED_MAX, FREE_COUNTED_MAX - 1],
    [FREE_COUNTED_MAX, FREE_COUNTED_MAX, FREE_COUNTED_MAX - 2],
  ])('count the free ones of %i public ports up to a limit', async (ports, before, after) => {
    const small = await openWorld(1, { settings: { sshPorts: { first: 20_001, last: 20_000 + ports } } });
    try {
      const { endpoints } = small.rooms;
      await small.machine();
      expect(await endpoints.countFree(small.db.read)).toBe(before);
      await small.run(await small.customer(100_000), { ports: [{ port: 7000, protocol: 'tcp' }] });
      expect(await endpoints.countFree(small.db.read)).toBe(after);
    } finally {
      await small.close();
    }
    expect(await scraped('svc_public_ports_free')).toHaveLength(1);
  });
  test('show how long work has waited, and drop a status without jobs', async () => {
    await world.machine();
    const id = await world.launch(await world.customer(100_000));
    await world.clock.advance(90_000);
    expect(await scraped('svc_instances')).toEqual(['{status="allocating"} 1']);
    // Its host had a minute to acknowledge it.
    expect(await scraped('svc_instances_due_seconds')).toEqual(['30']);
    await world.start(id);
    expect(await scraped('svc_instances')).toEqual(['{status="running"} 1']);
    expect(await scraped('svc_instances_due_seconds')).toEqual(['0']);
    expect(await scraped('svc_machines_failing_probes')).toEqual(['0']);
  });
  test('show waiting and dead webhook deliveries, dead ones for an hour', async () => {
    const [nowMs, hour] = [world.clock.now(), 3_600_000];
    const rows = [
      ['w1', 'retrying', nowMs - 5_000, null],
      ['w2', 'pending', nowMs + 5_000, null],
      ['d1', 'dead_lettered', null, nowMs - hour + 1],
      ['d2', 'dead_lettered', null, nowMs - hour],
      ['s1', 'succeeded', null, nowMs],
    ] as const;
    await world.db.tx('test.deliveries', async (tx) => {
      await tx.run(sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, due_ms, created_ms)
        values ('e', 'o', '', '[]', 'healthy', '', ${nowMs - 5_000}, ${nowMs})`);
      for (const [id, status, nextMs, completedMs] of rows) {
        await tx.run(sql`insert into webhook_deliveries (id, endpoint_id, event_id, event_type, instance_id, instance_version, body,
            status, attempts, max_attempts, next_trigger, next_attempt_ms, deadline_ms, created_ms, completed_ms)
          values (${id}, 'e', ${id}, 'instance.running', 'i', 1, '', ${status}, 1, 5, 'schedule', ${nextMs}, ${nowMs}, ${nowMs}, ${completedMs})`);
      }
    });
    expect(await scraped('svc_webhook_deliveries_waiting')).toEqual(['2']);
    expect(await scraped('svc_webhook_deliveries_due_seconds')).toEqual(['5']);
    expect(await scraped('svc_webhook_dead_letters')).toEqual(['1']);
  });
  // Prometheus sees no increase in a series that begins at 1.
  test('show every model at 0 before its first wake and its first disagreement', async () => {
    await world.close();
    world = await openWorld(1, { settings: { models: fleetModels({}) } });
    const { clock, db, rooms } = world;
    const counted = { wakes: new Array<WakeCount>(), disagreements: new Array<{ poolId: string; count: number }>() };
    const counts = { wakes: () => counted.wakes, disagreements: () => counted.disagreements };
    metrics = openMetrics();
    addMeasures(
      metrics.registry,
      replicasBrings({ db, clock, catalog: rooms.catalog, keepMs: 0, replicas: { ...rooms.replicas, counts } })
        .measures,
    );
    const model = 'acme/tiny:economy';
    const wakes = (ready: number): string[] => [
      `{model="${model}",outcome="failed"} 0`,
      `{model="${model}",outcome="ready"} ${ready}`,
    ];
    expect((await scraped('svc_model_wakes_total')).toSorted()).toEqual(wakes(0));
    expect(await scraped('svc_model_disagreements_total')).toEqual([`{model="${model}"} 0`]);
    counted.wakes.push({ poolId: model, outcome: 'ready', count: 1 });
    counted.disagreements.push({ poolId: model, count: 1 });
    expect((await scraped('svc_model_wakes_total')).toSorted()).toEqual(wakes(1));
    expect(await scraped('svc_model_disagreements_total')).toEqual([`{model="${model}"} 1`]);
  });
  test('show loops, proofs and commits', async () => {
    const loop = { name: 'x', period_ms: 2000, running: false, runs: 1, last_started_ms: 1, last_duration_ms: 1 };
    loops = [{ ...loop, last_success_ms: null, last_error: 'no' }];
    expect(await scraped('svc_loop_last_success_timestamp_seconds')).toEqual(['{loop="x"} 0']);
    loops = [{ ...loop, last_success_ms: 7000, last_error: null }];
    expect(await scraped('svc_loop_last_success_timestamp_seconds')).toEqual(['{loop="x"} 7']);
    expect(await scraped('svc_loop_period_seconds')).toEqual(['{loop="x"} 2']);
    expect(await scraped('svc_ledger_faults')).toEqual(['0']);
    expect(await scraped('svc_ledger_verified_timestamp_seconds')).toEqual(['{extent="new"} 0', '{extent="whole"} 0']);
    await world.db.tx('test.tamper', (tx) =>
      tx.run(sql`insert into ledger_accounts (id, kind, owner_id, prepaid, debits_ucents, created_ms)
      values ('x', 'bad_debt', 'x', 0, 1, 1)`),
    );
    await world.books.verify();
    const now = world.clock.now() / 1000;
    expect(await scraped('svc_ledger_faults')).toEqual(['1']);
    expect(await scraped('svc_ledger_verified_timestamp_seconds')).toEqual([
      `{extent="new"} ${now}`,
      `{extent="whole"} ${now}`,
    ]);
    metrics.observeCommit(3, 0.004);
    expect(await scraped('svc_db_commit_duration_seconds_count')).toEqual(['1']);
    expect(await scraped('svc_db_commit_bodies_sum')).toEqual(['3']);
  });
});

describe('the alerts', () => {
  const Rules = z.strictObject({
    groups: z.array(
      z.strictObject({
        name: z.string(),
        rules: z.array(
          z.strictObject({
            alert: z.string(),
            expr: z.string(),
            for: z
              .string()
              .regex(/^\d+[mh]$/)
              .optional(),
            labels: z.strictObject({ severity: z.enum(['page', 'ticket']) }),
            annotations: z.strictObject({ summary: z.string().min(20) }),
          }),
        ),
      }),
    ),
  });
  const file = resolve(import.meta.dirname, '../../systemd/alerts.yaml');
  const rules = Rules.parse(parse(readFileSync(file, 'utf8'))).groups.flatMap((group) => group.rules);

  test('have different names', () => {
    expect(new Set(rules.map((rule) => rule.alert)).size).toBe(rules.length);
  });
  test('that compare a gauge with its past, or wait for days, look at all control planes together', () => {
    // A series of the former primary ends with it. Only svc_database_writable is asked for each control plane by itself.
    const alone =
      /(?<!max by \(job\) \()(?<!max by \(job, state\) \()(max|min|last)_over_time\((?!svc_database_writable)/;
    expect(rules.filter((rule) => alone.test(rule.expr)).map((rule) => rule.alert)).toEqual([]);
    const waits = rules.filter((rule) => Number(/^(\d+)h$/.exec(rule.for ?? '')?.[1] ?? 0) > 1);
    expect(waits.filter((rule) => !rule.expr.includes('last_over_time')).map((rule) => rule.alert)).toEqual([]);
  });
  test.each(rules.map((rule) => [rule.alert, rule.expr]))('%s uses metrics and labels that exist', async (_, expr) => {
    await expectExists(expr);
  });
});

describe('the dashboards', () => {
  const Dashboard = z.looseObject({
    uid: z.string().regex(/^svc-/),
    title: z.string(),
    schemaVersion: z.int(),
    templating: z.looseObject({ list: z.array(z.looseObject({ name: z.literal('datasource') })).length(1) }),
    panels: z.array(
      z.looseObject({
        id: z.int(),
        title: z.string().min(1),
        datasource: z.strictObject({ type: z.literal('prometheus'), uid: z.literal('${datasource}') }),
        gridPos: z.strictObject({ x: z.int(), y: z.int(), w: z.int(), h: z.int() }),
        targets: z.array(z.looseObject({ expr: z.string(), legendFormat: z.string() })).min(1),
      }),
    ),
  });
  const folder = resolve(import.meta.dirname, '../../systemd/dashboards');
  const boards = ['operator', 'supply', 'inference'].map((name) =>
    Dashboard.parse(JSON.parse(readFileSync(join(folder, `${name}.json`), 'utf8'))),
  );
  const targets = boards.flatMap(({ title, panels }) =>
    panels.flatMap((each) => each.targets.map((target) => [`${title}: ${each.title}`, target] as const)),
  );

  test('have different ids, and their panels do not overlap', () => {
    expect(new Set(boards.map(({ uid }) => uid)).size).toBe(boards.length);
    for (const { panels } of boards) {
      expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length);
      const cells = panels.flatMap(({ gridPos: { x, y, w, h } }) =>
        Array.from({ length: w * h }, (_, i) => `${x + (i % w)},${y + Math.floor(i / w)}`),
      );
      expect(new Set(cells).size).toBe(cells.length);
      expect(Math.max(...panels.map(({ gridPos: { x, w } }) => x + w))).toBeLessThanOrEqual(24);
    }
  });
  test.each(targets)('%s uses metrics and labels that exist', async (_, { expr, legendFormat }) => {
    const labels = await expectExists(expr);
    const shown = [...legendFormat.matchAll(/\{\{(\w+)\}\}/g)].map(([, label = '']) => label);
    expect(shown.filter((label) => !labels.has(label))).toEqual([]);
  });
});

/** Each metric of the expression is exported, and has the labels that the expression names. Returns all labels of these metrics. */
async function expectExists(expr: string): Promise<Set<string>> {
  const known = new Map<string, readonly string[]>();
  for (const { name, type, ...rest } of await metrics.registry.getMetricsAsJSON()) {
    const labels = (metrics.registry.getSingleMetric(name) as unknown as { labelNames: string[] }).labelNames;
    const ends = String(type) === 'histogram' ? ['_bucket', '_count', '_sum'] : [''];
    for (const end of ends) known.set(`${name}${end}`, labels);
    expect(rest.help).not.toBe('');
  }
  const asked = expr.match(/\b(svc|http|process|nodejs)_\w+/g) ?? [];
  expect(asked.length).toBeGreaterThan(0);
  expect(asked.filter((name) => !known.has(name))).toEqual([]);
  for (const [, name = '', inner = ''] of expr.matchAll(/(\w+)\{([^}]*)\}/g))
    for (const [, label = ''] of inner.matchAll(/(\w+)[=!]/g)) expect(known.get(name)).toContain(label);
  // Prometheus itself adds the last two to what it scrapes.
  const labels = new Set([...asked.flatMap((name) => known.get(name) ?? []), 'le', 'job', 'instance']);
  const grouped = [...expr.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, names = '']) => names.split(/,\s*/));
  expect(grouped.filter((label) => !labels.has(label))).toEqual([]);
  return labels;
}

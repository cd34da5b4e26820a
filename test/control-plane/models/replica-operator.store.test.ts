// What the operator sees of models on the fleet, and changes: limits, a drain, the reasons why nothing runs.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { brought } from '../../../control-plane/brings.ts';
import { addMeasures, openMetrics } from '../../../control-plane/base/http/metrics.ts';
import type { Http } from '../../../control-plane/base/http/server.ts';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { api } from '../../contract/api-of-test.ts';
import { fleetModels } from '../../kit/models.ts';
import { openOperator } from '../../kit/operator.ts';
import {
  chat,
  live,
  loop,
  openReplicasForEachTest,
  POOL,
  serverOf,
  startAll,
  tick,
  trusted,
  waiting,
} from './replica-world.ts';

openReplicasForEachTest();

let http: Http;
beforeEach(() => {
  ({ http } = openOperator(api.world));
});
afterEach(() => http.close());

type Answer = Record<string, unknown> & { data?: Record<string, unknown>[] };

async function ask(method: 'GET' | 'POST', url: string, payload?: object): Promise<Answer> {
  const reply = await http.inject({ method, url, ...(payload === undefined ? {} : { payload }) });
  return { status: reply.status, ...(JSON.parse(reply.body) as Answer) };
}
const show = (): Promise<Answer> => ask('GET', `/admin/models/tier?model=${encodeURIComponent(POOL)}`);
const replicas = async (): Promise<Record<string, unknown>[]> =>
  (await ask('GET', `/admin/models/replicas?model=${encodeURIComponent(POOL)}`)).data ?? [];
const scale = (min: number | null, max: number | null): Promise<Answer> =>
  ask('POST', '/admin/models/scale', { model: POOL, min_replicas: min, max_replicas: max });

async function runFor(ticks: number): Promise<void> {
  for (let n = 0; n < ticks; n += 1) await tick();
}

describe('a tier', () => {
  test('shows its limits, its replicas and its requests', async () => {
    await trusted();
    expect(await show()).toMatchObject({ status: 200, model: POOL, ready: 0, min_replicas: 0, max_replicas: 2 });
    const answer = chat();
    await waiting(1);
    expect(await show()).toMatchObject({ starting: 1, waiting_requests: 1, cannot_run_because: null });
    await startAll();
    await answer;
    await tick();
    expect(await show()).toMatchObject({ ready: 1, starting: 0, waiting_requests: 0, wake_seconds: 0 });
    expect((await ask('GET', '/admin/models')).data).toMatchObject([{ model: POOL, gpus: '1 x H100_SXM' }]);
    const [row] = await live();
    expect(await replicas()).toMatchObject([{ replica_id: row?.id, state: 'ready', instance_id: row?.instance_id }]);
  });

  test('follows limits of the file that change while its replicas run', async () => {
    await trusted();
    const answer = chat();
    await waiting(1);
    await startAll();
    await answer;
    const { catalog, replicas: pools } = api.world.rooms;
    const servers = (): readonly Upstream[] => pools.serversOf(catalog.get(POOL));
    const [before] = servers();
    await tick();
    expect(servers()).toEqual([before]);
    expect(servers()[0]).toBe(before);
    catalog.replace(fleetModels({ max_open_requests: 7 }));
    await tick();
    expect(servers()).toMatchObject([{ max_open_requests: 7, model: before?.model }]);
  });

  test('says why no machine can hold a replica', async () => {
    expect((await show())['cannot_run_because']).toBe(
      'No machine that the operator trusts offers 1 GPU of the type H100_SXM.',
    );
    const { machineId } = await api.world.machine();
    expect((await show())['cannot_run_because']).toContain('No machine that the operator trusts');
    await api.world.rooms.supply.setTrusted(machineId, true);
    expect((await show())['cannot_run_because']).toBeNull();
  });

  test('without a deployment is 404', async () => {
    const { status, detail } = await ask('GET', '/admin/models/tier?model=acme/tiny');
    expect([status, detail]).toEqual([404, expect.stringContaining('acme/tiny has no deployment')]);
  });
});

describe('scaling', () => {
  test('starts replicas at once and ends them again, and null returns to the file', async () => {
    await trusted();
    await trusted();
    expect(await scale(2, 3)).toMatchObject({ status: 200, min_replicas: 2, max_replicas: 3 });
    await api.world.drive();
    expect(await live()).toHaveLength(2);
    await startAll();
    expect(await scale(null, null)).toMatchObject({ min_replicas: 0, max_replicas: 2 });
    await runFor(300);
    expect(await live()).toEqual([]);
  });

  test('to none refuses callers at once, also those who wait, and lets them in again after another scaling', async () => {
    const waits = chat();
    await waiting(1);
    expect(await live()).toEqual([]);
    await scale(0, 0);
    const refused = { status: 503, json: { error: { code: 'upstream_unavailable' } } };
    expect(await waits).toMatchObject(refused);
    expect(await chat()).toMatchObject(refused);
    await trusted();
    await scale(null, null);
    const answer = chat();
    await waiting(1);
    // The failed starts have put the next one off.
    await runFor(20);
    await startAll();
    expect((await answer).status).toBe(200);
  });

  test('refuses a minimum above the maximum, and limits beyond the edges', async () => {
    expect(await scale(3, null)).toMatchObject({ status: 422, errors: [{ field: 'min_replicas' }] });
    expect(await scale(2, 2)).toMatchObject({ status: 200 });
    expect(await scale(0, 1_000)).toMatchObject({ status: 200 });
    expect(await scale(0, 1_001)).toMatchObject({ status: 422 });
    expect(await scale(-1, null)).toMatchObject({ status: 422 });
  });
});

test('metrics count replicas, waiting requests and starts, and name a model that has none ready', async () => {
  const metrics = openMetrics();
  addMeasures(metrics.registry, brought(api.world.brings(), 'measures'));
  const scraped = async (name: string): Promise<string[]> =>
    (await metrics.text())
      .split('\n')
      .flatMap((line) => (line.startsWith(`svc_model_${name}{`) ? [line.slice(10)] : []));
  api.world.rooms.catalog.replace(fleetModels({ min_replicas: 1 }));
  expect(await scraped('without_server')).toEqual([`without_server{model="${POOL}"} 1`]);
  // The limits that the operator has set count more than the file.
  await scale(0, 1);
  expect(await scraped('without_server')).toEqual([`without_server{model="${POOL}"} 0`]);
  api.world.rooms.catalog.replace(fleetModels({ min_replicas: 0 }));
  await scale(1, 1);
  expect(await scraped('without_server')).toEqual([`without_server{model="${POOL}"} 1`]);
  await trusted();
  const answer = chat();
  await waiting(1);
  expect(await scraped('waiting_requests')).toEqual([`waiting_requests{model="${POOL}"} 1`]);
  expect(await scraped('replicas')).toEqual([`replicas{model="${POOL}",state="starting"} 1`]);
  await startAll();
  await answer;
  expect(await scraped('replicas')).toEqual([`replicas{model="${POOL}",state="ready"} 1`]);
  expect(await scraped('without_server')).toEqual([`without_server{model="${POOL}"} 0`]);
  expect(await scraped('wakes_total')).toEqual([
    `wakes_total{model="${POOL}",outcome="ready"} 1`,
    `wakes_total{model="${POOL}",outcome="failed"} 0`,
  ]);
});

test('a replica is drained by hand, once', async () => {
  await trusted();
  await scale(1, 1);
  await api.world.drive();
  const [row] = await startAll();
  const drain = (): Promise<Answer> => ask('POST', `/admin/models/replicas/${row?.id}/drain`);
  expect(await drain()).toMatchObject({ status: 200, state: 'draining' });
  expect(await drain()).toMatchObject({ status: 409 });
  await runFor(30);
  expect(await replicas()).toContainEqual(
    expect.objectContaining({ replica_id: row?.id, state: 'ended', ended_because: 'it was not needed any more' }),
  );
});

test('a replica that does not get ready says why, and why it ended', async () => {
  const { machineId } = await trusted();
  serverOf.set(machineId, null);
  await scale(1, 1);
  await api.world.drive();
  await startAll();
  await tick();
  const why = 'its server does not answer: nothing listens on port 8000 of the container';
  expect(await replicas()).toMatchObject([{ state: 'starting', not_ready_because: why }]);
  await tick(120_000);
  expect((await replicas()).at(-1)).toMatchObject({
    state: 'ended',
    ended_because: `it was not ready after 120 s: ${why}`,
  });
  expect(await show()).toMatchObject({ failed_starts: expect.any(Number), last_failure: expect.any(String) });
});

test('a model that leaves the file gives its machines back, and a changed image replaces its replicas one by one', async () => {
  await trusted();
  await trusted();
  await scale(1, 2);
  await api.world.drive();
  const [old] = await startAll();
  api.world.rooms.catalog.replace(fleetModels({ image: 'ghcr.io/acme/llama:2' }));
  await loop('model-replicas');
  await runFor(3);
  expect((await live()).map(({ state }) => state)).toEqual(['ready', 'starting']);
  await startAll();
  await runFor(30);
  const rows = await live();
  expect(rows.map(({ deployment }) => deployment.image)).toEqual(['ghcr.io/acme/llama:2']);
  expect(rows[0]?.id).not.toBe(old?.id);
  api.world.rooms.catalog.replace([]);
  await loop('model-replicas');
  await runFor(30);
  expect(await live()).toEqual([]);
  expect((await chat()).status).toBe(404);
});

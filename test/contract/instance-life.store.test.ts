// The instance as the API shows it (specification 2.2, 3.1): every field at every station of its life, each way to its end, and its public events.
import { describe, expect, test } from 'vitest';
import { QUIET_AFTER_START_MS } from '../../control-plane/rental/instances/quiet.ts';
import { GRACE_MS } from '../../shared/limits.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const HOUR_MS = 3_600_000;
const DEAD = { ok: false, leg: 'banner', detail: 'banner: the connection was closed' } as const;
const HOST_SAYS = {
  pulling: {},
  failed: { detail: 'no such runtime' },
  stopped: {},
  missing: {},
};

openApiForEachTest();

const now = (): string => new Date(api.world.clock.now()).toISOString();
async function launch(body: object = {}): Promise<string> {
  expect((await postLaunch(api, owner, { ...LAUNCH, ...body })).status).toBe(202);
  return String((await newestInstance(api, owner))['id']);
}
/** The instance, which is the same in the list. */
async function read(id: string): Promise<Answer['json']> {
  const { json } = await api.call('GET', `/v1/instances/${id}`, { key: owner.key });
  expect(await newestInstance(api, owner)).toEqual(json);
  return json;
}
async function report(id: string, phase: keyof typeof HOST_SAYS): Promise<void> {
  await api.world.observe(id, { phase, ...HOST_SAYS[phase] });
  await api.world.drive();
}
/** Probes the SSH endpoints for `ms` of virtual time. */
async function watch(ms: number): Promise<void> {
  const { signal } = new AbortController();
  for (let passed = 0; passed < ms; passed += 1000) {
    await api.world.clock.advance(1000);
    await api.world.rooms.watch.run(signal);
  }
}
/** Dead for long enough to be unreachable. */
async function lose(id: string): Promise<void> {
  await watch(QUIET_AFTER_START_MS);
  api.world.probeAnswers.set(id, DEAD);
  await watch(60_000);
}
/** The types of its public events, oldest first. */
const publicEvents = async (id: string): Promise<string[]> =>
  (await api.world.journal(id)).filter((type) => /\.(creating|running|terminated|failed)$/.test(type));
const gpuSeconds = async (): Promise<number> => {
  const { json } = await api.call('GET', '/v1/usage?bucket=month', { key: owner.key });
  return Number(json.data?.[0]?.['gpu_seconds'] ?? 0);
};

// Specification 2.2: id, status, gpu_type, gpu_count, region, tier, price_per_hour and created_at are there at every station.
// Specification 2.2: name, ready_at, terminated_at and reservation_id are there at every station, a value or null.
// Specification 2.2: status goes from allocating through starting, running, unreachable and stopping to terminated.
// Specification 2.2: tier is on_demand.
// Specification 2.2: price_per_hour is the rate of the whole instance, covering all GPUs.
// Specification 2.2: ready_at is null before it runs, and from then on the time when it first ran.
// Specification 2.2: ready_at stays over an outage.
// Specification 2.2: terminated_at is null until it ends.
// Specification 2.2: reservation_id is null for on_demand.
// Specification 2.2: status_reason is absent while there is nothing to explain.
// Specification 2.2: unreachable_since is the start of the confirmed outage, present exactly while unreachable.
// Specification 2.2: connection has hostname, port and ssh_command once one can connect, and is null before.
// Specification 2.2: connection.terminal_url is there only on running instances: not while unreachable.
// Specification 3.1: starting goes to running once it has booted and SSH is live: instance.running, ready_at.
// Specification 3.1: unreachable goes back to running by itself, unreachable_since cleared.
// Specification 4.3: A list shows an instance as GET /v1/instances/{id} does.
// Specification 4.3: name is shown.
// Specification 6.1: instance.terminated: customer terminate.
test('an instance has exactly the fields of its status, from the request through an outage to its end', async () => {
  await api.world.machine({ gpus: 2, dollars: 1.5, region: 'eu-north' });
  const id = await launch({ gpu_count: 2, name: 'mine' });
  const always = {
    id,
    offering_id: expect.stringMatching(/^off_/) as string,
    host_rentable_until: null,
    vram_gb: 80,
    cpu_cores: 64,
    ram_gb: 511,
    gpu_type: 'H100_SXM',
    gpu_count: 2,
    region: 'eu-north',
    tier: 'on_demand',
    price_per_hour: 3,
    created_at: now(),
    name: 'mine',
    image: expect.stringMatching(/^busybox@sha256:[0-9a-f]{64}$/) as string,
    reservation_id: null,
  };
  expect(id).toMatch(/^i-[a-z2-7]{20}$/);
  const before = { ...always, ready_at: null, terminated_at: null, connection: null };
  expect(await read(id)).toEqual({ ...before, status: 'allocating' });
  await api.world.clock.advance(1000);
  await report(id, 'pulling');
  expect(await read(id)).toEqual({ ...before, status: 'starting' });
  await api.world.clock.advance(1000);
  await api.world.start(id);
  const ready = now();
  const connection = {
    hostname: `${id}.ssh.test`,
    port: expect.any(Number) as number,
    ssh_command: expect.stringMatching(new RegExp(`^ssh -p \\d+ root@${id}\\.ssh\\.test$`)) as string,
    host_key: 'ssh-ed25519 AAAA',
    terminal_url: `https://term-${id}.apps.test`,
    app_user: 'svc',
  };
  const running = { ...before, status: 'running', ready_at: ready, last_reachable_at: ready, connection };
  expect(await read(id)).toEqual(running);

  await lose(id);
  const down = await read(id);
  const { terminal_url: _console, ...reachable } = connection;
  const since = String(down['unreachable_since']);
  expect(down).toEqual({
    ...running,
    status: 'unreachable',
    connection: reachable,
    last_reachable_at: down['last_reachable_at'],
    unreachable_since: expect.stringMatching(/^\d{4}-.*Z$/) as string,
    status_reason: expect.stringContaining(`last proof of life ${since}`) as string,
  });
  expect(since >= String(down['last_reachable_at'])).toBe(true);
  api.world.probeAnswers.delete(id);
  await watch(12_000);
  const back = await read(id);
  expect(back).toEqual({ ...running, last_reachable_at: back['last_reachable_at'] });

  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  const stopping = { ...back, status: 'stopping', connection: null };
  expect(await read(id)).toEqual(stopping);
  await api.world.clock.advance(1000);
  await report(id, 'stopped');
  expect(await read(id)).toEqual({ ...stopping, status: 'terminated', terminated_at: now() });
  expect(await publicEvents(id)).toEqual(['instance.creating', 'instance.running', 'instance.terminated']);
});

// Specification 2.2: last_reachable_at is the last end-to-end check, absent before the first; it stops advancing when SSH has died.
test('last_reachable_at follows good probes within ten minutes, and stops at the last one before the first failed one', async () => {
  await api.world.machine();
  const id = await launch();
  expect(await read(id)).not.toHaveProperty('last_reachable_at');
  await api.world.start(id);
  const first = String((await read(id))['last_reachable_at']);
  await watch(11 * 60_000);
  const later = String((await read(id))['last_reachable_at']);
  expect(later > first).toBe(true);
  const goodMs = api.world.rooms.watch.goodSinceMs() ?? 0;
  api.world.probeAnswers.set(id, DEAD);
  await watch(36_000);
  const dying = await read(id);
  expect(Date.parse(String(dying['last_reachable_at']))).toBe(goodMs);
  await watch(15_000);
  expect(await read(id)).toMatchObject({ last_reachable_at: dying['last_reachable_at'] });
});

// Specification 2.2: auto_terminate_at is ready_at + auto_terminate_hours, absent before it runs.
test('auto_terminate_at is ready_at plus the limit, also during an outage, and absent before the instance runs', async () => {
  await api.world.machine();
  const id = await launch({ auto_terminate_hours: 3 });
  expect(await read(id)).not.toHaveProperty('auto_terminate_at');
  await api.world.start(id);
  const { ready_at: ready, auto_terminate_at: end } = await read(id);
  expect(Date.parse(String(end)) - Date.parse(String(ready))).toBe(3 * HOUR_MS);
  await lose(id);
  expect(await read(id)).toMatchObject({ status: 'unreachable', auto_terminate_at: end });
});

// Specification 2.2: auto_terminate_at stays after a DELETE: the platform has not begun to act on an elapsed limit.
test('auto_terminate_at remains after a DELETE: only the limit itself removes it', async () => {
  await api.world.machine();
  const id = await api.world.run(owner, { auto_terminate_hours: 3 });
  const { auto_terminate_at: end } = await read(id);
  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(await read(id)).toMatchObject({ status: 'stopping', auto_terminate_hours: 3, auto_terminate_at: end });
  await report(id, 'stopped');
  await api.world.clock.advance(4 * HOUR_MS);
  await api.world.drive();
  expect(await read(id)).toMatchObject({ status: 'terminated', auto_terminate_hours: 3, auto_terminate_at: end });
});

// Specification 2.2: region is required, also of a launch that found no place: the one asked for, or that of the cheapest offer.
test.each(['on_demand', 'spot'])(
  'a launch %s without capacity shows the requested region, or that of the cheapest offer',
  async (tier) => {
    await api.world.machine({ region: 'us-east', dollars: 3 });
    await api.world.machine({ region: 'eu-north', dollars: 1 });
    for (const [asked, shown] of [
      [{}, 'eu-north'],
      [{ region: 'ap-south' }, 'ap-south'],
    ] as const) {
      const body = tier === 'spot' ? { image: undefined, environment: 'certified' } : { gpu_count: 2 };
      const id = await launch({ ...body, tier, ...asked });
      expect((await read(id))['region']).toBe(shown);
      await api.world.drive();
      expect(await read(id)).toMatchObject({ status: 'error', region: shown });
    }
  },
);

// Specification 2.2: status_reason explains a running rental whose main process is over, and no longer than that.
test('main_exit and status_reason report the end of the main process, after an outage too, until the process runs again', async () => {
  await api.world.machine();
  const id = await api.world.run(owner);
  const exited = { phase: 'running', main_exit: { code: 1, signal: null } } as const;
  const over = 'main process exited with code 1';
  await api.world.observe(id, exited);
  expect(await read(id)).toMatchObject({ status: 'running', status_reason: over, main_exit: exited.main_exit });
  await lose(id);
  await api.world.observe(id, { ...exited, detail: 'news' });
  expect(await read(id)).toMatchObject({
    status_reason: expect.stringContaining('The SSH path is down'),
    main_exit: exited.main_exit,
  });
  api.world.probeAnswers.delete(id);
  await watch(12_000);
  expect(await read(id)).toMatchObject({ status: 'running', status_reason: over });
  await api.world.observe(id, { ...exited, main_exit: { code: null, signal: 'SIGKILL' } });
  expect(await read(id)).toMatchObject({
    status_reason: 'main process was ended by signal SIGKILL',
    main_exit: { code: null, signal: 'SIGKILL' },
  });
  await api.world.start(id);
  const again = await read(id);
  expect(again).not.toHaveProperty('status_reason');
  expect(again).not.toHaveProperty('main_exit');
});

test('an ended instance keeps the main_exit that its program had, and none that its own end has caused', async () => {
  await api.world.machine();
  const [done, busy] = [await api.world.run(owner), await api.world.run(owner)];
  await api.world.observe(done, { phase: 'running', main_exit: { code: 3, signal: null } });
  for (const id of [done, busy]) {
    expect((await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key })).status).toBe(202);
    await api.world.observe(id, { phase: 'finishing', main_exit: { code: 143, signal: null } });
    await api.world.observe(id, { phase: 'stopped', main_exit: { code: 143, signal: null } });
    await api.world.drive();
  }
  const shown = async (id: string) => (await api.call('GET', `/v1/instances/${id}`, { key: owner.key })).json;
  expect(await shown(done)).toMatchObject({ status: 'terminated', main_exit: { code: 3, signal: null } });
  expect(await shown(busy)).toMatchObject({ status: 'terminated' });
  expect(await shown(busy)).not.toHaveProperty('main_exit');
});

// Specification 2.2: name is that of the launch, of a later change, or null.
// Specification 4.3: PATCH changes the name.
// Specification 4.9: PATCH /v1/instances/{id} answers the instance.
test('a change of the name answers the changed instance; null removes the name', async () => {
  await api.world.machine();
  const id = await api.world.run(owner);
  for (const name of ['mine', null]) {
    const renamed = await api.call('PATCH', `/v1/instances/${id}`, { key: owner.key, body: { name } });
    expect(renamed).toMatchObject({ status: 200, json: { id, name } });
    expect(renamed.json).toEqual(await read(id));
  }
});

describe('the end', () => {
  // Specification 2.2: status is error if provisioning failed.
  // Specification 2.2: status_reason says why a launch failed.
  // Specification 3.1: A provisioning that fails goes to error: instance.failed, status_reason.
  // Specification 6.1: instance.failed: provisioning failed.
  test('of provisioning that fails is error: instance.failed, with the reason of the operation, and nothing is billed', async () => {
    await api.world.machine();
    const { json } = await postLaunch(api, owner, LAUNCH);
    const id = String((await newestInstance(api, owner))['id']);
    await report(id, 'pulling');
    await report(id, 'failed');
    const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
    const { detail } = operation.json['error'] as { detail: string };
    expect(detail).toContain('no such runtime');
    expect(await read(id)).toMatchObject({ status: 'error', status_reason: detail, ready_at: null, connection: null });
    expect(await publicEvents(id)).toEqual(['instance.creating', 'instance.failed']);
    expect(await gpuSeconds()).toBe(0);
  });

  // Specification 2.2: status_reason says why a rental failed.
  // Specification 3.1: A rental that fails for good goes to error: instance.failed, status_reason.
  // Specification 6.1: instance.failed: an unrecoverable error.
  test('of a rental whose container fails is error: instance.failed, with the reason of the host', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    await report(id, 'failed');
    expect(await read(id)).toMatchObject({ status: 'error', status_reason: 'no such runtime', connection: null });
    expect(await publicEvents(id)).toEqual(['instance.creating', 'instance.running', 'instance.failed']);
    const removal = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
    expect(removal).toMatchObject({ status: 202, json: { state: 'pending', resource_id: null } });
    const operation = await api.call('GET', `/v1/operations/${removal.headers['operation-id']}`, { key: owner.key });
    expect(operation.json).toMatchObject({ state: 'succeeded', completed_at: now() });
    expect(await read(id)).toMatchObject({ status: 'terminated', terminated_at: now() });
    expect(await publicEvents(id)).toHaveLength(3);
  });

  // Specification 2.2: status is stopped if the supplier's side ended it.
  // Specification 3.1: A stop from the supplier's side goes to stopped, which is final.
  // Specification 6.1: instance.terminated: supplier-side stop.
  test.each(['stopped', 'missing'] as const)(
    "from the supplier's side is stopped: instance.terminated, billing ends, and a DELETE finds nothing (%s)",
    async (phase) => {
      await api.world.machine();
      const id = await api.world.run(owner);
      await api.world.clock.advance(HOUR_MS);
      await report(id, phase);
      expect(await read(id)).toMatchObject({
        status: 'stopped',
        status_reason: expect.stringContaining('the host') as string,
        terminated_at: now(),
        connection: null,
      });
      expect(await publicEvents(id)).toEqual(['instance.creating', 'instance.running', 'instance.terminated']);
      await api.world.clock.advance(HOUR_MS);
      expect(await gpuSeconds()).toBe(3600);
      const removal = await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
      expect(removal).toMatchObject({ status: 404, json: { code: 'not_found' } });
    },
  );

  // Specification 2.2: unreachable_since is gone once the outage has ended the rental.
  // Specification 3.1: unreachable goes to error when its grace window lapses.
  test('of an outage that outlasts its grace is error: instance.failed, and unreachable_since is gone', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    await lose(id);
    const billed = await gpuSeconds();
    await watch(GRACE_MS);
    const failed = await read(id);
    expect(failed).toMatchObject({ status: 'error', status_reason: expect.stringContaining('too long') as string });
    expect(failed).not.toHaveProperty('unreachable_since');
    expect(await publicEvents(id)).toEqual(['instance.creating', 'instance.running', 'instance.failed']);
    expect(await gpuSeconds()).toBe(billed);
  });

  // Specification 3.1: DELETE of a running instance ends in terminated: billing stops, instance.terminated.
  test('by a DELETE stops billing with the request, however long the host takes', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    await api.world.clock.advance(HOUR_MS);
    await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
    await api.world.clock.advance(60_000);
    await report(id, 'stopped');
    expect(await read(id)).toMatchObject({ status: 'terminated', terminated_at: now() });
    expect(await gpuSeconds()).toBe(3600);
  });
});

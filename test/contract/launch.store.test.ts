// POST /v1/instances (specification 4.3): what each field must be, and what the instance shows of it afterwards. Bounds: limits.store.test.ts.
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { sql } from '../../control-plane/base/db/db.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made, newestInstance, openApi, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const HOUR_MS = 3_600_000;
const GB = 1024 ** 3;
const HTTP_80 = { port: 80, protocol: 'http' };

const launch = (body: object = {}): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });
const newest = (): Promise<Record<string, unknown>> => newestInstance(api, owner);
const read = async (id: string): Promise<Answer['json']> =>
  (await api.call('GET', `/v1/instances/${id}`, { key: owner.key })).json;

describe('a refused body', () => {
  // Specification 4.3: The reserved namespaces of env, PUBLIC_KEY and the SVC_ names, are refused (422).
  // Specification 4.3: gpu_type, gpu_count and tier are required; every broken rule of the body is 422 and names its field.
  // Specification 7.2: validation_failed: spot with image.
  // Specification 7.2: 422: reserved env namespace, invalid env keys, empty strings in cmd or entrypoint.
  test.each<[string, object, string, string]>([
    [
      'no gpu_type',
      { gpu_type: undefined },
      'gpu_type',
      'is required without template_id, offering_id and requirements.gpu_types',
    ],
    ['no gpu_count', { gpu_count: undefined }, 'gpu_count', 'is required'],
    ['no tier', { tier: undefined }, 'tier', 'is required'],
    ['an unknown tier', { tier: 'cheap' }, 'tier', 'must be one of on_demand, spot, reserved'],
    ['an unknown field', { gpus: 1 }, 'gpus', 'is not a known field'],
    ['a port twice', { ports: [HTTP_80, HTTP_80] }, 'ports[1].port', 'must not be listed twice'],
    ['a port without a number', { ports: [{ protocol: 'tcp' }] }, 'ports[0].port', 'is required'],
    ['a port without a protocol', { ports: [{ port: 80 }] }, 'ports[0].protocol', 'is required'],
    ['a port of udp', { ports: [{ port: 80, protocol: 'udp' }] }, 'ports[0].protocol', 'must be one of http, tcp'],
    [
      'a primary port of tcp',
      { ports: [{ port: 80, protocol: 'tcp', primary: true }] },
      'ports[0].protocol',
      'must be http for the primary port',
    ],
    ['an env key that is no name', { env: { 'A-B': 'x' } }, 'env.A-B', 'must be letters, digits and _'],
    ['an env key that begins with a digit', { env: { '1A': 'x' } }, 'env.1A', 'must be letters, digits and _'],
    ['PUBLIC_KEY', { env: { PUBLIC_KEY: 'x' } }, 'env.PUBLIC_KEY', 'is a reserved name'],
    ['an SVC_ name', { env: { A: 'x', SVC_X: 'x' } }, 'env.SVC_X', 'is a reserved name'],
    ['an env value that is no text', { env: { A: 1 } }, 'env.A', 'must be a string'],
    ['an empty string in cmd', { cmd: ['a', ''] }, 'cmd[1]', 'must not be an empty string'],
    ['an empty string in entrypoint', { entrypoint: [''] }, 'entrypoint[0]', 'must not be an empty string'],
    ['spot with an image', { tier: 'spot' }, 'tier', 'spot cannot be combined with image; use on_demand'],
    [
      'a GPU type beside a list of them',
      { requirements: { gpu_types: ['H100_SXM'] } },
      'requirements.gpu_types',
      'cannot be combined with gpu_type',
    ],
    [
      'a region that its requirements exclude',
      { region: 'eu-west', requirements: { regions: ['eu-north'] } },
      'region',
      'must be one of requirements.regions',
    ],
    [
      'requirements under a contract',
      { tier: 'reserved', requirements: { min_ram_gb: 1 } },
      'requirements',
      'cannot be combined with tier reserved',
    ],
    ['no region at all', { requirements: { regions: [] } }, 'requirements.regions', 'must have at least 1'],
    ['a version that is none', { requirements: { min_cuda_version: '12' } }, 'requirements.min_cuda_version', '12.8'],
    [
      'a requirement that nobody knows',
      { requirements: { min_gpus: 1 } },
      'requirements.min_gpus',
      'is not a known field',
    ],
    ['an offering of another type', { gpu_type: 'A100' }, 'offering_id', 'must be of gpu_type A100'],
  ])('with %s is 422, names the field and the rule, and makes nothing', async (_, body, field, rule) => {
    await api.world.machine();
    const before = await made(api, owner);
    const offering = (await api.call('GET', '/v1/pricing')).json.data?.[0]?.['offering_id'];
    const refused = await launch(field === 'offering_id' ? { ...body, offering_id: offering } : body);
    expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field }] } });
    expect(refused.json.errors?.map((error) => error.rule)).toEqual([expect.stringContaining(rule)]);
    expect(await made(api, owner)).toEqual(before);
  });

  // Specification 4.3: All that is wrong with a body is told at once.
  test.each<[object, string[]]>([
    [{ image: 'busybox' }, ['gpu_count', 'gpu_type', 'tier']],
    [{ image: 5, cmd: ['run'] }, ['gpu_count', 'image', 'tier']],
    [{ gpu_type: 5, tier: 'cheap' }, ['gpu_count', 'gpu_type', 'tier']],
    [{ ...LAUNCH, image: undefined, cmd: ['run'], gpus: 1 }, ['cmd', 'gpus']],
  ])('gets an error for each wrong field and for no other: %j', async (body, fields) => {
    const { json } = await postLaunch(api, owner, body);
    expect(json.errors?.map(({ field }) => field).toSorted()).toEqual(fields);
  });

  // Specification 4.3: gpu_type is one of GET /v1/gpu-types.
  // Specification 4.3: A gpu_type with no capable capacity is 422 image_unavailable.
  // Specification 7.2: image_unavailable is 422: no capable capacity.
  test('with a gpu_type that no host offers is image_unavailable, and makes nothing', async () => {
    await api.world.machine();
    const before = await made(api, owner);
    const refused = await launch({ gpu_type: 'ABACUS' });
    expect(refused).toMatchObject({
      status: 422,
      json: { code: 'image_unavailable', errors: [{ field: 'gpu_type', rule: 'must be on offer' }] },
    });
    expect(refused.json['detail']).toBe(
      'No host that can run this offers ABACUS. Choose a gpu_type from GET /v1/gpu-types.',
    );
    expect(await made(api, owner)).toEqual(before);
  });
});

// Specification 7.1: A 503 may carry Retry-After.
test('a launch without a free public port is 503 with the seconds to wait, and makes nothing', async () => {
  const small = await openApi({ settings: { sshPorts: { first: 30_000, last: 30_000 } } });
  const customer = await small.account();
  await small.world.machine({ gpus: 2 });
  expect((await postLaunch(small, customer, LAUNCH)).status).toBe(202);
  const before = await made(small, customer);
  const refused = await postLaunch(small, customer, LAUNCH);
  expect(refused).toMatchObject({ status: 503, json: { code: 'unavailable' }, headers: { 'retry-after': '60' } });
  expect(await made(small, customer)).toEqual(before);
  await small.close();
});

// Specification 4.3: Keys near the reserved namespaces of env are free.
test('names of variables that resemble the reserved names are accepted', async () => {
  await api.world.machine();
  const env = { PUBLIC_KEYS: 'x', svc_x: 'x', SVC: 'x', _: 'x', A_SVC_: 'x' };
  expect((await launch({ env })).status).toBe(202);
});

describe('disk_gb', () => {
  const roomy = { diskEnforced: true, storageBytes: 1000 * GB };
  const offeringOf = async (): Promise<string> =>
    String((await api.call('GET', '/v1/pricing')).json.data?.[0]?.['offering_id']);

  // Specification 4.3: disk_gb narrows placement to capable capacity.
  test('is placed only on hosts that enforce disk sizes, at both of its bounds', async () => {
    await api.world.machine({ dollars: 1 });
    await api.world.machine({ dollars: 2, gpus: 2, ...roomy });
    expect((await launch({ disk_gb: 10 })).status).toBe(202);
    expect(await newest()).toMatchObject({ disk_gb: 10, price_per_hour: 2 });
    // 10 GB are taken by the first one.
    expect((await launch({ disk_gb: 990 })).status).toBe(202);
    expect(await newest()).toMatchObject({ disk_gb: 990, price_per_hour: 2 + 890 * 0.0002 });
  });

  // Specification 4.3: No capable capacity for disk_gb is 422 disk_unavailable.
  // Specification 7.2: disk_unavailable is 422: no offering of the gpu_type honours disk_gb.
  test('is disk_unavailable with its field if no host enforces disk sizes', async () => {
    await api.world.machine();
    const refused = await launch({ disk_gb: 50 });
    expect(refused).toMatchObject({ status: 422, json: { code: 'disk_unavailable', errors: [{ field: 'disk_gb' }] } });
    await api.world.machine({ diskEnforced: true, storageBytes: 49 * GB });
    expect((await launch({ disk_gb: 50 })).json['code']).toBe('disk_unavailable');
    expect((await launch({ disk_gb: 49 })).status).toBe(202);
  });

  // Specification 4.3: disk_gb above the pinned offering's storage_gb is 422 disk_exceeds_offering.
  // Specification 7.2: disk_exceeds_offering is 422: disk_gb above the pinned offering's storage_gb.
  test('above the pinned offering is disk_exceeds_offering, and disk_unavailable if that offering enforces no size', async () => {
    await api.world.machine({ diskEnforced: true, storageBytes: 200 * GB });
    const offering_id = await offeringOf();
    const refused = await launch({ offering_id, disk_gb: 201 });
    expect(refused).toMatchObject({ status: 422, json: { code: 'disk_exceeds_offering' } });
    expect(refused.json.errors).toEqual([{ field: 'disk_gb', rule: 'must be at most 200' }]);
    expect((await launch({ offering_id, disk_gb: 200 })).status).toBe(202);
    await api.world.machine();
    const plain = await offeringOf();
    expect((await launch({ offering_id: plain, disk_gb: 20 })).json['code']).toBe('disk_unavailable');
  });

  // Specification 2.2: disk_gb is present only if the placed capacity honours a configured size; the default is 100 GB.
  // Specification 4.3: disk_gb omitted means 100 GB, and placement is not narrowed.
  // Specification 8: disk_gb: default and included allowance 100.
  test('is 100 GB by default on hosts that enforce sizes and absent on others, and no host is skipped', async () => {
    await api.world.machine({ dollars: 1, ...roomy });
    await launch();
    expect(await newest()).toMatchObject({ disk_gb: 100, price_per_hour: 1 });
    await api.world.machine({ dollars: 2 });
    await launch();
    expect(await newest()).not.toHaveProperty('disk_gb');
  });

  // Specification 4.3: Disk beyond 100 GB is folded into the hourly rate, inside the cap and outside of the viewed price.
  test('beyond 100 GB counts against max_price_per_hour, and not against viewed_price_per_hour', async () => {
    await api.world.machine({ dollars: 1, ...roomy });
    const price = 1 + 100 * 0.0002;
    const capped = await launch({ disk_gb: 200, max_price_per_hour: 1.019 });
    await api.world.drive();
    const operation = await api.call('GET', `/v1/operations/${String(capped.json['operation_id'])}`, {
      key: owner.key,
    });
    expect(operation.json).toMatchObject({ state: 'failed', error: { code: 'no_capacity' } });
    expect((await launch({ disk_gb: 200, max_price_per_hour: price, viewed_price_per_hour: 1 })).status).toBe(202);
    expect(await newest()).toMatchObject({ price_per_hour: price });
  });

  // Specification 2.3: instance_disk_gb is the size of a launch if its host honours sizes.
  // Specification 2.3: disk_configurable is true when one offering of several accepts a custom disk_gb.
  // Specification 2.3: Exact values of each offering are carried by the pricing rows.
  // Specification 2.4: A pricing row tells disk_price_per_gb_hour, storage_gb and disk_configurable.
  test('is described in the catalog', async () => {
    await api.world.machine();
    await api.world.machine(roomy);
    const { json } = await api.call('GET', '/v1/pricing');
    expect(
      json.data?.map((row) => [row['disk_configurable'], row['disk_price_per_gb_hour'], row['storage_gb']]),
    ).toEqual(
      expect.arrayContaining([
        [true, 0.0002, 1000],
        [false, 0, 4000],
      ]),
    );
    const types = await api.call('GET', '/v1/gpu-types');
    expect(types.json.data?.[0]).toMatchObject({ disk_configurable: true, instance_disk_gb: 100 });
  });
});

describe('auto_terminate_hours', () => {
  const elapse = async (ms: number): Promise<void> => {
    await api.world.clock.advance(ms);
    await api.world.drive();
  };

  // Specification 2.2: auto_terminate_hours is that of the launch and stays after the limit has fired.
  // Specification 2.2: auto_terminate_at is absent once an elapsed limit is acted on.
  // Specification 2.2: status_reason says that a runtime limit was reached.
  // Specification 3.1: A runtime limit ends a rental like a DELETE; status_reason records it, auto_terminate_hours stays, auto_terminate_at goes.
  // Specification 4.3: The countdown of auto_terminate_hours starts at running.
  // Specification 6.1: instance.terminated: a runtime limit.
  test('counts from running, shows its end, and ends the rental like a DELETE with the limit as its reason', async () => {
    await api.world.machine();
    await launch({ auto_terminate_hours: 2 });
    const id = String((await newest())['id']);
    expect(await read(id)).toMatchObject({ auto_terminate_hours: 2 });
    expect(await read(id)).not.toHaveProperty('auto_terminate_at');
    await elapse(50_000);
    await api.world.start(id);
    const ready = api.world.clock.now();
    expect(await read(id)).toMatchObject({
      status: 'running',
      auto_terminate_at: new Date(ready + 2 * HOUR_MS).toISOString(),
    });
    await elapse(2 * HOUR_MS - 1);
    expect(await read(id)).toMatchObject({ status: 'running' });
    await elapse(1);
    const stopping = await read(id);
    expect(stopping).toMatchObject({ status: 'stopping', auto_terminate_hours: 2 });
    expect(stopping).not.toHaveProperty('auto_terminate_at');
    await api.world.observe(id, { phase: 'stopped', main_exit: { code: 143, signal: null } });
    await api.world.drive();
    expect(await read(id)).toMatchObject({
      status: 'terminated',
      auto_terminate_hours: 2,
      status_reason: 'The runtime limit of 2 hours was reached.',
    });
    const events = await api.world.journal(id);
    expect(events.filter((type) => type === 'instance.terminated')).toHaveLength(1);
    expect(events).not.toContain('instance.failed');
    const usage = await api.call('GET', '/v1/usage?bucket=day', { key: owner.key });
    expect(usage.json.data?.[0]).toMatchObject({ gpu_seconds: 7200 });
  });

  test('is sent to the host once the rental runs, so that a host that is cut off ends it too', async () => {
    const { machineId } = await api.world.machine();
    const id = await api.world.run(owner, { auto_terminate_hours: 1 });
    const desired = await api.world.rooms.workloads.desired(machineId);
    expect(desired.workloads).toMatchObject([{ ends_at_ms: api.world.clock.now() + HOUR_MS, desired: 'running' }]);
    expect(desired.now_ms).toBe(api.world.clock.now());
    // The host has ended it by itself and says so only now.
    await api.world.clock.advance(HOUR_MS + 60_000);
    await api.world.observe(id, { phase: 'stopped' });
    await api.world.drive();
    expect(await read(id)).toMatchObject({ status_reason: 'The runtime limit of 1 hour was reached.' });
  });

  // Specification 2.2: auto_terminate_hours is absent without a limit.
  // Specification 2.2: auto_terminate_at is absent without a limit.
  // Specification 4.3: auto_terminate_hours omitted means no limit.
  test('is absent by default, and then no rental ends by itself', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    await elapse(800 * HOUR_MS);
    const instance = await read(id);
    expect(instance).toMatchObject({ status: 'running' });
    expect(instance).not.toHaveProperty('auto_terminate_hours');
    expect(instance).not.toHaveProperty('auto_terminate_at');
  });
});

describe('ports', () => {
  const PORTS = [
    { port: 8080, protocol: 'http', primary: true },
    { port: 9090, protocol: 'http' },
    { port: 5432, protocol: 'tcp' },
  ];
  const connectionOf = async (id: string, query = ''): Promise<unknown> =>
    (await api.call('GET', `/v1/instances/${id}${query}`, { key: owner.key })).json['connection'];

  // Specification 2.2: connection.app_url is https://<id>.{app_domain} for a custom image with a primary port.
  // Specification 4.3: Ports are reached at URLs and public ports; the primary one at the app URL.
  test('are reached at URLs and public ports once the instance runs', async () => {
    await api.world.machine();
    await launch({ ports: PORTS });
    const id = String((await newest())['id']);
    expect(await connectionOf(id)).toBeNull();
    await api.world.start(id);
    const connection = await connectionOf(id);
    expect(connection).toMatchObject({
      app_url: `https://${id}.apps.test`,
      terminal_url: `https://term-${id}.apps.test`,
      app_user: 'svc',
      ports: [
        { port: 9090, protocol: 'http', url: `https://p9090-${id}.apps.test` },
        { port: 5432, protocol: 'tcp', hostname: `${id}.ssh.test`, public_port: expect.any(Number) },
      ],
    });
    expect(connection).not.toHaveProperty('app_password');
  });

  // Specification 2.2: app_password is in no read but include=credentials, never in a list or operation.
  // Specification 4.3: include=credentials adds connection.app_password, and nothing else shows it.
  test('have a password that only include=credentials shows, and no list, operation or event', async () => {
    await api.world.machine();
    const { json: accepted } = await launch({ ports: PORTS });
    const id = String((await newest())['id']);
    await api.world.start(id);
    const shown = (await connectionOf(id, '?include=credentials')) as { app_password: string };
    expect(shown.app_password).toMatch(/^[\w-]{32}$/);
    expect(await connectionOf(id, '?include=credentials')).toEqual(shown);
    const elsewhere = ['/v1/instances', `/v1/instances/${id}`, `/v1/instances/${id}/events`];
    elsewhere.push(`/v1/operations/${String(accepted['operation_id'])}`);
    for (const url of elsewhere) {
      expect((await api.call('GET', url, { key: owner.key })).body).not.toContain(shown.app_password);
    }
    const renamed = await api.call('PATCH', `/v1/instances/${id}`, { key: owner.key, body: { name: 'x' } });
    expect(renamed).toMatchObject({ status: 200, json: { connection: { app_user: 'svc' } } });
    expect(renamed.body).not.toContain(shown.app_password);
    const Stored = z.object({ app_password_sealed: z.string() });
    const stored = await api.world.db.read.one(Stored, sql`select app_password_sealed from endpoints`);
    expect(stored?.app_password_sealed).not.toContain(shown.app_password);
    const wrong = await api.call('GET', `/v1/instances/${id}?include=secrets`, { key: owner.key });
    expect(wrong).toMatchObject({ status: 422, json: { errors: [{ field: 'include' }] } });
  });

  // Specification 2.2: connection.terminal_url is there on running instances, with or without an application.
  test('are none by default, and the console and its login remain', async () => {
    await api.world.machine();
    const id = await api.world.run(owner);
    const connection = await connectionOf(id, '?include=credentials');
    const app = { app_user: 'svc', app_password: expect.stringMatching(/^[\w-]{32}$/) };
    expect(connection).toMatchObject({ terminal_url: `https://term-${id}.apps.test`, ...app });
    for (const member of ['app_url', 'ports']) expect(connection).not.toHaveProperty(member);
  });

  // Specification 2.2: connection.app_user is the user of app_url and terminal_url, absent if neither is served.
  test('and the console need a domain of the operator: without it, SSH is the only login', async () => {
    const bare = await openApi({ settings: { appSite: undefined } });
    try {
      await bare.world.machine();
      const account = await bare.account();
      await postLaunch(bare, account, { ...LAUNCH, ports: PORTS });
      const { id } = await newestInstance(bare, account);
      await bare.world.start(String(id));
      const read = await bare.call('GET', `/v1/instances/${String(id)}?include=credentials`, { key: account.key });
      const { connection } = read.json as { connection: object };
      expect(connection).toHaveProperty('ssh_command');
      for (const member of ['app_url', 'terminal_url', 'app_user', 'app_password'])
        expect(connection).not.toHaveProperty(member);
    } finally {
      await bare.close();
    }
  });
});

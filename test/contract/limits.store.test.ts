// Each limit of section 8 of the specification that bounds a request: the last allowed value is honoured, and the first forbidden one is refused
// with its rule and makes nothing. Limits of time and of webhooks are tested in the rooms that apply them (`// Specification 8` finds them).
import { beforeEach, describe, expect, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { refusalOf } from './refusals.ts';
import { inputSchema } from './requests.ts';

const GIB = 1024 ** 3;

openApiForEachTest();
beforeEach(async () => {
  await api.world.machine({ gpus: 8, dollars: 1, diskEnforced: true, storageBytes: 1000 * GIB });
});

const launch = (body: object): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });

/** Values of the request that are allowed, and those that are not with the field and the rule that the refusal names. */
interface Bound {
  allowed: object[];
  forbidden: [body: object, field: string, rule: string][];
}

const port = (number: number, more: object = {}): object => ({ port: number, protocol: 'http', ...more });
const ports = (count: number): object => ({ ports: Array.from({ length: count }, (_, index) => port(8000 + index)) });
const texts = (count: number, text = 'a'): string[] => Array.from({ length: count }, () => text);
const variables = (count: number): object => ({
  env: Object.fromEntries(texts(count).map((a, i) => [`${a}${i}`, ''])),
});

const SPECIFIED: Record<string, Bound> = {
  gpu_count: {
    allowed: [{ gpu_count: 1 }, { gpu_count: 8 }],
    forbidden: [
      [{ gpu_count: 0 }, 'gpu_count', 'must be at least 1'],
      [{ gpu_count: 9 }, 'gpu_count', 'must be at most 8'],
      [{ gpu_count: 1.5 }, 'gpu_count', 'must be a whole number'],
    ],
  },
  auto_terminate_hours: {
    allowed: [{ auto_terminate_hours: 1 }, { auto_terminate_hours: 720 }],
    forbidden: [
      [{ auto_terminate_hours: 0 }, 'auto_terminate_hours', 'must be at least 1; leave it out for no limit'],
      [{ auto_terminate_hours: 721 }, 'auto_terminate_hours', 'must be at most 720'],
      [{ auto_terminate_hours: 1.5 }, 'auto_terminate_hours', 'must be a whole number'],
    ],
  },
  disk_gb: {
    allowed: [{ disk_gb: 10 }, { disk_gb: 1000 }],
    forbidden: [
      [{ disk_gb: 9 }, 'disk_gb', 'must be at least 10'],
      [{ disk_gb: 1001 }, 'disk_gb', 'must be at most 1000'],
      [{ disk_gb: 10.5 }, 'disk_gb', 'must be a whole number'],
    ],
  },
  'how many ports': {
    allowed: [ports(0), ports(10)],
    forbidden: [[ports(11), 'ports', 'must have at most 10 entries']],
  },
  'the number of a port': {
    allowed: [{ ports: [port(1)] }, { ports: [port(65_535)] }, { ports: [port(21), port(23)] }],
    forbidden: [
      [{ ports: [port(0)] }, 'ports[0].port', 'must be at least 1'],
      [{ ports: [port(65_536)] }, 'ports[0].port', 'must be at most 65535'],
      [
        { ports: [port(80), port(22)] },
        'ports[1].port',
        'must not be 22: every instance has SSH already, at connection.port',
      ],
    ],
  },
  'primary ports': {
    allowed: [{ ports: [port(80, { primary: true }), port(81, { primary: false })] }, { ports: [port(80), port(81)] }],
    forbidden: [
      [
        { ports: [port(80, { primary: true }), port(81, { primary: true })] },
        'ports[1].primary',
        'must be true for at most one port',
      ],
    ],
  },
  'the arguments of entrypoint': {
    allowed: [{ entrypoint: ['run'] }, { entrypoint: texts(32) }],
    forbidden: [[{ entrypoint: texts(33) }, 'entrypoint', 'must have at most 32 entries']],
  },
  'the bytes of entrypoint': {
    allowed: [{ entrypoint: ['é'.repeat(2048)] }, { entrypoint: texts(32, 'a'.repeat(128)) }],
    forbidden: [
      [{ entrypoint: ['é'.repeat(2048), 'a'] }, 'entrypoint', 'must have at most 4096 bytes in all'],
      [{ entrypoint: ['a'.repeat(4097)] }, 'entrypoint', 'must have at most 4096 bytes in all'],
    ],
  },
};

/** Our own, so that nothing which comes in is without a bound. */
const UNSPECIFIED: Record<string, Bound> = {
  name: {
    allowed: [{ name: 'a' }, { name: 'a'.repeat(128) }],
    forbidden: [
      [{ name: '' }, 'name', 'must have at least 1 character'],
      [{ name: 'a'.repeat(129) }, 'name', 'must have at most 128 characters'],
      [{ name: 'a\u0085b' }, 'name', 'must not contain control characters'],
      [{ name: ' \u00a0' }, 'name', 'must not be blank'],
      [{ name: '\u200b\u2060\u00ad' }, 'name', 'must not be blank'],
    ],
  },
  region: {
    allowed: [{ region: 'a'.repeat(64) }],
    forbidden: [
      [{ region: '' }, 'region', 'must have at least 1 character'],
      [{ region: 'a'.repeat(65) }, 'region', 'must have at most 64 characters'],
      [{ region: 'eu\u001b[2J' }, 'region', 'must not contain control characters'],
    ],
  },
  cmd: {
    allowed: [{ cmd: texts(256) }, { cmd: ['a'.repeat(32_768)] }],
    forbidden: [
      [{ cmd: texts(257) }, 'cmd', 'must have at most 256 entries'],
      [{ cmd: ['a'.repeat(32_769)] }, 'cmd[0]', 'must have at most 32768 characters'],
    ],
  },
  'how many variables': {
    allowed: [variables(256)],
    forbidden: [[variables(257), 'env', 'must have at most 256 entries']],
  },
  'the name of a variable': {
    allowed: [{ env: { A: '' } }, { env: { ['A'.repeat(256)]: '' } }],
    forbidden: [
      [
        { env: { ['A'.repeat(257)]: '' } },
        `env.${'A'.repeat(257)}`,
        'is not an allowed name: must have at most 256 characters',
      ],
    ],
  },
  'the value of a variable': {
    allowed: [{ env: { A: 'a'.repeat(32_768) } }],
    forbidden: [[{ env: { A: 'a'.repeat(32_769) } }, 'env.A', 'must have at most 32768 characters']],
  },
  ssh_key_ids: {
    allowed: [{ ssh_key_ids: [] }],
    forbidden: [[{ ssh_key_ids: texts(65) }, 'ssh_key_ids', 'must have at most 64 entries']],
  },
  'the prices': {
    allowed: [{ max_price_per_hour: 1_000_000, viewed_price_per_hour: 1_000_000 }],
    forbidden: [
      [{ max_price_per_hour: 0 }, 'max_price_per_hour', 'must be more than 0'],
      [{ max_price_per_hour: 1_000_000.01 }, 'max_price_per_hour', 'must be at most 1000000'],
      [{ viewed_price_per_hour: -0.01 }, 'viewed_price_per_hour', 'must be at least 0'],
      [{ viewed_price_per_hour: 1_000_000.01 }, 'viewed_price_per_hour', 'must be at most 1000000'],
    ],
  },
};

/** Members of a request that the instance repeats. */
const SHOWN = new Set(['gpu_count', 'auto_terminate_hours', 'disk_gb', 'name']);

async function expectHonoured({ allowed }: Bound): Promise<void> {
  for (const body of allowed) {
    const answer = await launch(body);
    expect([answer.status, answer.json.errors]).toEqual([202, undefined]);
    const { id, ...shown } = await newestInstance(api, owner);
    expect(shown['status']).toBe('allocating');
    expect(shown).toMatchObject(Object.fromEntries(Object.entries(body).filter(([member]) => SHOWN.has(member))));
    // The next one must find the machine free.
    await api.call('DELETE', `/v1/instances/${String(id)}`, { key: owner.key });
    await api.world.observe(String(id), { phase: 'removed' });
  }
}

async function expectRefused({ forbidden }: Bound): Promise<void> {
  const endpoint = { url: 'https://example.com/hook', event_types: ['instance.creating', 'instance.failed'] };
  expect((await api.call('POST', '/v1/webhook-endpoints', { key: owner.key, body: endpoint })).status).toBe(201);
  const before = await made(api, owner);
  for (const [body, field, rule] of forbidden) {
    const answer = await launch(body);
    expect(answer).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field, rule }] } });
    expect(answer.json['detail']).toBe(`${field} ${rule}.`);
  }
  expect(await made(api, owner)).toEqual(before);
  expect(api.world.images.asked).toEqual([]);
  // Now everything of it is counted.
  expect((await launch({})).status).toBe(202);
  const after = await made(api, owner);
  expect(Object.keys(after).filter((kind) => after[kind] === before[kind])).toEqual(['charges']);
}

describe('the limit of the specification on', () => {
  // Specification 2.2: gpu_count is 1 to 8.
  // Specification 4.3: gpu_count is 1 to 8.
  // Specification 4.3: disk_gb is 10 to 1000.
  // Specification 8: gpu_count 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint: what is allowed.
  test.each(Object.entries(SPECIFIED))('%s: the last allowed values are honoured', (_limit, bound) =>
    expectHonoured(bound),
  );
  // Specification 4.3: ports: port 22 is reserved.
  // Specification 4.3: entrypoint has at most 32 arguments and 4 KB.
  // Specification 4.3: auto_terminate_hours is 1 to 720; an explicit 0 is rejected.
  // Specification 7.2: validation_failed: bounds of disk_gb and auto_terminate_hours, explicit auto_terminate_hours 0.
  // Specification 8: gpu_count 1 to 8, auto_terminate_hours 1 to 720, disk_gb 10 to 1000; ports, entrypoint: what is forbidden.
  test.each(Object.entries(SPECIFIED))(
    '%s: the first forbidden values are refused, and make nothing',
    (_limit, bound) => expectRefused(bound),
  );
});

describe('our own limit on', () => {
  test.each(Object.entries(UNSPECIFIED))('%s: the last allowed values are taken', (_limit, bound) =>
    expectHonoured(bound),
  );
  // Specification 8: Everything else in a launch has a bound of its own.
  test.each(Object.entries(UNSPECIFIED))('%s: the first values beyond are refused, and make nothing', (_limit, bound) =>
    expectRefused(bound),
  );
});

// Specification 8: Price tolerance: 0.01 $/hr over viewed_price_per_hour.
test('the price may be 0.01 above the viewed price, and not a hundred-millionth more', async () => {
  const before = await made(api, owner);
  const refused = await launch({ viewed_price_per_hour: 0.98999999 });
  expect(refused).toMatchObject({ status: 409, json: { code: 'price_changed', current_price_per_hour: 1 } });
  expect(await made(api, owner)).toEqual(before);
  expect((await launch({ viewed_price_per_hour: 0.99 })).status).toBe(202);
  expect(await newestInstance(api, owner)).toMatchObject({ status: 'allocating', price_per_hour: 1 });
});

describe('Idempotency-Key', () => {
  const NEW_KEY = {
    name: 'laptop',
    public_key: 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS',
  };
  const ENDPOINT = { url: 'https://example.com/hook', event_types: ['instance.running'] };
  const send = (method: 'POST' | 'PATCH' | 'DELETE', url: string, body: object | undefined, key?: string) =>
    api.http.inject({
      method,
      url,
      headers: {
        authorization: `Bearer ${owner.key}`,
        ...(key === undefined ? {} : { 'idempotency-key': key }),
      },
      ...(body === undefined ? {} : { payload: body }),
    });
  const TOO_LONG = {
    code: 'idempotency_key_invalid',
    errors: [{ field: 'Idempotency-Key', rule: 'must have at most 255 characters' }],
  };

  // Specification 4.3: POST /v1/instances requires an Idempotency-Key.
  // Specification 8: Idempotency-Key: at most 255 characters, required on POST /v1/ssh-keys, /v1/instances and /v1/webhook-endpoints.
  test.each<[string, object]>([
    ['/v1/ssh-keys', NEW_KEY],
    ['/v1/instances', LAUNCH],
    ['/v1/webhook-endpoints', ENDPOINT],
  ])('is required on POST %s, with 255 characters at most', async (url, body) => {
    const before = await made(api, owner);
    const missing = await send('POST', url, body);
    expect(missing.status).toBe(400);
    expect(JSON.parse(missing.body)).toMatchObject({
      code: 'idempotency_key_required',
      errors: [{ field: 'Idempotency-Key' }],
    });
    const long = await send('POST', url, body, 'k'.repeat(256));
    expect(long.status).toBe(400);
    expect(JSON.parse(long.body)).toMatchObject(TOO_LONG);
    expect((await api.call('GET', url, { key: owner.key })).json.data).toEqual([]);
    expect(await made(api, owner)).toEqual(before);
    const [first, again] = [
      await send('POST', url, body, 'k'.repeat(255)),
      await send('POST', url, body, 'k'.repeat(255)),
    ];
    expect(first.status).toBeLessThan(300);
    expect(again).toMatchObject({ status: first.status, body: first.body });
    expect((await api.call('GET', url, { key: owner.key })).json.data).toHaveLength(1);
  });

  // Specification 4.3: PATCH and DELETE take an Idempotency-Key.
  // Specification 8: Idempotency-Key: sent on PATCH and DELETE instance.
  test.each<['PATCH' | 'DELETE', object | undefined]>([
    ['PATCH', { name: 'renamed' }],
    ['DELETE', undefined],
  ])('may be sent with %s of an instance, with 255 characters at most', async (method, body) => {
    await launch({});
    const instance = await newestInstance(api, owner);
    const url = `/v1/instances/${String(instance['id'])}`;
    const long = await send(method, url, body, 'k'.repeat(256));
    expect(long.status).toBe(400);
    expect(JSON.parse(long.body)).toMatchObject(TOO_LONG);
    expect(await newestInstance(api, owner)).toEqual(instance);
    const first = await send(method, url, body, 'k'.repeat(255));
    expect(first.status).toBeLessThan(300);
    // If there is no key, it is a new request, which finds what the first one has left.
    expect((await send(method, url, body)).status).toBe(method === 'DELETE' ? 404 : 200);
    expect(await send(method, url, body, 'k'.repeat(255))).toMatchObject({ status: first.status, body: first.body });
  });
});

describe('the size of a page', () => {
  // Specification 8: Page size: minimum 1, maximum 200.
  test('is 1 to 200 in every list that takes a limit', async () => {
    const isList = (route: Route): boolean => inputSchema(route.query)?.properties?.['cursor'] !== undefined;
    const paths = api.routes.filter(isList).flatMap(({ path }) => (path.includes('{') ? [] : [path]));
    expect(paths.length).toBeGreaterThan(7);
    for (const path of paths) {
      const page = (limit: string): Promise<Answer> => api.call('GET', `${path}?limit=${limit}`, { key: owner.key });
      for (const limit of ['1', '200']) expect([path, (await page(limit)).status]).toEqual([path, 200]);
      for (const [limit, rule] of [
        ['0', 'must be at least 1'],
        ['201', 'must be at most 200'],
      ] as const) {
        const refused = await page(limit);
        expect([refused.status, refusalOf(path, refused)]).toMatchObject([
          422,
          {
            text: `limit ${rule}.`,
            fields: ['limit'],
          },
        ]);
      }
    }
  });

  // Specification 8: Page size: default 50.
  test('is 50 if the request names no limit', async () => {
    for (let count = 0; count < 51; count += 1) await launch({ max_price_per_hour: 0.5 });
    const page = async (query: string): Promise<Answer['json']> =>
      (await api.call('GET', `/v1/instances${query}`, { key: owner.key })).json;
    const first = await page('');
    expect(first.data).toHaveLength(50);
    expect((await page(`?cursor=${String(first.next_cursor)}`)).data).toHaveLength(1);
    const whole = await page('?limit=51');
    expect([whole.data?.length, whole.next_cursor]).toEqual([51, null]);
  });
});

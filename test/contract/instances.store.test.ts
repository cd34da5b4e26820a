// GET, PATCH and DELETE of one instance (specification 4.3): what each answers, what can be changed, and where an end is an end.
import { beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

let url: string;
openApiForEachTest();
beforeEach(async () => {
  await api.world.machine();
  await postLaunch(api, owner, { ...LAUNCH, name: 'first' });
  url = `/v1/instances/${String((await newestInstance(api, owner))['id'])}`;
});

const call = (method: 'GET' | 'PATCH' | 'DELETE', body?: object): Promise<Answer> =>
  api.call(method, url, { key: owner.key, ...(body === undefined ? {} : { body }) });
const list = (query: string, key = owner.key): Promise<Answer> => api.call('GET', `/v1/instances?${query}`, { key });
const idOf = (path: string): string => path.split('/').at(-1) ?? '';

// A launch is authenticated from memory. Its transaction confirms the key, because another process may have revoked it.
test('a key that another process has just revoked launches nothing, and no request after that is let in', async () => {
  const before = await made(api, owner);
  const { principalId } = owner;
  await api.world.db.tx('test.revoke', (tx) =>
    tx.run(sql`update api_keys set revoked_ms = 1 where id = ${principalId}`),
  );
  const launch = (): Promise<Answer> => api.call('POST', '/v1/instances', { key: owner.key, body: LAUNCH });
  const refused = await launch();
  expect(refused).toMatchObject({ status: 401, json: { code: 'unauthorized' } });
  expect(refused.json['detail']).toContain('API key');
  expect(await launch()).toMatchObject({ status: 401 });
  await api.world.db.tx('test.restore', (tx) =>
    tx.run(sql`update api_keys set revoked_ms = null where id = ${principalId}`),
  );
  expect(await made(api, owner)).toEqual(before);
});

test('a session that has just ended launches nothing, and its person is told to sign in', async () => {
  const caller = { orgId: owner.orgId, principalId: 'ses_ended' };
  await expect(api.world.launch(caller)).rejects.toMatchObject({
    code: 'unauthorized',
    details: { detail: expect.stringContaining('session has ended') },
  });
});

describe('the list of instances with one name', () => {
  const names = ({ json }: Answer): unknown[] =>
    (json['data'] as unknown as { name: string | null }[]).map(({ name }) => name);

  test('has these alone, in pages, newest first, also those that have ended', async () => {
    const ids = [url.split('/').at(-1)];
    for (const name of ['firs', 'first', 'First', 'first']) {
      await api.world.machine();
      await api.world.clock.advance(1);
      const id = await api.world.launch(owner, { name });
      if (name === 'first') ids.unshift(id);
    }
    await api.world.launch(owner);
    await call('DELETE');
    const one = await list('name=first&limit=2');
    expect(names(one)).toEqual(['first', 'first']);
    const cursor = encodeURIComponent(one.json.next_cursor ?? '');
    const two = await list(`name=first&limit=2&cursor=${cursor}`);
    expect(two.json.next_cursor).toBeNull();
    const shown = [one, two].flatMap(({ json }) => json['data'] as unknown as { id: string }[]);
    expect(shown.map(({ id }) => id)).toEqual(ids);
    for (const other of ['name=firs', 'limit=2'])
      expect(await list(`${other}&cursor=${cursor}`)).toMatchObject({
        status: 422,
        json: { code: 'validation_failed' },
      });
  });

  test('is empty for a name that none has, and has none of other organisations', async () => {
    expect(names(await list('name=second'))).toEqual([]);
    expect(names(await list('name=first', (await api.account()).key))).toEqual([]);
  });

  test.each([
    ['', 'must have at least 1 character'],
    ['a'.repeat(129), 'must have at most 128 characters'],
    ['a\u001b[2J', 'must not contain control characters'],
  ])('refuses what no instance can be named: %j', async (name, rule) => {
    const refused = await list(`name=${encodeURIComponent(name)}`);
    expect(refused).toMatchObject({ status: 422, json: { errors: [{ field: 'name', rule }] } });
  });
});

describe('the list of instances with one status', () => {
  test('has these alone, in pages, newest first; live are those that have not ended', async () => {
    await call('DELETE');
    const ended = idOf(url);
    await api.world.machine({ gpus: 3 });
    const ids: string[] = [];
    for (let n = 0; n < 3; n += 1) {
      await api.world.clock.advance(1);
      ids.unshift(await (n === 1 ? api.world.launch(owner) : api.world.run(owner)));
    }
    const of = async (query: string): Promise<unknown[]> => {
      const { json } = await list(query);
      return ((json['data'] ?? []) as { id: string }[]).map(({ id }) => id);
    };
    expect(await of('status=live')).toEqual(ids);
    expect(await of('status=running')).toEqual([ids[0], ids[2]]);
    expect(await of('status=allocating')).toEqual([ids[1]]);
    expect(await of('status=terminated')).toEqual([ended]);
    expect(await of('status=live&name=none')).toEqual([]);
    const one = await list('status=live&limit=2');
    const cursor = encodeURIComponent(one.json.next_cursor ?? '');
    expect(await of(`status=live&limit=2&cursor=${cursor}`)).toEqual([ids[2]]);
    expect(await list(`status=running&cursor=${cursor}`)).toMatchObject({ status: 422 });
    expect(await list('status=over')).toMatchObject({ status: 422, json: { errors: [{ field: 'status' }] } });
    expect((await list('status=live', (await api.account()).key)).json['data']).toEqual([]);
  });
});

// Specification 4.3: name is the only mutable field.
test.each<[object, string, string]>([
  [{}, 'name', 'is required'],
  [{ name: '' }, 'name', 'must have at least 1 character'],
  [{ name: 'a'.repeat(129) }, 'name', 'must have at most 128 characters'],
  [{ name: 'a\u001b[2J' }, 'name', 'must not contain control characters'],
  [{ name: 'second', region: 'us' }, 'region', 'is not a known field'],
  [{ name: 'second', auto_terminate_hours: 1 }, 'auto_terminate_hours', 'is not a known field'],
  [{ name: 'second', gpu_count: 2 }, 'gpu_count', 'is not a known field'],
])('PATCH changes the name and nothing else: %j is 422 that names the field', async (body, field, rule) => {
  const before = (await call('GET')).json;
  const refused = await call('PATCH', body);
  expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field, rule }] } });
  expect((await call('GET')).json).toEqual(before);
});

describe('DELETE', () => {
  // Specification 4.3: DELETE answers 202 with Operation-Id; an instance that is terminated already is 404 not_found.
  // Specification 7.2: not_found: deleting an already terminated instance.
  test('answers 202 with its operation, in the header too; for an ended instance it is 404 not_found and makes nothing', async () => {
    await api.world.start(idOf(url));
    const accepted = await call('DELETE');
    expect(accepted).toMatchObject({ status: 202, json: { kind: 'instance.delete', state: 'pending' } });
    expect(accepted.headers['operation-id']).toBe(accepted.json['operation_id']);
    await api.world.observe(idOf(url), { phase: 'stopped' });
    await api.world.drive();
    expect((await call('GET')).json).toMatchObject({ status: 'terminated', connection: null });
    const before = await made(api, owner);
    expect(await call('DELETE')).toMatchObject({ status: 404, json: { code: 'not_found' } });
    expect(await made(api, owner)).toEqual(before);
  });

  test('answers a repeat with the same operation for the same key, and with an operation of its own for another key', async () => {
    await api.world.start(idOf(url));
    const first = await call('DELETE');
    const again = await call('DELETE');
    expect([again.status, again.json['operation_id']]).toEqual([202, first.json['operation_id']]);
    const request = { orgId: owner.orgId, name: 'second', scopes: ['instances: write'], expiresMs: null };
    const { key } = await api.world.rooms.accounts.createKey(request);
    const other = await api.call('DELETE', url, { key });
    expect(other).toMatchObject({
      status: 202,
      json: { kind: 'instance.delete', state: 'pending', resource_id: null },
    });
    expect(other.json['operation_id']).not.toBe(first.json['operation_id']);
  });
});

test('an unknown instance is 404 for every method', async () => {
  url = '/v1/instances/i-none';
  for (const answer of [await call('GET'), await call('PATCH', { name: 'x' }), await call('DELETE')]) {
    expect(answer).toMatchObject({ status: 404, json: { code: 'not_found' } });
    expect(answer.json['detail']).toContain('There is no instance i-none');
  }
});

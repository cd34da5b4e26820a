// What the primary changes counts at a secondary from the next request on: no process answers from what it has in memory.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { addPerson } from '../kit/people.ts';
import { type Api, type ApiAccount, type CallOptions, openApi } from './api.ts';

let primary: Api;
let secondary: Api;
let owner: ApiAccount;
beforeEach(async () => {
  primary = await openApi();
  secondary = await primary.beside();
  owner = await primary.account();
});
afterEach(async () => {
  await secondary.http.close();
  await primary.close();
});

const read = async (url: string, options: CallOptions): Promise<unknown> => {
  const { status, json } = await secondary.call('GET', url, options);
  return status === 200 ? json : status;
};

test('a key that is revoked is refused', async () => {
  const body = { name: 'x', scopes: ['instances: read'] };
  const { json } = await primary.call('POST', '/v1/api-keys', { key: owner.key, body });
  const key = String(json['key']);
  for (let i = 0; i < 2; i += 1) expect(await read('/v1/instances', { key })).toMatchObject({ data: [] });
  await primary.call('DELETE', `/v1/api-keys/${String(json['id'])}`, { key: owner.key });
  expect(await read('/v1/instances', { key })).toBe(401);
});

test('a session that ends is refused, and that of a member who is removed reads nothing more', async () => {
  const [one, two] = [
    await addPerson(primary.world, { orgId: owner.orgId, role: 'owner' }),
    await addPerson(primary.world, { orgId: owner.orgId, role: 'owner' }),
  ];
  for (const as of [one, two]) expect(await read('/v1/instances', { as })).toMatchObject({ data: [] });
  await primary.call('POST', '/v1/auth/sign-out', { as: one });
  expect(await read('/v1/instances', { as: one })).toBe(401);
  expect(await primary.call('DELETE', `/v1/members/${two.userId}`, { key: owner.key })).toMatchObject({ status: 204 });
  expect(await read('/v1/instances', { as: two })).toBe(403);
});

test('what is made, changed and charged is there', async () => {
  const { key } = owner;
  await primary.world.machine({ dollars: 3.6 });
  const id = await primary.world.run(owner);
  expect(await read(`/v1/instances/${id}`, { key })).toMatchObject({ status: 'running', name: null });
  await primary.call('PATCH', `/v1/instances/${id}`, { key, body: { name: 'renamed' } });
  expect(await read(`/v1/instances/${id}`, { key })).toMatchObject({ name: 'renamed' });
  await primary.world.clock.advance(3_600_000);
  for (const url of ['/v1/balance', '/v1/usage', '/v1/bill', `/v1/instances/${id}/bill`, '/v1/instance-costs'])
    expect(await read(url, { key })).toEqual((await primary.call('GET', url, { key })).json);
  await primary.world.end(owner, id);
  expect(await read(`/v1/instances/${id}`, { key })).toMatchObject({ status: 'terminated' });
});

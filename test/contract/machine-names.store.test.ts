// A machine has a name of its supplier's own: given at the registration, changed and removed later, and shown to no customer. The list of machines is
// filtered by it, and by the status.
import { describe, expect, test } from 'vitest';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { bringMachine } from './suppliers.ts';

openApiForEachTest();

const MACHINES = '/v1/community/machines';
const ask = (method: 'GET' | 'POST' | 'PATCH', url: string, body?: object, key = owner.key): Promise<Answer> =>
  api.call(method, url, body === undefined ? { key } : { key, body });
const nameOf = async (id: string): Promise<unknown> => (await ask('GET', `${MACHINES}/${id}`)).json['name'];

test('a machine has the name of its registration until its supplier renames it, and none once that is removed', async () => {
  const id = await bringMachine(api, owner, { name: 'rack 7 / left' });
  expect(await nameOf(id)).toBe('rack 7 / left');
  expect(await ask('PATCH', `${MACHINES}/${id}`, { name: 'rack 8' })).toMatchObject({
    status: 200,
    json: { name: 'rack 8', price_per_hour: 2 },
  });
  await ask('PATCH', `${MACHINES}/${id}`, { price_per_hour: 3 });
  expect(await nameOf(id)).toBe('rack 8');
  await ask('PATCH', `${MACHINES}/${id}`, { name: null });
  expect(await nameOf(id)).toBeNull();
});

test('a machine without a name shows the host name that its host reports, once it does', async () => {
  await ask('POST', '/v1/community/supplier');
  const { json } = await ask('POST', MACHINES, { region: 'eu', price_per_hour: 1 });
  expect(json['machine']).toMatchObject({ name: null, hostname: null });
  const id = await bringMachine(api, owner);
  expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({ name: null, hostname: 'host' });
});

test.each([
  ['', 'must have at least 1 character'],
  ['a'.repeat(101), 'must have at most 100 characters'],
  ['a\u001b[2J', 'must not contain control characters'],
])('no machine is named %j, and none is looked for', async (name, rule) => {
  const id = await bringMachine(api, owner, { name: 'a'.repeat(100) });
  const refusal = { status: 422, json: { errors: [{ field: 'name', rule }] } };
  expect(await ask('POST', MACHINES, { region: 'eu', price_per_hour: 1, name })).toMatchObject(refusal);
  expect(await ask('PATCH', `${MACHINES}/${id}`, { name })).toMatchObject(refusal);
  expect(await ask('GET', `${MACHINES}?name=${encodeURIComponent(name)}`)).toMatchObject(refusal);
});

describe('the list of machines with one name', () => {
  test('has these alone, in pages, newest first, and none of another supplier', async () => {
    const ids: string[] = [];
    for (const name of ['a', 'b', 'A', 'a']) {
      await api.world.clock.advance(1);
      const id = await bringMachine(api, owner, { name });
      if (name === 'a') ids.unshift(id);
    }
    const one = await ask('GET', `${MACHINES}?name=a&limit=1`);
    const cursor = encodeURIComponent(one.json.next_cursor ?? '');
    const two = await ask('GET', `${MACHINES}?name=a&limit=1&cursor=${cursor}`);
    expect(two.json.next_cursor).toBeNull();
    expect([one, two].flatMap(({ json }) => json.data?.map((machine) => machine['machine_id']))).toEqual(ids);
    expect(await ask('GET', `${MACHINES}?name=b&cursor=${cursor}`)).toMatchObject({ status: 422 });
    const other = await api.account();
    await bringMachine(api, other, { name: 'b' });
    expect((await ask('GET', `${MACHINES}?name=a`, undefined, other.key)).json.data).toEqual([]);
  });
});

test('the list of machines with one status has these alone, and a machine that drains is delisted', async () => {
  const brought = [await bringMachine(api, owner, { name: 'a' }), await bringMachine(api, owner, { name: 'b' })];
  const [draining = '', listed = ''] = brought;
  await api.world.run(await api.world.customer(10_000));
  await api.world.db.tx('test.drain', (tx) => api.world.rooms.supply.delist(tx, owner.orgId, draining));
  const of = async (query: string): Promise<unknown[]> => {
    const { json } = await ask('GET', `${MACHINES}?${query}`);
    return (json.data ?? []).map((machine) => machine['machine_id']);
  };
  expect(await of('status=listed')).toEqual([listed]);
  expect(await of('status=delisted')).toEqual([draining]);
  expect(await of('status=delisted&name=b')).toEqual([]);
  expect(await of('status=suspended')).toEqual([]);
  expect(await of('limit=200')).toEqual([listed, draining]);
  expect(await ask('GET', `${MACHINES}?status=draining`)).toMatchObject({
    status: 422,
    json: { errors: [{ field: 'status' }] },
  });
});

test('a customer never reads the name of the machine, nor its host name', async () => {
  await bringMachine(api, owner, { name: 'basement' });
  const customer = await api.account();
  const id = await api.world.run(customer);
  const urls = [`/v1/instances/${id}`, `/v1/instances/${id}/events`, '/v1/pricing', '/v1/gpu-types', '/v1/events'];
  for (const url of urls) {
    const { status, body } = await api.call('GET', url, { key: customer.key });
    expect([url, status, /basement|"hostname":"host"/.test(body)]).toEqual([url, 200, false]);
  }
});

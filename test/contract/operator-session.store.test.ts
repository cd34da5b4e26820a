// The operator's routes for people who have signed in: each one is closed to everybody but an operator with a second factor, and what is done
// stands in the audit journal under the person's own address.
import { beforeAll, afterAll, describe, expect, test } from 'vitest';
import { operatorSessionRoutes } from '../../control-plane/admin/admin.ts';
import { CONFIRMED_MS } from '../../control-plane/base/http/browsers.ts';
import type { Route } from '../../control-plane/base/http/route.ts';
import { brought } from '../../control-plane/brings.ts';
import { addPerson, type Person } from '../kit/people.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

let api: Api;
let routes: Route[];
let account: ApiAccount;
let operator: Person;

beforeAll(async () => {
  api = await openApi();
  routes = operatorSessionRoutes(brought(api.world.brings(), 'operatorRoutes'), api.world.audit);
  api.http.register(routes);
  account = await api.account();
  operator = await addPerson(api.world, undefined, { isOperator: true, isStrong: true });
});
afterAll(async () => api.close());

/** A well-formed address, whether there is such a thing or not. */
const urlOf = ({ path }: Route): string => path.replaceAll(/\{\w+\}/g, 'none');

test('every route of the socket is there, under another path', () => {
  const ofSocket = brought(api.world.brings(), 'operatorRoutes');
  expect(routes.length).toBe(ofSocket.length);
  expect(routes.length).toBeGreaterThan(40);
  expect(routes.map(({ path }) => path).filter((path) => !path.startsWith('/admin/v1/'))).toEqual([]);
});

describe('a route answers', () => {
  test('401 to a stranger and to a wrong key, 403 to a key with all scopes', async () => {
    for (const route of routes) {
      const name = `${route.method} ${route.path}`;
      expect([name, (await api.call(route.method, urlOf(route))).status]).toEqual([name, 401]);
      const byKey = await api.call(route.method, urlOf(route), { key: account.key });
      expect([name, byKey.status, byKey.json['code']]).toEqual([name, 403, 'session_required']);
    }
  });

  test('403 to the owner of an organisation, whatever is sent', async () => {
    const owner = await addPerson(api.world, { orgId: account.orgId, role: 'owner' }, { isStrong: true });
    for (const route of routes.filter(({ body, query }) => body === undefined && query === undefined)) {
      const reply = await api.call(route.method, urlOf(route), { as: owner });
      expect([route.path, reply.status, reply.json['code']]).toEqual([route.path, 403, 'insufficient_scope']);
    }
    const reply = await api.call('POST', '/admin/v1/orgs', { as: owner, body: { name: 'mine' } });
    expect(reply.json['code']).toBe('insufficient_scope');
  });

  test('403 to an operator who has shown no second factor', async () => {
    const weak = await addPerson(api.world, undefined, { isOperator: true });
    const reply = await api.call('GET', '/admin/v1/orgs', { as: weak });
    expect([reply.status, reply.json['code']]).toEqual([403, 'second_factor_required']);
  });

  test('the same as on the socket to an operator', async () => {
    const reply = await api.call('GET', '/admin/v1/orgs', { as: operator });
    expect(reply.status).toBe(200);
    expect(reply.json.data?.map(({ id }) => id)).toContain(account.orgId);
  });
});

test('a change stands in the audit journal under the address of the person, whatever name a header gives', async () => {
  const made = await api.call('POST', '/admin/v1/orgs', {
    as: operator,
    body: { name: 'made in the browser' },
    headers: { 'svc-operator': 'somebody-else' },
  });
  expect(made.status).toBe(201);
  const audit = await api.call('GET', '/admin/v1/audit', { as: operator });
  expect(audit.json.data?.[0]).toMatchObject({ actor: operator.email, operation: 'adminCreateOrg', outcome: 'ok' });
});

test('a change from the page of another site is refused', async () => {
  const reply = await api.call('POST', '/admin/v1/orgs', {
    as: operator,
    body: { name: 'forged' },
    headers: { origin: 'https://evil.example.com' },
  });
  expect([reply.status, reply.json['code']]).toEqual([403, 'origin_refused']);
});

test('ten minutes after the sign-in, an operator still reads, and has to confirm before a change', async () => {
  await api.world.clock.advance(CONFIRMED_MS - 1);
  const early = await api.call('POST', '/admin/v1/orgs', { as: operator, body: { name: 'in time' } });
  expect(early.status).toBe(201);
  await api.world.clock.advance(1);
  const late = await api.call('POST', '/admin/v1/orgs', { as: operator, body: { name: 'too late' } });
  expect([late.status, late.json['code']]).toEqual([403, 'step_up_required']);
  expect((await api.call('GET', '/admin/v1/orgs', { as: operator })).status).toBe(200);
});

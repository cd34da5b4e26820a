// Every route that requires an API key is called without a key, with the wrong scope and from another organisation.
//
// The routes come from the house itself, so a new one is tried too, or shows up in uncovered.json, which must stay empty.
import { readFileSync } from 'node:fs';
import { afterAll, describe, expect, test } from 'vitest';
import type { Route } from '../../control-plane/base/http/route.ts';
import { SCOPES, type Scope, scopeText } from '../../control-plane/base/http/scopes.ts';
import { openApi } from './api.ts';
import { expectRefused } from './refusals.ts';
import { bodyFor, makeAll, makerFor, urlOf, urlWith } from './resources.ts';

const api = await openApi();
afterAll(() => api.close());

type Kind = 'unauthenticated' | 'wrong scope' | 'wrong organisation';
const closed = api.routes.filter(({ scope }) => scope !== 'none' && scope !== 'operator');
const keyed = closed.filter(({ scope }) => scope !== 'session');
/** Only people may call them, so no API key has a scope for them. */
const personal = closed.filter(({ scope }) => scope === 'session');
/** The operator's: everybody finds the same there. */
const shared = new Set(['listModels', 'getModel']);
const naming = keyed.filter(({ path, operationId }) => path.includes('{') && !shared.has(operationId));
const needed = [
  ...closed.flatMap((route) => [caseName(route, 'unauthenticated'), caseName(route, 'wrong scope')]),
  ...naming.map((route) => caseName(route, 'wrong organisation')),
];
const tried = new Set<string>();

function caseName({ operationId }: Route, kind: Kind): string {
  return `${operationId}: ${kind}`;
}
const named = (routes: readonly Route[]): [string, Route][] => routes.map((route) => [route.operationId, route]);
const withoutId = (body: string, id: string): unknown =>
  JSON.parse(body.replaceAll(id, 'ID'), (name, value) => {
    return name === 'request_id' ? 'ID' : value;
  });

describe('unauthenticated', () => {
  // Specification 5: A missing or invalid key receives 401.
  test.each(named(closed))(
    '%s is 401 without a key, and with one that is unknown, revoked or expired',
    async (_id, route) => {
      const [revoked, expired] = [await api.account(), await api.account()];
      await api.world.rooms.accounts.revokeKey(revoked.principalId);
      const late = await api.world.rooms.accounts.createKey({
        orgId: expired.orgId,
        name: 'late',
        scopes: Object.keys(SCOPES),
        expiresMs: api.world.clock.now() + 1,
      });
      await api.world.clock.advance(1);
      for (const options of [{}, { key: `svc_live_${'x'.repeat(43)}` }, { key: revoked.key }, { key: late.key }]) {
        const answer = await api.call(route.method, urlWith(route.path, 'x'), options);
        expectRefused(route.path, answer, 'unauthorized');
        expect(answer.headers['www-authenticate']).toBe('Bearer');
      }
      tried.add(caseName(route, 'unauthenticated'));
    },
  );
});

describe('wrong scope', () => {
  // Specification 5: A key that lacks the scope receives 403.
  test.each(named(keyed))(
    '%s is 403 with every scope but its own, and names the one that is missing',
    async (_id, route) => {
      const others = Object.keys(SCOPES).filter((scope) => scope !== route.scope);
      const { key } = await api.account(others);
      const answer = await api.call(route.method, urlWith(route.path, 'x'), { key });
      const missing = scopeText(route.scope as Scope);
      expect(expectRefused(route.path, answer, 'insufficient_scope').text).toContain(missing);
      expect(answer.headers['www-authenticate']).toBe('Bearer error="insufficient_scope"');
      tried.add(caseName(route, 'wrong scope'));
    },
  );
  test.each(named(personal))('%s is 403 with an API key, whatever its scopes', async (_id, route) => {
    const { key } = await api.account();
    const answer = await api.call(route.method, urlWith(route.path, 'x'), { key });
    expectRefused(route.path, answer, 'session_required');
    tried.add(caseName(route, 'wrong scope'));
  });
});

describe('a body', () => {
  const changing = keyed.filter(({ method, body, upload }) => method !== 'GET' && !body && !upload);

  test.each(named(changing))('is refused by its first member if %s takes none', async (_id, route) => {
    const owner = await api.account();
    const id = (await makerFor(route.path)?.(api, owner)) ?? '';
    const answer = await api.call(route.method, urlOf(route.path, id), { key: owner.key, body: { planted: 1 } });
    expect(expectRefused(route.path, answer, 'validation_failed').fields).toEqual(['planted']);
  });
});

describe('wrong organisation', () => {
  // Specification 7.2: not_found: a missing resource, also if it is another organisation that has it.
  test.each(named(naming.filter(({ path }) => makerFor(path) !== undefined)))(
    '%s is 404 for a stranger, as for a resource that does not exist, and works for the owner',
    async (operationId, route) => {
      const [owner, stranger] = [await api.account(), await api.account()];
      const id = (await makerFor(route.path)?.(api, owner)) ?? '';
      const nothing = id.replace(/.{4}$/, (end) => (end === '0000' ? '1111' : '0000'));
      const body = bodyFor(operationId, id);
      const foreign = await api.call(route.method, urlOf(route.path, id), { key: stranger.key, ...body });
      const absent = await api.call(route.method, urlOf(route.path, nothing), { key: stranger.key, ...body });
      expectRefused(route.path, foreign, 'not_found');
      expect(withoutId(foreign.body, id)).toEqual(withoutId(absent.body, nothing));
      const own = await api.call(route.method, urlOf(route.path, id), { key: owner.key, ...body });
      expect(own.status).toBeLessThan(300);
      tried.add(caseName(route, 'wrong organisation'));
    },
  );

  // Specification 5: Nothing of one organisation is seen by another.
  test("a stranger's lists contain no resource of others", async () => {
    const [owner, stranger] = [await api.account(), await api.account()];
    await makeAll(api, owner);
    // Everybody has these or none of them, whatever others have. Metrics are text, which a test of their own reads.
    const single = new Set([
      'getBalance',
      'getBill',
      'getSupplier',
      'getStatement',
      'getPayoutDestination',
      'getOrganisation',
      'getDepositMethods',
      'scrapeMetrics',
    ]);
    // The one key of its own, and the event of its creation.
    const ofItsKey = new Set(['listApiKeys', 'listEvents']);
    const lists = keyed.filter(
      ({ method, path, operationId }) =>
        method === 'GET' && !path.includes('{') && !single.has(operationId) && !shared.has(operationId),
    );
    for (const route of lists) {
      const answer = await api.call('GET', route.path, { key: stranger.key });
      // Contracts are a plain array, earnings have their own name, everything else is a page.
      const entries = Array.isArray(answer.json) ? answer.json : (answer.json.entries ?? answer.json.data);
      expect(entries).toHaveLength(ofItsKey.has(route.operationId) ? 1 : 0);
    }
  });
});

test('uncovered.json names the routes without these cases, and it is empty', () => {
  const uncovered = needed.filter((name) => !tried.has(name));
  const committed: unknown = JSON.parse(readFileSync(new URL('uncovered.json', import.meta.url), 'utf8'));
  expect(uncovered).toEqual(committed);
  expect(committed).toEqual([]);
});

// Specification 2.6: An operation is visible only to the key that created it; other keys get 404 not_found.
// Specification 4.5: GET /v1/operations/{id} is 404 not_found across API keys.
// Specification 5: Operations are visible only to the API key that created them.
// Specification 7.2: not_found: operations of another API key.
test('an operation is visible only to the key that created it, not to others of the organisation', async () => {
  const owner = await api.account();
  const id = await makerFor('/v1/operations/{id}')?.(api, owner);
  const request = { orgId: owner.orgId, name: 'second', scopes: ['instances: read'], expiresMs: null };
  const second = await api.world.rooms.accounts.createKey(request);
  const foreign = await api.call('GET', `/v1/operations/${id}`, { key: second.key });
  expect(foreign).toMatchObject({ status: 404, json: { code: 'not_found' } });
  expect((await api.call('GET', `/v1/operations/${id}`, { key: owner.key })).status).toBe(200);
});

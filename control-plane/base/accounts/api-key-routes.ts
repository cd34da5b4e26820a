// The endpoints of API keys, for keys that may create others (specification 5; the paths are our own).
import { z } from 'zod';
import { ApiKey, CreateApiKey, NewApiKey } from '../../../shared/api/account.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Db } from '../db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../http/cursors.ts';
import { type Route, route } from '../http/route.ts';
import { apiKeyView, issueKeyBy, pageOfKeys, revokeKeyOf } from './api-keys.ts';

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  cursors: Cursors;
}

const tag = 'API keys';

export function apiKeyRoutes(deps: Deps): Route[] {
  return [listRoute(deps), createRoute(deps), revokeRoute(deps)];
}

function listRoute({ db, cursors }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/api-keys',
    operationId: 'listApiKeys',
    tag,
    summary: 'List the API keys of the organisation, newest first',
    description: 'Revoked and expired keys stay in the list. The keys themselves are never shown again.',
    scope: 'api_keys:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of keys', schema: pageSchema(ApiKey) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const name = `api-keys/${caller.orgId}`;
      const rows = (start: PageStart) => pageOfKeys(db.read, caller.orgId, start);
      return { status: 200, body: await cursors.page(name, query, rows, { at: byCreation, show: apiKeyView }) };
    },
  });
}

function createRoute(deps: Deps): Route {
  const { db } = deps;
  return route({
    method: 'POST',
    path: '/v1/api-keys',
    operationId: 'createApiKey',
    tag,
    summary: 'Make an API key',
    description:
      'The new key can do nothing that the calling key cannot, and ends with it at the latest. The key is in this answer and nowhere else.',
    scope: 'api_keys:write',
    idempotency: 'optional',
    secretReply: true,
    body: CreateApiKey,
    responses: { 201: { description: 'The key, shown once', schema: NewApiKey } },
    errors: ['conflict'],
    handler: ({ caller, body, settle }) =>
      db.tx('accounts.issue_key', async (tx) => {
        const expiresMs = body.expires_at === undefined ? null : Date.parse(body.expires_at);
        const made = await issueKeyBy(tx, caller, { name: body.name, scopes: body.scopes, expiresMs }, deps);
        const reply = { status: 201, body: made };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function revokeRoute({ db, clock }: Deps): Route {
  return route({
    method: 'DELETE',
    path: '/v1/api-keys/{id}',
    operationId: 'revokeApiKey',
    tag,
    summary: 'Revoke an API key',
    description: 'It is refused from the next request on. A key may revoke itself. What it has started goes on.',
    scope: 'api_keys:write',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the key, not the key itself') }),
    responses: { 204: { description: 'It is revoked' } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const nowMs = clock.now();
      const revoked = await db.tx('accounts.revoke_own', (tx) => revokeKeyOf(tx, caller.orgId, params.id, nowMs));
      return revoked
        ? { status: 204 }
        : fail('not_found', `There is no API key ${params.id}, or it was revoked before.`);
    },
  });
}

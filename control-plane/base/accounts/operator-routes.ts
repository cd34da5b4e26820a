// The operator's routes for organisations and their API keys.
import { z } from 'zod';
import { ApiKey, NewApiKey, Org, OrgName } from '../../../shared/api/account.ts';
import { Id, listOf, operator } from '../http/operator.ts';
import { type Route, route } from '../http/route.ts';
import type { Accounts } from './accounts.ts';

type OperatedAccounts = Pick<Accounts, 'createOrg' | 'listOrgs' | 'createKey' | 'listKeys' | 'revokeKey'>;

export function accountOperatorRoutes(accounts: OperatedAccounts): Route[] {
  return [...orgRoutes(accounts), ...keyRoutes(accounts)];
}

function orgRoutes(accounts: OperatedAccounts): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/orgs',
      operationId: 'adminCreateOrg',
      summary: 'Create an organisation',
      body: z.strictObject({ name: OrgName }),
      responses: { 201: { description: 'The organisation', schema: Org } },
      errors: [],
      handler: async ({ body }) => ({ status: 201, body: await accounts.createOrg(body.name) }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/orgs',
      operationId: 'adminListOrgs',
      summary: 'List organisations',
      responses: { 200: { description: 'All of them', schema: listOf(Org) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: await accounts.listOrgs() } }),
    }),
  ];
}

function keyRoutes(accounts: OperatedAccounts): Route[] {
  const NewKey = z.strictObject({
    org_id: z.string(),
    name: OrgName,
    scopes: z.array(z.string()),
    expires_at: z.iso.datetime().optional(),
  });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/keys',
      operationId: 'adminCreateKey',
      summary: 'Create an API key',
      body: NewKey,
      responses: { 201: { description: 'The key, shown once', schema: NewApiKey } },
      errors: ['not_found'],
      handler: async ({ body }) => {
        const expiresMs = body.expires_at === undefined ? null : Date.parse(body.expires_at);
        const { org_id: orgId, name, scopes } = body;
        return { status: 201, body: await accounts.createKey({ orgId, name, scopes, expiresMs }) };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/keys',
      operationId: 'adminListKeys',
      summary: 'List API keys',
      query: z.strictObject({ org_id: z.string().optional() }),
      responses: { 200: { description: 'Keys without their secret', schema: listOf(ApiKey) } },
      errors: [],
      handler: async ({ query }) => ({ status: 200, body: { data: await accounts.listKeys(query.org_id ?? null) } }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/keys/{id}/revoke',
      operationId: 'adminRevokeKey',
      summary: 'Revoke an API key',
      params: Id,
      responses: { 200: { description: 'The key', schema: ApiKey } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await accounts.revokeKey(params.id) }),
    }),
  ];
}

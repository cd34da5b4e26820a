// The operator's routes for organisations and their API keys.
import { z } from 'zod';
import { ApiKey, NewApiKey, Org, OrgName } from '../../../shared/api/account.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Db } from '../db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../http/cursors.ts';
import { Id, listParameters, operator, SearchQuery } from '../http/operator.ts';
import { type Route, route } from '../http/route.ts';
import type { Accounts } from './accounts.ts';
import { apiKeyView, pageOfKeys } from './api-keys.ts';
import { assertOrg, orgView, pageOfOrgs } from './orgs.ts';

interface Deps {
  db: Db;
  cursors: Cursors;
  accounts: Pick<Accounts, 'createOrg' | 'suspendOrg' | 'resumeOrg' | 'createKey' | 'revokeKey'>;
}

export function accountOperatorRoutes(deps: Deps): Route[] {
  return [...orgRoutes(deps), ...keyRoutes(deps)];
}

function orgRoutes({ db, cursors, accounts }: Deps): Route[] {
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
      summary: 'List organisations, newest first',
      query: SearchQuery,
      responses: { 200: { description: 'A page', schema: pageSchema(Org) } },
      errors: [],
      handler: async ({ query }) => {
        const rows = (start: PageStart) => pageOfOrgs(db.read, start, query.search);
        const view = { at: byCreation, show: orgView };
        return { status: 200, body: await cursors.page(`admin/orgs/${query.search ?? ''}`, query, rows, view) };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/orgs/{id}',
      operationId: 'adminShowOrg',
      summary: 'Show an organisation',
      params: Id,
      responses: { 200: { description: 'The organisation', schema: Org } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: orgView(await assertOrg(db.read, params.id)) }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/orgs/{id}/suspend',
      operationId: 'adminSuspendOrg',
      summary: 'Suspend an organisation: refuse all its requests that cost money',
      params: Id,
      body: z.strictObject({ reason: z.string().min(1).max(500) }),
      responses: { 200: { description: 'The organisation', schema: Org } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({ status: 200, body: await accounts.suspendOrg(params.id, body.reason) }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/orgs/{id}/resume',
      operationId: 'adminResumeOrg',
      summary: 'End the suspension of an organisation',
      params: Id,
      responses: { 200: { description: 'The organisation', schema: Org } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await accounts.resumeOrg(params.id) }),
    }),
  ];
}

function keyRoutes({ db, cursors, accounts }: Deps): Route[] {
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
      summary: 'List API keys, newest first',
      query: z.strictObject({ ...listParameters, org_id: z.string().optional() }),
      responses: { 200: { description: 'A page of keys without their secret', schema: pageSchema(ApiKey) } },
      errors: [],
      handler: async ({ query }) => {
        const orgId = query.org_id ?? null;
        const rows = (start: PageStart) => pageOfKeys(db.read, orgId, start);
        const view = { at: byCreation, show: apiKeyView };
        return { status: 200, body: await cursors.page(`admin/keys/${orgId ?? ''}`, query, rows, view) };
      },
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

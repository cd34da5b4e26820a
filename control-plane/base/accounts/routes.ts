// The endpoints of API keys, for keys that may create others (specification 5; the paths are our own), of SSH keys (specification 4.2), and of the
// organisation itself.
import { z } from 'zod';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { SshKey, SshKeyCreate, ApiKey, CreateApiKey, NewApiKey, Org } from '../../../shared/api/account.ts';
import { isoTime, type Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db, Tx } from '../db/db.ts';
import type { Events } from '../events/events.ts';
import { byCreation, type Cursors, type PageStart } from '../http/cursors.ts';
import { type Caller, type Route, route } from '../http/route.ts';
import type { Scope } from '../http/scopes.ts';
import type { SshKeyRow, SshKeys } from './ssh-keys.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Accounts } from './accounts.ts';
import { apiKeyView, issueKeyBy, pageOfKeys } from './api-keys.ts';
import { assertOrg, orgView } from './orgs.ts';

interface Deps {
  db: Db;
  clock: Clock;
  ids: Ids;
  events: Events;
  cursors: Cursors;
  accounts: Accounts;
  present: Present;
}

/**
 * The caller with what it may do at this moment. A caller that was let in may have lost its rights before its body came. The transaction must
 * have locked the organisation. @throws ServiceError `unauthorized`, `insufficient_scope`
 */
export type Present = (tx: Tx, caller: Caller, scope: Scope) => Promise<Caller>;

const tag = 'API keys';

/** Everybody who may read events can read a suspension, because it explains why nothing starts any more. */
export function orgRoute({ db }: Pick<Deps, 'db'>): Route {
  return route({
    method: 'GET',
    path: '/v1/organisation',
    operationId: 'getOrganisation',
    tag: 'Organisation',
    summary: 'Show the organisation of the caller',
    description: 'It says whether the operator has suspended the organisation, since when, and why.',
    scope: 'events:read',
    idempotency: 'none',
    responses: { 200: { description: 'The organisation', schema: Org } },
    errors: [],
    handler: async ({ caller }) => ({ status: 200, body: orgView(await assertOrg(db.read, caller.orgId)) }),
  });
}

export function apiKeyRoutes(deps: Deps): Route[] {
  return [listRoute(deps), createRoute(deps), revokeRoute(deps)];
}

export function sshKeyRoutes(deps: Pick<Deps, 'db' | 'cursors' | 'present'> & { sshKeys: SshKeys }): Route[] {
  const { db, sshKeys, cursors, present } = deps;
  const list = route({
    method: 'GET',
    path: '/v1/ssh-keys',
    operationId: 'listSshKeys',
    tag: 'SSH keys',
    summary: 'List the SSH keys of the organisation, newest first',
    scope: 'ssh_keys:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of keys', schema: pageSchema(SshKey) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const name = `ssh-keys/${caller.orgId}`;
      const rows = (start: PageStart) => sshKeys.list(db.read, caller.orgId, start);
      return { status: 200, body: await cursors.page(name, query, rows, { at: byCreation, show: sshKeyView }) };
    },
  });
  const create = route({
    method: 'POST',
    path: '/v1/ssh-keys',
    operationId: 'createSshKey',
    tag: 'SSH keys',
    summary: 'Register an SSH public key',
    scope: 'ssh_keys:write',
    idempotency: 'required',
    body: SshKeyCreate,
    responses: { 201: { description: 'The key', schema: SshKey } },
    errors: ['conflict'],
    handler: ({ caller, body, settle }) =>
      db.tx('ssh_keys.register', async (tx) => {
        await tx.lock('org', caller.orgId);
        await present(tx, caller, 'ssh_keys:write');
        const row = await sshKeys.register(tx, caller.orgId, { name: body.name, publicKey: body.public_key });
        const reply = { status: 201, body: sshKeyView(row) };
        await settle(tx, reply);
        return reply;
      }),
  });
  const remove = route({
    method: 'DELETE',
    path: '/v1/ssh-keys/{id}',
    operationId: 'deleteSshKey',
    tag: 'SSH keys',
    summary: 'Delete an SSH key',
    description: 'From then on, new connections with the key are refused. Sessions that are open stay open.',
    scope: 'ssh_keys:write',
    idempotency: 'none',
    params: z.strictObject({ id: z.string().describe('The id of the key') }),
    responses: { 204: { description: 'It is gone' } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const gone = await db.tx('ssh_keys.remove', (tx) => sshKeys.remove(tx, caller.orgId, params.id));
      return gone ? { status: 204 } : fail('not_found', `There is no SSH key ${params.id}.`);
    },
  });
  return [list, create, remove];
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
      "The new key cannot do more than the calling key, and expires no later. If a person's program makes it with the key of its login, it belongs to the same person and ends with the person's other keys. Only this answer contains the key.",
    scope: 'api_keys:write',
    idempotency: 'optional',
    secretReply: true,
    stepUp: true,
    body: CreateApiKey,
    responses: { 201: { description: 'The key, shown once', schema: NewApiKey } },
    errors: ['conflict'],
    handler: ({ caller, body, settle }) =>
      db.tx('accounts.issue_key', async (tx) => {
        await tx.lock('org', caller.orgId);
        const expiresMs = body.expires_at === undefined ? null : Date.parse(body.expires_at);
        const maker = await deps.present(tx, caller, 'api_keys:write');
        const made = await issueKeyBy(tx, maker, { name: body.name, scopes: body.scopes, expiresMs }, deps);
        const reply = { status: 201, body: made };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function revokeRoute({ accounts }: Deps): Route {
  return route({
    method: 'DELETE',
    path: '/v1/api-keys/{id}',
    operationId: 'revokeApiKey',
    tag,
    summary: 'Revoke an API key',
    description:
      'The key is refused from the next request on. A key may revoke itself. What the key has started continues.',
    scope: 'api_keys:write',
    idempotency: 'none',
    stepUp: true,
    params: z.strictObject({ id: z.string().describe('The id of the key, not the key itself') }),
    responses: { 204: { description: 'It is revoked' } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      await accounts.revokeKeyOf(caller, params.id);
      return { status: 204 };
    },
  });
}

function sshKeyView(row: SshKeyRow): SshKey {
  return { id: row.id, name: row.name, fingerprint: row.fingerprint, created_at: isoTime(row.created_ms) };
}

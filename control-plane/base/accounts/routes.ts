// The endpoints of SSH keys (specification 4.2).
import { z } from 'zod';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { SshKey, SshKeyCreate } from '../../../shared/api/account.ts';
import { isoTime } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Db } from '../db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../http/cursors.ts';
import { type Route, route } from '../http/route.ts';
import type { SshKeyRow, SshKeys } from './ssh-keys.ts';

export function sshKeyRoutes(deps: { db: Db; sshKeys: SshKeys; cursors: Cursors }): Route[] {
  const { db, sshKeys, cursors } = deps;
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
      return { status: 200, body: await cursors.page(name, query, rows, { at: byCreation, show }) };
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
        const row = await sshKeys.register(tx, caller.orgId, { name: body.name, publicKey: body.public_key });
        const reply = { status: 201, body: show(row) };
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
    description: 'New connections with it are refused from then on; sessions that are open stay open.',
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

function show(row: SshKeyRow): SshKey {
  return { id: row.id, name: row.name, fingerprint: row.fingerprint, created_at: isoTime(row.created_ms) };
}

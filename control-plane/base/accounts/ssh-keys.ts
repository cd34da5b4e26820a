// The SSH public keys of organisations: registered by customers, looked up when somebody connects.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { SSH_KEYS_PER_ORG_MAX } from '../../../shared/limits.ts';
import { countRow, int, text } from '../db/columns.ts';
import { type Query, type Tx, join, sql } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import { readPublicKey } from './public-key.ts';

const SshKeyRow = z.object({ id: text, name: text, fingerprint: text, created_ms: int });
export type SshKeyRow = z.infer<typeof SshKeyRow>;

const KeyLine = z.object({ public_key: text });

export interface SshKeys {
  /** @throws ServiceError `validation_failed` for a key that is refused, `conflict` for one that is registered already */
  register(tx: Tx, orgId: string, key: { name: string; publicKey: string }): Promise<SshKeyRow>;
  /** False if the organisation has no such key. */
  remove(tx: Tx, orgId: string, id: string): Promise<boolean>;
  /** At most `count` keys, newest first. */
  list(query: Query, orgId: string, start: PageStart): Promise<SshKeyRow[]>;
  /** The keys that may log in, as `<type> <base64>`: those of `ids` that still exist, or with null all keys of the organisation. */
  linesOf(query: Query, orgId: string, ids: readonly string[] | null): Promise<string[]>;
  /** @throws ServiceError `ssh_keys/org_mismatch` for a key of another organisation, `validation_failed` for an unknown one */
  assertKeysOfOrg(tx: Tx, orgId: string, ids: readonly string[]): Promise<void>;
}

export function openSshKeys(deps: { clock: Clock; ids: Ids }): SshKeys {
  const { clock, ids } = deps;
  return {
    register: async (tx, orgId, { name, publicKey }) => {
      const answer = readPublicKey(publicKey);
      if (!answer.ok) return failField('public_key', answer.rule);
      const { line, fingerprint } = answer.key;
      const row: SshKeyRow = { id: ids.prefixed('key'), name, fingerprint, created_ms: clock.now() };
      const added = await tx.run(
        sql`insert into ssh_keys (id, org_id, name, public_key, fingerprint, created_ms)
            values (${row.id}, ${orgId}, ${name}, ${line}, ${fingerprint}, ${row.created_ms})
            on conflict (org_id, fingerprint) do nothing`,
      );
      if (added === 0) await failDuplicate(tx, orgId, fingerprint);
      await assertRoom(tx, orgId);
      return row;
    },
    remove: async (tx, orgId, id) =>
      (await tx.run(sql`delete from ssh_keys where id = ${id} and org_id = ${orgId}`)) === 1,
    list: (query, orgId, start) =>
      query.all(
        SshKeyRow,
        sql`select id, name, fingerprint, created_ms from ssh_keys where org_id = ${orgId} and ${pageFrom(start)}`,
      ),
    linesOf: async (query, orgId, wanted) => {
      if (wanted?.length === 0) return [];
      const chosen = wanted === null ? sql`1 = 1` : sql`id in (${join([...wanted])})`;
      const rows = await query.all(
        KeyLine,
        sql`select public_key from ssh_keys where org_id = ${orgId} and ${chosen} order by created_ms, id`,
      );
      return rows.map((row) => row.public_key);
    },
    assertKeysOfOrg,
  };
}

const Owner = z.object({ id: text, org_id: text });

async function assertKeysOfOrg(tx: Tx, orgId: string, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  const found = await tx.all(Owner, sql`select id, org_id from ssh_keys where id in (${join([...ids])})`);
  const owners = new Map(found.map((row) => [row.id, row.org_id]));
  for (const [i, id] of ids.entries()) {
    const owner = owners.get(id);
    if (owner === undefined) failField(`ssh_key_ids[${i}]`, `must be one of GET /v1/ssh-keys, which ${id} is not`);
    if (owner !== orgId)
      fail(
        'ssh_keys/org_mismatch',
        `The SSH key ${id} belongs to another organisation. GET /v1/ssh-keys lists those that can be named.`,
      );
  }
}

const Known = z.object({ id: text, name: text });

async function failDuplicate(tx: Tx, orgId: string, fingerprint: string): Promise<never> {
  const known = await tx.one(
    Known,
    sql`select id, name from ssh_keys where org_id = ${orgId} and fingerprint = ${fingerprint}`,
  );
  return fail('conflict', `This key is registered already, as "${known?.name}": use ${known?.id}.`);
}

async function assertRoom(tx: Tx, orgId: string): Promise<void> {
  const row = await tx.one(countRow, sql`select count(*) as count from ssh_keys where org_id = ${orgId}`);
  if (row !== undefined && row.count <= SSH_KEYS_PER_ORG_MAX) return;
  fail('conflict', `An organisation may have ${SSH_KEYS_PER_ORG_MAX} SSH keys; delete one first.`);
}

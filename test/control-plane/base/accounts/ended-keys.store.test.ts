// Keys that have ended: however many an organisation has, making a key reads none of them, and they are forgotten at last.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { assertKeyCount, revokeKeysBeyond } from '../../../../control-plane/base/accounts/api-keys.ts';
import { forgetKeys } from '../../../../control-plane/base/accounts/brings.ts';
import { idRow } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { SCHEMA } from '../../../../control-plane/foundation.ts';
import { API_KEYS_PER_ORG_MAX } from '../../../../shared/limits.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { planOf, recordingDb } from '../../../kit/recording-db.ts';

let db: Db;
beforeEach(async () => {
  db = await openTestDb(SCHEMA);
  await db.tx('org', (tx) => tx.run(sql`insert into orgs (id, name, created_ms) values ('o', 'o', 0), ('p', 'p', 0)`));
});
afterEach(() => db.close());

interface Keys {
  name: string;
  count: number;
  orgId?: string;
  expiresMs?: number | null;
  revokedMs?: number | null;
}

/** Keys named `<name>1`, `<name>2` and so on. */
async function add({ name, count, orgId = 'o', expiresMs = null, revokedMs = null }: Keys): Promise<void> {
  await db.tx('keys', (tx) =>
    tx.run(sql`insert into api_keys (id, org_id, name, prefix, key_hash, scopes, created_ms, expires_ms, revoked_ms, user_id)
      with recursive n(i) as (select 1 union all select i + 1 from n where i < ${count})
      select ${name} || cast(i as text), ${orgId}, 'x', 'x', ${name} || cast(i as text), '[]', i, cast(${expiresMs} as bigint),
        cast(${revokedMs} as bigint), 'u' from n`),
  );
}
const assertCount = (on: Db, nowMs: number): Promise<void> => on.tx('count', (tx) => assertKeyCount(tx, 'o', nowMs));

test('are not read when the living ones are counted, or those of a person', async () => {
  await add({ name: 'revoked', count: 5_000, revokedMs: 5 });
  await add({ name: 'expired', count: 5_000, expiresMs: 5 });
  await add({ name: 'living', count: API_KEYS_PER_ORG_MAX - 1 });
  await add({ name: 'ending', count: 1, expiresMs: 10 });
  await add({ name: 'foreign', count: 5_000, orgId: 'p', expiresMs: 10 });
  // What earlier tests have deleted stays in the indexes for a while, and makes PostgreSQL choose others.
  const again = db.dialect === 'sqlite' ? sql`reindex api_keys` : sql`reindex table api_keys`;
  await db.tx('reindex', (tx) => tx.run(again));
  await db.tx('analyze', (tx) => tx.run(sql`analyze api_keys`));
  const { db: recorded, sent } = recordingDb(db);
  await assertCount(recorded, 9);
  const scope = { orgId: 'o', userId: 'u', scopes: [] };
  expect(await recorded.tx('end', (tx) => revokeKeysBeyond(tx, scope, 9))).toEqual([]);
  await forgetKeys(recorded, { untilMs: 1, limit: 9 });
  const [count = sql``, own = sql``, forgotten = sql``] = sent;
  const plan = await planOf(db, count);
  expect(plan.match(/api_keys_living/g)).toHaveLength(2);
  // Each has its own range of the index.
  expect(plan).toMatch(/expires_ms(=| IS NULL)/);
  expect(plan).toMatch(/expires_ms( > |>)/);
  expect(await planOf(db, own)).toMatch(/api_keys_user|api_keys_living/);
  expect(await planOf(db, forgotten)).toMatch(/api_keys_by_end/);
  await add({ name: 'more', count: 1 });
  await expect(assertCount(db, 9)).rejects.toMatchObject({ code: 'conflict' });
  await assertCount(db, 10);
});

test('are forgotten at their age limit, in pieces, and living ones never', async () => {
  await add({ name: 'revoked', count: 3, revokedMs: 5 });
  await add({ name: 'expired', count: 2, expiresMs: 5 });
  await add({ name: 'both', count: 1, expiresMs: 99, revokedMs: 5 });
  await add({ name: 'late', count: 1, expiresMs: 6 });
  await add({ name: 'living', count: 1 });
  const forget = (untilMs: number, limit: number): Promise<number> => forgetKeys(db, { untilMs, limit });
  expect([await forget(4, 9), await forget(5, 4), await forget(5, 4), await forget(5, 4)]).toEqual([0, 4, 2, 0]);
  const left = await db.read.all(idRow, sql`select id from api_keys order by id`);
  expect(left.map(({ id }) => id)).toEqual(['late1', 'living1']);
});

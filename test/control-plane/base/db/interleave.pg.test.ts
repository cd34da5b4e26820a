// The fuzzer of transactions finds what it is there for: a lock that is missing, a read before its lock, and locks in another order.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql, type Tx } from '../../../../control-plane/base/db/db.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { type Interleaved, interleave } from '../../../kit/interleave.ts';

const KEYS_MAX = 1;
const SEEDS = [1, 2, 3, 4, 5, 6, 7, 8];
const Count = z.object({ count: int });

let db: Db;
let interleaved: Interleaved;
beforeEach(async () => {
  db = await openTestDb([]);
  await db.tx('setup', (tx) => tx.run(sql`create table orgs (id text primary key)`));
  await db.tx('setup', (tx) => tx.run(sql`create table keys (org_id text not null)`));
  await db.tx('setup', (tx) => tx.run(sql`insert into orgs (id) values ('o-1'), ('o-2')`));
  interleaved = interleave(db);
});
afterEach(async () => {
  await db.tx('end', (tx) => tx.run(sql`drop table orgs, keys`));
  await db.close();
});

async function count(tx: Tx): Promise<number> {
  const row = await tx.one(Count, sql`select count(*) as count from keys where org_id = 'o-1'`);
  return row?.count ?? 0;
}
const insert = (tx: Tx): Promise<number> => tx.run(sql`insert into keys (org_id) values ('o-1')`);

/** How many keys there are after two callers have each added one, of which only one may be there. */
async function keysAfter(seed: number, add: (tx: Tx) => Promise<unknown>): Promise<number> {
  await db.tx('empty', (tx) => tx.run(sql`delete from keys`));
  const one = (): Promise<unknown> => interleaved.db.tx('add', add);
  await interleaved.run(seed, [one, one]);
  return db.tx('count', count);
}

async function worst(add: (tx: Tx) => Promise<unknown>): Promise<number> {
  let most = 0;
  for (const seed of SEEDS) most = Math.max(most, await keysAfter(seed, add));
  return most;
}

test('a body that locks its root before it counts never goes beyond the limit', async () => {
  const add = async (tx: Tx): Promise<void> => {
    await tx.lock('org', 'o-1');
    if ((await count(tx)) < KEYS_MAX) await insert(tx);
  };
  expect(await worst(add)).toBe(KEYS_MAX);
});

test('a body without a lock is found', async () => {
  const add = async (tx: Tx): Promise<void> => {
    if ((await count(tx)) < KEYS_MAX) await insert(tx);
  };
  expect(await worst(add)).toBe(2);
});

test('a body that counts before it locks is found', async () => {
  const add = async (tx: Tx): Promise<void> => {
    const before = await count(tx);
    await tx.lock('org', 'o-1');
    if (before < KEYS_MAX) await insert(tx);
  };
  expect(await worst(add)).toBe(2);
});

test('bodies that lock two rows in different orders are found: the server rolls one back, and it runs again', async () => {
  const both = (first: string, second: string) => (): Promise<unknown> =>
    interleaved.db.tx('both', async (tx) => {
      await tx.lock('org', first);
      await count(tx);
      await tx.lock('org', second);
      await count(tx);
    });
  await interleaved.run(1, [both('o-1', 'o-2'), both('o-1', 'o-2')]);
  expect(interleaved.collisions()).toBe(0);
  for (const seed of SEEDS.slice(0, 4)) {
    const results = await interleaved.run(seed, [both('o-1', 'o-2'), both('o-2', 'o-1')]);
    expect(results.map(({ status }) => status)).toEqual(['fulfilled', 'fulfilled']);
  }
  expect(interleaved.collisions()).toBeGreaterThan(0);
});

// The pieces of the proof of the books are bounded by transfers: a rental of a year has thousands, and others wait while a piece is read.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { sql, type Sql } from '../../../control-plane/base/db/db.ts';
import { accountId, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { type Books, openBooks } from '../../../control-plane/money/ledger/books.ts';
import { firstWithin, forgetProven, proofState } from '../../../control-plane/money/ledger/proof-store.ts';
import { recordingDb, type RecordingDb } from '../../kit/recording-db.ts';
import { openWorldOver, type World } from '../../kit/world.ts';
import { textOf } from '../../kit/sql-text.ts';

const DAY_MS = 24 * 3_600_000;
const LIMIT = 10_000;
const NEVER = new AbortController().signal;

let world: World;
let recording: RecordingDb;
let orgId: string;
let books: Books;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
  ({ orgId } = await world.customer(1_000_000));
  books = openBooks({ ...world.core, db: recording.db, proofs: () => world.brings() });
});
afterEach(() => world.close());

const write = (statement: Sql): Promise<number> => world.db.tx('test.write', (tx) => tx.run(statement));

/** Writes a receipt and its transfers; the balance of the wallet follows. */
async function charge(id: string, transfers: number): Promise<void> {
  const nowMs = world.clock.now();
  await write(
    sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, charged_ucents, opened_ms, closed_ms)
        values (${id}, ${orgId}, 'apk', 'req', 'small', 'serverless', 'charged', ${LIMIT}, 0, ${nowMs}, ${nowMs})`,
  );
  await chargeMore(id, { from: 1, to: transfers });
}

/** Writes the transfers of these numbers, a microcent each. */
async function chargeMore(id: string, { from, to }: { from: number; to: number }): Promise<void> {
  const account = accountId(wallet(orgId));
  const count = to - from + 1;
  await write(
    sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
        with recursive n (i) as (select cast(${from} as integer) union all select i + 1 from n where i < cast(${to} as integer))
        select cast(${`${id}:`} as text) || cast(i as text), 'b', cast(${account} as text), cast(${accountId(revenue)} as text), 1,
          'inference.charge', cast(${id} as text), 1, cast(${world.clock.now()} as bigint) from n`,
  );
  await write(sql`update ledger_accounts set debits_ucents = debits_ucents + ${count} where id = ${account}`);
  await write(sql`update request_receipts set charged_ucents = charged_ucents + ${count} where id = ${id}`);
}

/** The charges whose transfers each piece has added up. */
const pieces = (): string[][] =>
  recording.sent
    .filter((each) => /sum\(amount_ucents\).*from transfers\s+where subject_id in/s.test(textOf(each)))
    .map(({ values }) => values.map(String).filter((id) => id.startsWith('rcp_')))
    .filter((ids) => ids.length > 0);

const nextRun = async (ms: number): Promise<string[][]> => {
  world.clock.step(ms);
  recording.sent.length = 0;
  expect(await books.run(NEVER)).toBe(false);
  return pieces();
};

test.each([
  ['all, if they have as many as may be read', LIMIT, ['a', 'b', 'c']],
  ['the first, if all have one more', LIMIT - 1, ['a', 'b']],
  ['the first one at least', 1, ['a']],
])('of charges in order, a piece takes %s', async (_what, limit, expected) => {
  await charge('a', 2);
  await charge('b', 3);
  await charge('c', LIMIT - 5);
  expect(await firstWithin(world.db.read, ['a', 'b', 'c'], limit)).toEqual(expected);
});

test('a charge without transfers takes no room in a piece', async () => {
  await charge('b', 3);
  expect(await firstWithin(world.db.read, ['a', 'b', 'c'], 3)).toEqual(['a', 'b', 'c']);
  expect(await firstWithin(world.db.read, ['a', 'b', 'c'], 2)).toEqual(['a']);
});

test('the hourly and the nightly proof read charges with many transfers in several pieces, and find their faults', async () => {
  const ids = ['rcp_1', 'rcp_2', 'rcp_3', 'rcp_4'];
  const pairs = [
    ['rcp_1', 'rcp_2'],
    ['rcp_3', 'rcp_4'],
  ];
  for (const id of ids) await charge(id, LIMIT / 2 - 1);
  await nextRun(DAY_MS);
  for (const id of ids) await chargeMore(id, { from: LIMIT / 2, to: LIMIT / 2 });
  expect(await nextRun(DAY_MS / 24)).toEqual(pairs);
  await write(sql`update request_receipts set charged_ucents = 7 where id = 'rcp_4'`);
  const nightly = await nextRun(DAY_MS);
  expect(new Set(nightly.flat())).toEqual(new Set(ids));
  expect(nightly.filter((piece) => piece.length > 2)).toEqual([]);
  expect(await books.verify()).toEqual([`rcp_4: charged 7, the ledger says ${LIMIT / 2}`]);
});

test('a full proof that was interrupted begins again as a full proof, which reads each charge once for each side', async () => {
  for (const id of ['rcp_1', 'rcp_2']) await charge(id, 1_200);
  await nextRun(DAY_MS);
  const ofFullProof = await nextRun(DAY_MS);
  // The process ends when the proof has forgotten what was proven.
  await world.db.tx('test.begin', (tx) => forgetProven(tx, world.clock.now()));
  expect(await nextRun(DAY_MS / 24)).toEqual(ofFullProof);
  expect(await proofState(world.db.read)).toMatchObject({ whole_begun_ms: null, whole_proven_ms: world.clock.now() });
});

test('operators who verify at once wait for one proof, the loop waits too, and one who comes later gets a proof of their own', async () => {
  await charge('rcp_1', 3);
  world.clock.step(DAY_MS);
  recording.sent.length = 0;
  const first = [books.verify(), books.verify()];
  expect(await books.run(NEVER)).toBe(false);
  const later = books.verify();
  const ofOne = (await Promise.all(first).then(() => pieces())).length;
  expect(await later).toEqual([]);
  expect(ofOne).toBeGreaterThan(0);
  expect(pieces()).toHaveLength(2 * ofOne);
});

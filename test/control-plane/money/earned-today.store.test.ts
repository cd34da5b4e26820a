// What the machines of a page earned today: the sums, and that the rest of a large supplier is not read for them.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { accountId, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { earnedByMachine } from '../../../control-plane/money/payouts/earnings.ts';
import { SCHEMA } from '../../../control-plane/foundation.ts';
import { openTestDb } from '../../kit/databases.ts';
import { planSteps, type RecordingDb, recordingDb } from '../../kit/recording-db.ts';

const SUPPLIER = 's';
const ACCOUNT = accountId(payable(SUPPLIER));
const DAY_MS = 1_000;

let db: Db;
let recording: RecordingDb;
beforeEach(async () => {
  db = await openTestDb(SCHEMA);
  recording = recordingDb(db);
});
afterEach(() => db.close());

/** An entry of the supplier; a negative amount is a claw-back. */
async function post(subjectId: string, ucents: number, postedMs = DAY_MS): Promise<void> {
  const [debit, credit] = ucents > 0 ? ['platform_revenue', ACCOUNT] : [ACCOUNT, 'platform_revenue'];
  const id = `${subjectId} ${ucents} ${postedMs}`;
  await db.tx('test.post', (tx) =>
    tx.run(
      sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
          values (${id}, 'b', ${debit}, ${credit}, ${Math.abs(ucents)}, 'rental.pay', ${subjectId}, ${postedMs}, ${postedMs})`,
    ),
  );
}

/** Rentals are named after their machine, like `m1/a`. The job `moved` ran on m1 and goes on elsewhere. */
const machinesOf = async (_query: unknown, ids: readonly string[]): Promise<Map<string, string>> =>
  new Map(ids.map((id) => [id, id === 'moved' ? 'm3' : (id.split('/')[0] ?? '')]));

async function earned(machineIds: string[], more: readonly string[] = []): Promise<Record<string, bigint>> {
  recording.sent.length = 0;
  const subjectsOf = async (_query: unknown, ids: readonly string[]): Promise<string[]> =>
    ids.flatMap((id) => (id === 'm1' ? ['m1/a', 'm1/b', 'moved', ...more] : [`${id}/a`]));
  const what = { supplierId: SUPPLIER, machineIds, sinceMs: DAY_MS };
  return Object.fromEntries(await earnedByMachine(recording.db.read, what, { machinesOf, subjectsOf }));
}

test('a page has the entries of the day of its own machines, less the claw-backs', async () => {
  await post('m1/a', 1_000);
  await post('m1/b', 500);
  await post('m1/b', -200, DAY_MS + 1);
  await post('m1/a', 7_000, DAY_MS - 1);
  await post('m2/a', 30);
  await post('moved', 4);
  expect(await earned(['m1'])).toEqual({ m1: 1_300n, m3: 4n });
  expect(await earned(['m1', 'm2'])).toEqual({ m1: 1_300n, m2: 30n, m3: 4n });
  expect(await earned(['m4'])).toEqual({});
});

test('a page reads along the rentals of its machines', async () => {
  await earned(['m1', 'm2']);
  if (db.dialect !== 'sqlite') return;
  const steps = await planSteps(db, recording.sent);
  expect(steps.map((step) => step.split(':')[0])).toEqual([
    'SEARCH transfers USING INDEX transfers_by_subject (subject_id=? AND posted_ms>?)',
  ]);
});

test('if more ran on the machines than a supplier has entries in a day, the day of the supplier is read', async () => {
  await post('m1/a', 1_000);
  await post('m2/a', 30);
  const many = Array.from({ length: 10_000 }, (_, n) => `m1/${n}`);
  expect((await earned(['m1'], many))['m1']).toBe(1_000n);
  expect(recording.sent).toHaveLength(1);
});

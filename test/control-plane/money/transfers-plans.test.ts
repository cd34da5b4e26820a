// Nothing reads all transfers, segments or disputes for a few of them, and a page of costs does not read what each hour of a rental has posted:
// SQLite's query plans say so.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Http } from '../../../control-plane/base/http/server.ts';
import { instanceCosts } from '../../../control-plane/money/bill/instance-costs.ts';
import { readMonth } from '../../../control-plane/money/ledger/month-read.ts';
import {
  amountsOfPayouts,
  amountsOfPayoutsAfter,
  earnedBySubjects,
  waitingFor,
} from '../../../control-plane/money/ledger/suppliers.ts';
import { chargedGpuMs, machinesThatServed, openSegments } from '../../../control-plane/money/metering/store.ts';
import { disputedOf, disputesOf } from '../../../control-plane/money/payouts/disputes.ts';
import { rentalsOf } from '../../../control-plane/rental/instances/store.ts';
import { openOperator } from '../../kit/operator.ts';
import { planSteps, type RecordingDb, recordingDb } from '../../kit/recording-db.ts';
import { openWorldOver, type World } from '../../kit/world.ts';
import { textOf } from '../../kit/sql-text.ts';

let world: World;
let http: Http;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
  ({ http } = openOperator(world));
});
afterEach(async () => {
  await http.close();
  await world.close();
});

test.each([
  [{}, 'transfers_in_time'],
  [{ org_id: 'o' }, 'transfers_from_wallets'],
  [{ org_id: 'o', kind: 'k' }, 'transfers_to_wallets'],
  [{ subject_id: 's' }, 'transfers_by_subject (subject_id=? AND (posted_ms,id)>(?,?)'],
  [{ subject_id: 's', org_id: 'o', kind: 'k' }, 'transfers_by_subject (subject_id=? AND (posted_ms,id)>(?,?)'],
])('a search by %j reads along %s, and never the whole table', async (query: Record<string, string>, index) => {
  recording.sent.length = 0;
  const parameters = new URLSearchParams({ from: '2000-01-01T00:00:00Z', ...query });
  await http.inject({ method: 'GET', url: `/admin/transfers?${parameters.toString()}` });
  const pages = recording.sent.filter((each) => textOf(each).includes('from transfers'));
  // A search by kind looks for the end of its piece first.
  expect(pages).toHaveLength('org_id' in query && 'kind' in query && !('subject_id' in query) ? 2 : 1);
  const steps = await planSteps(world.db, pages);
  expect(steps.filter((step) => step.startsWith('SCAN transfers'))).toEqual([]);
  expect(steps.some((step) => step.startsWith('SEARCH transfers USING') && step.includes(`INDEX ${index}`))).toBe(true);
});

test('the tick reads open segments only, and the disputes of a rental are found by it', async () => {
  recording.sent.length = 0;
  await openSegments(recording.db.read, 'a', 9);
  await disputesOf(recording.db.read, 'i');
  expect((await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0])).toEqual([
    'SEARCH meter_segments USING INDEX meter_segments_running (id>?)',
    'SEARCH disputes USING INDEX disputes_of_instance (instance_id=?)',
  ]);
});

test('machines that served others are found in the segments of the window, not in all of the organisation or of a machine', async () => {
  recording.sent.length = 0;
  await machinesThatServed(recording.db.read, 'o', { sinceMs: 5, nowMs: 9, forMs: 1 });
  const steps = (await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0]);
  expect(steps.filter((step) => step?.includes('meter_segments'))).toEqual([
    'SEARCH meter_segments USING INDEX meter_segments_of_machine (machine_id=? AND ended_ms>?)',
    'SEARCH meter_segments USING INDEX meter_segments_of_org (org_id=? AND ended_ms>?)',
    'SEARCH meter_segments USING INDEX meter_segments_of_org (org_id=? AND ended_ms=?)',
    'SEARCH meter_segments USING INDEX meter_segments_of_machine (machine_id=? AND ended_ms=?)',
  ]);
});

test('the charged time of an organisation in a window is read from the segments of the window', async () => {
  recording.sent.length = 0;
  await chargedGpuMs(recording.db.read, 'o', { sinceMs: 5, nowMs: 9 });
  const steps = (await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0]);
  expect(steps.filter((step) => step?.includes('meter_segments'))).toEqual([
    'SEARCH meter_segments USING INDEX meter_segments_of_org (org_id=? AND ended_ms>?)',
    'SEARCH meter_segments USING INDEX meter_segments_of_org (org_id=? AND ended_ms=?)',
  ]);
});

test('what waits for disputes is read along the disputed rentals, not along the account of a supplier', async () => {
  recording.sent.length = 0;
  await waitingFor(recording.db.read, 's', { sinceMs: 5, disputed: disputedOf('s') });
  const steps = (await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0]);
  expect(steps.filter((step) => /^SEARCH|^SCAN [a-z]+ USING/.test(step ?? ''))).toEqual([
    'SEARCH transfers USING INDEX transfers_earned (credit_account_id=? AND posted_ms>?)',
    'SCAN disputes USING INDEX disputes_waiting',
    'SEARCH meter_segments EXISTS USING INDEX meter_segments_by_subject (subject_id=?)',
    'SEARCH transfers USING INDEX transfers_taken_back (debit_account_id=? AND posted_ms>?)',
    'SEARCH t USING INDEX transfers_by_subject (subject_id=? AND posted_ms>?)',
  ]);
});

test('what a machine earned is read along its rentals, however many they are', async () => {
  recording.sent.length = 0;
  const ids = Array.from({ length: 1_000 }, (_, index) => `i-${index}`);
  await earnedBySubjects(recording.db.read, 's', ids);
  const steps = (await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0]);
  expect(steps.filter((step) => step?.includes(' transfers'))).toEqual([
    'SEARCH transfers USING INDEX transfers_by_subject (subject_id=?)',
  ]);
});

test('a page of the proof of payouts is read along their transfers, or by their ids', async () => {
  recording.sent.length = 0;
  await amountsOfPayoutsAfter(recording.db.read, 'a', 9);
  await amountsOfPayouts(recording.db.read, ['a', 'b']);
  expect((await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0])).toEqual([
    'SEARCH transfers USING INDEX transfers_of_payouts (id>?)',
    'SEARCH transfers USING PRIMARY KEY (id=?)',
  ]);
});

test('the costs of instances are read along the few transfers beside their segments', async () => {
  await world.machine();
  const who = await world.customer(100_000);
  await world.launch(who);
  recording.sent.length = 0;
  const page = { count: 10, ids: undefined };
  expect(await instanceCosts(who.orgId, page, { db: recording.db, clock: world.clock, rentalsOf })).toHaveLength(1);
  const sent = recording.sent.filter((each) => textOf(each).includes('from transfers'));
  expect(sent).toHaveLength(2);
  for (const step of (await planSteps(world.db, sent)).filter((each) => each.includes('transfers')))
    expect(step).toMatch(/^SEARCH transfers USING (COVERING )?INDEX transfers_beside_segments /);
});

test.each([
  ['a bill', { kind: 'customer_wallet', ownerId: 'o' }, { bySubject: ['a'], byEvidence: ['b'] }],
  ['a statement', { kind: 'supplier_payable', ownerId: 's' }, undefined],
] as const)(
  '%s is read along the lines of its account, and the transfers of its account since',
  async (_, account, grouping) => {
    recording.sent.length = 0;
    const { clock, rooms } = world;
    const deps = { db: recording.db, clock, ledger: rooms.ledger };
    await readMonth(account, { window: { fromMs: 0, untilMs: 9 }, grouping }, deps);
    const sent = recording.sent.filter((each) => /from (transfers|month_lines)\b/.test(textOf(each)));
    // The change since the month began, the transfers since the summed ones, the sum of the lines, and a page of them.
    expect(sent).toHaveLength(4);
    const steps = await planSteps(world.db, sent);
    expect(steps.filter((step) => /^SCAN (transfers|month_lines)\b/.test(step))).toEqual([]);
    expect(
      steps.filter((step) => step.startsWith('SEARCH month_lines USING PRIMARY KEY (account_id=? AND ')),
    ).toHaveLength(3);
    // A page is read in the order of its key.
    expect(await planSteps(world.db, sent.slice(-1))).toEqual([
      expect.stringMatching(/^SEARCH month_lines USING PRIMARY KEY/),
    ]);
  },
);

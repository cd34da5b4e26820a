// The operator's list of instances that are not over reads as many rows as it shows, and what looks at running ones reads these alone, however many
// have ended: SQLite's query plans say so.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { findInstances, type InstanceFilter, instancesOfOrg } from '../../../control-plane/rental/instances/search.ts';
import { warnOfBalances } from '../../../control-plane/rental/instances/balance-warnings.ts';
import { runningInstances } from '../../../control-plane/rental/instances/store.ts';
import { planOf, type RecordingDb, recordingDb } from '../../kit/recording-db.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

let world: World;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
});
afterEach(() => world.close());

test.each([
  ['first', undefined, '(status=?)'],
  ['second', { createdMs: 5, id: 'i' }, '(status=? AND (created_ms,id)<(?,?))'],
])('the %s page begins in the index of each state, which has its order', async (_page, from, search) => {
  const all: InstanceFilter = { orgId: null, machineId: null, status: null };
  recording.sent.length = 0;
  for (const status of [null, 'running', 'stopped'] as const)
    await findInstances(recording.db.read, { ...all, status }, { count: 2, ...(from && { from }) });
  const plans = await Promise.all(recording.sent.map((statement) => planOf(world.db, statement)));
  const steps = plans.map((plan) => plan.split('\n').filter((step) => step.includes(' instances')));
  expect(steps.map((each) => [...new Set(each)])).toEqual(
    Array.from({ length: 3 }, () => [`SEARCH instances USING INDEX instances_by_status ${search}`]),
  );
  expect(steps.map((each) => each.length)).toEqual([6, 1, 1]);
  expect(plans.slice(1).filter((plan) => plan.includes('TEMP B-TREE'))).toEqual([]);
});

test.each([
  ['first', undefined, ''],
  ['second', { createdMs: 5, id: 'i' }, ' AND (created_ms,id)<(?,?)'],
])('the %s page of the instances with one name reads these alone', async (_page, from, after) => {
  recording.sent.length = 0;
  await instancesOfOrg(recording.db.read, 'o', { count: 2, name: 'train', ...(from && { from }) });
  expect(await Promise.all(recording.sent.map((statement) => planOf(world.db, statement)))).toEqual([
    `SEARCH instances USING INDEX instances_by_name (org_id=? AND name=?${after})`,
  ]);
});

test.each([
  ['running', ['SEARCH instances USING INDEX instances_connectable (org_id=?)']],
  ['starting', ['SEARCH instances USING INDEX instances_open_launches (org_id=?)']],
  [
    'live',
    [
      'SEARCH instances USING INDEX instances_open_launches (org_id=?)',
      'SEARCH instances USING INDEX instances_connectable (org_id=?)',
      'SEARCH instances USING INDEX instances_by_status (status=?)',
    ],
  ],
] as const)('the instances that are %s are read without those that have ended', async (status, steps) => {
  recording.sent.length = 0;
  await instancesOfOrg(recording.db.read, 'o', { count: 2, status });
  const plans = await Promise.all(recording.sent.map((statement) => planOf(world.db, statement)));
  expect(plans.flatMap((plan) => plan.split('\n').filter((step) => step.includes(' instances')))).toEqual([
    'SEARCH instances USING INDEX sqlite_autoindex_instances_1 (id=?)',
    ...steps,
  ]);
});

test('the instances that a scrape of metrics finds are read in the order of their ids, without those that have ended', async () => {
  recording.sent.length = 0;
  await runningInstances(recording.db.read, 'o', 9);
  expect(await Promise.all(recording.sent.map((statement) => planOf(world.db, statement)))).toEqual([
    'SEARCH instances USING INDEX instances_connectable (org_id=?)',
  ]);
});

test('the warnings about balances walk through running instances alone', async () => {
  recording.sent.length = 0;
  const deps = { db: recording.db, events: world.rooms.events, balanceBelowHours: async () => null };
  await warnOfBalances(new AbortController().signal, deps);
  expect(await Promise.all(recording.sent.map((statement) => planOf(world.db, statement)))).toEqual([
    'SEARCH instances USING INDEX instances_by_status (status=? AND (created_ms,id)>(?,?))',
  ]);
});

// A scrape of the metrics, the sweep for lost links and the hourly proofs read no large table as a whole: SQLite's query plans say so.
import { reliabilityOf } from '../../control-plane/fleet/supply/reliability.ts';
import { keepUptimes } from '../../control-plane/fleet/supply/uptimes.ts';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import {
  type FreeTime,
  freeTimesAfter,
  heldAfter,
  heldForTimes,
  heldWithIds,
} from '../../control-plane/money/credits/store.ts';
import { countBehind, isBehind } from '../../control-plane/money/deposits/accounts-store.ts';
import { depositsAfter, knownDeposits } from '../../control-plane/money/deposits/store.ts';
import { transfersByDeposit } from '../../control-plane/money/deposits/transfers-store.ts';
import { amountsOfHeld, amountsOfHeldAfter } from '../../control-plane/money/ledger/store.ts';
import { depositsPosted, depositsPostedAfter } from '../../control-plane/money/ledger/wallets.ts';
import { sumReceipts, totalRows } from '../../control-plane/models/gateway/totals.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { type RecordingDb, planSteps, recordingDb } from '../kit/recording-db.ts';
import { openWorldOver, type World } from '../kit/world.ts';

let world: World;
let recording: RecordingDb;
beforeEach(async () => {
  ({ world, over: recording } = await openWorldOver(recordingDb));
  recording.sent.length = 0;
});
afterEach(() => world.close());

/**
 * The rows of an index alone, or of an index that has few rows. The count of probed machines reads the small rows of `probes`, and a
 * service has few chains, and two things that can be paused. The count of free ports ends at a limit. */
const FEW =
  /^SCAN \w+ USING (COVERING INDEX|INDEX (probes_failing|machines_with_unknown|model_replicas_live|endpoint_ports_free))|^SCAN (probes:|deposit_chains |pauses )/;

test('no metric reads the rows of a whole table', async () => {
  await Promise.all(brought(world.brings(), 'measures').map(async ({ read }) => read()));
  expect(recording.sent.length).toBeGreaterThan(5);
  const scans = (await planSteps(world.db, recording.sent)).filter((step) => step.startsWith('SCAN '));
  expect(scans.filter((scan) => !FEW.test(scan))).toEqual([]);
});

test('token accounts that are behind are counted without a look at the others', async () => {
  await countBehind(recording.db.read, 'solana', 'solana', 9);
  await isBehind(recording.db.read, 'solana', 'o');
  expect((await planSteps(world.db, recording.sent)).map((step) => step.split(':')[0])).toEqual([
    'SEARCH a USING INDEX deposit_accounts_behind (chain=?)',
    expect.stringMatching(/^SEARCH d USING INDEX sqlite_autoindex_deposits_\d \(family=\? AND address=\?\)/),
    'SEARCH deposit_accounts USING INDEX deposit_accounts_behind (chain=? AND owner=?)',
  ]);
});

test('the sweep for lost links finds online machines by an index', async () => {
  await world.rooms.supply.onlineMachineIds('', 10);
  expect(await planSteps(world.db, recording.sent)).toEqual([
    expect.stringMatching(/^SEARCH machines USING (COVERING )?INDEX machines_online \(id>\?\): /),
  ]);
});

test('the needs of contracts are found without a walk over the offerings', async () => {
  const due = (): Promise<string[]> => world.rooms.supply.driver.due(world.clock.now(), 10);
  const steps = async (): Promise<string[]> =>
    (await planSteps(world.db, recording.sent)).filter((step) => / offerings .*: /.test(step));
  await due();
  expect(await steps()).toEqual([]);
  await world.db.tx('need', (tx) =>
    tx.run(
      sql`insert into slot_wants (reserved_by, gpu_type, region, gpus_missing, starts_ms) values ('r', 'H100_SXM', 'eu', 1, 1)`,
    ),
  );
  await due();
  expect(new Set(await steps())).toEqual(
    new Set([expect.stringMatching(/^SEARCH offerings USING COVERING INDEX offerings_by_region/)]),
  );
});

test('closed receipts and their totals are read along their indexes', async () => {
  const { clock } = world;
  await world.db.tx('receipt', (tx) =>
    tx.run(
      sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, opened_ms, closed_ms)
          values ('rcp', 'o', 'k', 'r', 'm', 'serverless', 'released', 0, 1, 1)`,
    ),
  );
  await sumReceipts({ db: recording.db, clock }, new AbortController().signal);
  const window = { span: 'day', groupBy: 'model', startMs: 0, endMs: 9, after: undefined } as const;
  await totalRows({ db: recording.db, clock }, { ...window, orgId: 'o', limit: 3 });
  const steps = await planSteps(world.db, recording.sent);
  const ways = steps.filter((step) => /^(SCAN|SEARCH) (request_receipts|receipt_totals)\b/.test(step));
  expect(ways.map((step) => step.split(':')[0])).toEqual([
    expect.stringMatching(/^SEARCH request_receipts USING COVERING INDEX request_receipts_by_close \(closed_ms>/),
    expect.stringMatching(/^SEARCH request_receipts USING INDEX request_receipts_by_close \(closed_ms>/),
    expect.stringMatching(/^SEARCH receipt_totals USING PRIMARY KEY \(org_id=\? AND span=\? AND \(start_ms,/),
  ]);
});

test('the hourly proofs of the rooms find their transfers by an index', async () => {
  const proofs = world.brings().flatMap(({ invariants = [] }) => invariants);
  for (const proof of proofs) expect(await recording.db.snapshot('proof', proof)).toEqual([]);
  const steps = await planSteps(world.db, recording.sent);
  const scans = steps.filter((step) => /^SCAN (transfers|t) /.test(step));
  expect(scans).toHaveLength(4);
  expect(
    scans.filter(
      (step) => !/ INDEX transfers_(refunds|of_corrections|beside_segments|payouts|payouts_failed):/.test(step),
    ),
  ).toEqual([]);
});

test('the proofs in pages find the rows of a page by an index', async () => {
  const { read } = recording.db;
  const ids = ['a', 'b'];
  const time = { id: 'a', subject_id: 'i' } as FreeTime;
  await Promise.all([
    freeTimesAfter(read, 'a', 9),
    heldForTimes(read, [time]),
    heldAfter(read, 'a', 9),
    heldWithIds(read, ids),
    amountsOfHeldAfter(read, 'a', 9),
    amountsOfHeld(read, ids),
    depositsAfter(read, 'a', 9),
    transfersByDeposit(read, ids),
    depositsPosted(read, ids),
    depositsPostedAfter(read, 'a', 9),
    knownDeposits(read, ids),
  ]);
  expect(recording.sent).toHaveLength(11);
  const steps = await planSteps(world.db, recording.sent);
  expect(steps.filter((step) => !step.startsWith('SEARCH '))).toEqual([]);
});

test('the numbers of a page of machines are found by indexes, however old the machines are', async () => {
  const { machineId } = await world.machine();
  recording.sent.length = 0;
  await reliabilityOf(recording.db.read, [{ id: machineId, gpus: 1 }], world.clock.now());
  const steps = await planSteps(world.db, recording.sent);
  expect(steps.filter((step) => /^SCAN (machine|meter)/.test(step))).toEqual([]);
  const segments = steps.filter((step) => step.includes(' meter_segments '));
  expect(segments).toHaveLength(2);
  for (const step of segments)
    expect(step).toMatch(/INDEX meter_segments_of_machine \(machine_id=\? AND ended_ms[>=]\?\)/);
});

test('the uptimes of a page of machines are found by indexes', async () => {
  await world.machine();
  recording.sent.length = 0;
  await keepUptimes({ db: recording.db, clock: world.clock }, new AbortController().signal);
  const steps = await planSteps(world.db, recording.sent);
  expect(steps.length).toBeGreaterThan(4);
  expect(steps.filter((step) => /^SCAN |TEMP B-TREE/.test(step))).toEqual([]);
});

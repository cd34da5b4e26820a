// All time of a rental is charged, or has a reason why not. What an operator has refunded is not given back a second time by an outage.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql, type Tx } from '../../../control-plane/base/db/db.ts';
import { badDebt, payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { type Segment, segmentsOf } from '../../../control-plane/money/metering/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { uncovered } from '../../../control-plane/rental/outages/verify.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DOLLAR = 100_000_000n;

let world: World;
let operator: Operator;
let who: KeyAccount;
beforeEach(async () => {
  world = await openWorld();
  operator = openOperator(world);
  who = await world.customer(10_000);
});
afterEach(() => world.close());

const metering = () => world.rooms.metering;
/** Cuts the rental's time as a verdict does, in one transaction with its locks. */
const cut = (id: string, how: (tx: Tx) => Promise<void>) =>
  world.db.tx('test.cut', async (tx) => {
    await tx.lock('org', who.orgId);
    await tx.lock('instance', id);
    await how(tx);
  });
const tick = (): Promise<string[]> => metering().tick(new AbortController().signal);
const posted = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;

/** The same rental goes on at another moment. */
const reopened = (segment: Segment | undefined) => ({
  subjectId: segment?.subject_id ?? '',
  orgId: segment?.org_id ?? '',
  supplierId: segment?.supplier_id ?? '',
  machineId: segment?.machine_id ?? '',
  gpuType: 'H100_SXM',
  gpuCount: 1,
  rateUcentsPerHour: segment?.rate_ucents_per_hour ?? 0n,
  supplierBps: segment?.supplier_bps ?? 0,
});

describe('uncovered time', () => {
  const span = (fromMs: number, untilMs: number) => ({ fromMs, untilMs });
  test.each([
    ['nothing covers it', [], [span(10, 20)]],
    ['all is covered', [span(10, 20)], []],
    ['more is covered', [span(0, 15), span(14, 30)], []],
    ['a part in the middle is not', [span(10, 12), span(15, 20)], [span(12, 15)]],
    ['both ends are not', [span(11, 19)], [span(10, 11), span(19, 20)]],
    ['a span without length covers nothing', [span(10, 14), span(14, 14), span(16, 20)], [span(14, 16)]],
    ['a short span lies in a long one', [span(10, 18), span(11, 12)], [span(18, 20)]],
    ['spans lie outside', [span(0, 10), span(20, 30)], [span(10, 20)]],
  ])('is found if %s', (_, spans, gaps) => {
    expect(uncovered(span(10, 20), spans)).toEqual(gaps);
  });
});

describe('the proof of gaps', () => {
  test('finds time between two segments that no reason explains', async () => {
    await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await world.clock.advance(HOUR_MS);
    const [segment] = await segmentsOf(world.db.read, [id]);
    await cut(id, (tx) => metering().closeSegment(tx, id, world.clock.now()));
    const fromMs = world.clock.now();
    await world.clock.advance(HOUR_MS);
    await expect(world.verify()).rejects.toThrow(`${id}: ran from`);
    await cut(id, (tx) => metering().openSegment(tx, { ...reopened(segment), startedMs: world.clock.now() }));
    const untilMs = world.clock.now();
    await world.clock.advance(HOUR_MS);
    const words = `${id}: ran from ${new Date(fromMs).toISOString()} to ${new Date(untilMs).toISOString()} and was not charged`;
    await expect(world.verify()).rejects.toThrow(words);
    await world.db.tx('test.forget', (tx) => tx.run(sql`delete from events`));
    await expect(world.verify()).rejects.toThrow(words);
  });

  test('accepts an outage, a broken GPU, a dispute for the customer, and a clock that was set forward', async () => {
    await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await world.rooms.ownOutages.beat();
    await world.clock.advance(HOUR_MS);
    await cut(id, (tx) => metering().pauseForGpuFault(tx, id, world.clock.now(), 'XID 79'));
    await world.clock.advance(HOUR_MS);
    const [segment] = await segmentsOf(world.db.read, [id]);
    await cut(id, (tx) => metering().openSegment(tx, { ...reopened(segment), startedMs: world.clock.now() }));
    await world.clock.advance(HOUR_MS);
    const dispute = await operator.ask('POST', '/admin/disputes', { instance_id: id, reason: 'slow' });
    const url = `/admin/disputes/${String(dispute['dispute_id'])}/resolve`;
    await operator.ask('POST', url, { refund: true, note: 'n' });
    await world.rooms.ownOutages.beat();
    world.clock.step(3 * HOUR_MS);
    await world.rooms.ownOutages.beat();
    await world.clock.advance(10_000);
    await world.end(who, id);
    await world.verify();
  });

  test('accepts a GPU that broke while the rental began to run, and was mended later', async () => {
    await world.close();
    let id = '';
    const probe = async (): Promise<{ ok: true }> => {
      await broken('XID 79');
      return { ok: true };
    };
    world = await openWorld(1, { probe });
    const broken = async (fault: string | null): Promise<void> => {
      const heldBy = (await findInstance(world.db.read, id))?.workload_id ?? '';
      await world.rooms.instances.noteGpus([{ heldBy, fault }]);
    };
    const customer = await world.customer(10_000);
    await world.machine({ dollars: 1 });
    id = await world.launch(customer);
    await world.start(id);
    expect((await world.journal(id)).slice(-2)).toEqual(['instance.gpu_broken', 'instance.running']);
    await world.clock.advance(HOUR_MS / 3);
    await broken(null);
    await world.clock.advance(HOUR_MS);
    expect(await segmentsOf(world.db.read, [id])).toHaveLength(1);
    await world.verify();
    await world.end(customer, id);
    await world.verify();
  });

  test.each([
    [MINUTE_MS, true],
    [MINUTE_MS + 1, false],
  ])('accepts an end that was entered %d ms after the last charged moment: %j', async (lateMs, isAccepted) => {
    await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await world.clock.advance(HOUR_MS);
    await world.remove(who, id);
    const late = sql`update events set created_ms = created_ms + ${lateMs} where subject_id = ${id} and type = 'instance.stopping'`;
    await world.db.tx('test.late', (tx) => tx.run(late));
    // The host takes its time, and nothing of that is charged.
    await world.clock.advance(4 * MINUTE_MS);
    await world.observe(id, { phase: 'removed' });
    await world.drive();
    expect((await world.books.verify()).length === 0).toBe(isAccepted);
  });

  test('of a rental that ended and was never charged finds its whole time', async () => {
    await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await cut(id, (tx) => metering().closeSegment(tx, id, world.clock.now()));
    await world.clock.advance(HOUR_MS);
    await world.end(who, id);
    await expect(world.verify()).rejects.toThrow('for no known reason');
  });
});

describe('the proof of earnings by day', () => {
  test('divides a posting at midnight, and finds a segment that was moved to another day', async () => {
    await world.machine({ dollars: 1 });
    await world.clock.advance(22 * HOUR_MS + 7);
    const id = await world.run(who);
    await world.clock.advance(5 * HOUR_MS);
    await tick();
    await world.end(who, id);
    await world.verify();
    const shift = sql`update meter_segments set started_ms = started_ms + 86400000, ended_ms = ended_ms + 86400000,
      posted_through_ms = posted_through_ms + 86400000 where subject_id = ${id}`;
    await world.db.tx('test.shift', (tx) => tx.run(shift));
    await expect(world.verify()).rejects.toThrow(/its segments earned \d+ on \d{4}-\d\d-\d\d, the ledger has/);
  });
});

describe('an outage that reaches back into time that an operator has refunded', () => {
  /** Two hours at $1, then a broken GPU ends the charges while the rental goes on. */
  async function paused(): Promise<{ id: string; supplierId: string }> {
    const { supplierId } = await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await world.clock.advance(2 * HOUR_MS);
    await tick();
    await cut(id, (tx) => metering().pauseForGpuFault(tx, id, world.clock.now(), 'XID 79'));
    return { id, supplierId };
  }
  const refund = (id: string, more: object = {}) =>
    operator.ask('POST', '/admin/corrections/refunds', { subject_id: id, reason: 'sorry', reference: 'r', ...more });
  const dead = (id: string, backMs: number) =>
    cut(id, (tx) => metering().closeSegment(tx, id, world.clock.now() - backMs, 'no proof of life'));
  const shares = async (supplierId: string): Promise<(bigint | string)[]> => {
    await world.verify();
    return [await posted(wallet(who.orgId)), await posted(payable(supplierId)), await posted(revenue)];
  };

  test('gives back nothing that the refund gave back already', async () => {
    const { id, supplierId } = await paused();
    await refund(id);
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, 0n, 0n]);
    await dead(id, HOUR_MS);
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, 0n, 0n]);
    await world.end(who, id);
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, 0n, 0n]);
    expect(await posted(badDebt)).toBe(0n);
    await expect(refund(id, { reference: 'r2' })).rejects.toThrow('is left to refund');
  });

  test('leaves a smaller refund as it is, and what is left can be refunded', async () => {
    const { id, supplierId } = await paused();
    await refund(id, { amount: '0.5' });
    await dead(id, HOUR_MS);
    const charged = DOLLAR;
    expect(await shares(supplierId)).toEqual([100n * DOLLAR - charged / 2n, (charged * 8n) / 20n, charged / 10n]);
    await refund(id, { reference: 'r2' });
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, 0n, 0n]);
  });

  test('undoes of a refund only what is above the charge that is left', async () => {
    const { id, supplierId } = await paused();
    await refund(id, { amount: '1.5' });
    await dead(id, HOUR_MS);
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, 0n, 0n]);
  });

  test('undoes first what was taken from the supplier too, if the platform alone has refunded as much', async () => {
    const { id, supplierId } = await paused();
    await refund(id, { amount: '0.75' });
    await refund(id, { amount: '0.75', from_platform: true, reference: 'r2' });
    await dead(id, HOUR_MS);
    const part = (DOLLAR * 6n) / 10n;
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, part, -part]);
  });

  test('lets the supplier keep its part if the platform alone has refunded', async () => {
    const { id, supplierId } = await paused();
    await refund(id, { from_platform: true });
    await dead(id, HOUR_MS);
    const part = (DOLLAR * 8n) / 10n;
    expect(await shares(supplierId)).toEqual([100n * DOLLAR, part, -part]);
  });
});

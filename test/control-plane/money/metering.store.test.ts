// Metering posts exactly the cost of the time, forwards and backwards.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { badDebt, payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { explainedTransfers } from '../../../control-plane/money/ledger/store.ts';
import { TICK_MS } from '../../../control-plane/money/metering/metering.ts';
import { openSegments, type Segment } from '../../../control-plane/money/metering/store.ts';
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { seededRng } from '../../../shared/rng.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const RATE = 37_000_000n; // $0.37 an hour: the price that naive rounding gets wrong by 62 %

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

async function rent(orgId: string, subjectId = 'i-1', rate = RATE): Promise<number> {
  const startedMs = world.clock.now();
  await world.db.tx('open', (tx) =>
    world.rooms.metering.openSegment(tx, {
      subjectId,
      orgId,
      supplierId: 's',
      machineId: 'm',
      gpuType: 'H100_SXM',
      gpuCount: 2,
      rateUcentsPerHour: rate,
      supplierBps: 8000,
      startedMs,
    }),
  );
  return startedMs;
}

const end = (subjectId: string, endedMs: number, evidence?: string): Promise<void> =>
  world.db.tx('close', (tx) => world.rooms.metering.closeSegment(tx, subjectId, endedMs, evidence));
const tick = (): Promise<string[]> => world.rooms.metering.tick(new AbortController().signal);
const heldOf = async (orgId: string): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).heldUcents;
const posted = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;

describe('a rental of three days with ticks at random times', () => {
  test('costs and pays exactly the cumulative amount', async () => {
    const { orgId } = await world.customer(100_000);
    const before = await posted(wallet(orgId));
    const startedMs = await rent(orgId);
    const rng = seededRng(7);
    while (world.clock.now() < startedMs + 72 * HOUR_MS) {
      await world.clock.advance(Math.round(rng.float() * 4 * HOUR_MS));
      expect(await tick()).toEqual([]);
    }
    const endedMs = world.clock.now();
    await end('i-1', endedMs);
    const cost = accruedUcents(RATE, endedMs - startedMs);
    expect(before - (await posted(wallet(orgId)))).toBe(cost);
    expect(await posted(payable('s'))).toBe(supplierPartUcents(cost, 8000));
    expect(await posted(revenue)).toBe(cost - supplierPartUcents(cost, 8000));
  });
});

test('an end at the very start releases the launch hold', async () => {
  const { orgId } = await world.customer(100_000);
  const startedMs = world.clock.now();
  await world.db.tx('hold', (tx) => world.rooms.metering.holdForLaunch(tx, 'i-1', orgId, RATE));
  await rent(orgId);
  const held = async (): Promise<bigint> => (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).heldUcents;
  expect(await held()).toBeGreaterThan(0n);
  await end('i-1', startedMs);
  expect(await held()).toBe(0n);
});

test('an end before the last posting refunds the difference on all sides, with the evidence', async () => {
  const { orgId } = await world.customer(100_000);
  const before = await posted(wallet(orgId));
  const startedMs = await rent(orgId);
  await world.clock.advance(3 * HOUR_MS);
  await tick();
  const deadMs = startedMs + 90 * 60_000;
  await end('i-1', deadMs, '3 failed probes');
  const cost = accruedUcents(RATE, deadMs - startedMs);
  expect(before - (await posted(wallet(orgId)))).toBe(cost);
  expect(await posted(payable('s'))).toBe(supplierPartUcents(cost, 8000));
  const explained = await explainedTransfers(world.db.read, 'i-1', 10);
  const refunds = ['rental.refund_charge', 'rental.refund_fee', 'rental.refund_supplier'];
  expect(explained.map(({ kind }) => kind).toSorted()).toEqual(refunds);
  expect(new Set(explained.map(({ evidence }) => evidence))).toEqual(new Set(['3 failed probes']));
});

test('an outage that began before an outage of our own is not charged after it either', async () => {
  const { orgId } = await world.customer(100_000);
  const before = await posted(wallet(orgId));
  const startedMs = await rent(orgId);
  await world.clock.advance(2 * HOUR_MS);
  const [deadMs, fromMs, untilMs] = [30, 50, 110].map((minutes) => startedMs + minutes * 60_000) as [
    number,
    number,
    number,
  ];
  await world.rooms.metering.creditOwnOutage({ fromMs, untilMs, evidence: 'we were away' });
  await end('i-1', deadMs, '3 failed probes');
  expect(before - (await posted(wallet(orgId)))).toBe(accruedUcents(RATE, deadMs - startedMs));
  expect(await tick()).toEqual([]);
});

test('an emptying wallet is reported two ticks ahead and never becomes negative; the rest is bad debt', async () => {
  const { orgId } = await world.customer(10);
  await rent(orgId, 'i-1', 3_600_000_000n); // a cent a second
  expect(await tick()).toEqual(['i-1']);
  await world.clock.advance(20_000);
  await end('i-1', world.clock.now());
  expect(await posted(wallet(orgId))).toBe(0n);
  expect(await posted(payable('s'))).toBe(16_000_000n);
});

/** Runs the tick every 30 seconds for the given time, and returns the rentals that it stops. */
async function ticksFor(ms: number): Promise<string[]> {
  const stopped: string[] = [];
  for (let passed = 0; passed < ms; passed += TICK_MS) {
    for (const id of await tick()) {
      stopped.push(id);
      await end(id, world.clock.now());
    }
    await world.clock.advance(TICK_MS);
  }
  return stopped;
}
const segments = (): Promise<Segment[]> => openSegments(world.db.read, '', 1000);

test('a rental with enough money is written once an hour, at its own time within the first half of the hour', async () => {
  const { orgId } = await world.customer(1_000_000);
  for (let i = 0; i < 20; i += 1) await rent(orgId, `i-${i}`);
  await ticksFor(2 * HOUR_MS);
  const written = new Map<string, number[]>();
  let before = new Map((await segments()).map((segment) => [segment.id, segment.posted_through_ms]));
  for (let minute = 0; minute < 120; minute += 1) {
    const heldBefore = await heldOf(orgId);
    expect(await ticksFor(60_000)).toEqual([]);
    const after = await segments();
    const moved = after.filter(({ id, posted_through_ms: throughMs }) => before.get(id) !== throughMs);
    for (const { id } of moved) written.set(id, [...(written.get(id) ?? []), minute % 60]);
    const heldChanged = (await heldOf(orgId)) !== heldBefore;
    expect(heldChanged && moved.length === 0).toBe(false);
    before = new Map(after.map((segment) => [segment.id, segment.posted_through_ms]));
  }
  expect(written.size).toBe(20);
  for (const minutes of written.values()) expect(minutes).toHaveLength(2);
  const minutes = [...written.values()].map(([minute]) => minute ?? 0);
  expect(new Set(minutes).size).toBeGreaterThan(8);
  expect(Math.max(...minutes)).toBeLessThanOrEqual(31);
});

test.each([1, 2, 3, 4, 5])(
  'rentals that use up a wallet end in time: the cost that nobody pays is at most one tick (%d rentals)',
  async (count) => {
    // A dollar an hour each, and enough for five hours of one.
    const { orgId } = await world.customer(500);
    for (let i = 0; i < count; i += 1) await rent(orgId, `i-${i}`, 100_000_000n);
    const stopped = await ticksFor(6 * HOUR_MS);
    expect(stopped.toSorted()).toEqual(Array.from({ length: count }, (_, i) => `i-${i}`));
    expect(await posted(badDebt)).toBe(0n);
    // Each was stopped two ticks before its hold was used up.
    expect(await posted(wallet(orgId))).toBeLessThanOrEqual(accruedUcents(100_000_000n, 3 * count * TICK_MS));
  },
);

test('a rental is not stopped while another one of the wallet holds what it needs only later', async () => {
  const { orgId } = await world.customer(500);
  await rent(orgId, 'i-1', 100_000_000n);
  await ticksFor(60_000);
  expect(await heldOf(orgId)).toBeGreaterThan(accruedUcents(100_000_000n, HOUR_MS));
  // All that is not held goes elsewhere, and then a second rental begins.
  const { availableUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  await world.db.tx('spend', (tx) => world.rooms.ledger.setHold(tx, 'test:other', wallet(orgId), availableUcents));
  await rent(orgId, 'i-2', 100_000_000n);
  expect(await tick()).toEqual([]);
  expect(await ticksFor(20 * 60_000)).toEqual([]);
  await world.db.tx('spend', (tx) => world.rooms.ledger.setHold(tx, 'test:other', wallet(orgId), 0n));
});

test('a clock that is set back stops neither the tick nor the hold, and the end costs what the clock shows', async () => {
  const { orgId } = await world.customer(100_000);
  const startedMs = await rent(orgId);
  await world.clock.advance(3.5 * HOUR_MS);
  expect(await tick()).toEqual([]);
  await world.clock.advance(-2 * HOUR_MS);
  expect(await tick()).toEqual([]);
  const { heldUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  expect(heldUcents).toBeGreaterThanOrEqual(accruedUcents(RATE, 10 * 60_000));
  await end('i-1', world.clock.now());
  expect(100_000_000_000n - (await posted(wallet(orgId)))).toBe(accruedUcents(RATE, world.clock.now() - startedMs));
});

test('a launch hold covers ten minutes, and is refused if one cent is missing', async () => {
  const poor = await world.customer(599);
  const just = await world.customer(600);
  const hold = (orgId: string): Promise<void> =>
    world.db.tx('hold', (tx) => world.rooms.metering.holdForLaunch(tx, `i-${orgId}`, orgId, 3_600_000_000n));
  await expect(hold(poor.orgId)).rejects.toMatchObject({ code: 'insufficient_balance' });
  await hold(just.orgId);
  await world.db.tx('release', (tx) => world.rooms.metering.releaseHold(tx, `i-${just.orgId}`, just.orgId));
});

describe('a launch on a wallet of which other rentals hold a part for a later time', () => {
  const RATES = [100_000_000n, 70_000_000n];
  const MINUTE_MS = 60_000;

  /** The organisation of two rentals with long holds, and what is left of its wallet if each holds for ten minutes only. */
  async function lent(): Promise<{ orgId: string; leftUcents: bigint }> {
    const { orgId } = await world.customer(1_000);
    for (const [i, rate] of RATES.entries()) await rent(orgId, `i-${i}`, rate);
    await ticksFor(MINUTE_MS);
    const short = RATES.map((rate) => accruedUcents(rate, MINUTE_MS) + accruedUcents(rate, 10 * MINUTE_MS));
    const leftUcents = short.reduce((left, ucents) => left - ucents, await posted(wallet(orgId)));
    const { availableUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
    expect(availableUcents).toBeLessThan(leftUcents);
    return { orgId, leftUcents };
  }
  /** A launch whose hold for ten minutes is this large. */
  const launch = (orgId: string, heldUcents: bigint): Promise<void> =>
    world.db.tx('launch', async (tx) => {
      await tx.lock('org', orgId);
      await world.rooms.metering.holdForLaunch(tx, 'i-new', orgId, 6n * heldUcents);
    });

  test('gets what they do not need within ten minutes, to the last microcent', async () => {
    const { orgId, leftUcents } = await lent();
    await expect(launch(orgId, leftUcents)).rejects.toMatchObject({ code: 'insufficient_balance' });
    expect(await world.rooms.metering.shortenHolds(orgId)).toBe(true);
    await expect(launch(orgId, leftUcents + 1n)).rejects.toMatchObject({ code: 'insufficient_balance' });
    await launch(orgId, leftUcents);
    expect(await heldOf(orgId)).toBe(await posted(wallet(orgId)));
    expect(await world.rooms.metering.shortenHolds(orgId)).toBe(false);
    await world.db.tx('release', (tx) => world.rooms.metering.releaseHold(tx, 'i-new', orgId));
    expect(await tick()).toEqual([]);
  });
});

test('a launch that lacks what other rentals hold for a later time is accepted, and one that lacks more is refused', async () => {
  await world.machine({ gpus: 1, dollars: 1 });
  const who = await world.customer(1_000);
  await world.run(who);
  await ticksFor(6 * 60_000);
  const { availableUcents } = await world.rooms.ledger.balance(world.db.read, wallet(who.orgId));
  // Ten minutes of this price are a little more than what is available.
  const dollars = Number((availableUcents * 6n) / 100_000_000n) + 1;
  await world.machine({ gpus: 2, dollars });
  const launch = (): Promise<string> => world.launch(who, { gpu_count: 1 });
  await launch();
  await expect(launch()).rejects.toMatchObject({ code: 'insufficient_balance' });
  await world.verify();
});

describe('more rentals than one transaction handles', () => {
  const COUNT = 120;
  const DOLLAR_AN_HOUR = 100_000_000n;
  let orgId: string;
  let startedMs: number;
  beforeEach(async () => {
    ({ orgId } = await world.customer(100_000_000));
    startedMs = world.clock.now();
    for (let i = 0; i < COUNT; i += 1) await rent(orgId, `i-${i}`, DOLLAR_AN_HOUR);
  });
  const spent = async (): Promise<bigint> => 100_000_000_000_000n - (await posted(wallet(orgId)));

  test('are posted in the half hour after the end of the hour, each once', async () => {
    await world.clock.advance(1.5 * HOUR_MS);
    expect(await tick()).toEqual([]);
    expect(await spent()).toBe(BigInt(COUNT) * DOLLAR_AN_HOUR);
    expect(await tick()).toEqual([]);
    expect(await spent()).toBe(BigInt(COUNT) * DOLLAR_AN_HOUR);
  });

  test('are all credited for an outage of our own, each once', async () => {
    await world.clock.advance(HOUR_MS);
    const outage = { fromMs: startedMs + HOUR_MS / 2, untilMs: world.clock.now(), evidence: 'we were away' };
    expect(await world.rooms.metering.creditOwnOutage(outage)).toBe(COUNT);
    expect(await spent()).toBe((BigInt(COUNT) * DOLLAR_AN_HOUR) / 2n);
    expect(await world.rooms.metering.creditOwnOutage(outage)).toBe(0);
  });

  test('lose time that never passed, and a rental that began later or ended before does not', async () => {
    await end('i-0', startedMs);
    await world.clock.advance(HOUR_MS);
    await end('i-1', world.clock.now());
    await rent(orgId, 'late', DOLLAR_AN_HOUR);
    const step = { fromMs: startedMs + HOUR_MS / 4, untilMs: startedMs + HOUR_MS / 2, evidence: 'the clock was set' };
    await world.rooms.metering.skipAll(step, async () => undefined);
    // A beat that failed tries the step again.
    await world.rooms.metering
      .skipAll(step, () => Promise.reject(new Error('the database is away')))
      .catch(() => undefined);
    for (let i = 1; i < COUNT; i += 1) await end(`i-${i}`, world.clock.now());
    await world.clock.advance(HOUR_MS);
    await end('late', world.clock.now());
    // A running rental is charged until the step, and again from the end of the step on.
    const running = BigInt(COUNT - 2) * (DOLLAR_AN_HOUR / 4n + DOLLAR_AN_HOUR / 2n);
    const ended = (DOLLAR_AN_HOUR * 3n) / 4n;
    expect(await spent()).toBe(running + ended + DOLLAR_AN_HOUR);
  });
});

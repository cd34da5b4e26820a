// Usage (specification 2.8, 4.6) against the ledger: random rentals with outages and credits, any window, every bucket and grouping.
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { totalsOf } from '../../../control-plane/money/ledger/proof-store.ts';
import { type Bucket, bucketStart } from '../../../control-plane/money/metering/buckets.ts';
import { type GroupBy, usageRows } from '../../../control-plane/money/metering/usage.ts';
import type { UsageRow } from '../../../control-plane/money/metering/usage-sums.ts';
import { accruedUcents, centsFloor } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RUNS = process.env['SOAK'] === '1' ? 500 : 40;
const BUCKETS: Bucket[] = ['hour', 'day', 'week', 'month'];
const GROUPS: GroupBy[] = ['instance_id', 'gpu_type'];

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

interface Rent {
  id: string;
  orgId: string;
  ucentsPerHour: bigint;
  gpus?: number;
  gpuType?: string;
}

const open = ({ id, orgId, ucentsPerHour, gpus = 2, gpuType = 'H100_SXM' }: Rent): Promise<void> =>
  world.db.tx('open', (tx) =>
    world.rooms.metering.openSegment(tx, {
      subjectId: id,
      orgId,
      supplierId: 's',
      machineId: 'm',
      gpuType,
      gpuCount: gpus,
      rateUcentsPerHour: ucentsPerHour,
      supplierBps: 8000,
      startedMs: world.clock.now(),
    }),
  );
const close = (id: string, endedMs = world.clock.now()): Promise<void> =>
  world.db.tx('close', (tx) => world.rooms.metering.closeSegment(tx, id, endedMs, 'probes'));
const tick = (): Promise<string[]> => world.rooms.metering.tick(new AbortController().signal);

interface Asked {
  orgId: string;
  startMs: number;
  endMs: number;
  bucket?: Bucket;
  groupBy?: GroupBy;
}
const rowsOf = ({ bucket = 'hour', groupBy = 'instance_id', ...window }: Asked): Promise<UsageRow[]> =>
  usageRows(world, {
    ...window,
    bucket,
    groupBy,
    nowMs: world.clock.now(),
    after: undefined,
    limit: 1_000_000,
  });
const sumOf = (rows: readonly UsageRow[]): Omit<UsageRow, 'bucketStartMs' | 'key'> => ({
  gpuSeconds: rows.reduce((sum, row) => sum + row.gpuSeconds, 0),
  costCents: rows.reduce((sum, row) => sum + row.costCents, 0n),
  costUcents: rows.reduce((sum, row) => sum + row.costUcents, 0n),
});
/** The total charge of the customer by rental, without credits, and with what the wallet could not cover. */
async function charges(ids: readonly string[]): Promise<bigint[]> {
  const totals = await totalsOf(world.db.read, ids);
  const of = (id: string, kind: string): bigint => totals.get(id)?.get(`rental.${kind}`) ?? 0n;
  return ids.map((id) => of(id, 'charge') + of(id, 'shortfall') - of(id, 'refund_charge') - of(id, 'refund_shortfall'));
}
/** Merges rows with the same bucket and key, for windows that lie side by side. */
function merged(rows: readonly UsageRow[]): UsageRow[] {
  const groups = [...Map.groupBy(rows, (row) => `${row.bucketStartMs}/${row.key}`).values()];
  return groups
    .flatMap(([first, ...rest]) => (first === undefined ? [] : [{ ...first, ...sumOf([first, ...rest]) }]))
    .toSorted((a, b) => a.bucketStartMs - b.bucketStartMs || (a.key < b.key ? -1 : 1));
}

test('a running rental is shown up to now, to the exact second', async () => {
  const { orgId } = await world.customer(100_000);
  const startedMs = world.clock.now();
  await open({ id: 'i-1', orgId, ucentsPerHour: 3_600_000_000n }); // a cent a second
  await world.clock.advance(90_000);
  const now = world.clock.now();
  const cents = (costCents: bigint): object => ({ costCents, costUcents: costCents * 1_000_000n });
  const whole = { bucketStartMs: startedMs, key: 'i-1', gpuSeconds: 180, ...cents(90n) };
  expect(await rowsOf({ orgId, startMs: 0, endMs: now + DAY_MS })).toEqual([whole]);
  // The start is inclusive and the end exclusive; both are in the middle of an hour.
  expect(await rowsOf({ orgId, startMs: startedMs + 10_000, endMs: startedMs + 40_000 })).toEqual([
    { ...whole, gpuSeconds: 60, ...cents(30n) },
  ]);
  expect(await rowsOf({ orgId, startMs: now, endMs: now + DAY_MS })).toEqual([]);
  expect(await rowsOf({ orgId, startMs: 0, endMs: startedMs })).toEqual([]);
  await close('i-1');
});

// Specification 3.1: A dead window that is credited is in no usage row.
test('time that was credited as dead does not appear in usage', async () => {
  const { orgId } = await world.customer(100_000);
  const startedMs = world.clock.now();
  await open({ id: 'i-1', orgId, ucentsPerHour: 37_000_000n });
  await world.clock.advance(3 * HOUR_MS);
  await tick();
  await close('i-1', startedMs + HOUR_MS);
  await world.clock.advance(HOUR_MS);
  await open({ id: 'i-1', orgId, ucentsPerHour: 37_000_000n });
  await world.clock.advance(HOUR_MS);
  await close('i-1');
  const rows = await rowsOf({ orgId, startMs: 0, endMs: world.clock.now() });
  expect(rows.map((row) => (row.bucketStartMs - startedMs) / HOUR_MS)).toEqual([0, 4]);
  expect(sumOf(rows)).toEqual({ gpuSeconds: 4 * 3600, costCents: 74n, costUcents: 74_000_000n });
});

// Specification 2.8: gpu_seconds count for reserved rentals too.
test('a launch under a contract shows its GPU seconds without cost', async () => {
  const { id: orgId } = await world.rooms.accounts.createOrg('holder');
  await open({ id: 'i-1', orgId, ucentsPerHour: 0n });
  await world.clock.advance(HOUR_MS + 500);
  expect(await tick()).toEqual([]);
  await close('i-1');
  expect(sumOf(await rowsOf({ orgId, startMs: 0, endMs: world.clock.now() }))).toEqual({
    gpuSeconds: 7201,
    costCents: 0n,
    costUcents: 0n,
  });
});

// Specification 4.6: Nobody sees the usage of another organisation.
test('no organisation sees the usage of another one', async () => {
  const [one, other] = [await world.customer(100_000), await world.customer(100_000)];
  await open({ id: 'i-1', orgId: one.orgId, ucentsPerHour: 37_000_000n });
  await world.clock.advance(HOUR_MS);
  await close('i-1');
  expect(await rowsOf({ orgId: other.orgId, startMs: 0, endMs: world.clock.now() })).toEqual([]);
});

/** One event, and the time since the one before. */
const anyEvent = fc.record({
  rental: fc.nat({ max: 4 }),
  /** Opens closed rentals and closes open ones. `credit` closes in the past; `tick` posts. */
  what: fc.constantFrom('turn', 'turn', 'credit', 'tick'),
  afterMs: fc.oneof(fc.integer({ min: 1, max: 5000 }), fc.integer({ min: 1, max: 40 * HOUR_MS })),
});
const anyHistory = fc.record({
  rates: fc.array(fc.bigInt({ min: 1n, max: 5_000_000_000n }), { minLength: 5, maxLength: 5 }),
  events: fc.array(anyEvent, { minLength: 5, maxLength: 25 }),
  /** The cuts of the window, as fractions of it. */
  cuts: fc.array(fc.double({ min: 0, max: 1, noNaN: true }), { maxLength: 6 }),
});

/** Plays a history and returns its rentals. */
async function happen(
  orgId: string,
  { rates, events }: { rates: bigint[]; events: Iterable<Event> },
): Promise<string[]> {
  const openSince = new Map<string, number>();
  const known = new Set<string>();
  for (const { rental, what, afterMs } of events) {
    await world.clock.advance(afterMs);
    const id = `${orgId}-${rental}`;
    const since = openSince.get(id);
    if (what === 'tick') await tick();
    else if (since === undefined) {
      await open({ id, orgId, ucentsPerHour: rates[rental] ?? 1n, gpus: 1 + rental, gpuType: `G${rental % 2}` });
      openSince.set(id, world.clock.now());
      known.add(id);
    } else {
      const now = world.clock.now();
      await close(id, what === 'credit' ? Math.max(since, now - 2 * HOUR_MS) : now);
      openSince.delete(id);
    }
  }
  return [...known];
}
interface Event {
  rental: number;
  what: string;
  afterMs: number;
}

describe('for any history', () => {
  // Specification 2.8: cost_cents adds up to the charge in every bucket and grouping.
  test('rows equal the charges in the ledger in every bucket and grouping, and windows that are cut anywhere add up', async () => {
    await fc.assert(
      fc.asyncProperty(anyHistory, async ({ rates, events, cuts }) => {
        const { orgId } = await world.customer(1_000_000);
        const startMs = world.clock.now();
        const ids = await happen(orgId, { rates, events });
        for (const id of ids) await close(id);
        await world.clock.advance(1);
        const endMs = world.clock.now();
        const charged = await charges(ids);
        const edges = [startMs, ...cuts.map((part) => startMs + Math.floor(part * (endMs - startMs))), endMs];
        edges.sort((a, b) => a - b);
        const seconds = new Set<number>();
        for (const bucket of BUCKETS) {
          for (const groupBy of GROUPS) {
            const whole = await rowsOf({ orgId, startMs, endMs, bucket, groupBy });
            const sum = sumOf(whole);
            expect(sum.costUcents).toBe(charged.reduce((total, ucents) => total + ucents, 0n));
            expect(sum.costCents).toBe(charged.reduce((total, ucents) => total + centsFloor(ucents), 0n));
            seconds.add(sum.gpuSeconds);
            expect(whole.every((row) => row.bucketStartMs === bucketStart(row.bucketStartMs, bucket))).toBe(true);
            expect(whole.every((row) => row.gpuSeconds >= 0 && row.costCents >= 0n)).toBe(true);
            const parts: UsageRow[] = [];
            for (const [i, fromMs] of edges.slice(0, -1).entries()) {
              const toMs = edges[i + 1] ?? endMs;
              if (fromMs < toMs)
                parts.push(...(await rowsOf({ orgId, startMs: fromMs, endMs: toMs, bucket, groupBy })));
            }
            expect(merged(parts)).toEqual(merged(whole));
          }
        }
        expect(seconds.size).toBe(1);
      }),
      { seed: 31, numRuns: RUNS },
    );
  });

  test('rows of running rentals are exact at any moment, posted or not', async () => {
    await fc.assert(
      fc.asyncProperty(anyHistory, async ({ rates, events }) => {
        const { orgId } = await world.customer(1_000_000);
        const startMs = world.clock.now();
        const ids = await happen(orgId, { rates, events });
        const before = sumOf(await rowsOf({ orgId, startMs, endMs: world.clock.now() }));
        await tick();
        expect(sumOf(await rowsOf({ orgId, startMs, endMs: world.clock.now() }))).toEqual(before);
        for (const id of ids) await close(id);
        const charged = await charges(ids);
        expect(before.costUcents).toBe(charged.reduce((total, ucents) => total + ucents, 0n));
      }),
      { seed: 32, numRuns: RUNS },
    );
  });

  test('pages of any size contain the same rows as one page', async () => {
    await fc.assert(
      fc.asyncProperty(anyHistory, fc.integer({ min: 1, max: 7 }), async ({ rates, events }, limit) => {
        const { orgId } = await world.customer(1_000_000);
        const startMs = world.clock.now();
        const ids = await happen(orgId, { rates, events });
        const endMs = world.clock.now() + 1;
        for (const groupBy of GROUPS) {
          const window = { orgId, startMs, endMs, bucket: 'day' as const, groupBy, nowMs: endMs };
          const walked: UsageRow[] = [];
          for (let page: UsageRow[] | undefined; page === undefined || page.length === limit;) {
            page = await usageRows(world, { ...window, after: walked.at(-1), limit });
            walked.push(...page);
          }
          expect(walked).toEqual(await usageRows(world, { ...window, after: undefined, limit: 1_000_000 }));
        }
        for (const id of ids) await close(id);
      }),
      { seed: 33, numRuns: RUNS },
    );
  });
});

test('the cost of a row is the price of its time', async () => {
  const { orgId } = await world.customer(1_000_000);
  const startedMs = world.clock.now();
  await open({ id: 'i-1', orgId, ucentsPerHour: 123_456_789n });
  await world.clock.advance(7 * HOUR_MS + 1_234_567);
  const now = world.clock.now();
  const [day] = await rowsOf({ orgId, startMs: 0, endMs: now, bucket: 'day' });
  expect(day?.costUcents).toBe(accruedUcents(123_456_789n, now - startedMs));
  await close('i-1');
});

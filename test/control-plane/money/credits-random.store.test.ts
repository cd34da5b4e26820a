// The bounds on credits against an adversary who controls the signals: no bound is exceeded, and no money is lost.
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import {
  grantedOnSupplier,
  grantedToOrg,
  type HeldCredit,
  pageOfHeld,
} from '../../../control-plane/money/credits/store.ts';
import { earnedByKind } from '../../../control-plane/money/ledger/suppliers.ts';
import { endedWithin, openWithin } from '../../../control-plane/money/metering/store.ts';
import { insertSupplier } from '../../../control-plane/fleet/supply/store.ts';
import { accruedUcents } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** A dollar an hour. */
const RATE = 100_000_000n;
const DOLLAR = 100_000_000n;
const FUNDS_CENTS = 10_000_000_000;
const BOUNDS = { orgCreditsUcents: 2n * DOLLAR, supplierCreditsUcents: 3n * DOLLAR, supplierPaymentsUcents: DOLLAR };
/** A history takes five to ten seconds on PostgreSQL. */
const FEW = process.env['SOAK'] === '1' ? 12 : 8;
const RUNS = inject('postgresUrl') === undefined ? 40 : FEW;

const which = fc.nat({ max: 3 });
const anyStep = fc.oneof(
  fc.record({ do: fc.constant('rent' as const), which }),
  fc.record({ do: fc.constant('stop' as const), which }),
  fc.record({ do: fc.constant('fail' as const), which, backMs: fc.constantFrom(0, 1, 40 * MINUTE_MS, 3 * HOUR_MS) }),
  fc.record({ do: fc.constant('gpu' as const), which }),
  fc.record({ do: fc.constant('back' as const), which }),
  fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, 20 * MINUTE_MS, HOUR_MS + 13, 9 * HOUR_MS) }),
  fc.record({ do: fc.constant('away' as const), ms: fc.constantFrom(MINUTE_MS, HOUR_MS + 1, 3 * HOUR_MS) }),
  fc.record({ do: fc.constant('decide' as const), release: fc.boolean() }),
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

interface Rental {
  status: 'none' | 'charged' | 'free';
  id: string;
  orgId: string;
  supplierId: string;
  machineId: string;
}

test('no bound is exceeded, no money is lost, and each customer pays exactly what was charged and not released', async () => {
  const decided = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 20, maxLength: 40, size: 'max' }), async (steps) => {
      const world = await openWorld(1, { settings: { lossBounds: BOUNDS } });
      const orgIds = [(await world.customer(FUNDS_CENTS)).orgId, (await world.customer(FUNDS_CENTS)).orgId];
      for (const [i, id] of ['s0', 's1'].entries()) {
        const row = { id, org_id: orgIds[i] ?? '', status: 'active' as const, created_ms: 1, updated_ms: 1 };
        await world.db.tx('test.supplier', (tx) => insertSupplier(tx, row));
      }
      const rentals = [0, 1, 2, 3].map((i): Rental => {
        const [supplierId, machineId] = [`s${Math.floor(i / 2)}`, `m${Math.floor(i / 2)}`];
        return { status: 'none', id: '', orgId: orgIds[i % 2] ?? '', supplierId, machineId };
      });
      for (const step of steps) {
        if ('which' in step) await signal(world, rentals[step.which], step);
        else decided.add(await pass(world, step));
        await world.rooms.metering.tick(new AbortController().signal);
        await world.verify();
        expect(await excesses(world, orgIds)).toEqual([]);
        expect(await Promise.all(orgIds.map((orgId) => spentBy(world, orgId)))).toEqual(
          await Promise.all(orgIds.map((orgId) => owedBy(world, orgId))),
        );
      }
      await world.close();
    }),
    { seed: 11, numRuns: RUNS },
  );
  expect([...decided]).toEqual(expect.arrayContaining(['credit released', 'credit refused', 'payment released']));
});

/** One step of a rental: it begins, ends, fails or recovers. An impossible step does nothing. */
async function signal(world: World, rental: Rental | undefined, step: Step): Promise<void> {
  const { metering } = world.rooms;
  const nowMs = world.clock.now();
  if (rental === undefined) return;
  const charge = (): Promise<void> =>
    world.db.tx('rent', (tx) =>
      metering.openSegment(tx, {
        subjectId: rental.id,
        orgId: rental.orgId,
        supplierId: rental.supplierId,
        machineId: rental.machineId,
        gpuType: 'H100_SXM',
        gpuCount: 1,
        rateUcentsPerHour: RATE,
        supplierBps: 8_000,
        startedMs: nowMs,
      }),
    );
  if (step.do === 'rent' && rental.status === 'none') {
    Object.assign(rental, { status: 'charged', id: world.core.ids.instance() });
    await charge();
  } else if (step.do === 'back' && rental.status === 'free') {
    rental.status = 'charged';
    await charge();
  } else if (step.do === 'stop' && rental.status !== 'none') {
    rental.status = 'none';
    await world.db.tx('stop', async (tx) => {
      await metering.closeSegment(tx, rental.id, nowMs);
      await metering.releaseHold(tx, rental.id, rental.orgId);
    });
  } else if (step.do === 'fail' && rental.status !== 'none') {
    rental.status = 'free';
    await world.db.tx('fail', (tx) => metering.closeSegment(tx, rental.id, nowMs - step.backMs, 'probes'));
  } else if (step.do === 'gpu' && rental.status === 'charged') {
    rental.status = 'free';
    await world.db.tx('gpu', (tx) => metering.pauseForGpuFault(tx, rental.id, nowMs, 'Xid 79'));
  }
}

/** Time passes, we have an outage, or the operator decides about held credits. Returns the decisions. */
async function pass(world: World, step: Step): Promise<string> {
  const { credits, metering } = world.rooms;
  const fromMs = world.clock.now();
  if (step.do === 'wait' || step.do === 'away') await world.clock.advance(step.ms);
  if (step.do === 'away') {
    const untilMs = world.clock.now();
    await metering.creditOwnOutage({ fromMs, untilMs, evidence: 'we were away' });
  }
  const next =
    step.do === 'decide'
      ? (await pageOfHeld(world.db.read, { count: 1_000 })).find((row) => row.state === 'held')
      : undefined;
  if (step.do !== 'decide' || next === undefined) return step.do;
  const { kind, state } = await (step.release ? credits.release(next.id, 'x') : credits.refuse(next.id, 'x'));
  return `${kind} ${state}`;
}

/** Bounds that were exceeded in the last 24 hours. */
async function excesses(world: World, orgIds: readonly string[]): Promise<string[]> {
  const sinceMs = world.clock.now() - DAY_MS;
  const { read } = world.db;
  const passed: string[] = [];
  for (const orgId of orgIds) {
    if ((await grantedToOrg(read, orgId, sinceMs)) > BOUNDS.orgCreditsUcents) passed.push(orgId);
  }
  for (const supplierId of ['s0', 's1']) {
    if ((await grantedOnSupplier(read, supplierId, sinceMs)) > BOUNDS.supplierCreditsUcents) passed.push(supplierId);
    const paid = await earnedByKind(read, supplierId, { kind: 'own_outage.supplier', sinceMs });
    if (paid > BOUNDS.supplierPaymentsUcents) passed.push(`payments to ${supplierId}`);
  }
  return passed;
}

async function spentBy(world: World, orgId: string): Promise<bigint> {
  const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  return BigInt(FUNDS_CENTS) * 1_000_000n - postedUcents;
}

/** The posted cost of its segments, plus what is held or was refused. */
async function owedBy(world: World, orgId: string): Promise<bigint> {
  const all = { fromMs: 0, untilMs: Number.MAX_SAFE_INTEGER, after: undefined, limit: 1_000_000 };
  const segments = [
    ...(await openWithin(world.db.read, orgId, all)),
    ...(await endedWithin(world.db.read, orgId, all)),
  ];
  const charged = segments.reduce(
    (sum, each) => sum + accruedUcents(RATE, each.posted_through_ms - each.started_ms),
    0n,
  );
  const isPaid = (row: HeldCredit): boolean =>
    row.org_id === orgId && row.kind === 'credit' && row.state !== 'released';
  return (await pageOfHeld(world.db.read, { count: 1_000 }))
    .filter(isPaid)
    .reduce((sum, row) => sum + row.amount_ucents, charged);
}

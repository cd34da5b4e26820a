// Statements of suppliers equal the ledger to the microcent, and the books agree, through random histories of rentals, outages, refunds,
// adjustments, disputes and payouts.
import fc from 'fast-check';
import { expect, inject, test } from 'vitest';
import { payable } from '../../../control-plane/money/ledger/accounts.ts';
import { openMonthLines } from '../../../control-plane/money/ledger/month-lines.ts';
import { statementOf } from '../../../control-plane/money/payouts/statement.ts';
import { pageOfPayouts } from '../../../control-plane/money/payouts/store.ts';
import { STATEMENT_SECTIONS } from '../../../shared/api/payout.ts';
import { isoTime } from '../../../shared/clock.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { ucentsFromText } from '../../../shared/money.ts';
import { openOperator } from '../../kit/operator.ts';
import { HOME, nameDestination } from '../../kit/payees.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const RUNS = inject('postgresUrl') === undefined ? 25 : 4;
const NEVER = new AbortController().signal;

const which = fc.nat({ max: 3 });
const anyStep = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constant('rent' as const), dollars: fc.constantFrom(0.37, 1.29, 19.99) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('wait' as const),
      ms: fc.constantFrom(7, HOUR_MS / 3, 11 * HOUR_MS, 5 * DAY_MS),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('end' as const), which, backMs: fc.constantFrom(0, 0, 2 * HOUR_MS) }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('refund' as const),
      which,
      part: fc.constantFrom(null, null, '0.10', '1.00000001'),
      ours: fc.boolean(),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('late_verdict' as const),
      which,
      backMs: fc.constantFrom(10 * HOUR_MS, 9 * DAY_MS, 30 * DAY_MS),
    }),
  },
  fc.record({ do: fc.constant('adjust' as const), direction: fc.constantFrom('up', 'down') }),
  fc.record({ do: fc.constant('dispute' as const), which, refund: fc.boolean() }),
  { weight: 3, arbitrary: fc.record({ do: fc.constant('due' as const) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('export' as const) }) },
  fc.record({ do: fc.constant('sent' as const) }),
  { weight: 3, arbitrary: fc.record({ do: fc.constant('failed' as const) }) },
  fc.record({ do: fc.constant('by_hand' as const), cents: fc.constantFrom(null, 1, 500) }),
  fc.record({
    do: fc.constant('destination' as const),
    address: fc.constantFrom(HOME, HOME.replaceAll('5', '6').toLowerCase()),
  }),
  fc.record({ do: fc.constant('suspend' as const), isSuspended: fc.boolean() }),
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

/** What a history acts on. */
interface Stage {
  world: World;
  ask: ReturnType<typeof openOperator>['ask'];
  who: KeyAccount;
  supplierId: string;
  orgId: string;
  running: string[];
  ended: string[];
  count: number;
}

test('a random history leaves statements that equal the ledger, and books that agree', async () => {
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 25, maxLength: 60, size: 'max' }), async (steps) => {
      const world = await openWorld();
      const made = await world.machine();
      const who = await world.customer(100_000_000);
      const { ask } = openOperator(world);
      const stage: Stage = { world, ask, who, ...made, running: [], ended: [], count: 0 };
      await nameDestination(world, stage);
      const months = openMonthLines({ ...world, ...world.core, billed: () => ({}) });
      for (const [n, step] of steps.entries()) {
        await perform(step, stage).catch((error: unknown) => {
          // A refusal changes nothing.
          const isRefusal =
            error instanceof ServiceError ||
            (error instanceof Error && 'code' in error && error.code !== 'internal_error');
          if (!isRefusal) throw error;
        });
        await world.rooms.metering.tick(NEVER);
        if (n % 3 === 0) await months.run(NEVER);
      }
      await world.clock.advance(HOUR_MS);
      await world.verify();
      for (const section of await expectExact(stage)) seen.add(section);
      for (const id of stage.running) await cut(stage, id, world.clock.now());
      await world.close();
    }),
    { seed: 11, numRuns: RUNS },
  );
  const sections = [...STATEMENT_SECTIONS].toSorted();
  // Few runs do not reach all of them.
  expect(RUNS > 4 ? [...seen].toSorted() : sections).toEqual(sections);
});

async function perform(step: Step, stage: Stage): Promise<void> {
  const { world, ask, supplierId, running, ended } = stage;
  const { payouts, supply } = world.rooms;
  stage.count += 1;
  const named = { reason: 'r', reference: `r${stage.count}` };
  const inFlight = async () =>
    (await pageOfPayouts(world.db.read, { supplierId, state: 'in_flight' }, { count: 1 }))[0];
  switch (step.do) {
    case 'rent':
      return rent(stage, step.dollars);
    case 'wait':
      return world.clock.advance(step.ms);
    case 'end': {
      const [id] = running.splice(step.which % Math.max(1, running.length), 1);
      if (id === undefined) return;
      await cut(stage, id, world.clock.now() - step.backMs);
      return void ended.push(id);
    }
    case 'refund': {
      const amount = step.part === null ? {} : { amount: step.part };
      const body = { subject_id: ended[step.which % Math.max(1, ended.length)] ?? 'none', from_platform: step.ours };
      return void (await ask('POST', '/admin/corrections/refunds', { ...body, ...amount, ...named }));
    }
    case 'late_verdict':
      return cut(stage, ended[step.which % Math.max(1, ended.length)] ?? 'none', world.clock.now() - step.backMs);
    case 'adjust': {
      const body = { org_id: stage.who.orgId, direction: step.direction, amount: '3.33333333', ...named };
      return void (await ask('POST', '/admin/corrections/adjustments', body));
    }
    case 'dispute': {
      const ids = [...running, ...ended];
      const instanceId = ids[step.which % Math.max(1, ids.length)] ?? 'none';
      const { id } = await payouts.disputes.open({ instanceId, sinceMs: null, reason: 'slow' });
      await world.clock.advance(HOUR_MS);
      const resolve = (refund: boolean) => payouts.disputes.resolve(id, { refund, note: 'n' });
      return void (await resolve(step.refund).catch(() => resolve(false)));
    }
    case 'due':
      return payouts.makeDue(NEVER);
    case 'export':
      return void (await payouts.exportBatch(`b${stage.count}`));
    case 'sent':
      return void (await payouts.sent((await inFlight())?.id ?? '', `tx${stage.count}`));
    case 'failed':
      return void (await payouts.failed((await inFlight())?.id ?? '', 'no gas'));
    case 'by_hand':
      return void (await payouts.pay({ supplierId, cents: step.cents, reference: `p${stage.count}` }));
    case 'destination':
      return void (await nameDestination(world, stage, { address: step.address }));
    case 'suspend':
      return void (await (step.isSuspended ? supply.suspendSupplier : supply.resumeSupplier)(supplierId));
  }
}

async function rent({ world, who, supplierId, running, count }: Stage, dollars: number): Promise<void> {
  const subjectId = `i-${count}`;
  const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_500, supplierId, machineId: 'm' };
  const rateUcentsPerHour = BigInt(Math.round(dollars * 1e8));
  const startedMs = world.clock.now();
  await world.db.tx('test.rent', (tx) =>
    world.rooms.metering.openSegment(tx, { ...gpus, subjectId, orgId: who.orgId, rateUcentsPerHour, startedMs }),
  );
  running.push(subjectId);
}

async function cut({ world, who }: Stage, id: string, atMs: number): Promise<void> {
  await world.db.tx('test.cut', async (tx) => {
    await tx.lock('org', who.orgId);
    await world.rooms.metering.closeSegment(tx, id, atMs, 'dead');
    await world.rooms.metering.releaseHold(tx, id, who.orgId);
  });
}

/** The statements of all months are a chain from zero to the ledger. Returns the sections that occur. */
async function expectExact({ world, supplierId }: Stage): Promise<string[]> {
  const { db, clock, rooms } = world;
  const deps = { db, clock, ledger: rooms.ledger, machinesOf: async () => new Map<string, string>() };
  const sections: string[] = [];
  let balance = 0n;
  const now = isoTime(clock.now()).slice(0, 7);
  for (let month = '2025-12'; month <= now; month = nextMonth(month)) {
    const statement = await statementOf(supplierId, month, deps);
    expect(read(statement.opening_balance)).toBe(balance);
    for (const each of STATEMENT_SECTIONS) {
      const times = statement.lines.filter(({ section }) => section === each).map((line) => line.posted_at);
      expect(times).toEqual(times.toSorted());
    }
    for (const line of statement.lines) {
      balance += read(line.amount);
      sections.push(line.section);
    }
    expect(read(statement.closing_balance)).toBe(balance);
    const totals = statement.totals.reduce((sum, { amount }) => sum + read(amount), 0n);
    expect(totals).toBe(balance - read(statement.opening_balance));
  }
  expect(balance).toBe((await rooms.ledger.balance(db.read, payable(supplierId))).postedUcents);
  return sections;
}

function nextMonth(month: string): string {
  return isoTime(Date.parse(`${month}-01T00:00:00Z`) + 32 * DAY_MS).slice(0, 7);
}

/** Microcents of an amount as the API writes it. */
function read(amount: string): bigint {
  const ucents = ucentsFromText(amount.replace('-', ''));
  if (typeof ucents !== 'bigint') return 0n;
  return amount.startsWith('-') ? -ucents : ucents;
}

// The bill of a month equals the ledger to the microcent, over random histories, and no change of a wallet is missing in it.
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import type { Bill } from '../../../shared/api/bill.ts';
import { billOf } from '../../../control-plane/money/bill/bill.ts';
import { accountId, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { openMonthLines } from '../../../control-plane/money/ledger/month-lines.ts';
import { type Billed, type TransferRow, transfersIn } from '../../../control-plane/money/ledger/wallets.ts';
import { insertSupplier } from '../../../control-plane/fleet/supply/store.ts';
import { closeReceipt, openReceipt, freeOutcome } from '../../../control-plane/models/gateway/states.ts';
import { isoTime } from '../../../shared/clock.ts';
import { ucentsFromDollars } from '../../../shared/money.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { newReceipt } from '../../kit/payers.ts';
import { openWorld, type KeyAccount, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const FUNDS_CENTS = 100_000_000;
const RUNS = inject('postgresUrl') === undefined ? 30 : 8;

const billedOf = (world: World): Billed =>
  Object.assign({}, ...world.brings().map(({ billed }) => billed ?? {})) as Billed;
const readBill = (world: World, orgId: string, month?: string): Promise<Bill> =>
  billOf(orgId, month, { ...world, ...world.core, ledger: world.rooms.ledger, billed: () => billedOf(world) });
const sumMonths = (world: World): Promise<boolean> =>
  openMonthLines({ ...world, ...world.core, billed: () => billedOf(world) }).run(new AbortController().signal);
/** The amount of a text like `-1.25`. */
const ucentsOf = (dollars: string): bigint => {
  const [whole = '', fraction = ''] = dollars.replace('-', '').split('.');
  const size = BigInt(whole) * 100_000_000n + BigInt(fraction.padEnd(8, '0'));
  return dollars.startsWith('-') ? -size : size;
};
const sum = (amounts: bigint[]): bigint => amounts.reduce((all, each) => all + each, 0n);
const linesOf = (bill: Bill, section: string): Bill['lines'] => bill.lines.filter((line) => line.section === section);

/** What the transfers themselves say about the wallet, by month of posting. */
async function changesByMonth(world: World, orgId: string): Promise<Map<string, bigint>> {
  const account = accountId(wallet(orgId));
  const all = { fromMs: 0, untilMs: Number.MAX_SAFE_INTEGER };
  const rows: TransferRow[] = await transfersIn(world.db.read, all, { after: undefined, limit: 100_000 }, world.clock);
  const months = new Map<string, bigint>();
  for (const { debit_account_id: debit, credit_account_id: credit, amount_ucents: amount, posted_ms: ms } of rows) {
    const month = isoTime(ms).slice(0, 7);
    const change = credit === account ? amount : debit === account ? -amount : 0n;
    months.set(month, (months.get(month) ?? 0n) + change);
  }
  return months;
}

const which = fc.nat({ max: 3 });
const anyStep = fc.oneof(
  fc.record({ do: fc.constant('rent' as const), which, rate: fc.constantFrom(100_000_001n, 37_000_000n) }),
  fc.record({ do: fc.constant('stop' as const), which }),
  fc.record({ do: fc.constant('fail' as const), which, backMs: fc.constantFrom(0, 40_000, 3 * HOUR_MS, 9 * DAY_MS) }),
  fc.record({ do: fc.constant('dispute' as const), which }),
  fc.record({
    do: fc.constant('ask' as const),
    which,
    model: fc.constantFrom('a', 'b'),
    cost: fc.bigInt(1n, 10n ** 9n),
  }),
  fc.record({ do: fc.constant('fund' as const), which, cents: fc.integer({ min: 1, max: 10_000 }) }),
  fc.record({
    do: fc.constant('refund' as const),
    which,
    part: fc.constantFrom(undefined, '0.00000003', '0.7', '5'),
    platform: fc.boolean(),
    isReceipt: fc.boolean(),
  }),
  fc.record({ do: fc.constant('credit' as const), which, amount: fc.constantFrom('0.00000001', '3') }),
  fc.record({ do: fc.constant('down' as const), which, amount: fc.constantFrom('0.01', '20000000') }),
  fc.record({
    do: fc.constant('wait' as const),
    ms: fc.constantFrom(1, 20_000, HOUR_MS + 13, 2 * DAY_MS, 20 * DAY_MS),
  }),
);
type Step = typeof anyStep extends fc.Arbitrary<infer T> ? T : never;

interface Rental {
  id: string;
  /** When it last began to run. */
  aliveMs: number;
  /** Its customer's last receipt. */
  asked: string;
  who: KeyAccount;
  status: 'none' | 'charged' | 'free';
}

test('over random histories, the bills of all months are a chain from zero to the balance in the ledger', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 15, maxLength: 35, size: 'max' }), async (steps) => {
      const world = await openWorld(1);
      const operator = openOperator(world);
      const customers = [await world.customer(FUNDS_CENTS), await world.customer(FUNDS_CENTS)];
      const row = {
        id: 's0',
        org_id: customers[0]?.orgId ?? '',
        status: 'active' as const,
        created_ms: 1,
        updated_ms: 1,
      };
      await world.db.tx('test.supplier', (tx) => insertSupplier(tx, row));
      const rentals = [0, 1, 2, 3].map((i): Rental => ({
        id: '',
        asked: '',
        aliveMs: 0,
        who: customers[i % 2] as KeyAccount,
        status: 'none',
      }));
      for (const [n, step] of steps.entries()) {
        if ('which' in step) await act({ world, operator, n }, rentals[step.which] as Rental, step);
        else await world.clock.advance(step.ms);
        await world.rooms.metering.tick(new AbortController().signal);
        if (n % 3 === 0) await sumMonths(world);
      }
      for (const { orgId } of customers) await expectChain(world, orgId);
      await world.clock.advance(2 * HOUR_MS);
      await world.verify();
      await world.close();
    }),
    { seed: 15, numRuns: RUNS },
  );
});

interface Scene {
  world: World;
  operator: Operator;
  /** The number of the step. */
  n: number;
}

/** One step of a customer. An impossible step does nothing. */
async function act({ world, operator, n }: Scene, rental: Rental, step: Step): Promise<void> {
  const { metering } = world.rooms;
  const { orgId } = rental.who;
  const nowMs = world.clock.now();
  if (step.do === 'rent' && rental.status !== 'charged') {
    if (rental.status === 'none') rental.id = world.core.ids.instance();
    Object.assign(rental, { status: 'charged', aliveMs: nowMs });
    const what = { supplierId: 's0', machineId: 'm', gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000 };
    const segment = { subjectId: rental.id, orgId, ...what, rateUcentsPerHour: step.rate, startedMs: nowMs };
    await world.db.tx('rent', (tx) => metering.openSegment(tx, segment));
  } else if (step.do === 'stop' && rental.status !== 'none') {
    rental.status = 'none';
    await world.db.tx('stop', async (tx) => {
      await metering.closeSegment(tx, rental.id, nowMs);
      await metering.releaseHold(tx, rental.id, orgId);
    });
  } else if (step.do === 'fail' && rental.status === 'charged') {
    rental.status = 'free';
    // No verdict reaches back to a time before the last proof of life.
    const sinceMs = Math.max(nowMs - step.backMs, rental.aliveMs);
    await world.db.tx('fail', (tx) => metering.closeSegment(tx, rental.id, sinceMs, 'probes'));
  } else if (step.do === 'dispute' && rental.id !== '') {
    const dispute = { instance_id: rental.id, reason: 'slow' };
    const opened = await operator.ask('POST', '/admin/disputes', dispute).catch(() => undefined);
    if (opened === undefined) return;
    const url = `/admin/disputes/${String(opened['dispute_id'])}/resolve`;
    // Refused if an operator has refunded the rental already.
    const release = (): Promise<unknown> => operator.ask('POST', url, { refund: false, note: 'n' });
    await operator.ask('POST', url, { refund: true, note: 'n' }).catch(release);
  } else if (step.do === 'ask') {
    const facts = { id: `rcp_${n}`, held_ucents: step.cost, opened_ms: nowMs };
    const receipt = { ...newReceipt(rental.who, facts), model_id: step.model };
    await world.db.hot(openReceipt(receipt));
    const outcome = { ...freeOutcome('completed'), charged_ucents: step.cost };
    await world.db.hot(closeReceipt(receipt, outcome, { nowMs, attempts: [] }));
    rental.asked = receipt.id;
  } else if (step.do === 'refund') {
    const subject = step.isReceipt ? rental.asked : rental.id;
    const body = { subject_id: subject, ...(step.part && { amount: step.part }), from_platform: step.platform };
    await correct(operator, 'refunds', { ...body, reference: `r${n}` });
  } else if (step.do === 'credit') {
    await correct(operator, 'credits', { org_id: orgId, amount: step.amount, reference: `r${n}` });
  } else if (step.do === 'down') {
    const body = { org_id: orgId, direction: 'down', amount: step.amount, allow_debt: n % 2 === 0 };
    await correct(operator, 'adjustments', { ...body, reference: `r${n}` });
  } else if (step.do === 'fund') {
    await operator.ask('POST', `/admin/balances/${orgId}/credits`, { cents: step.cents, reference: `r${n}` });
  }
}

/** A refusal is fine: much of what chance asks for is impossible. */
async function correct(operator: Operator, what: string, body: object): Promise<void> {
  const url = `/admin/corrections/${what}`;
  await operator.ask('POST', url, { ...body, reason: 'a mistake' }).catch((error: { code?: string }) => {
    if (!['conflict', 'not_found', 'validation_failed'].includes(error.code ?? '')) throw error;
  });
}

async function expectChain(world: World, orgId: string): Promise<void> {
  const changes = await changesByMonth(world, orgId);
  const months = [...changes.keys()].toSorted();
  let before = 0n;
  for (const month of months) {
    const bill = await readBill(world, orgId, month);
    const change = changes.get(month) ?? 0n;
    expect(ucentsOf(bill.opening_balance)).toBe(before);
    expect(sum(bill.lines.map(({ amount }) => ucentsOf(amount)))).toBe(change);
    expect(sum(bill.totals.map(({ amount }) => ucentsOf(amount)))).toBe(change);
    expect(ucentsOf(bill.closing_balance)).toBe(before + change);
    expect(linesOf(bill, 'other')).toEqual([]);
    before += change;
  }
  const { postedUcents } = await world.rooms.ledger.balance(world.db.read, wallet(orgId));
  expect(before).toBe(postedUcents);
}

describe('the bill', () => {
  let world: World;
  beforeEach(async () => {
    world = await openWorld();
  });
  afterEach(() => world.close());

  const post = (orgId: string, id: string, facts: { kind: string; evidence?: string }): Promise<void> =>
    world.db.tx('test.post', (tx) => {
      const about = { id, debit: wallet(orgId), credit: revenue, subjectId: id, effectiveMs: 1, ...facts };
      return world.rooms.ledger.post(tx, `b:${id}`, [{ ...about, amountUcents: ucentsFromDollars(1.5) ?? 0n }]);
    });

  test('sums up requests by model, and a charge without a model in a line of its own', async () => {
    const { orgId } = await world.customer(1_000);
    await post(orgId, 'rcp_1', { kind: 'inference.charge', evidence: 'a' });
    await post(orgId, 'rcp_2', { kind: 'inference.charge', evidence: 'a' });
    await post(orgId, 'rcp_3', { kind: 'inference.charge', evidence: 'b' });
    await post(orgId, 'rcp_4', { kind: 'inference.charge' });
    await post(orgId, 'vid_1', { kind: 'video.charge', evidence: 'v' });
    const bill = await readBill(world, orgId);
    expect(bill.lines.filter(({ section }) => section !== 'deposit')).toMatchObject([
      { section: 'inference', model: 'a', subject_id: null, count: 2, amount: '-3.00' },
      { section: 'inference', model: 'b', count: 1, amount: '-1.50' },
      { section: 'inference', model: null, count: 1, amount: '-1.50' },
      { section: 'video', model: 'v', count: 1, amount: '-1.50' },
    ]);
    expect(bill).toMatchObject({ opening_balance: '0.00', closing_balance: '2.50', is_complete: false });
  });

  test('shows a kind that no room states under other, and ledger verify reports that kind', async () => {
    const { orgId } = await world.customer(1_000);
    await post(orgId, 'x', { kind: 'novel.charge', evidence: 'why' });
    expect(linesOf(await readBill(world, orgId), 'other')).toMatchObject([
      { subject_id: 'x', reason: 'why', amount: '-1.50' },
    ]);
    await world.clock.advance(2 * HOUR_MS);
    const fault = 'novel.charge: transfers of this kind change wallets, and no room says where they are on the bill';
    expect(await world.books.verify()).toEqual([fault]);
    expect(linesOf(await readBill(world, orgId), 'deposit')).toHaveLength(1);
  });

  test('of a month is complete a minute after its end, and opens the next one', async () => {
    const { orgId } = await world.customer(1_000);
    const month = isoTime(world.clock.now()).slice(0, 7);
    await world.clock.advance(35 * DAY_MS);
    const [past, present] = [await readBill(world, orgId, month), await readBill(world, orgId)];
    expect([past.is_complete, present.is_complete]).toEqual([true, false]);
    expect([past.closing_balance, present.opening_balance, present.lines]).toEqual(['10.00', '10.00', []]);
  });
});

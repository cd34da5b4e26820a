// An operator corrects mistakes: refunds never exceed charges, each reference counts once, and a wallet never goes below zero.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { badDebt, payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { closeReceipt, openReceipt, freeOutcome } from '../../../control-plane/models/gateway/states.ts';
import { openOperator, type Operator } from '../../kit/operator.ts';
import { newReceipt } from '../../kit/payers.ts';
import { type KeyAccount, openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;

let world: World;
let operator: Operator;
let who: KeyAccount;
beforeEach(async () => {
  world = await openWorld();
  operator = openOperator(world);
  who = await world.customer(10_000);
});
afterEach(async () => {
  await world.clock.advance(2 * HOUR_MS);
  await world.verify();
  await world.close();
});

const balanceOf = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;
const correct = (what: string, body: object): Promise<Record<string, unknown>> =>
  operator.ask('POST', `/admin/corrections/${what}`, { reason: 'broken disk', reference: 'r1', ...body });
const refusal = async (work: Promise<unknown>): Promise<[unknown, unknown]> => {
  const error = (await work.then(
    () => ({}),
    (caught: unknown) => caught,
  )) as { code?: string; message?: string };
  return [error.code, error.message];
};

/** A rental of an hour at $1 that has ended. Returns its supplier. */
async function rented(): Promise<{ id: string; supplierId: string }> {
  const { supplierId } = await world.machine({ dollars: 1 });
  const id = await world.run(who);
  await world.clock.advance(HOUR_MS);
  await world.end(who, id);
  return { id, supplierId };
}

async function asked(id: string, chargedUcents: bigint): Promise<void> {
  const nowMs = world.clock.now();
  const receipt = newReceipt(who, { id, held_ucents: chargedUcents, opened_ms: nowMs });
  await world.db.hot(openReceipt(receipt));
  const outcome = { ...freeOutcome('completed'), charged_ucents: chargedUcents };
  await world.db.hot(closeReceipt(receipt, outcome, { nowMs, attempts: [] }));
}

describe('a refund', () => {
  test('of a rental is taken from supplier and fee as the charge was split, in parts that add up to all of it', async () => {
    const { id, supplierId } = await rented();
    const charged = 100n * DOLLAR - (await balanceOf(wallet(who.orgId)));
    const before = { supplier: await balanceOf(payable(supplierId)), fee: await balanceOf(revenue) };
    expect(before.supplier).toBe((charged * 8n) / 10n);
    const first = await correct('refunds', { subject_id: id, amount: '0.00000003' });
    expect(first).toMatchObject({ amount: '0.00000003', from_suppliers: '0.00000002', reason: 'broken disk' });
    await correct('refunds', { subject_id: id, reference: 'r2' });
    expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
    expect(await balanceOf(payable(supplierId))).toBe(0n);
    expect(await balanceOf(revenue)).toBe(before.fee - (charged - before.supplier));
  });

  test('with from_platform leaves the supplier its part', async () => {
    const { id, supplierId } = await rented();
    const earned = await balanceOf(payable(supplierId));
    expect(await correct('refunds', { subject_id: id, from_platform: true })).toMatchObject({ from_suppliers: '0.00' });
    expect(await balanceOf(payable(supplierId))).toBe(earned);
    expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
  });

  test('has no second effect under its reference, and is a conflict under another one or for something else', async () => {
    await asked('rcp_1', 2n * DOLLAR);
    await asked('rcp_2', 2n * DOLLAR);
    const first = await correct('refunds', { subject_id: 'rcp_1' });
    expect(await correct('refunds', { subject_id: 'rcp_1' })).toEqual(first);
    expect(await correct('refunds', { subject_id: 'rcp_1', amount: '2' })).toEqual(first);
    expect(await refusal(correct('refunds', { subject_id: 'rcp_1', reference: 'r2' }))).toEqual([
      'conflict',
      'Nothing of rcp_1 is left to refund.',
    ]);
    const used = ['conflict', 'The reference r1 was used for something else. Nothing was changed: name a new one.'];
    expect(await refusal(correct('refunds', { subject_id: 'rcp_2' }))).toEqual(used);
    expect(await refusal(correct('refunds', { subject_id: 'rcp_1', amount: '1' }))).toEqual(used);
    expect(await balanceOf(wallet(who.orgId))).toBe(98n * DOLLAR);
  });

  test('is never more than what was charged and not refunded', async () => {
    await asked('rcp_1', 2n * DOLLAR);
    await correct('refunds', { subject_id: 'rcp_1', amount: '1.5' });
    const more = correct('refunds', { subject_id: 'rcp_1', amount: '0.50000001', reference: 'r2' });
    expect(await refusal(more)).toEqual(['conflict', 'At most $0.50 of rcp_1 is left to refund.']);
    await correct('refunds', { subject_id: 'rcp_1', amount: '0.5', reference: 'r2' });
    expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
  });

  test('of a receipt works after the receipt is gone, because the ledger keeps its charge', async () => {
    await asked('rcp_1', 2n * DOLLAR);
    const [receipts] = world.brings().flatMap(({ forgets = [] }) => forgets.filter(({ what }) => what === 'receipts'));
    await world.clock.advance(91 * 24 * HOUR_MS);
    await receipts?.run(new AbortController().signal);
    expect(await correct('refunds', { subject_id: 'rcp_1' })).toMatchObject({ amount: '2.00' });
  });

  test('of something that was never charged is not found', async () => {
    expect((await refusal(correct('refunds', { subject_id: 'i-nothing' })))[0]).toBe('not_found');
    expect((await refusal(correct('refunds', { subject_id: who.orgId })))[0]).toBe('not_found');
  });

  test('is refused while the rental runs or is disputed, and a dispute refunds nothing that was refunded', async () => {
    await world.machine({ dollars: 1 });
    const id = await world.run(who);
    await world.clock.advance(2 * HOUR_MS);
    await world.rooms.metering.tick(new AbortController().signal);
    expect((await refusal(correct('refunds', { subject_id: id })))[1]).toMatch(/still runs/);
    await world.end(who, id);
    const dispute = { instance_id: id, reason: 'slow' };
    const { dispute_id: disputeId } = await operator.ask('POST', '/admin/disputes', dispute);
    expect((await refusal(correct('refunds', { subject_id: id })))[1]).toMatch(/is disputed/);
    await operator.ask('POST', `/admin/disputes/${String(disputeId)}/resolve`, { refund: false, note: 'n' });
    await correct('refunds', { subject_id: id });
    const again = await operator.ask('POST', '/admin/disputes', dispute);
    const url = `/admin/disputes/${String(again['dispute_id'])}/resolve`;
    expect((await refusal(operator.ask('POST', url, { refund: true, note: 'n' })))[0]).toBe('conflict');
    await operator.ask('POST', url, { refund: false, note: 'n' });
    expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
  });

  test('above its charge, and one without a row, are faults of the books', async () => {
    await asked('rcp_1', 2n * DOLLAR);
    const refund = await correct('refunds', { subject_id: 'rcp_1' });
    const id = String(refund['id']);
    const write = (statement: ReturnType<typeof sql>): Promise<unknown> =>
      world.db.tx('test', (tx) => tx.run(statement));
    await write(sql`update corrections set amount_ucents = amount_ucents + 1, subject_id = 'rcp_0' where id = ${id}`);
    const due = 2n * DOLLAR;
    expect(await world.books.verify()).toEqual([`${id}: ${due + 1n} should be posted, the ledger has ${due}`]);
    await write(sql`update corrections set id = 'cor_x', amount_ucents = 0 where id = ${id}`);
    expect(await world.books.verify()).toEqual([`${id}: the ledger has a correction without a row`]);
    await write(
      sql`update corrections set id = ${id}, amount_ucents = ${due}, subject_id = 'rcp_1' where id = 'cor_x'`,
    );
    const over = { id: 'over', debit: revenue, credit: wallet(who.orgId), amountUcents: 7n, kind: 'models.fund' };
    await world.db.tx('test', (tx) =>
      world.rooms.ledger.post(tx, 'over', [{ ...over, subjectId: 'rcp_1', effectiveMs: 1 }]),
    );
    expect(await world.books.verify()).toContain('rcp_1: 7 more was refunded than was charged');
    const back = { ...over, id: 'back', debit: wallet(who.orgId), credit: revenue, kind: 'models.fund' };
    await world.db.tx('test', (tx) =>
      world.rooms.ledger.post(tx, 'back', [{ ...back, subjectId: 'rcp_1', effectiveMs: 1 }]),
    );
  });
});

describe('a credit and an adjustment', () => {
  test('add to the balance once for each reference', async () => {
    const { orgId } = who;
    const credit = { org_id: orgId, amount: '0.00000001' };
    expect(await correct('credits', credit)).toEqual(await correct('credits', credit));
    expect((await refusal(correct('credits', { ...credit, amount: '2' })))[0]).toBe('conflict');
    await correct('adjustments', { org_id: orgId, direction: 'up', amount: '5' });
    expect((await refusal(correct('adjustments', { org_id: orgId, direction: 'down', amount: '5' })))[0]).toBe(
      'conflict',
    );
    expect(await balanceOf(wallet(orgId))).toBe(105n * DOLLAR + 1n);
  });

  test('downwards takes only what is available, and with allow_debt writes the rest off', async () => {
    const { orgId } = who;
    await world.db.tx('test.hold', (tx) => world.rooms.ledger.setHold(tx, 'test:other', wallet(orgId), 40n * DOLLAR));
    const down = { org_id: orgId, direction: 'down', amount: '70' };
    expect(await refusal(correct('adjustments', down))).toEqual([
      'conflict',
      'Only $60.00 is available. With --allow-debt, the rest is written off as bad debt.',
    ]);
    const made = await correct('adjustments', { ...down, allow_debt: true });
    expect(made).toMatchObject({ amount: '-60.00', bad_debt: '10.00' });
    expect(await correct('adjustments', { ...down, allow_debt: true })).toEqual(made);
    expect(await balanceOf(wallet(orgId))).toBe(40n * DOLLAR);
    expect(await balanceOf(badDebt)).toBe(-10n * DOLLAR);
  });

  test('of an unknown organisation is not found', async () => {
    expect((await refusal(correct('credits', { org_id: 'nobody', amount: '1' })))[0]).toBe('not_found');
  });

  test.each([
    [0.1, 'must be a string'],
    ['0', 'must be more than 0'],
    ['0.00000000', 'must be more than 0'],
    ['-1', 'must not be negative'],
    ['1.000000001', 'must have at most 8 decimals: a microcent is the smallest amount'],
    ['1000000000.01', 'must be at most 1000000000.00'],
    ['1e3', 'must be dollars like 25 or 25.50'],
    ['', 'must be dollars like 25 or 25.50'],
  ])('of the amount %o is refused with its rule, and nothing is written', async (amount, rule) => {
    const error = await correct('credits', { org_id: who.orgId, amount }).catch((caught: unknown) => caught);
    expect(error).toMatchObject({ code: 'validation_failed', errors: [{ field: 'amount', rule }] });
    expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
  });
});

test('the largest amount is credited exactly, and can be taken again', async () => {
  const { orgId } = await world.customer(0);
  const largest = { org_id: orgId, amount: '1000000000.00' };
  expect(await correct('credits', largest)).toMatchObject({ amount: '1000000000.00' });
  expect(await balanceOf(wallet(orgId))).toBe(10n ** 9n * DOLLAR);
  const down = { ...largest, direction: 'down' };
  expect(await correct('adjustments', down)).toMatchObject({ amount: '-1000000000.00', bad_debt: '0.00' });
  expect(await balanceOf(wallet(orgId))).toBe(0n);
});

test('the customer reads the reason on the bill, in one line for supplier and fee', async () => {
  const { id } = await rented();
  await correct('refunds', { subject_id: id });
  await correct('credits', { org_id: who.orgId, amount: '3', reason: 'sorry' });
  const { lines } = await operator.ask('GET', `/admin/balances/${who.orgId}/statement`);
  expect((lines as { section: string }[]).filter(({ section }) => /refund|adjust/.test(section))).toMatchObject([
    { section: 'refund', subject_id: id, reason: 'broken disk' },
    { section: 'adjustment', reason: 'sorry', amount: '3.00' },
  ]);
});

test('two operators who refund the same at once refund it once', async () => {
  await asked('rcp_1', 2n * DOLLAR);
  const results = await Promise.allSettled(
    ['a', 'b', 'c'].map((reference) => correct('refunds', { subject_id: 'rcp_1', reference })),
  );
  expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  expect(await balanceOf(wallet(who.orgId))).toBe(100n * DOLLAR);
});

test('the export has every transfer once, in pages, without those of the last minute', async () => {
  for (let n = 0; n < 5; n += 1) await asked(`rcp_${n}`, 1n);
  const window = `from=2000-01-01T00:00:00Z&to=2100-01-01T00:00:00Z`;
  expect(await operator.ask('GET', `/admin/transfers?${window}`)).toMatchObject({ data: [] });
  await world.clock.advance(61_000);
  const ids: string[] = [];
  for (let cursor = ''; ;) {
    const page = await operator.ask('GET', `/admin/transfers?${window}&limit=2${cursor}`);
    ids.push(...(page['data'] as { transfer_id: string }[]).map((row) => row.transfer_id));
    if (page['next_cursor'] === null) break;
    cursor = `&cursor=${page['next_cursor'] as string}`;
  }
  const charges = [0, 1, 2, 3, 4].map((n) => `inference:rcp_${n}:charge`);
  expect(ids).toHaveLength(6);
  expect(new Set(ids)).toEqual(new Set([`fund:${who.orgId}`, ...charges]));
  const backwards = operator.ask('GET', '/admin/transfers?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z');
  expect((await refusal(backwards))[0]).toBe('validation_failed');
});

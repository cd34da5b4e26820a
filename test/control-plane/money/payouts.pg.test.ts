// Payouts on PostgreSQL, with two commands at the same moment: two operators, two loops, a dispute, a claw-back, a change of the destination,
// a suspension. Whatever comes first, no money leaves twice, and none leaves that may not.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { inFlight, paidOut, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { pageOfPayouts, type PayoutRow } from '../../../control-plane/money/payouts/store.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { type Interleaved, interleave } from '../../kit/interleave.ts';
import { earnCents, HOME, nameDestination } from '../../kit/payees.ts';
import { openWorldOver, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const SEEDS = process.env['SOAK'] === '1' ? Array.from({ length: 60 }, (_, i) => i + 1) : [1, 2, 3, 4, 5];
const NEVER = new AbortController().signal;
const AWAY = '0xde709f2102306220921060314715629080e2fb77';

let world: World;
let interleaved: Interleaved;
let supplierId: string;
let orgId: string;
beforeEach(async () => {
  ({ world, over: interleaved } = await openWorldOver(interleave));
  ({ supplierId, orgId } = await world.machine());
  await name(HOME);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const payouts = () => world.rooms.payouts;
const cents = (count: number): bigint => BigInt(count) * UCENTS_PER_CENT;
const money = async (): Promise<bigint[]> =>
  Promise.all(
    [payable(supplierId), inFlight, paidOut].map(
      async (account) => (await world.rooms.ledger.balance(world.db.read, account)).postedUcents,
    ),
  );
const all = (): Promise<PayoutRow[]> => pageOfPayouts(world.db.read, { supplierId, state: undefined }, { count: 100 });
const name = (address: string): Promise<unknown> => nameDestination(world, { supplierId, orgId }, { address });
const earn = (count: number): Promise<void> => earnCents(world, supplierId, count);
/** 30 dollars are due. */
async function due(): Promise<string> {
  await earn(3_000);
  await payouts().makeDue(NEVER);
  return (await all())[0]?.id ?? '';
}
/** A rental, `i-2`, has earned the supplier 40 dollars, which are due. */
async function rented(): Promise<void> {
  const { orgId: customer } = await world.customer(1_000_000);
  const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000, machineId: 'm' };
  const startedMs = world.clock.now();
  const segment = {
    ...gpus,
    subjectId: 'i-2',
    orgId: customer,
    supplierId,
    rateUcentsPerHour: 100_000_000n,
    startedMs,
  };
  await world.db.tx('test.rent', (tx) => world.rooms.metering.openSegment(tx, segment));
  await world.clock.advance(50 * HOUR_MS);
  await world.db.tx('test.end', async (tx) => {
    await tx.lock('org', customer);
    await world.rooms.metering.closeSegment(tx, 'i-2', world.clock.now());
    await world.rooms.metering.releaseHold(tx, 'i-2', customer);
  });
  await world.clock.advance(1);
  await payouts().makeDue(NEVER);
}
/** The codes of the refusals. Throws for any other failure. */
function refusalsOf(results: readonly PromiseSettledResult<unknown>[]): string[] {
  return results.flatMap((result) => {
    if (result.status === 'fulfilled') return [];
    if (result.reason instanceof ServiceError) return [result.reason.code];
    throw result.reason;
  });
}

describe.each(SEEDS)('in the order of seed %d', (seed) => {
  test('two loops make one payout due', async () => {
    await earn(3_000);
    const run = () => payouts().makeDue(NEVER);
    expect(refusalsOf(await interleaved.run(seed, [run, run]))).toEqual([]);
    expect(await all()).toHaveLength(1);
  });

  test('two exports give the payout to one batch', async () => {
    await due();
    const lists: PayoutRow[][] = [];
    const run = (batch: string) => async () => lists.push(await payouts().exportBatch(batch));
    expect(refusalsOf(await interleaved.run(seed, [run('a'), run('b')]))).toEqual([]);
    expect(lists.flat()).toHaveLength(1);
    expect(await money()).toEqual([0n, cents(3_000), 0n]);
  });

  test('an operator says sent and another one failed: one of them is refused or changes nothing', async () => {
    const id = await due();
    await payouts().exportBatch('a');
    const results = await interleaved.run(seed, [
      () => payouts().sent(id, '0x1'),
      () => payouts().failed(id, 'no gas'),
    ]);
    expect(refusalsOf(results)).toEqual(['conflict']);
    const isPaid = (await all())[0]?.state === 'paid';
    expect(await money()).toEqual(isPaid ? [0n, 0n, cents(3_000)] : [cents(3_000), 0n, 0n]);
  });

  test('two transactions for one payout: one counts', async () => {
    const id = await due();
    await payouts().exportBatch('a');
    const results = await interleaved.run(seed, [() => payouts().sent(id, '0x1'), () => payouts().sent(id, '0x2')]);
    expect(refusalsOf(results)).toEqual(['conflict']);
    expect(await money()).toEqual([0n, 0n, cents(3_000)]);
  });

  test('an export and a payout by hand share what is owed', async () => {
    await due();
    const byHand = () => payouts().pay({ supplierId, cents: 1_000, reference: 'wire' });
    const results = await interleaved.run(seed, [() => payouts().exportBatch('a'), byHand]);
    const [owed = 0n, flying = 0n, paid = 0n] = await money();
    expect(owed + flying + paid).toBe(cents(3_000));
    expect(owed >= 0n).toBe(true);
    expect(flying === 0n || paid === 0n).toBe(true);
    expect(refusalsOf(results).length).toBe(paid === 0n ? 1 : 0);
  });

  test('an export and a dispute: what is disputed first does not leave', async () => {
    await rented();
    const dispute = () => payouts().disputes.open({ instanceId: 'i-2', sinceMs: null, reason: 'slow' });
    expect(refusalsOf(await interleaved.run(seed, [() => payouts().exportBatch('a'), dispute]))).toEqual([]);
    const [row] = await all();
    const [owed, flying] = await money();
    expect([owed, flying]).toEqual(row?.state === 'in_flight' ? [0n, cents(4_000)] : [cents(4_000), 0n]);
    expect(['in_flight', 'failed']).toContain(row?.state);
  });

  test('an export and the refund of a dispute: the payout has read all of it or nothing of it, so nothing leaves', async () => {
    await rented();
    const { id } = await payouts().disputes.open({ instanceId: 'i-2', sinceMs: null, reason: 'slow' });
    const refund = () => payouts().disputes.resolve(id, { refund: true, note: 'it was' });
    expect(refusalsOf(await interleaved.run(seed, [() => payouts().exportBatch('a'), refund]))).toEqual([]);
    expect(await money()).toEqual([0n, 0n, 0n]);
  });

  test('an export and a claw-back: what is taken back first does not leave, and later it is a debt', async () => {
    await due();
    const { orgId: customer } = await world.customer(1_000_000);
    const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000, machineId: 'm' };
    const times = { supplierId, rateUcentsPerHour: 100_000_000n, startedMs: world.clock.now() };
    const segment = { ...gpus, ...times, subjectId: 'i-3', orgId: customer };
    const { metering } = world.rooms;
    await world.db.tx('test.rent', (tx) => metering.openSegment(tx, segment));
    await world.clock.advance(10 * HOUR_MS);
    await metering.tick(NEVER);
    await payouts().failed((await all())[0]?.id ?? '', 'it is too small');
    await world.clock.advance(7 * 24 * HOUR_MS);
    await payouts().makeDue(NEVER);
    const [before] = await all();
    const clawBack = () =>
      world.core.db.tx('test.dead', async (tx) => {
        await tx.lock('org', customer);
        await tx.lock('supplier', supplierId);
        await metering.closeSegment(tx, 'i-3', segment.startedMs, 'dead from the beginning');
        await metering.releaseHold(tx, 'i-3', customer);
      });
    expect(refusalsOf(await interleaved.run(seed, [() => payouts().exportBatch('a'), clawBack]))).toEqual([]);
    const [row] = await all();
    const [owed = 0n, flying] = await money();
    expect(owed + (flying ?? 0n)).toBe(cents(3_000));
    expect(flying).toBe(row?.amount_ucents);
    // The claw-back came before the export, or after it.
    expect([cents(3_000), before?.amount_ucents]).toContain(flying);
  });

  test.each([
    ['a change of the destination', () => name(AWAY)],
    ['a suspension', () => world.rooms.supply.suspendSupplier(supplierId)],
  ])('an export and %s: the payout left before, to the destination before, or waits', async (_, other) => {
    await due();
    expect(refusalsOf(await interleaved.run(seed, [() => payouts().exportBatch('a'), other]))).toEqual([]);
    const [row] = await all();
    expect([`in_flight ${HOME}`, 'due null']).toContain(`${row?.state} ${row?.address}`);
    expect((await payouts().exportBatch('b')).length).toBe(0);
  });
});

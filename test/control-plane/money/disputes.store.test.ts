// Earnings wait before they are paid out. A dispute holds those of a rental, and a refund returns its cost to the microcent.
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, inject, test } from 'vitest';
import { clearing, payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { sql } from '../../../control-plane/base/db/db.ts';
import { type Dispute, pageOfDisputes } from '../../../control-plane/money/payouts/disputes.ts';
import { accruedUcents, supplierPartUcents, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DELAY_MS = 48 * HOUR_MS;
const RATE = 249_000_000n;

let world: World;
const open = (): Promise<World> => openWorld(1, { settings: { earningsDelayMs: DELAY_MS } });
beforeEach(async () => {
  world = await open();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const cents = (count: number): bigint => BigInt(count) * UCENTS_PER_CENT;
const pay = (count: number | null, reference: string): Promise<{ amount_ucents: bigint }> =>
  world.rooms.payouts.pay({ supplierId: 's', cents: count, reference });
const standing = async (): Promise<bigint[]> => {
  const { accruedCents, unpaidCents, payableCents } = await world.rooms.payouts.standing(world.db.read, 's');
  return [accruedCents, unpaidCents, payableCents];
};
const posted = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;

/** Posts earnings in cents from nowhere. A negative amount is a claw-back. */
function earn(count: number, subjectId: string): Promise<void> {
  const id = `${subjectId}:${world.clock.now()}:${count}`;
  const [debit, credit] = count > 0 ? [clearing, payable('s')] : [payable('s'), clearing];
  const transfer = { id, debit, credit, amountUcents: cents(Math.abs(count)), kind: 'test', subjectId };
  return world.db.tx('earn', (tx) =>
    world.rooms.ledger.post(tx, id, [{ ...transfer, effectiveMs: world.clock.now() }]),
  );
}
/** Balances the clearing account for `earn`, so that the books agree. */
async function settleClearing(): Promise<void> {
  const amountUcents = -(await posted(clearing));
  if (amountUcents <= 0n) return;
  const about = { id: 'settle', debit: revenue, credit: clearing, amountUcents, kind: 'test' };
  await world.db.tx('settle', (tx) =>
    world.rooms.ledger.post(tx, 'settle', [{ ...about, subjectId: 'x', effectiveMs: 0 }]),
  );
}

describe('earnings', () => {
  test('are payable when the delay is over, and not a millisecond earlier', async () => {
    await earn(100, 'i-1');
    await world.clock.advance(DELAY_MS - 1);
    expect(await standing()).toEqual([100n, 100n, 0n]);
    await expect(pay(null, 'early')).rejects.toThrow(
      'The supplier is owed $1.00, of which $0.00 is payable now; the rest is too new or disputed: there is nothing to pay.',
    );
    await expect(pay(1, 'early')).rejects.toMatchObject({ code: 'conflict' });
    await world.clock.advance(1);
    expect(await standing()).toEqual([100n, 100n, 100n]);
    await earn(30, 'i-1');
    await expect(pay(101, 'much')).rejects.toThrow('owed $1.30, of which $1.00 is payable now');
    expect(await pay(null, 'all')).toMatchObject({ amount_ucents: cents(100) });
    expect(await standing()).toEqual([130n, 30n, 0n]);
    await settleClearing();
  });

  test('that are clawed back reduce the new earnings of the same rental, and of no other rental', async () => {
    await earn(500, 'i-old');
    await world.clock.advance(DELAY_MS);
    await earn(100, 'i-1');
    await earn(-100, 'i-1');
    expect(await standing()).toEqual([500n, 500n, 500n]);
    await earn(-200, 'i-old');
    await earn(50, 'i-2');
    expect(await standing()).toEqual([350n, 350n, 300n]);
    await settleClearing();
  });
});

async function rent(subjectId = 'i-1', balanceCents = 100_000): Promise<{ orgId: string; startedMs: number }> {
  const { orgId } = await world.customer(balanceCents);
  const startedMs = world.clock.now();
  const gpus = { gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000, supplierId: 's', machineId: 'm' };
  await world.db.tx('rent', (tx) =>
    world.rooms.metering.openSegment(tx, { ...gpus, subjectId, orgId, rateUcentsPerHour: RATE, startedMs }),
  );
  return { orgId, startedMs };
}
const end = (subjectId = 'i-1'): Promise<void> =>
  world.db.tx('end', (tx) => world.rooms.metering.closeSegment(tx, subjectId, world.clock.now()));
const dispute = (instanceId = 'i-1', sinceMs: number | null = null): Promise<Dispute> =>
  world.rooms.payouts.disputes.open({ instanceId, sinceMs, reason: 'nvidia-smi showed nothing' });
const resolve = (id: string, refund: boolean): Promise<Dispute> =>
  world.rooms.payouts.disputes.resolve(id, { refund, note: 'looked at the logs' });
const tick = (): Promise<unknown> => world.rooms.metering.tick(new AbortController().signal);

describe('a dispute', () => {
  test('holds all earnings of its rental, however old, until it is released; other rentals are paid', async () => {
    await rent();
    await rent('i-2');
    await world.clock.advance(HOUR_MS);
    await end();
    await end('i-2');
    await world.clock.advance(DELAY_MS);
    const [, unpaid = 0n] = await standing();
    expect(await standing()).toEqual([unpaid, unpaid, unpaid]);
    const { id } = await dispute();
    expect((await standing())[2]).toBe(unpaid / 2n);
    await expect(dispute()).rejects.toMatchObject({ code: 'conflict' });
    await pay(null, 'other');
    await expect(pay(1, 'held')).rejects.toThrow('too new or disputed');
    expect(await resolve(id, false)).toMatchObject({ state: 'released', refunded_ucents: 0n });
    await expect(resolve(id, true)).rejects.toThrow('was released already');
    expect(await pay(null, 'rest')).toMatchObject({ amount_ucents: cents(Number(unpaid / 2n)) });
  });

  test('that is refunded returns the cost of the disputed time to the customer, from supplier and platform', async () => {
    const { orgId, startedMs } = await rent();
    const before = await posted(wallet(orgId));
    await world.clock.advance(3 * HOUR_MS + 12_345);
    await end();
    const { id } = await dispute('i-1', startedMs + HOUR_MS);
    const resolved = await resolve(id, true);
    const kept = accruedUcents(RATE, HOUR_MS);
    expect(before - (await posted(wallet(orgId)))).toBe(kept);
    expect(await posted(payable('s'))).toBe(supplierPartUcents(kept, 8_000));
    expect(resolved.refunded_ucents).toBe(accruedUcents(RATE, 3 * HOUR_MS + 12_345) - kept);
    expect((await pageOfDisputes(world.db.read, { count: 10 })).map(({ state }) => state)).toEqual(['refunded']);
  });

  test('about a running rental refunds its time until now; from now on it is charged again', async () => {
    const { orgId } = await rent();
    const before = await posted(wallet(orgId));
    await world.clock.advance(2 * HOUR_MS + HOUR_MS / 2);
    await tick();
    const { id } = await dispute();
    await resolve(id, true);
    expect(await posted(wallet(orgId))).toBe(before);
    await world.clock.advance(HOUR_MS);
    await end();
    expect(before - (await posted(wallet(orgId)))).toBe(accruedUcents(RATE, HOUR_MS));
  });

  test('cannot begin in the future: the time until then would be charged twice', async () => {
    const { orgId } = await rent();
    const before = await posted(wallet(orgId));
    await world.clock.advance(HOUR_MS);
    const nowMs = world.clock.now();
    await expect(dispute('i-1', nowMs + HOUR_MS)).rejects.toMatchObject({ code: 'validation_failed' });
    await expect(dispute('i-1', nowMs + 1)).rejects.toMatchObject({ code: 'validation_failed' });
    const { id } = await dispute('i-1', nowMs);
    // The clock may be set back after the dispute was opened.
    world.clock.step(-HOUR_MS / 2);
    expect(await resolve(id, true)).toMatchObject({ refunded_ucents: 0n });
    expect(before - (await posted(wallet(orgId)))).toBe(accruedUcents(RATE, HOUR_MS / 2));
    await end();
  });

  test('that is refunded after the payout leaves a debt of the supplier', async () => {
    await rent();
    await world.clock.advance(HOUR_MS);
    await end();
    await world.clock.advance(DELAY_MS);
    const paid = (await pay(null, 'all')).amount_ucents;
    const { id } = await dispute();
    await resolve(id, true);
    expect((await standing()).map(Number)).toEqual([0, -Number(paid / UCENTS_PER_CENT), 0]);
  });

  test('about a rental that the balance has not covered cannot give back more than was paid, and says what can', async () => {
    const { orgId, startedMs } = await rent('i-1', 100);
    await world.clock.advance(HOUR_MS);
    await end();
    expect(await posted(wallet(orgId))).toBe(0n);
    const { id } = await dispute();
    await expect(resolve(id, true)).rejects.toThrow(
      'The balance has not covered $1.49 of the charge for i-1, so this refund would give back more than was paid. Release the dispute, and give back what was paid: admin refund i-1.',
    );
    await resolve(id, false);
    const refund = { subjectId: 'i-1', amountUcents: null, fromPlatform: false, reference: 'r', reason: 'as promised' };
    expect(await world.rooms.corrections.refund(refund)).toMatchObject({ amount_ucents: cents(100) });
    expect(await posted(wallet(orgId))).toBe(cents(100));
    // Nothing is left of it now.
    const second = await dispute('i-1', startedMs + HOUR_MS - 1);
    await expect(resolve(second.id, true)).rejects.toMatchObject({ code: 'conflict' });
    await resolve(second.id, false);
  });

  test('needs a rental that was charged, and an existing dispute to resolve', async () => {
    await expect(dispute('i-none')).rejects.toMatchObject({ code: 'not_found' });
    await expect(resolve('dsp_none', true)).rejects.toMatchObject({ code: 'not_found' });
    const { startedMs } = await rent();
    await world.clock.advance(HOUR_MS);
    await end();
    await expect(dispute('i-1', startedMs + HOUR_MS)).rejects.toMatchObject({ code: 'not_found' });
    await dispute('i-1', startedMs + HOUR_MS - 1);
  });

  test('whose refund is missing in the ledger is found by the proof of the books', async () => {
    await rent();
    await world.clock.advance(HOUR_MS);
    await end();
    const { id } = await dispute();
    await resolve(id, true);
    const set = (ucents: bigint): Promise<number> =>
      world.db.tx('plant', (tx) => tx.run(sql`update disputes set refunded_ucents = ${ucents} where id = ${id}`));
    await set(1n);
    await expect(world.verify()).rejects.toThrow(`${id}: 1 refunded, the ledger has ${RATE}`);
    await set(RATE);
  });
});

const FEW = process.env['SOAK'] === '1' ? 12 : 8;
const RUNS = inject('postgresUrl') === undefined ? 40 : FEW;
const anyStep = fc.oneof(
  fc.record({ do: fc.constant('rent' as const) }),
  // Often enough that some earnings are old enough to be paid.
  fc.record({ do: fc.constant('wait' as const), ms: fc.constant(50 * HOUR_MS) }),
  fc.record({ do: fc.constant('wait' as const), ms: fc.constantFrom(1, HOUR_MS / 3, HOUR_MS, 50 * HOUR_MS) }),
  fc.record({ do: fc.constant('end' as const), which: fc.nat({ max: 9 }) }),
  fc.record({
    do: fc.constant('dispute' as const),
    which: fc.nat({ max: 2 }),
    agoMs: fc.option(fc.nat({ max: 5 * HOUR_MS })),
  }),
  fc.record({ do: fc.constant('resolve' as const), refund: fc.boolean() }),
  fc.record({ do: fc.constant('pay' as const) }),
);

test('no payout ever covers disputed or too new earnings, and the books agree after every step', async () => {
  let refunds = 0;
  let payouts = 0;
  let count = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(anyStep, { minLength: 15, maxLength: 30, size: 'max' }), async (steps) => {
      await world.close();
      world = await open();
      const rentals: string[] = [];
      const disputes: string[] = [];
      for (const step of steps) {
        const pick = (which: number): string => rentals[which % Math.max(1, rentals.length)] ?? 'i-none';
        if (step.do === 'rent') {
          rentals.push(`i-${rentals.length}`);
          await rent(rentals.at(-1));
        }
        if (step.do === 'wait') await world.clock.advance(step.ms);
        if (step.do === 'end') await end(pick(step.which));
        if (step.do === 'dispute') {
          const sinceMs = step.agoMs === null ? null : world.clock.now() - step.agoMs;
          await dispute(pick(step.which), sinceMs).then(
            ({ id }) => disputes.push(id),
            () => undefined,
          );
        }
        const due = step.do === 'resolve' ? disputes.shift() : undefined;
        if (step.do === 'resolve' && due !== undefined) {
          if ((await resolve(due, step.refund)).refunded_ucents > 0n) refunds += 1;
        }
        await tick();
        const [, unpaid = 0n, now = 0n] = await standing();
        expect(now <= unpaid || now === 0n).toBe(true);
        count += 1;
        await expect(pay(Number(now) + 1, `much-${count}`)).rejects.toMatchObject({ code: 'conflict' });
        const isPaid = step.do === 'pay' && now > 0n;
        if (isPaid) payouts += 1;
        if (isPaid) await pay(null, `p-${count}`);
        expect((await standing())[2]).toBe(isPaid ? 0n : now);
        await world.verify();
      }
    }),
    { seed: 7, numRuns: RUNS },
  );
  expect([refunds > 0, payouts > 0]).toEqual([true, true]);
});

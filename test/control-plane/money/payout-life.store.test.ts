// The life of payouts: due by the loop, in flight by an export, paid or failed by the operator. Nothing is paid twice, and nothing half.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { inFlight, paidOut, payable } from '../../../control-plane/money/ledger/accounts.ts';
import { pageOfPayouts, type PayoutRow } from '../../../control-plane/money/payouts/store.ts';
import type { Chain } from '../../../shared/api/payout.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { earnCents, HOME, nameDestination } from '../../kit/payees.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const WEEK_MS = 7 * DAY_MS;
const NEVER = new AbortController().signal;
const AWAY = '0xde709f2102306220921060314715629080e2fb77';
const SOLANA = 'EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v';

let world: World;
let supplierId: string;
let orgId: string;
beforeEach(async () => {
  world = await openWorld();
  ({ supplierId, orgId } = await world.machine());
});
afterEach(async () => {
  await world.clock.advance(2 * HOUR_MS);
  await world.verify();
  await world.close();
});

const payouts = () => world.rooms.payouts;
const cents = (count: number): bigint => BigInt(count) * UCENTS_PER_CENT;
const earn = (count: number, of = supplierId): Promise<void> => earnCents(world, of, count);
const name = (address: string, chain: Chain = 'base', of = supplierId) =>
  nameDestination(world, { supplierId: of, orgId }, { address, chain });
const cancel = () =>
  world.db.tx('test.cancel', async (tx) => {
    await tx.lock('supplier', supplierId);
    return payouts().destinations.cancel(tx, { supplierId, orgId });
  });
const makeDue = (): Promise<void> => payouts().makeDue(NEVER);
const all = (): Promise<PayoutRow[]> =>
  pageOfPayouts(world.db.read, { supplierId: undefined, state: undefined }, { count: 100 });
const states = async (): Promise<string[]> => (await all()).map(({ state }) => state).toReversed();
const posted = async (account = payable(supplierId)): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;
const money = async (): Promise<bigint[]> => [await posted(), await posted(inFlight), await posted(paidOut)];
const exported = async (batch = 'b1'): Promise<PayoutRow[]> => payouts().exportBatch(batch);
const nextWeek = async (): Promise<void> => world.clock.advance(WEEK_MS);

/** A payout of 30 dollars that is in flight. */
async function flying(): Promise<string> {
  await name(HOME);
  await earn(3_000);
  await makeDue();
  const [row] = await exported();
  return row?.id ?? '';
}

describe('the loop', () => {
  test.each([
    [2_499, []],
    [2_500, ['due']],
    [2_501, ['due']],
  ])('makes of %d cents the payouts %j, and moves no money', async (count, made) => {
    await name(HOME);
    await earn(count);
    await makeDue();
    await makeDue();
    expect(await states()).toEqual(made);
    expect(await money()).toEqual([cents(count), 0n, 0n]);
  });

  test('makes none without a destination, for a suspended supplier, and while a change is pending', async () => {
    await earn(3_000);
    await makeDue();
    expect(await states()).toEqual([]);
    await name(HOME);
    await world.rooms.supply.suspendSupplier(supplierId);
    await makeDue();
    expect(await states()).toEqual([]);
    await world.rooms.supply.resumeSupplier(supplierId);
    await name(AWAY);
    await makeDue();
    expect(await states()).toEqual([]);
    await cancel();
    await makeDue();
    expect(await states()).toEqual(['due']);
  });

  test('counts only what is payable: earnings that are too new wait for their time', async () => {
    await world.close();
    world = await openWorld(1, { settings: { earningsDelayMs: 48 * HOUR_MS } });
    ({ supplierId, orgId } = await world.machine());
    await name(HOME);
    await earn(2_400);
    await world.clock.advance(47 * HOUR_MS);
    await earn(1_000);
    await world.clock.advance(2 * HOUR_MS);
    await makeDue();
    expect(await states()).toEqual([]);
    await world.clock.advance(47 * HOUR_MS);
    await makeDue();
    expect(await all()).toMatchObject([{ amount_ucents: cents(3_400) }]);
  });

  test('names a supplier whose rows cannot be read, and makes the payouts of all others', async () => {
    const payees = [{ supplierId, orgId }, await world.machine()];
    const [broken, whole] = payees.map((payee) => payee.supplierId).toSorted();
    for (const payee of payees) {
      await nameDestination(world, payee);
      await earn(3_000, payee.supplierId);
    }
    await world.db.tx('test.break', (tx) =>
      tx.run(sql`update payout_destinations set chain = 'none' where supplier_id = ${broken}`),
    );
    await expect(makeDue()).rejects.toThrow(`the supplier ${broken}`);
    expect((await all()).map((row) => row.supplier_id)).toEqual([whole]);
    await world.db.tx('test.mend', (tx) =>
      tx.run(sql`update payout_destinations set chain = 'base' where supplier_id = ${broken}`),
    );
    await makeDue();
    expect(await states()).toEqual(['due', 'due']);
  });

  test('makes one in a period, and none while one is due', async () => {
    await flying();
    await earn(4_000);
    await makeDue();
    expect(await states()).toEqual(['in_flight']);
    await nextWeek();
    await makeDue();
    expect(await states()).toEqual(['in_flight', 'due']);
    await nextWeek();
    await makeDue();
    expect(await states()).toEqual(['in_flight', 'due']);
  });

  test('writes nothing if nothing is to do', async () => {
    await flying();
    const before = await all();
    await makeDue();
    expect(await all()).toEqual(before);
  });
});

describe('an export', () => {
  test('takes what is due in flight, and gives the same payouts again', async () => {
    const id = await flying();
    const [row, ...others] = await exported();
    expect(others).toEqual([]);
    expect(row).toMatchObject({ id, state: 'in_flight', chain: 'base', address: HOME, amount_ucents: cents(3_000) });
    expect(await money()).toEqual([0n, cents(3_000), 0n]);
    expect(await exported('b2')).toEqual([]);
  });

  test('under the name of a closed batch takes nothing more, and leaves out what was paid', async () => {
    const id = await flying();
    await nextWeek();
    await earn(3_000);
    await makeDue();
    expect((await exported('b1')).map((row) => row.id)).toEqual([id]);
    await payouts().sent(id, '0xabc');
    expect(await exported('b1')).toEqual([]);
    expect(await exported('b2')).toHaveLength(1);
  });

  test('that was killed half way goes on under its name, and takes only what was due when it began', async () => {
    const { supplierId: other } = await world.machine();
    await name(HOME);
    await name(AWAY, 'base', other);
    await earn(3_000);
    await makeDue();
    const opened = sql`insert into payout_batches (name, created_ms) values ('b1', ${world.clock.now()})`;
    await world.db.tx('test.batch', (tx) => tx.run(opened));
    await world.clock.advance(1);
    await earn(3_000, other);
    await makeDue();
    expect(await states()).toEqual(['due', 'due']);
    expect(await exported('b1')).toMatchObject([{ supplier_id: supplierId }]);
    expect(await exported('b1')).toHaveLength(1);
    expect(await exported('b2')).toMatchObject([{ supplier_id: other }]);
  });

  test('takes less if a claw-back came, and fails what is then below the minimum', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    await earn(-400);
    expect(await exported()).toMatchObject([{ amount_ucents: cents(2_600) }]);
    await nextWeek();
    await earn(3_000);
    await makeDue();
    await earn(-2_000);
    expect(await exported('b2')).toEqual([]);
    const [last] = await all();
    expect(last).toMatchObject({
      state: 'failed',
      reason: 'The supplier is owed $10.00: less than the minimum of $25.00',
    });
    expect(await money()).toEqual([cents(1_000), cents(2_600), 0n]);
  });

  test('never takes more than the payout was due with', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    await earn(5_000);
    expect(await exported()).toMatchObject([{ amount_ucents: cents(3_000) }]);
  });

  test('leaves due what must wait, and says why', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    const [due] = await all();
    if (due === undefined) throw new Error('a payout is due');
    const why = () => payouts().waitsBecause(world.db.read, due);
    expect(await why()).toBeNull();
    await name(SOLANA, 'solana');
    expect(await exported()).toEqual([]);
    expect(await why()).toMatch(/^A change of the payout destination is pending until .*Z\. Payouts wait/);
    await cancel();
    await world.rooms.supply.suspendSupplier(supplierId);
    expect(await exported('b2')).toEqual([]);
    expect(await why()).toMatch(/^The supplier is suspended\./);
    await world.rooms.supply.resumeSupplier(supplierId);
    expect(await exported('b3')).toHaveLength(1);
    expect(await payouts().waitsBecause(world.db.read, (await all())[0] ?? due)).toBeNull();
  });

  test('goes to the new destination once its time has come', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    await name(SOLANA, 'solana');
    await world.clock.advance(48 * HOUR_MS - 1);
    expect(await exported('b1')).toEqual([]);
    await world.clock.advance(1);
    expect(await exported('b2')).toMatchObject([{ chain: 'solana', address: SOLANA }]);
  });
});

describe('a payout in flight', () => {
  test('is paid once, under one reference', async () => {
    const id = await flying();
    const paid = await payouts().sent(id, '0xabc');
    expect(paid).toMatchObject({ state: 'paid', reference: '0xabc' });
    expect(await payouts().sent(id, '0xabc')).toEqual(paid);
    expect(await money()).toEqual([0n, 0n, cents(3_000)]);
    await expect(payouts().sent(id, '0xdef')).rejects.toThrow(`The payout ${id} was paid with 0xabc already.`);
    await expect(payouts().failed(id, 'x')).rejects.toThrow('was paid with 0xabc already');
  });

  test('that fails is owed again, and the next period pays it', async () => {
    const id = await flying();
    const standing = await payouts().standing(world.db.read, supplierId);
    expect(standing).toMatchObject({ accruedCents: 3_000n, unpaidCents: 0n });
    const row = await payouts().failed(id, 'no gas');
    expect(row).toMatchObject({ state: 'failed', reason: 'no gas' });
    expect(await payouts().failed(id, 'again')).toEqual(row);
    expect(await money()).toEqual([cents(3_000), 0n, 0n]);
    const after = await payouts().standing(world.db.read, supplierId);
    expect(after).toEqual({ accruedCents: 3_000n, unpaidCents: 3_000n, payableCents: 3_000n });
    await expect(payouts().sent(id, '0xabc')).rejects.toThrow('was entered as failed');
    await nextWeek();
    await makeDue();
    expect(await exported('b2')).toMatchObject([{ amount_ucents: cents(3_000) }]);
  });

  test('cannot have the reference of another payout of the supplier', async () => {
    const id = await flying();
    await earn(100);
    await payouts().pay({ supplierId, cents: 100, reference: 'wire' });
    await expect(payouts().sent(id, 'wire')).rejects.toThrow('has the reference wire already');
  });

  test('that is due is neither sent before its export nor unknown', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    const [due] = await all();
    await expect(payouts().sent(due?.id ?? '', 'x')).rejects.toThrow('is not in flight. Export it first');
    expect(await payouts().failed(due?.id ?? '', 'withdrawn')).toMatchObject({ state: 'failed' });
    expect(await money()).toEqual([cents(3_000), 0n, 0n]);
    await expect(payouts().sent('nothing', 'x')).rejects.toThrow('There is no payout nothing.');
  });
});

describe('a payout by hand', () => {
  test('is in flight and paid at once, and leaves what is due to be less', async () => {
    await name(HOME);
    await earn(3_000);
    await makeDue();
    await payouts().pay({ supplierId, cents: 400, reference: 'wire' });
    expect(await money()).toEqual([cents(2_600), 0n, cents(400)]);
    expect(await exported()).toMatchObject([{ amount_ucents: cents(2_600) }]);
  });

  test('does not leave for a suspended supplier, or while a change of the destination is pending', async () => {
    await name(HOME);
    await earn(3_000);
    const pay = () => payouts().pay({ supplierId, cents: null, reference: 'wire' });
    await world.rooms.supply.suspendSupplier(supplierId);
    await expect(pay()).rejects.toThrow('The supplier is suspended.');
    await world.rooms.supply.resumeSupplier(supplierId);
    await name(AWAY);
    await expect(pay()).rejects.toThrow('A change of the payout destination is pending');
    expect(await states()).toEqual([]);
    await cancel();
    expect(await pay()).toMatchObject({ state: 'paid', amount_ucents: cents(3_000), chain: null });
  });
});

describe('a destination', () => {
  const shown = async () => {
    const { inForce, pending } = await payouts().destinations.of(world.db.read, supplierId);
    return [inForce?.address, pending?.address];
  };

  test('is in force at once if it is the first, and after the delay if it is a change', async () => {
    expect(await shown()).toEqual([undefined, undefined]);
    await name(HOME);
    expect(await shown()).toEqual([HOME, undefined]);
    await name(AWAY);
    expect(await shown()).toEqual([HOME, AWAY]);
    await world.clock.advance(48 * HOUR_MS - 1);
    expect(await shown()).toEqual([HOME, AWAY]);
    await world.clock.advance(1);
    expect(await shown()).toEqual([AWAY, undefined]);
  });

  test('that is asked for again does not start the delay again, and another one does', async () => {
    await name(HOME);
    await name(AWAY);
    await world.clock.advance(HOUR_MS);
    const { pending } = await name(AWAY.toUpperCase().replace('0X', '0x'));
    expect(pending?.requested_ms).toBe(world.clock.now() - HOUR_MS);
    await name(SOLANA, 'solana');
    await world.clock.advance(47 * HOUR_MS);
    expect(await shown()).toEqual([HOME, SOLANA]);
    await world.clock.advance(HOUR_MS);
    expect(await shown()).toEqual([SOLANA, undefined]);
  });

  test('in force cancels what is pending, as a cancel does', async () => {
    await name(HOME);
    await name(AWAY);
    await name(HOME);
    expect(await shown()).toEqual([HOME, undefined]);
    await expect(cancel()).rejects.toThrow('No change of the payout destination is pending.');
    await world.clock.advance(72 * HOUR_MS);
    expect(await shown()).toEqual([HOME, undefined]);
  });

  test('has each change in the journal, with masked addresses', async () => {
    await name(HOME);
    await name(AWAY);
    await cancel();
    const events = await world.rooms.events.ofSubject(world.db.read, supplierId, { count: 10 });
    const told = events.map(({ type, data }) => [type, data['old_address'], data['address']]).toReversed();
    const [home, away] = ['0x529...69EE7', '0xde7...2fb77'];
    expect(told).toEqual([
      ['supplier.destination_changed', null, home],
      ['supplier.destination_changed', home, away],
      ['supplier.destination_cancelled', home, away],
    ]);
  });
});

describe('the proof of the books', () => {
  test.each([
    ['a state that the ledger does not know', sql`update payouts set state = 'paid', ended_ms = 1`, 'should be posted'],
    ['an amount that was changed', sql`update payouts set amount_ucents = amount_ucents + 1`, 'is in flight'],
    ['a payout that vanished', sql`delete from payouts`, 'and no payout explains it'],
  ])('finds %s', async (_, statement, words) => {
    await flying();
    await world.verify();
    await world.db.tx('test.plant', (tx) => tx.run(statement));
    const faults = await world.books.verify();
    expect(faults.join('; ')).toContain(words);
    await world.close();
    world = await openWorld();
  });
});

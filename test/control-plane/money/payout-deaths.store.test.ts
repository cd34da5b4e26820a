// A process dies at any transaction of an export, or a payout cannot be exported. The next export goes on, and each payout is handed out once.
import { expect, test } from 'vitest';
import { type Db, sql } from '../../../control-plane/base/db/db.ts';
import { type AccountRef, inFlight, paidOut } from '../../../control-plane/money/ledger/accounts.ts';
import { pageOfPayouts } from '../../../control-plane/money/payouts/store.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { earnCents, nameDestination } from '../../kit/payees.ts';
import { openWorld, openWorldOver } from '../../kit/world.ts';

const SUPPLIERS = 3;
/** The transactions of an export: the batch, each payout, and the end of the batch. */
const TRANSACTIONS = SUPPLIERS + 2;

/** Lets the process die at a transaction: before it, or after its commit but before anybody heard of it. */
function dying(db: Db): { db: Db; diesIn(transactions: number, when: 'before' | 'after'): void } {
  let left = Number.POSITIVE_INFINITY;
  let isBefore = true;
  const tx: Db['tx'] = async (txName, body) => {
    left -= 1;
    if (left < 0 || (left === 0 && isBefore)) throw new Error('the process is dead');
    const result = await db.tx(txName, body);
    if (left === 0) throw new Error('the process is dead');
    return result;
  };
  const diesIn = (transactions: number, when: 'before' | 'after'): void => {
    [left, isBefore] = [transactions, when === 'before'];
  };
  return { db: { ...db, tx }, diesIn };
}

test.each(
  Array.from({ length: TRANSACTIONS }, (_, at) => at + 1).flatMap((at) => [
    [at, 'before'] as const,
    [at, 'after'] as const,
  ]),
)('in transaction %d of an export, %s its commit: the same export again gives each payout once', async (at, when) => {
  const { world: first, over } = await openWorldOver(dying);
  for (let i = 0; i < SUPPLIERS; i += 1) {
    const payee = await first.machine();
    await nameDestination(first, payee);
    await earnCents(first, payee.supplierId, 3_000);
  }
  await first.rooms.payouts.makeDue(new AbortController().signal);
  over.diesIn(at, when);
  await expect(first.rooms.payouts.exportBatch('monday')).rejects.toThrow('the process is dead');
  const world = await first.restart(first.db);
  const { exportBatch, sent } = world.rooms.payouts;
  const posted = async (account: AccountRef): Promise<bigint> =>
    (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;
  over.diesIn(Number.POSITIVE_INFINITY, 'before');
  const rows = await exportBatch('monday');
  expect(new Set(rows.map((row) => row.supplier_id)).size).toBe(SUPPLIERS);
  expect(rows).toHaveLength(SUPPLIERS);
  expect(await exportBatch('monday')).toEqual(rows);
  expect(await posted(inFlight)).toBe(BigInt(SUPPLIERS * 3_000) * UCENTS_PER_CENT);
  for (const { id } of rows) await sent(id, `tx of ${id}`);
  expect(await exportBatch('monday')).toEqual([]);
  expect([await posted(inFlight), await posted(paidOut)]).toEqual([0n, BigInt(SUPPLIERS * 3_000) * UCENTS_PER_CENT]);
  await world.clock.advance(3_600_000);
  await world.verify();
  await world.close();
});

/** Does something else before the next transaction that exports a payout. */
function slow(db: Db): { db: Db; beforeExport(work: () => Promise<unknown>): void } {
  let meanwhile: (() => Promise<unknown>) | undefined;
  const tx: Db['tx'] = async (txName, body) => {
    const work = txName === 'payouts.export' ? meanwhile : undefined;
    if (work !== undefined) meanwhile = undefined;
    await work?.();
    return db.tx(txName, body);
  };
  return { db: { ...db, tx }, beforeExport: (work) => (meanwhile = work) };
}

test('an export that goes on after the same export has ended elsewhere adds no payout to the batch', async () => {
  const { world, over } = await openWorldOver(slow);
  const payee = await world.machine();
  await nameDestination(world, payee);
  await earnCents(world, payee.supplierId, 3_000);
  const { exportBatch, makeDue } = world.rooms.payouts;
  await makeDue(new AbortController().signal);
  await world.rooms.supply.suspendSupplier(payee.supplierId);
  over.beforeExport(async () => {
    expect(await exportBatch('monday')).toEqual([]);
    await world.rooms.supply.resumeSupplier(payee.supplierId);
  });
  expect(await exportBatch('monday')).toEqual([]);
  expect(await exportBatch('tuesday')).toMatchObject([{ state: 'in_flight', batch: 'tuesday' }]);
  await world.clock.advance(3_600_000);
  await world.verify();
  await world.close();
});

test('an export names a payout that cannot be read, and hands out all others when it is repeated', async () => {
  const world = await openWorld();
  const { exportBatch, makeDue } = world.rooms.payouts;
  const payees = [await world.machine(), await world.machine()];
  for (const payee of payees) {
    await nameDestination(world, payee);
    await earnCents(world, payee.supplierId, 3_000);
  }
  await makeDue(new AbortController().signal);
  const anySupplier = { supplierId: undefined, state: undefined };
  const due = await pageOfPayouts(world.db.read, anySupplier, { count: 10 });
  const [broken, whole] = due.toSorted((a, b) => (a.id < b.id ? -1 : 1));
  const setChain = (chain: string): Promise<number> =>
    world.db.tx('test.chain', (tx) =>
      tx.run(sql`update payout_destinations set chain = ${chain} where supplier_id = ${broken?.supplier_id}`),
    );
  await setChain('none');
  await expect(exportBatch('monday')).rejects.toThrow(`the payout ${broken?.id}`);
  expect((await exportBatch('monday')).map(({ id }) => id)).toEqual([whole?.id]);
  await setChain('base');
  expect((await exportBatch('tuesday')).map(({ id }) => id)).toEqual([broken?.id]);
  await world.clock.advance(3_600_000);
  await world.verify();
  await world.close();
});

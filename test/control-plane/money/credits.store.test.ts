// Credits for uncharged time have a bound. The rest is charged and waits for the operator, exact to the microcent.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { badDebt, payable, revenue, suspense, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import {
  grantedOnSupplier,
  grantedToOrg,
  type HeldCredit,
  pageOfFlags,
  pageOfHeld,
} from '../../../control-plane/money/credits/store.ts';
import { pageOfOutages } from '../../../control-plane/money/credits/outages.ts';
import { createLog } from '../../../shared/log.ts';
import { accruedUcents, supplierPartUcents } from '../../../shared/money.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** A dollar an hour. */
const RATE = 100_000_000n;
const DOLLAR = 100_000_000n;
const BOUNDS = { orgCreditsUcents: 2n * DOLLAR, supplierCreditsUcents: 3n * DOLLAR, supplierPaymentsUcents: DOLLAR };

let world: World;
let alarms: string[];
const open = (): Promise<World> => {
  alarms = [];
  const log = createLog('test', 'error', { write: (line: string) => void alarms.push(line) });
  return openWorld(1, { settings: { lossBounds: BOUNDS }, log });
};
beforeEach(async () => {
  world = await open();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const rent = (
  orgId: string,
  subjectId: string,
  where: { supplierId?: string; machineId?: string } = {},
): Promise<void> =>
  world.db.tx('rent', (tx) =>
    world.rooms.metering.openSegment(tx, {
      subjectId,
      orgId,
      supplierId: where.supplierId ?? 's',
      machineId: where.machineId ?? 'm',
      gpuType: 'H100_SXM',
      gpuCount: 1,
      rateUcentsPerHour: RATE,
      supplierBps: 8_000,
      startedMs: world.clock.now(),
    }),
  );
const fail = (subjectId: string, backMs = 0): Promise<void> =>
  world.db.tx('fail', (tx) => world.rooms.metering.closeSegment(tx, subjectId, world.clock.now() - backMs, 'probes'));
const breakGpu = (subjectId: string): Promise<void> =>
  world.db.tx('gpu', (tx) => world.rooms.metering.pauseForGpuFault(tx, subjectId, world.clock.now(), 'Xid 79'));
const stop = (subjectId: string, orgId: string): Promise<void> =>
  world.db.tx('stop', async (tx) => {
    await world.rooms.metering.closeSegment(tx, subjectId, world.clock.now());
    await world.rooms.metering.releaseHold(tx, subjectId, orgId);
  });
const posted = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;
const held = (): Promise<HeldCredit[]> => pageOfHeld(world.db.read, { count: 100 });
const away = async (ms: number): Promise<void> => {
  const fromMs = world.clock.now();
  await world.clock.advance(ms);
  await world.rooms.metering.creditOwnOutage({
    fromMs,
    untilMs: world.clock.now(),
    evidence: 'we were away',
  });
};

/** A rental that is unreachable for this long and then charged again. */
async function outage(orgId: string, subjectId: string, ms: number, where = {}): Promise<void> {
  await fail(subjectId);
  await world.clock.advance(ms);
  await rent(orgId, subjectId, where);
}

describe('uncharged time', () => {
  test('up to the bound is free, without a decision of the operator', async () => {
    const { orgId } = await world.customer(100_000);
    const before = await posted(wallet(orgId));
    await rent(orgId, 'i-1');
    await outage(orgId, 'i-1', 2 * HOUR_MS);
    expect(await held()).toEqual([]);
    expect(await posted(wallet(orgId))).toBe(before);
    expect(alarms).toEqual([]);
  });

  test('above the bound of the organisation is charged and held, to the millisecond, with an alarm and an event for the customer', async () => {
    const { orgId } = await world.customer(100_000);
    const before = await posted(wallet(orgId));
    await rent(orgId, 'i-1');
    await world.clock.advance(HOUR_MS);
    await fail('i-1', HOUR_MS / 2);
    await world.clock.advance(2 * HOUR_MS);
    await rent(orgId, 'i-1');
    const paid = RATE / 2n;
    const [row] = await held();
    expect(row).toMatchObject({
      kind: 'credit',
      why: 'org_bound',
      cause: 'outage',
      amount_ucents: RATE / 2n,
      state: 'held',
    });
    expect(before - (await posted(wallet(orgId)))).toBe(paid + RATE / 2n);
    expect(await posted(suspense)).toBe(RATE / 2n);
    expect(alarms).toHaveLength(1);
    expect(alarms[0]).toContain('waits for the operator');
    const [event] = await world.rooms.events.ofSubject(world.db.read, 'i-1', { count: 10 });
    expect(event).toMatchObject({ type: 'instance.credit_held', org_id: orgId, data: { credit_id: row?.id } });
    expect(event?.data['reason']).toContain(
      `$0.50 for time in which the instance was unreachable stays charged until the operator has decided`,
    );
  });

  test('has a new bound after 24 hours', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await outage(orgId, 'i-1', 2 * HOUR_MS);
    await world.clock.advance(DAY_MS - MINUTE_MS - 1);
    await outage(orgId, 'i-1', MINUTE_MS);
    expect(await held()).toHaveLength(1);
    await outage(orgId, 'i-1', MINUTE_MS);
    expect(await held()).toHaveLength(1);
  });

  test('is also bounded per supplier, whoever the customers are', async () => {
    for (const name of ['i-1', 'i-2']) {
      const { orgId } = await world.customer(100_000);
      await rent(orgId, name);
      await outage(orgId, name, 2 * HOUR_MS);
    }
    expect(await held()).toMatchObject([{ why: 'supplier_bound', amount_ucents: DOLLAR }]);
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-3', { supplierId: 'other' });
    await outage(orgId, 'i-3', 2 * HOUR_MS, { supplierId: 'other' });
    expect(await held()).toHaveLength(1);
  });

  test('of a broken GPU counts, and if its rental ends meanwhile, it counts until that end', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await breakGpu('i-1');
    await world.clock.advance(3 * HOUR_MS);
    await stop('i-1', orgId);
    await world.clock.advance(HOUR_MS);
    expect(await held()).toMatchObject([{ cause: 'gpu_fault', amount_ucents: DOLLAR }]);
  });

  test('that began before a GPU broke counts once', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await world.clock.advance(HOUR_MS);
    await breakGpu('i-1');
    await world.clock.advance(HOUR_MS);
    // The instance was unreachable before the GPU broke.
    await fail('i-1', 2 * HOUR_MS);
    await world.clock.advance(HOUR_MS);
    await stop('i-1', orgId);
    expect(await held()).toMatchObject([{ amount_ucents: DOLLAR }]);
  });

  test('with an empty wallet becomes bad debt as far as the wallet does not cover it', async () => {
    const { orgId } = await world.customer(250);
    await rent(orgId, 'i-1');
    await world.clock.advance(2 * HOUR_MS);
    await world.rooms.metering.tick(new AbortController().signal);
    await outage(orgId, 'i-1', 3 * HOUR_MS);
    const [row] = await held();
    expect(row).toMatchObject({ amount_ucents: DOLLAR, wallet_ucents: DOLLAR / 2n });
    expect([await posted(wallet(orgId)), await posted(badDebt)]).toEqual([0n, -DOLLAR / 2n]);
    await world.verify();
    await world.rooms.credits.release(row?.id ?? '', 'proved');
    expect([await posted(wallet(orgId)), await posted(badDebt)]).toEqual([DOLLAR / 2n, 0n]);
  });

  test('is another outage if the rental fails again', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await outage(orgId, 'i-1', MINUTE_MS);
    await world.clock.advance(HOUR_MS);
    await outage(orgId, 'i-1', MINUTE_MS);
    const all = { machineId: undefined, isOpen: false };
    expect(await pageOfOutages(world.db.read, all, { count: 10 })).toHaveLength(2);
  });

  test('does not exist for a rental that ends normally', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await world.clock.advance(5 * HOUR_MS);
    await stop('i-1', orgId);
    expect(await held()).toEqual([]);
    expect(await grantedToOrg(world.db.read, orgId, 0)).toBe(0n);
  });
});

describe('a held credit', () => {
  async function holdOne(): Promise<{ orgId: string; row: HeldCredit; before: bigint }> {
    const { orgId } = await world.customer(100_000);
    const before = await posted(wallet(orgId));
    await rent(orgId, 'i-1');
    await outage(orgId, 'i-1', 3 * HOUR_MS + 7);
    await stop('i-1', orgId);
    const [row] = await held();
    if (row === undefined) throw new Error('nothing is held');
    return { orgId, row, before };
  }

  test('goes back to the customer if it is released', async () => {
    const { orgId, row, before } = await holdOne();
    expect(before - (await posted(wallet(orgId)))).toBe(row.amount_ucents);
    expect(await world.rooms.credits.release(row.id, 'the host was dead')).toMatchObject({ state: 'released' });
    expect([await posted(wallet(orgId)), await posted(suspense), await posted(payable('s'))]).toEqual([before, 0n, 0n]);
  });

  test('that waits is not given back a second time by the refund of a dispute', async () => {
    const { orgId } = await world.customer(100_000);
    const before = await posted(wallet(orgId));
    await rent(orgId, 'i-1');
    await world.clock.advance(HOUR_MS);
    await outage(orgId, 'i-1', 3 * HOUR_MS);
    await stop('i-1', orgId);
    const [row] = await held();
    const { corrections, credits, payouts } = world.rooms;
    const refund = { subjectId: 'i-1', amountUcents: DOLLAR / 2n, fromPlatform: false, reference: 'r', reason: 'slow' };
    await corrections.refund(refund);
    const { id } = await payouts.disputes.open({ instanceId: 'i-1', sinceMs: null, reason: 'no GPU' });
    const resolve = (): Promise<unknown> => payouts.disputes.resolve(id, { refund: true, note: 'no GPU indeed' });
    await expect(resolve()).rejects.toThrow('Decide about them first: admin credit list.');
    await credits.release(row?.id ?? '', 'the host was dead');
    await expect(resolve()).rejects.toThrow('An operator has refunded i-1 already');
    expect(before - (await posted(wallet(orgId)))).toBe(DOLLAR / 2n);
  });

  test('that an empty wallet did not pay does not stop the refund of a dispute', async () => {
    const { orgId } = await world.customer(250);
    await rent(orgId, 'i-1');
    await world.clock.advance(2 * HOUR_MS);
    await world.rooms.metering.tick(new AbortController().signal);
    await outage(orgId, 'i-1', 3 * HOUR_MS);
    await stop('i-1', orgId);
    const { disputes } = world.rooms.payouts;
    const { id } = await disputes.open({ instanceId: 'i-1', sinceMs: null, reason: 'no GPU' });
    expect(await disputes.resolve(id, { refund: true, note: 'no GPU indeed' })).toMatchObject({ state: 'refunded' });
    expect(await posted(wallet(orgId))).toBe(2n * DOLLAR);
  });

  test('goes to supplier and platform if it is refused', async () => {
    const { orgId, row, before } = await holdOne();
    await world.rooms.credits.refuse(row.id, 'it computed');
    const part = supplierPartUcents(row.amount_ucents, 8_000);
    expect(await posted(payable('s'))).toBe(part);
    expect(await posted(revenue)).toBe(row.amount_ucents - part);
    expect([before - (await posted(wallet(orgId))), await posted(suspense)]).toEqual([row.amount_ucents, 0n]);
  });

  test('is decided once, and an unknown one is not found', async () => {
    const { row } = await holdOne();
    await world.rooms.credits.release(row.id, 'x');
    await expect(world.rooms.credits.refuse(row.id, 'x')).rejects.toThrow('was released already');
    await expect(world.rooms.credits.release(row.id, 'x')).rejects.toMatchObject({ code: 'conflict' });
    await expect(world.rooms.credits.release('crd_none', 'x')).rejects.toMatchObject({ code: 'not_found' });
  });

  test.each([
    [
      'a row with another amount',
      (id: string) => sql`update held_credits set amount_ucents = amount_ucents + 1 where id = ${id}`,
    ],
    ['a row without its decision', (id: string) => sql`update held_credits set state = 'released' where id = ${id}`],
    ['a time that gave more', () => sql`update free_times set granted_ucents = granted_ucents + 1`],
    ['a row that is gone', (id: string) => sql`delete from held_credits where id = ${id}`],
  ])('is checked by the proof of the books: %s is found', async (_what, plant) => {
    const { row } = await holdOne();
    await world.db.tx('plant', (tx) => tx.run(plant(row.id)));
    await expect(world.verify()).rejects.toThrow('the books do not agree');
    await world.close();
    world = await open();
  });
});

test('the proof finds a wrong time among more than it reads at once', async () => {
  const insert = (id: string, granted: bigint) =>
    sql`insert into free_times (id, subject_id, org_id, supplier_id, machine_id, cause, rate_ucents_per_hour, supplier_bps, from_ms, counted_ms,
          counted_at_ms, ended_ms, free_ms, granted_ucents, evidence)
        values (${id}, 'i', 'o', 's', 'm', 'outage', ${RATE}, 0, 0, 0, 0, 1, ${HOUR_MS}, ${granted}, 'x')`;
  await world.db.tx('plant', async (tx) => {
    for (let i = 1_000; i < 2_001; i += 1) await tx.run(insert(`free_${i}`, DOLLAR));
  });
  expect(await world.books.verify()).toEqual([]);
  await world.db.tx('plant', (tx) => tx.run(insert('free_9999', DOLLAR - 1n)));
  expect(await world.books.verify()).toEqual([`free_9999: worth ${DOLLAR}, of which ${DOLLAR - 1n} was given or held`]);
  await world.db.tx('plant', (tx) => tx.run(sql`delete from free_times where id = 'free_9999'`));
});

describe('an outage of our own', () => {
  test('pays the supplier up to a bound; the rest is paid if the operator releases it, and never if it is refused', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await away(2 * HOUR_MS);
    // 80 % of two dollars. The bound allows one dollar at once.
    expect(await posted(payable('s'))).toBe(DOLLAR);
    const [row] = await held();
    expect(row).toMatchObject({ kind: 'payment', why: 'supplier_bound', amount_ucents: (6n * DOLLAR) / 10n });
    await world.rooms.credits.release(row?.id ?? '', 'we were away indeed');
    expect(await posted(payable('s'))).toBe((16n * DOLLAR) / 10n);
    await world.clock.advance(HOUR_MS);
    await away(HOUR_MS);
    const [second] = await held();
    expect(second).toMatchObject({ kind: 'credit', why: 'org_bound', cause: 'own_outage' });
    const payment = (await held()).find((each) => each.kind === 'payment' && each.state === 'held');
    await world.rooms.credits.refuse(payment?.id ?? '', 'a clock was set');
    await world.rooms.credits.refuse(second?.id ?? '', 'a clock was set');
    // The customer has paid for the second hour and we keep it all, because the supplier's part was refused as a payment.
    expect(await posted(payable('s'))).toBe((16n * DOLLAR) / 10n + supplierPartUcents(DOLLAR, 8_000));
  });

  test('costs a supplier nothing, and does not count against its bound', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await away(2 * HOUR_MS);
    expect(await grantedOnSupplier(world.db.read, 's', 0)).toBe(0n);
    expect(await grantedToOrg(world.db.read, orgId, 0)).toBe(2n * DOLLAR);
  });
});

describe('an organisation whose rentals fail on machines that serve others well', () => {
  /** Other organisations use both machines without an outage. */
  async function serveOthers(): Promise<void> {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'o-1', { machineId: 'm1' });
    await rent(orgId, 'o-2', { machineId: 'm2' });
    await world.clock.advance(2 * HOUR_MS);
  }
  async function suffer(orgId: string, times: number): Promise<void> {
    for (let i = 0; i < times; i += 1) {
      const machineId = i % 2 === 0 ? 'm1' : 'm2';
      const subjectId = `t-${world.clock.now()}`;
      await rent(orgId, subjectId, { machineId });
      await fail(subjectId);
      await world.clock.advance(MINUTE_MS);
      await stop(subjectId, orgId);
    }
  }

  test('is flagged at the fifth outage, and its credits wait from then on; the operator removes the flag', async () => {
    await serveOthers();
    const { orgId } = await world.customer(100_000);
    await suffer(orgId, 4);
    expect([await pageOfFlags(world.db.read, { count: 100 }), await held()]).toEqual([[], []]);
    await suffer(orgId, 1);
    expect(await pageOfFlags(world.db.read, { count: 100 })).toMatchObject([
      { org_id: orgId, detail: '5 outages on 2 machines that served others well in the same time' },
    ]);
    expect(await held()).toMatchObject([{ why: 'flagged', amount_ucents: accruedUcents(RATE, MINUTE_MS) }]);
    await world.clock.advance(8 * DAY_MS);
    await suffer(orgId, 1);
    expect(await held()).toHaveLength(2);
    await world.rooms.credits.trust(orgId, 'its image was at fault');
    await expect(world.rooms.credits.trust(orgId, 'again')).rejects.toMatchObject({ code: 'not_found' });
    await suffer(orgId, 4);
    expect([await pageOfFlags(world.db.read, { count: 100 }), (await held()).length]).toEqual([[], 2]);
  });

  test('keeps credits that it cannot have caused: our own outages and broken GPUs', async () => {
    await serveOthers();
    const { orgId } = await world.customer(100_000);
    await suffer(orgId, 5);
    await rent(orgId, 'i-1', { machineId: 'm1' });
    await breakGpu('i-1');
    await world.clock.advance(MINUTE_MS);
    await stop('i-1', orgId);
    await rent(orgId, 'i-2', { machineId: 'm1' });
    await away(MINUTE_MS);
    expect(await held()).toHaveLength(1);
  });

  test('is not flagged if others fail on those machines too, or if nobody else uses them', async () => {
    await serveOthers();
    const other = await world.customer(100_000);
    await rent(other.orgId, 'o-3', { machineId: 'm1' });
    await fail('o-3');
    const { orgId } = await world.customer(100_000);
    await suffer(orgId, 8);
    expect(await pageOfFlags(world.db.read, { count: 100 })).toEqual([]);
  });
});

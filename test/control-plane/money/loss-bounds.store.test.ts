// What counts towards the bounds on credits and payments: whose it is, why it was given, and how long ago.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { payable } from '../../../control-plane/money/ledger/accounts.ts';
import { openCredits } from '../../../control-plane/money/credits/credits.ts';
import {
  freeTimesOf,
  type HeldCredit,
  heldOf,
  outagesOfOrg,
  pageOfFlags,
  pageOfHeld,
} from '../../../control-plane/money/credits/store.ts';
import { openWorld, type World } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
const DOLLAR = 100_000_000n;
const BOUNDS = { orgCreditsUcents: 2n * DOLLAR, supplierCreditsUcents: 3n * DOLLAR, supplierPaymentsUcents: DOLLAR };

let world: World;
beforeEach(async () => {
  world = await openWorld(1, { settings: { lossBounds: BOUNDS } });
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const posted = async (supplierId: string): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, payable(supplierId))).postedUcents;
const held = (): Promise<HeldCredit[]> => pageOfHeld(world.db.read, { count: 100 });
const rent = async (orgId: string, subjectId: string, where: { supplierId?: string; machineId?: string } = {}) => {
  const rate = { rateUcentsPerHour: DOLLAR, supplierBps: 8_000, startedMs: world.clock.now() };
  const at = { supplierId: 's', machineId: 'm', gpuType: 'H100_SXM', gpuCount: 1, ...where };
  await world.db.tx('rent', (tx) => world.rooms.metering.openSegment(tx, { ...rate, ...at, subjectId, orgId }));
};
type Cause = 'outage' | 'gpu_fault';
const lose = (subjectId: string, cause: Cause = 'outage'): Promise<void> => {
  const close = cause === 'outage' ? 'closeSegment' : 'pauseForGpuFault';
  return world.db.tx('lose', (tx) => world.rooms.metering[close](tx, subjectId, world.clock.now(), 'dead'));
};
const stop = (subjectId: string, orgId: string): Promise<void> =>
  world.db.tx('stop', async (tx) => {
    await world.rooms.metering.closeSegment(tx, subjectId, world.clock.now());
    await world.rooms.metering.releaseHold(tx, subjectId, orgId);
  });
/** A rental that was out of reach for this long, and ends then. */
async function outage(
  orgId: string,
  ms: number,
  where: { supplierId?: string; machineId?: string; cause?: Cause } = {},
) {
  const { cause, ...at } = where;
  const subjectId = `i-${world.core.ids.uuid()}`;
  await rent(orgId, subjectId, at);
  await lose(subjectId, cause);
  await world.clock.advance(ms);
  await stop(subjectId, orgId);
}

describe('payments to a supplier for our own outages', () => {
  const pay = (id: string, amountUcents: bigint, supplierId = 's'): Promise<void> =>
    world.db.tx('pay', (tx) =>
      world.rooms.credits.payOwnOutage(tx, {
        id,
        subjectId: `i-${id}`,
        orgId: 'o',
        supplierId,
        supplierBps: 8_000,
        amountUcents,
        fromMs: 5,
        untilMs: 7,
        evidence: 'we were away',
      }),
    );

  test('are made at once up to the bound of any 24 hours, and the rest waits', async () => {
    await pay('a', (6n * DOLLAR) / 10n);
    await world.clock.advance(1);
    await pay('b', (6n * DOLLAR) / 10n);
    expect(await posted('s')).toBe(DOLLAR);
    expect(await held()).toMatchObject([
      {
        kind: 'payment',
        cause: 'own_outage',
        subject_id: 'i-b',
        amount_ucents: (2n * DOLLAR) / 10n,
        wallet_ucents: 0n,
        free_time_id: null,
        from_ms: 5,
        until_ms: 7,
      },
    ]);
    await world.clock.advance(DAY_MS - 2);
    await pay('c', 1n);
    expect([await posted('s'), (await held()).length]).toEqual([DOLLAR, 2]);
    // The first payment is 24 hours old now, and counts no more.
    await world.clock.advance(1);
    await pay('d', (6n * DOLLAR) / 10n);
    expect([await posted('s'), (await held()).length]).toEqual([(16n * DOLLAR) / 10n, 2]);
    await pay('e', 1n);
    expect([await posted('s'), (await held()).length]).toEqual([(16n * DOLLAR) / 10n, 3]);
  });

  test('of nothing do nothing, and those of another supplier do not count', async () => {
    await pay('none', 0n);
    await pay('theirs', DOLLAR, 't');
    await pay('mine', DOLLAR);
    expect([await posted('s'), await posted('t'), await held()]).toEqual([DOLLAR, DOLLAR, []]);
  });

  test('are bounded by such payments alone, not by what the supplier earns or what the operator released', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    await world.clock.advance(10 * HOUR_MS);
    await stop('i-1', orgId);
    const earned = await posted('s');
    await pay('a', 2n * DOLLAR);
    expect([(await posted('s')) - earned, (await held()).length]).toEqual([DOLLAR, 1]);
    const [waiting] = await held();
    await world.clock.advance(DAY_MS);
    await world.rooms.credits.release(waiting?.id ?? '', 'seen');
    await pay('b', DOLLAR);
    expect((await posted('s')) - earned).toBe(3n * DOLLAR);
  });
});

describe('the credits of an organisation', () => {
  test('count for 24 hours after the end of the outage, whatever the supplier', async () => {
    const { orgId } = await world.customer(100_000);
    await outage(orgId, 2 * HOUR_MS, { supplierId: 's' });
    await world.clock.advance(DAY_MS - MINUTE_MS - 1);
    await outage(orgId, MINUTE_MS, { supplierId: 't' });
    expect(await held()).toMatchObject([{ why: 'org_bound', supplier_id: 't' }]);
    await world.clock.advance(1);
    await outage(orgId, 2 * HOUR_MS, { supplierId: 't' });
    expect(await held()).toHaveLength(1);
  });

  test('do not count for another organisation, and those of a supplier not for another supplier', async () => {
    const [first, second, third] = [
      await world.customer(100_000),
      await world.customer(100_000),
      await world.customer(100_000),
    ];
    await outage(first.orgId, 2 * HOUR_MS);
    await outage(second.orgId, HOUR_MS);
    expect(await held()).toEqual([]);
    await outage(third.orgId, MINUTE_MS);
    expect(await held()).toMatchObject([{ why: 'supplier_bound' }]);
    await outage(third.orgId, HOUR_MS, { supplierId: 't' });
    expect(await held()).toHaveLength(1);
    await world.clock.advance(DAY_MS);
    await outage(third.orgId, HOUR_MS);
    expect(await held()).toHaveLength(1);
  });

  test('are listed by rental, oldest first', async () => {
    const { orgId } = await world.customer(100_000);
    await rent(orgId, 'i-1');
    for (const hours of [1, 2, 3]) {
      await lose('i-1');
      await world.clock.advance(hours * HOUR_MS);
      await rent(orgId, 'i-1');
      await world.clock.advance(1);
    }
    await outage(orgId, HOUR_MS);
    const times = await freeTimesOf(world.db.read, 'i-1');
    expect(times.map((row) => row.free_ms)).toEqual([1, 2, 3].map((hours) => hours * HOUR_MS));
    expect((await heldOf(world.db.read, 'i-1')).map((row) => row.amount_ucents)).toEqual([DOLLAR, 3n * DOLLAR]);
    await stop('i-1', orgId);
  });
});

describe('the suspicion against an organisation', () => {
  /** Others use both machines for an hour each. */
  async function serveOthers(): Promise<string> {
    const { orgId } = await world.customer(100_000);
    for (const machineId of ['m1', 'm2']) {
      await rent(orgId, `o-${machineId}-${world.clock.now()}`, { machineId });
      await world.clock.advance(HOUR_MS);
    }
    return orgId;
  }
  const suffer = async (orgId: string, times: number, cause: Cause = 'outage'): Promise<void> => {
    for (let i = 0; i < times; i += 1) await outage(orgId, 1_000, { machineId: i % 2 === 0 ? 'm1' : 'm2', cause });
  };
  const isFlagged = async (): Promise<boolean> => (await pageOfFlags(world.db.read, { count: 100 })).length > 0;

  test('needs five outages within seven days, each counted from its end', async () => {
    await serveOthers();
    const { orgId } = await world.customer(100_000);
    await outage(orgId, 1_000, { machineId: 'm1' });
    const endMs = world.clock.now();
    await world.clock.advance(HOUR_MS);
    await suffer(orgId, 3);
    await world.clock.advance(endMs + 7 * DAY_MS - world.clock.now() - 1_000);
    expect(await outagesOfOrg(world.db.read, orgId, world.clock.now() + 1_000 - 7 * DAY_MS)).toHaveLength(3);
    await outage(orgId, 1_000, { machineId: 'm2' });
    expect(await isFlagged()).toBe(false);
    await suffer(orgId, 1);
    expect(await isFlagged()).toBe(true);
  });

  test('is not looked into, which reads much, before there are enough outages', async () => {
    let asked = 0;
    const credits = openCredits({
      ...world.core,
      ...world.rooms,
      bounds: BOUNDS,
      servedOthers: async () => {
        asked += 1;
        return new Set();
      },
    });
    const { orgId } = await world.customer(100_000);
    const askedAfter = async (outages: number): Promise<number> => {
      for (let i = 0; i < outages; i += 1) {
        const rental = { subjectId: `i-${world.core.ids.uuid()}`, orgId, supplierId: 's', machineId: `m${i % 2}` };
        const price = { rateUcentsPerHour: DOLLAR, supplierBps: 8_000 };
        const time = { cause: 'outage', fromMs: world.clock.now(), countedMs: 0, evidence: 'dead' } as const;
        await world.db.tx('begin', (tx) => credits.begin(tx, { ...rental, ...price, ...time }));
        await world.db.tx('end', (tx) => credits.end(tx, rental.subjectId, world.clock.now()));
      }
      return asked;
    };
    expect([await askedAfter(4), await askedAfter(1)]).toEqual([0, 1]);
  });

  test('counts no broken GPUs, and no outages of others', async () => {
    await serveOthers();
    const [mine, theirs] = [await world.customer(100_000), await world.customer(100_000)];
    await suffer(mine.orgId, 4);
    await suffer(mine.orgId, 4, 'gpu_fault');
    await outage(theirs.orgId, 1_000, { machineId: 'm3' });
    expect(await isFlagged()).toBe(false);
  });

  test('is lifted by an outage of others on the same machines, while it lasts and for seven days, and by nothing else', async () => {
    const others = await serveOthers();
    const { orgId } = await world.customer(100_000);
    // A broken GPU of others says nothing about outages.
    await outage(others, 1_000, { machineId: 'm1', cause: 'gpu_fault' });
    await suffer(orgId, 4);
    await rent(others, 'o-lasting', { machineId: 'm1' });
    await lose('o-lasting');
    await suffer(orgId, 2);
    expect(await isFlagged()).toBe(false);
    await stop('o-lasting', others);
    await suffer(orgId, 1);
    expect(await isFlagged()).toBe(false);
    await world.clock.advance(7 * DAY_MS);
    await suffer(orgId, 5);
    expect(await isFlagged()).toBe(true);
  });
});

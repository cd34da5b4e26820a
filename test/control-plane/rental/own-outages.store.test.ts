// Our own outages: the time in which the control plane was away is credited to customers and paid to suppliers.
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Db } from '../../../control-plane/base/db/db.ts';
import { payable, revenue, wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { grantedToOrg, pageOfHeld } from '../../../control-plane/money/credits/store.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import { OWN_OUTAGE_MS_MIN } from '../../../control-plane/rental/instances/quiet.ts';
import { openOwnOutages } from '../../../control-plane/rental/outages/own-outages.ts';
import { openWorld, openWorldOver, type World, type WorldAccount } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
/** One microcent for each millisecond and GPU. */
const DOLLARS = 0.036;

let world: World;
let who: WorldAccount;
let supplierId: string;
beforeEach(async () => {
  world = await openWorld();
  ({ supplierId } = await world.machine({ gpus: 2, dollars: DOLLARS }));
  who = await world.customer(10_000);
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const balance = async (account: Parameters<World['rooms']['ledger']['balance']>[1]): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, account)).postedUcents;
const spent = async (): Promise<bigint> => 10_000_000_000n - (await balance(wallet(who.orgId)));

/** The process dies now and another begins after `ms`. */
async function away(ms: number): Promise<boolean> {
  await world.rooms.ownOutages.beat();
  await world.clock.advance(ms);
  return world.rooms.ownOutages.beat();
}

async function unreachable(id: string): Promise<void> {
  const rental = await findInstance(world.db.read, id);
  if (rental === undefined) throw new Error('the instance is gone');
  const outage = { sinceMs: world.clock.now(), evidence: 'probes' };
  await world.db.tx('test.outage', async (tx) => {
    await world.rooms.instances.lock(tx, rental);
    await world.rooms.instances.confirmOutage(tx, rental, outage);
  });
}

async function broken(id: string): Promise<void> {
  const rental = await findInstance(world.db.read, id);
  await world.rooms.instances.noteGpus([{ heldBy: rental?.workload_id ?? '', fault: 'Xid 79' }]);
}

test('the very first start credits nothing', async () => {
  const id = await world.run(who);
  await world.clock.advance(HOUR_MS);
  expect(await world.rooms.ownOutages.beat()).toBe(false);
  await world.remove(who, id);
  expect(await spent()).toBe(BigInt(HOUR_MS));
});

test.each([
  ['of a minute is a restart and charged', OWN_OUTAGE_MS_MIN, 0],
  ['of a millisecond more is not', OWN_OUTAGE_MS_MIN + 1, OWN_OUTAGE_MS_MIN + 1],
])('an own outage %s', async (_, awayMs, creditedMs) => {
  const id = await world.run(who);
  await world.clock.advance(HOUR_MS);
  expect(await away(awayMs)).toBe(creditedMs > 0);
  await world.clock.advance(HOUR_MS);
  await world.remove(who, id);
  expect(await spent()).toBe(BigInt(2 * HOUR_MS + awayMs - creditedMs));
});

test('the supplier is paid by us, every rental is credited, and their usage leaves the time out', async () => {
  const ids = [await world.run(who), await world.run(who)];
  await world.clock.advance(HOUR_MS);
  await away(2 * HOUR_MS);
  await world.clock.advance(HOUR_MS);
  for (const id of ids) await world.remove(who, id);
  expect(await spent()).toBe(BigInt(4 * HOUR_MS));
  // 80 % of everything, as if nothing had happened; the platform pays for its outage.
  expect(await balance(payable(supplierId))).toBe(BigInt((8 * HOUR_MS * 8) / 10));
  expect(await balance(revenue)).toBe(BigInt((4 * HOUR_MS * 2) / 10 - (4 * HOUR_MS * 8) / 10));
});

test('a rental whose runtime limit is reached meanwhile ends there, for its customer and for its supplier', async () => {
  const id = await world.run(who, { auto_terminate_hours: 2 });
  await world.clock.advance(HOUR_MS);
  await away(10 * HOUR_MS);
  await world.drive();
  expect((await world.rooms.instances.get(who.orgId, id)).instance.status).toBe('stopping');
  expect(await spent()).toBe(BigInt(HOUR_MS));
  expect(await balance(payable(supplierId))).toBe(BigInt((2 * HOUR_MS * 8) / 10));
});

test.each([
  ['runs', async () => undefined],
  ['is out of reach', unreachable],
  ['has a broken GPU', broken],
])('a rental that %s when we go away is credited to its runtime limit only', async (_, trouble) => {
  await world.machine({ gpus: 8, dollars: 3, region: 'us-east' });
  const rich = await world.customer(100_000);
  const id = await world.run(rich, { gpu_count: 8, auto_terminate_hours: 2 });
  await world.clock.advance(HOUR_MS);
  await trouble(id);
  await away(10 * HOUR_MS);
  await world.drive();
  expect(await grantedToOrg(world.db.read, rich.orgId, 0)).toBe(2_400_000_000n);
  // The 10 hours of the outage are worth more than the bound of credits.
  expect(await pageOfHeld(world.db.read, { count: 100 })).toEqual([]);
  expect(await balance(wallet(rich.orgId))).toBe(97_600_000_000n);
});

test('charges that were posted for the time of an own outage are reversed', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(3 * HOUR_MS);
  // Another process has posted hours before the outage was noticed.
  await world.rooms.metering.tick(new AbortController().signal);
  await world.rooms.ownOutages.beat();
  await world.remove(who, id);
  expect(await spent()).toBe(0n);
  expect(await balance(payable(supplierId))).toBe(BigInt((3 * HOUR_MS * 8) / 10));
});

test('a process that dies while it credits begins again and credits nobody twice', async () => {
  const ids = [await world.run(who), await world.run(who)];
  await world.clock.advance(HOUR_MS);
  await world.rooms.ownOutages.beat();
  const fromMs = world.clock.now();
  await world.clock.advance(HOUR_MS);
  // The credit was made, and the process ended before it wrote the row.
  await world.rooms.metering.creditOwnOutage({
    fromMs,
    untilMs: world.clock.now(),
    evidence: 'away',
  });
  await world.clock.advance(90_000);
  await world.rooms.ownOutages.beat();
  for (const id of ids) await world.remove(who, id);
  expect(await spent()).toBe(BigInt(2 * HOUR_MS));
  expect(await balance(payable(supplierId))).toBe(BigInt(((4 * HOUR_MS + 180_000) * 8) / 10));
});

test('a rental that is unreachable anyway is left alone', async () => {
  const id = await world.run(who);
  const found = await world.rooms.instances.get(who.orgId, id);
  await world.db.tx('test.outage', (tx) =>
    world.rooms.metering.closeSegment(tx, found.instance.id, world.clock.now(), 'no proof of life'),
  );
  await away(HOUR_MS);
  await world.remove(who, id);
  expect(await spent()).toBe(0n);
  expect(await balance(payable(supplierId))).toBe(0n);
});

test('a process that stood still credits that time itself', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(HOUR_MS);
  // The tick may come first.
  await world.rooms.metering.tick(new AbortController().signal);
  await world.rooms.ownOutages.beat();
  await world.rooms.ownOutages.beat();
  await world.clock.advance(30_000);
  await world.remove(who, id);
  expect(await spent()).toBe(30_000n);
  expect(await balance(payable(supplierId))).toBe(BigInt(((HOUR_MS + 30_000) * 8) / 10));
});

test.each([
  ['a minute and a second', 61_000],
  ['a day', 24 * HOUR_MS],
])(
  'a wall clock that is set forward by %s costs nobody anything and pays nobody, also if the tick comes first',
  async (_, stepMs) => {
    const { ownOutages, metering } = world.rooms;
    const id = await world.run(who);
    await ownOutages.beat();
    await world.clock.advance(10_000);
    world.clock.step(stepMs);
    await metering.tick(new AbortController().signal);
    expect(await ownOutages.beat()).toBe(false);
    await world.clock.advance(30_000);
    await ownOutages.beat();
    await world.remove(who, id);
    expect(await spent()).toBe(40_000n);
    expect(await balance(payable(supplierId))).toBe(32_000n);
    expect([await pageOfHeld(world.db.read, { count: 100 }), ownOutages.clockSteps()]).toEqual([[], 1]);
  },
);

test('a rental that ends between the step and the next beat pays for the time that it lived', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(4_000);
  world.clock.step(24 * HOUR_MS);
  await world.clock.advance(3_000);
  await world.remove(who, id);
  await world.rooms.ownOutages.beat();
  expect(await spent()).toBe(7_000n);
});

test('a clock step within an own outage is not part of it', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(2 * HOUR_MS);
  world.clock.step(24 * HOUR_MS);
  expect(await world.rooms.ownOutages.beat()).toBe(true);
  await world.remove(who, id);
  expect(await spent()).toBe(0n);
  expect(await balance(payable(supplierId))).toBe(BigInt((2 * HOUR_MS * 8) / 10));
});

test('an outage that lasts while the clock is set is not free for longer by it', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.db.tx('test.outage', (tx) => world.rooms.metering.closeSegment(tx, id, world.clock.now(), 'probes'));
  await world.clock.advance(20_000);
  world.clock.step(24 * HOUR_MS);
  await world.rooms.ownOutages.beat();
  await world.remove(who, id);
  await world.observe(id, { phase: 'removed' });
  await world.drive();
  expect(await grantedToOrg(world.db.read, who.orgId, 0)).toBe(20_000n);
});

test.each(['outages.clock_step', 'metering.skip', 'metering.skip_free', 'outages.own'])(
  'a step of the clock is skipped once, although the database fails at %s',
  async (failing) => {
    let isAway = false;
    const flaky = (db: Db): Pick<World, 'db'> => ({
      db: {
        ...db,
        tx: (name, body) => (isAway && name === failing ? Promise.reject(new Error('away')) : db.tx(name, body)),
      },
    });
    const { world: inner } = await openWorldOver(flaky);
    const { rooms, clock, db } = inner;
    await inner.machine({ gpus: 2, dollars: DOLLARS });
    const { orgId, principalId } = await inner.customer(10_000);
    const [id, lost] = [
      await inner.run({ orgId, principalId }, { gpu_count: 1 }),
      await inner.run({ orgId, principalId }, { gpu_count: 1 }),
    ];
    await rooms.ownOutages.beat();
    await db.tx('test.outage', (tx) => rooms.metering.closeSegment(tx, lost, clock.now(), 'probes'));
    await clock.advance(4_000);
    clock.step(HOUR_MS);
    isAway = true;
    await expect(rooms.ownOutages.beat()).rejects.toThrow('away');
    await clock.advance(2_000);
    isAway = false;
    await rooms.ownOutages.beat();
    expect(rooms.ownOutages.clockSteps()).toBe(1);
    await inner.end({ orgId, principalId }, id);
    await inner.end({ orgId, principalId }, lost);
    const { postedUcents } = await rooms.ledger.balance(db.read, wallet(orgId));
    expect(10_000_000_000n - postedUcents).toBe(6_000n);
    expect(await grantedToOrg(db.read, orgId, 0)).toBe(6_000n);
    await inner.verify();
    await inner.close();
  },
);

test('a clock that is set back is logged, pays nobody, and is no outage', async () => {
  const id = await world.run(who);
  await world.clock.advance(HOUR_MS);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(10_000);
  world.clock.step(-HOUR_MS / 2);
  expect(await world.rooms.ownOutages.beat()).toBe(false);
  expect(world.rooms.ownOutages.clockSteps()).toBe(1);
  expect(await balance(payable(supplierId))).toBe(0n);
  await world.remove(who, id);
});

test('loops that beat at the same moment share one run: an own outage is credited once', async () => {
  await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(HOUR_MS);
  const credited: number[] = [];
  const metering = {
    skipAll: async () => undefined,
    creditOwnOutage: async () => credited.push(1),
  };
  const ownOutages = openOwnOutages({
    ...world.core,
    metering,
    skipJobs: async () => undefined,
    goodSinceMs: () => null,
  });
  expect(await Promise.all([ownOutages.beat(), ownOutages.beat(), ownOutages.beat()])).toEqual([true, true, true]);
  expect(credited).toEqual([1]);
  expect(await ownOutages.beat()).toBe(false);
});

test('an own outage across a restart is measured by the wall clock', async () => {
  const id = await world.run(who);
  await world.rooms.ownOutages.beat();
  await world.clock.advance(HOUR_MS);
  world = await world.restart();
  await world.remove(who, id);
  expect(await spent()).toBe(0n);
  expect(await balance(payable(supplierId))).toBe(BigInt((HOUR_MS * 8) / 10));
});

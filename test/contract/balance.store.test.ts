// GET /v1/balance is exact at the moment of the read, whether or not an instance's hour was posted, and whatever the last tick held.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { wallet } from '../../control-plane/money/ledger/accounts.ts';
import { type Api, type ApiAccount, openApi } from './api.ts';

const FUNDS = 1_000_000;
const CENT = 1_000_000n;
const SECOND_MS = 1_000;
const HOUR_MS = 3_600_000;

let api: Api;
let owner: ApiAccount;
beforeEach(async () => {
  api = await openApi();
  owner = await api.account();
});
afterEach(async () => {
  await api.world.verify();
  await api.close();
});

/** A rental that costs a cent a second, with ten minutes of it set aside. */
async function rent(subjectId: string): Promise<void> {
  const { db, clock, rooms } = api.world;
  const [orgId, rateUcentsPerHour] = [owner.orgId, 3_600n * CENT];
  await db.tx('test.rent', async (tx) => {
    await rooms.metering.holdForLaunch(tx, subjectId, orgId, rateUcentsPerHour);
    const what = { supplierId: 's', machineId: 'm', gpuType: 'H100', gpuCount: 1, supplierBps: 8_000 };
    await rooms.metering.openSegment(tx, { subjectId, orgId, ...what, rateUcentsPerHour, startedMs: clock.now() });
  });
}
const tick = (): Promise<string[]> => api.world.rooms.metering.tick(new AbortController().signal);
const passes = (seconds: number): Promise<void> => api.world.clock.advance(seconds * SECOND_MS);
const hold = (cents: bigint): Promise<void> =>
  api.world.db.tx('test.hold', (tx) =>
    api.world.rooms.ledger.setHold(tx, 'test:other', wallet(owner.orgId), cents * CENT),
  );

async function balance(): Promise<Record<string, unknown>> {
  const { status, json } = await api.call('GET', '/v1/balance', { key: owner.key });
  expect(status).toBe(200);
  return json;
}
const cents = (left: number, held: number): object => ({
  balance_cents: left,
  held_cents: held,
  available_cents: left - held,
  balance: `${Math.trunc(left / 100)}.${String(left % 100).padStart(2, '0')}`,
});

async function usedCents(): Promise<unknown> {
  const { json } = await api.call('GET', '/v1/usage', { key: owner.key });
  return json.data?.reduce((sum, row) => sum + Number(row['cost_cents']), 0);
}

test('the whole balance is available if nothing is held or spent', async () => {
  expect(await balance()).toMatchObject(cents(FUNDS, 0));
});

test('the hold of a launch is shown as held and is not available', async () => {
  const { db, rooms } = api.world;
  await db.tx('test.hold', (tx) => rooms.metering.holdForLaunch(tx, 'i-1', owner.orgId, 3_600n * CENT));
  expect(await balance()).toMatchObject(cents(FUNDS, 600));
  await db.tx('test.release', (tx) => rooms.metering.releaseHold(tx, 'i-1', owner.orgId));
  expect(await balance()).toMatchObject(cents(FUNDS, 0));
});

test('the balance falls second by second before the hour is posted, and balance and usage add up', async () => {
  await rent('i-1');
  for (const [seconds, held] of [
    [0, 600],
    [7, 593],
    [100, 493],
  ] as const) {
    await passes(seconds);
    const used = Number(await usedCents());
    expect(await balance()).toMatchObject(cents(FUNDS - used, held));
  }
  expect(await usedCents()).toBe(107);
  // Half of the hold is left, so the tick writes nothing.
  await tick();
  expect(await balance()).toMatchObject(cents(FUNDS - 107, 493));
  await passes(193);
  await tick();
  expect(await balance()).toMatchObject(cents(FUNDS - 300, 300));
  // The hold now reaches to the posting of this hour, which is at most half an hour after its end, and ten minutes further.
  await passes(1);
  await tick();
  const { held_cents: held } = await balance();
  expect(held).toBeGreaterThanOrEqual(3_600 - 301 + 600);
  expect(held).toBeLessThan(3_600 - 301 + 1_800 + 600);
  await passes(5_400 - 301);
  const after = Number((await balance())['held_cents']);
  expect(await balance()).toMatchObject({ balance_cents: FUNDS - 5_400 });
  // Posting changes nothing that a customer sees but the hold.
  await tick();
  const posted = Number((await balance())['held_cents']);
  expect(posted).toBeGreaterThan(after);
  expect(await balance()).toMatchObject({ balance_cents: FUNDS - 5_400 });
  expect(await usedCents()).toBe(5_400);
});

test('two rentals use up their own holds and no other hold', async () => {
  await rent('i-1');
  await passes(100);
  await rent('i-2');
  await hold(50n);
  await passes(550);
  expect(await balance()).toMatchObject(cents(FUNDS - 1_200, 50 + 50));
});

test('a wallet that a rental has used up still shows the other holds, and never a balance below zero', async () => {
  await rent('i-1');
  await hold(BigInt(FUNDS) - 600n);
  await passes(650);
  expect(await balance()).toMatchObject(cents(FUNDS - 600, FUNDS - 600));
  await tick();
  expect(await balance()).toMatchObject(cents(FUNDS - 600, FUNDS - 600));
  await hold(0n);
  await api.world.clock.advance(400 * HOUR_MS);
  expect(await balance()).toMatchObject(cents(0, 0));
});

test('the balance does not rise if the clock is set back', async () => {
  await rent('i-1');
  await api.world.clock.advance(1.5 * HOUR_MS);
  await tick();
  api.world.clock.step(-HOUR_MS);
  expect(await balance()).toMatchObject({ balance_cents: FUNDS - 3_600 });
});

test('the burn rate and the hours left are those of what runs, and null if nothing does', async () => {
  expect(await balance()).toMatchObject({
    currency: 'USD',
    available: '10000.00',
    held: '0.00',
    burn_rate_per_hour: '0.00',
    hours_left: null,
  });
  await rent('i-1');
  await rent('i-2');
  await passes(100);
  // 9,998 dollars at 72 dollars an hour.
  expect(await balance()).toMatchObject({
    balance: '9998.00',
    available: '9988.00',
    held: '10.00',
    burn_rate_per_hour: '72.00',
    hours_left: 138.86,
  });
  // Money that is held for something else pays for no rental.
  await hold(720_000n);
  expect(await balance()).toMatchObject({ balance: '9998.00', hours_left: 38.86 });
});

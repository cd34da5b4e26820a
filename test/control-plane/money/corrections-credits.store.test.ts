// Refunds beside credits that wait for a decision and that an empty wallet did not pay.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { pageOfHeld } from '../../../control-plane/money/credits/store.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DOLLAR = 100_000_000n;
const BOUNDS = { orgCreditsUcents: 2n * DOLLAR, supplierCreditsUcents: 3n * DOLLAR, supplierPaymentsUcents: DOLLAR };

let world: World;
let orgId: string;
beforeEach(async () => {
  world = await openWorld(1, { settings: { lossBounds: BOUNDS } });
  ({ orgId } = await world.customer(250));
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const balance = async (): Promise<bigint> =>
  (await world.rooms.ledger.balance(world.db.read, wallet(orgId))).postedUcents;
/** Two hours at a dollar an hour, which are charged. Then the instance is unreachable. */
async function rentAndFail(): Promise<void> {
  const { metering } = world.rooms;
  const segment = { supplierId: 's', machineId: 'm', gpuType: 'H100_SXM', gpuCount: 1, supplierBps: 8_000 };
  const startedMs = world.clock.now();
  await world.db.tx('rent', (tx) =>
    metering.openSegment(tx, { ...segment, subjectId: 'i-1', orgId, rateUcentsPerHour: DOLLAR, startedMs }),
  );
  await world.clock.advance(2 * HOUR_MS);
  await failSince(world.clock.now());
}
const failSince = (ms: number): Promise<void> =>
  world.db.tx('fail', (tx) => world.rooms.metering.closeSegment(tx, 'i-1', ms, 'probes'));
/** The instance ends after three hours without a charge. A dollar of that is above the bound, and is held. */
async function endAfterThreeHours(): Promise<void> {
  await world.clock.advance(3 * HOUR_MS);
  await world.db.tx('end', (tx) => world.rooms.metering.releaseHold(tx, 'i-1', orgId));
}
const refund = () => {
  const about = { amountUcents: null, fromPlatform: false, reference: 'r', reason: 'slow' };
  return world.rooms.corrections.refund({ subjectId: 'i-1', ...about });
};

describe('a credit that waits and that the wallet has not covered', () => {
  test('leaves all that the wallet has paid beside it to a refund', async () => {
    await rentAndFail();
    await endAfterThreeHours();
    const [held] = await pageOfHeld(world.db.read, { count: 10 });
    expect(held).toMatchObject({ amount_ucents: DOLLAR, wallet_ucents: DOLLAR / 2n });
    expect(await refund()).toMatchObject({ amount_ucents: 2n * DOLLAR });
    await world.rooms.credits.release(held?.id ?? '', 'proved');
    expect(await balance()).toBe((5n * DOLLAR) / 2n);
  });

  test('does not stop an earlier outage from being recorded, and takes nothing back of a refund', async () => {
    await rentAndFail();
    const sinceMs = world.clock.now() - HOUR_MS;
    expect(await refund()).toMatchObject({ amount_ucents: 2n * DOLLAR });
    const down = { direction: 'down', amountUcents: (5n * DOLLAR) / 2n, allowDebt: false } as const;
    await world.rooms.corrections.adjust({ ...down, orgId, reference: 'd', reason: 'moved' });
    await endAfterThreeHours();
    expect(await pageOfHeld(world.db.read, { count: 10 })).toMatchObject([{ wallet_ucents: 0n }]);
    await failSince(sinceMs);
    // The dollar of the hour was refunded before, so the customer gets nothing more.
    expect(await balance()).toBe(0n);
  });
});

// The metering loop goes through all rentals: one that fails does not keep the others from being charged, or stopped.
import { afterEach, beforeEach, expect, test } from 'vitest';
import { meteringBrings } from '../../../control-plane/money/metering/brings.ts';
import { openMetering } from '../../../control-plane/money/metering/metering.ts';
import { holdId } from '../../../control-plane/money/metering/posting.ts';
import type { Ledger } from '../../../control-plane/money/ledger/ledger.ts';
import { createIds } from '../../../shared/ids.ts';
import { createLog } from '../../../shared/log.ts';
import { seededRng } from '../../../shared/rng.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

test('a rental that cannot be charged is named, and others are charged and found unpaid', async () => {
  const { db, clock, rooms } = world;
  const [broken, paying, poor] = [await world.customer(1_000), await world.customer(1_000), await world.customer(1)];
  const orgs = { 'i-broken': broken, 'i-paying': paying, 'i-poor': poor };
  for (const [subjectId, { orgId }] of Object.entries(orgs)) {
    const what = {
      machineId: 'm',
      gpuType: 'H100_SXM',
      gpuCount: 1,
      rateUcentsPerHour: 100_000_000n,
      supplierBps: 8000,
    };
    const segment = { subjectId, orgId, supplierId: 's', ...what, startedMs: clock.now() };
    await db.tx('open', (tx) => rooms.metering.openSegment(tx, segment));
  }
  const coverHold: Ledger['coverHold'] = async (tx, id, ...more) => {
    if (id === holdId('i-broken')) throw new Error('its hold is broken');
    return rooms.ledger.coverHold(tx, id, ...more);
  };
  const lines: object[] = [];
  const metering = openMetering({
    db,
    clock,
    ids: createIds(clock, seededRng(1)),
    log: createLog('test', 'info', { write: (line) => void lines.push(JSON.parse(line) as object) }),
    ledger: { ...rooms.ledger, coverHold },
    credits: rooms.credits,
    launchHoldMinutes: 10,
    keepRefundsWithinCharge: async () => undefined,
  });
  expect(await metering.tick(new AbortController().signal)).toEqual(['i-poor']);
  expect(lines).toMatchObject([{ instance_id: 'i-broken', rentals: 1, err: { message: 'its hold is broken' } }]);
});

test('a rental that cannot be stopped does not keep others from it, and its error is reported', async () => {
  const stopped: string[] = [];
  const { loops } = meteringBrings({
    ...world,
    ...world.rooms,
    metering: { ...world.rooms.metering, tick: async () => ['i-1', 'i-2', 'i-3'] },
    beat: async () => true,
    stopUnpaid: async (id: string) => {
      if (id === 'i-1') throw new Error('it cannot be stopped');
      stopped.push(id);
    },
  } as never);
  await expect(loops[0]?.run(new AbortController().signal)).rejects.toThrow('it cannot be stopped');
  expect(stopped).toEqual(['i-2', 'i-3']);
});

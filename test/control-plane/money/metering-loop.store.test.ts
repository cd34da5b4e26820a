// The metering loop goes through all rentals: one that fails does not keep the others from being charged, or stopped.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { meteringBrings } from '../../../control-plane/money/metering/brings.ts';
import { DbError } from '../../../control-plane/base/db/db.ts';
import type { Credits } from '../../../control-plane/money/credits/credits.ts';
import { type Metering, openMetering } from '../../../control-plane/money/metering/metering.ts';
import type { OwnOutage } from '../../../control-plane/money/metering/failed-credits.ts';
import { segmentsOf } from '../../../control-plane/money/metering/store.ts';
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

async function rent(of: Record<string, { orgId: string }>): Promise<void> {
  const { db, clock, rooms } = world;
  for (const [subjectId, { orgId }] of Object.entries(of)) {
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
}

test('a rental that cannot be charged is named, and others are charged and found unpaid', async () => {
  const { db, clock, rooms } = world;
  const [broken, paying, poor] = [await world.customer(1_000), await world.customer(1_000), await world.customer(1)];
  await rent({ 'i-broken': broken, 'i-paying': paying, 'i-poor': poor });
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
    limitOf: async () => null,
    keepRefundsWithinCharge: async () => undefined,
  });
  expect(await metering.tick(new AbortController().signal)).toEqual(['i-poor']);
  expect(lines).toMatchObject([{ instance_id: 'i-broken', rentals: 1, err: { message: 'its hold is broken' } }]);
});

describe('an outage of our own', () => {
  const MINUTE_MS = 60_000;
  let lines: object[];
  let fault: Error | undefined;
  /** Opens the room as a new process does. */
  let start: () => Metering;
  let metering: Metering;
  let outage: OwnOutage;
  let started: number;
  beforeEach(async () => {
    const { db, clock, rooms } = world;
    [lines, fault] = [[], new Error('its supplier is broken')];
    await rent({ 'i-broken': await world.customer(1_000), 'i-whole': await world.customer(1_000) });
    started = clock.now();
    const payOwnOutage: Credits['payOwnOutage'] = async (tx, of) => {
      if (fault !== undefined && of.subjectId === 'i-broken') throw fault;
      return rooms.credits.payOwnOutage(tx, of);
    };
    let processes = 0;
    start = () =>
      openMetering({
        db,
        clock,
        ids: createIds(clock, seededRng((processes += 1))),
        log: createLog('test', 'info', { write: (line) => void lines.push(JSON.parse(line) as object) }),
        ledger: rooms.ledger,
        credits: { ...rooms.credits, payOwnOutage },
        launchHoldMinutes: 10,
        limitOf: async () => null,
        keepRefundsWithinCharge: async () => undefined,
      });
    metering = start();
    await clock.advance(3 * MINUTE_MS);
    const times = { fromMs: started + MINUTE_MS, untilMs: started + 2 * MINUTE_MS };
    outage = { ...times, evidence: 'we were away' };
  });

  const segments = async (): Promise<unknown[]> =>
    (await segmentsOf(world.db.read, ['i-broken', 'i-whole'])).map(
      ({ subject_id: id, started_ms: from, ended_ms: to }) => [
        id,
        (from - started) / MINUTE_MS,
        to && (to - started) / MINUTE_MS,
      ],
    );
  const creditedOf = (id: string): unknown[] => [
    [id, 0, 1],
    [id, 2, null],
  ];
  /** Credits another outage, from the fourth minute to the fifth. */
  const creditLater = async (): Promise<void> => {
    await world.clock.advance(3 * MINUTE_MS);
    const [fromMs, untilMs] = [started + 4 * MINUTE_MS, started + 5 * MINUTE_MS];
    await metering.creditOwnOutage({ fromMs, untilMs, evidence: 'we were away again' });
  };
  /** The rental with both outages credited. */
  const BOTH = [
    ['i-broken', 0, 1],
    ['i-broken', 2, 4],
    ['i-broken', 5, null],
  ];
  const tick = (): Promise<string[]> => metering.tick(new AbortController().signal);

  test('is credited to all rentals but one that fails, which is named, and is credited with a later tick', async () => {
    expect(await metering.creditOwnOutage(outage)).toBe(1);
    const named = {
      instance_id: 'i-broken',
      segment_id: expect.any(String),
      err: { message: 'its supplier is broken' },
    };
    expect(lines).toMatchObject([named]);
    expect(await segments()).toEqual(expect.arrayContaining([['i-broken', 0, null], ...creditedOf('i-whole')]));
    await tick();
    expect(lines).toMatchObject([named, named]);
    fault = undefined;
    await tick();
    await tick();
    expect(await segments()).toEqual(expect.arrayContaining([...creditedOf('i-broken'), ...creditedOf('i-whole')]));
    expect(lines).toHaveLength(2);
  });

  test('that was not credited to a rental is credited by the next process', async () => {
    await metering.creditOwnOutage(outage);
    fault = undefined;
    metering = start();
    await tick();
    expect(await segments()).toEqual(expect.arrayContaining([...creditedOf('i-broken'), ...creditedOf('i-whole')]));
  });

  test('that is credited again, because the process ended half way, is not credited once more by the tick', async () => {
    await metering.creditOwnOutage(outage);
    fault = undefined;
    metering = start();
    await metering.creditOwnOutage({ ...outage, untilMs: started + 3 * MINUTE_MS });
    lines = [];
    await tick();
    expect(lines).toEqual([]);
    const credited = [
      ['i-broken', 0, 1],
      ['i-broken', 2, 2],
      ['i-broken', 3, null],
    ];
    expect(await segments()).toEqual(expect.arrayContaining(credited));
  });

  test('is credited before a later one: neither is lost', async () => {
    await metering.creditOwnOutage(outage);
    fault = undefined;
    await creditLater();
    expect(await segments()).toEqual(expect.arrayContaining(BOTH));
  });

  test('keeps a later one waiting while it fails for a rental, and both are credited when it succeeds', async () => {
    await metering.creditOwnOutage(outage);
    await creditLater();
    fault = undefined;
    lines = [];
    await tick();
    await tick();
    expect(lines).toEqual([]);
    expect(await segments()).toEqual(expect.arrayContaining(BOTH));
  });

  test('that was not credited to a rental before it ended is left to the operator, which the log says once', async () => {
    await metering.creditOwnOutage(outage);
    await world.db.tx('close', (tx) => metering.closeSegment(tx, 'i-broken', world.clock.now()));
    lines = [];
    await tick();
    await tick();
    expect(lines).toMatchObject([{ instance_id: 'i-broken', msg: expect.stringContaining('has ended') }]);
  });

  test('is not credited if the database fails: nothing is tried again by itself', async () => {
    fault = new DbError('unavailable', 'the database is away');
    await expect(metering.creditOwnOutage(outage)).rejects.toThrow('the database is away');
    fault = undefined;
    await tick();
    expect(await segments()).toContainEqual(['i-broken', 0, null]);
    expect(await metering.creditOwnOutage(outage)).toBeGreaterThan(0);
    expect(await segments()).toEqual(expect.arrayContaining([...creditedOf('i-broken'), ...creditedOf('i-whole')]));
  });
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

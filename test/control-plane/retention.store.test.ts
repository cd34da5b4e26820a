// Which rows are deleted and when, checked at both sides of their age limit; and which rows never are.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { brought } from '../../control-plane/brings.ts';
import { z } from 'zod';
import { int } from '../../control-plane/base/db/columns.ts';
import { raw, sql } from '../../control-plane/base/db/db.ts';
import { inPieces, PIECE_ROWS } from '../../control-plane/base/db/pieces.ts';
import { forgetEvents } from '../../control-plane/base/events/brings.ts';
import { forgetOld } from '../../control-plane/loops.ts';
import { openWorld, type World } from '../kit/world.ts';

const DAY_MS = 86_400_000;
const KEEP = { events_days: 30, operations_days: 2, workloads_days: 1, receipts_days: 31 };
const Count = z.object({ count: int });

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const countOf = async (table: string, where = '1 = 1'): Promise<number> =>
  (await world.db.read.one(Count, raw(`select count(*) as count from ${table} where ${where}`)))?.count ?? 0;

function forget(signal = new AbortController().signal): Promise<void> {
  const forgets = brought(world.brings({ keep: KEEP }), 'forgets');
  return forgetOld(signal, forgets, world.core);
}

/** A rental that has ended, on a host that has nothing of it left. */
async function rentalThatIsOver(): Promise<void> {
  await world.machine();
  const who = await world.customer(10_000);
  const id = await world.run(who);
  await world.end(who, id);
}

describe('rows are deleted at their age limit, and not a millisecond earlier:', () => {
  test.each([
    ['operations', 2],
    ['workloads', 1],
    ['events', 30],
  ])('%s after %d days', async (table, days) => {
    await rentalThatIsOver();
    const before = await countOf(table);
    expect(before).toBeGreaterThan(0);
    await world.clock.advance(days * DAY_MS - 1);
    await forget();
    expect(await countOf(table)).toBe(before);
    await world.clock.advance(1);
    await forget();
    expect(await countOf(table)).toBe(0);
  });
});

test('API keys that have ended and cancelled destinations of payouts are deleted with the events', async () => {
  const nowMs = world.clock.now() + 1;
  const { id: orgId } = await world.rooms.accounts.createOrg('Acme');
  const key = { orgId, name: 'x', scopes: ['instances: read'] };
  await world.rooms.accounts.createKey({ ...key, expiresMs: null });
  await world.rooms.accounts.createKey({ ...key, expiresMs: nowMs });
  await world.db.tx('test.destinations', (tx) =>
    tx.run(sql`insert into payout_destinations (id, supplier_id, chain, address, requested_ms, in_force_ms, cancelled_ms)
      values ('a', 's', 'base', 'x', 0, 0, null), ('b', 's', 'base', 'x', 0, 0, ${nowMs})`),
  );
  const rows = async (): Promise<number[]> => Promise.all([countOf('api_keys'), countOf('payout_destinations')]);
  await world.clock.advance(KEEP.events_days * DAY_MS);
  await forget();
  expect(await rows()).toEqual([2, 2]);
  await world.clock.advance(1);
  await forget();
  expect(await rows()).toEqual([1, 1]);
});

test('rows that cannot be deleted keep no others from being deleted, and the failure is shown', async () => {
  const broken = { what: 'broken', run: async () => Promise.reject(new Error('the table is locked')) };
  const ran: string[] = [];
  const sound = { what: 'sound', run: async () => ran.push('sound') };
  const { signal } = new AbortController();
  await expect(forgetOld(signal, [broken, sound], world.core)).rejects.toThrow('the table is locked');
  expect(ran).toEqual(['sound']);
});

test('a backlog that takes all the time of an hour leaves the next hour to another room', async () => {
  const ran: string[] = [];
  const endless = {
    what: 'endless',
    run: async (signal: AbortSignal) => {
      ran.push('endless');
      while (!signal.aborted) await world.clock.advance(1_000);
      return 0;
    },
  };
  const sound = { what: 'sound', run: async (signal: AbortSignal) => (signal.aborted ? 0 : ran.push('sound')) };
  const { signal } = new AbortController();
  for (let hour = 0; hour < 2; hour += 1) {
    await forgetOld(signal, [endless, sound], world.core);
    await world.clock.advance(3_600_000 - 60_000);
  }
  expect(ran.toSorted()).toEqual(['endless', 'endless', 'sound']);
});

describe('retention never deletes', () => {
  test('the books: transfers and metered time still agree', async () => {
    await rentalThatIsOver();
    const books = async (): Promise<number[]> =>
      Promise.all(['transfers', 'meter_segments', 'ledger_accounts', 'instances'].map((table) => countOf(table)));
    const before = await books();
    await world.clock.advance(10_000 * DAY_MS);
    await forget();
    expect(await books()).toEqual(before);
    await world.verify();
  });
  test('open work: a launch in progress, its container, and a removal that the host has not confirmed', async () => {
    await world.machine({ gpus: 2 });
    const who = await world.customer(10_000_000);
    await world.launch(who);
    const removed = await world.launch(who);
    await world.remove(who, removed);
    await world.clock.advance(1000 * DAY_MS);
    await forget();
    expect(await countOf('workloads', "state = 'wanted'")).toBe(1);
    expect(await countOf('workloads', "state = 'removing'")).toBe(1);
    expect(await countOf('operations', 'completed_ms is null')).toBeGreaterThan(0);
  });
});

describe('retention works in pieces:', () => {
  const addEvents = (count: number): Promise<number> =>
    world.db.tx('test.events', (tx) =>
      tx.run(sql`insert into events (id, type, subject_id, data, created_ms)
        with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ${count})
        select 'evt_test_' || cast(n as text), 'instance.running', 'i-1', '{}', n from numbers`),
    );

  test.each([PIECE_ROWS - 1, PIECE_ROWS, PIECE_ROWS + 1, 2 * PIECE_ROWS + 1])(
    '%d rows are deleted, oldest first',
    async (count) => {
      await addEvents(count);
      const sizes: number[] = [];
      const signal = new AbortController().signal;
      const total = await inPieces(
        count,
        async (piece) => {
          const removed = await forgetEvents(world.db, piece);
          sizes.push(removed);
          return removed;
        },
        signal,
      );
      expect(total).toBe(count);
      expect(Math.max(...sizes)).toBeLessThanOrEqual(PIECE_ROWS);
      expect(await countOf('events')).toBe(0);
    },
  );
  test('a tick that is interrupted stops after its piece, and the next one continues', async () => {
    await addEvents(PIECE_ROWS + 1);
    const stopping = new AbortController();
    const removed = await inPieces(
      PIECE_ROWS + 1,
      (piece) => {
        stopping.abort();
        return forgetEvents(world.db, piece);
      },
      stopping.signal,
    );
    expect([removed, await countOf('events')]).toEqual([PIECE_ROWS, 1]);
    await world.clock.advance(KEEP.events_days * DAY_MS);
    await forget(stopping.signal);
    expect(await countOf('events')).toBe(1);
    await forget();
    expect(await countOf('events')).toBe(0);
  });
});

// The proof of the books in its loop: new transfers each hour, everything each night. Every fault is reported until it is repaired.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql, type Sql } from '../../../control-plane/base/db/db.ts';
import { type Books, openBooks } from '../../../control-plane/money/ledger/books.ts';
import {
  accountId,
  type AccountRef,
  clearing,
  funding,
  revenue,
  wallet,
} from '../../../control-plane/money/ledger/accounts.ts';
import type { NewTransfer } from '../../../control-plane/money/ledger/store.ts';
import { proofState } from '../../../control-plane/money/ledger/proof-store.ts';
import { createLog } from '../../../shared/log.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const PIECE = 500;
const KIND = 'inference.charge';
const FUNDS = 1_000_000_000_000n;
const ERROR = 50; // Pino's number.
const NEVER = new AbortController().signal;

let world: World;
let orgId: string;
let books: Books;
let logged: { level: number; fault?: string; faults?: number }[];
beforeEach(async () => {
  world = await openWorld();
  ({ orgId } = await world.customer(1_000_000));
  logged = [];
  const log = createLog('test', 'info', { write: (line) => void logged.push(JSON.parse(line)) });
  books = openBooks({ db: world.db, clock: world.clock, log, proofs: () => world.brings() });
});
afterEach(() => world.close());

const idOf = (number: number): string => `rcp_${String(number).padStart(6, '0')}`;
const write = (statement: Sql): Promise<number> => world.db.tx('test.write', (tx) => tx.run(statement));
const faultsTold = async (): Promise<number> => (await proofState(world.db.read)).faults;

/** Transfers that are an hour old count as settled. */
async function nextHour(): Promise<string[]> {
  world.clock.step(HOUR_MS);
  logged = [];
  expect(await books.run(NEVER)).toBe(false);
  return logged.flatMap(({ fault }) => fault ?? []);
}
async function nextNight(): Promise<string[]> {
  world.clock.step(DAY_MS - HOUR_MS);
  return nextHour();
}

/** Posts transfers through the ledger, each with a matching receipt. */
async function charge(...ids: string[]): Promise<void> {
  const nowMs = world.clock.now();
  await world.db.tx('test.charge', async (tx) => {
    for (const id of ids) {
      await world.rooms.ledger.post(tx, id, [chargeOf(id)]);
      await tx.run(
        sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, state, held_ucents, charged_ucents, opened_ms, closed_ms)
            values (${id}, ${orgId}, 'apk', 'req', 'small', 'serverless', 'charged', 99, 5, ${nowMs}, ${nowMs})`,
      );
    }
  });
}
const chargeOf = (id: string): NewTransfer => ({
  id: `t:${id}`,
  debit: wallet(orgId),
  credit: revenue,
  amountUcents: 5n,
  kind: KIND,
  subjectId: id,
  effectiveMs: 1,
});

/** A transfer that changed no balance, which only an intruder could write. */
async function forge(id: string, postedMs: number): Promise<void> {
  await write(
    sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
        values (${id}, 'b', ${accountId(funding)}, ${accountId(wallet(orgId))}, 7, 'funding.manual', ${orgId}, 1, ${postedMs})`,
  );
}
const forged = (): string[] => [`customer_wallet:${orgId}: credits kept ${FUNDS}, entries sum to ${FUNDS + 7n}`];

describe('the hourly proof', () => {
  beforeEach(async () => {
    await charge(idOf(0));
    // It is not night, and the first proof is a full one.
    world.clock.step(3 * HOUR_MS);
    expect(await nextHour()).toEqual([]);
  });

  test('finds no fault in sound books, and stores the time of the proof', async () => {
    await charge(idOf(1));
    const wholeMs = world.clock.now();
    expect(await nextHour()).toEqual([]);
    const state = await proofState(world.db.read);
    expect(state).toMatchObject({ faults: 0, whole_proven_ms: wholeMs, new_proven_ms: world.clock.now() });
    expect(state.transfer_id).toBe(`t:${idOf(1)}`);
  });

  test('finds a new transfer that changed no balance', async () => {
    await forge('f', world.clock.now());
    expect(await nextHour()).toEqual(forged());
  });

  test('finds a faulty transfer that is not settled yet', async () => {
    await forge('f', world.clock.now() + HOUR_MS);
    expect(await nextHour()).toEqual(forged());
  });

  test('finds a balance that was changed behind the ledger', async () => {
    const account = accountId(wallet(orgId));
    await write(sql`update ledger_accounts set credits_ucents = credits_ucents + 1 where id = ${account}`);
    expect(await nextHour()).toEqual([`${account}: credits kept ${FUNDS + 1n}, entries sum to ${FUNDS}`]);
  });

  test('finds a new transfer of a customer who has no account, and one that leaves the clearing account uneven', async () => {
    const write7 = (id: string, debit: AccountRef, credit: AccountRef): Promise<number> =>
      write(
        sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, effective_ms, posted_ms)
            values (${id}, 'b', ${accountId(debit)}, ${accountId(credit)}, 7, 'funding.manual', 'x', 1, ${world.clock.now()})`,
      );
    await write7('f1', funding, wallet('nobody'));
    await write7('f2', funding, clearing);
    const faults = ['customer_wallet:nobody: has entries and no row', 'rental_clearing:platform is not zero'];
    expect(await nextHour()).toEqual(faults);
    // The next proof starts after these transfers, and still reports them.
    world.clock.step(HOUR_MS);
    expect(await nextHour()).toEqual(faults);
  });

  test('finds a hold that its account does not include', async () => {
    await write(
      sql`insert into holds (id, account_id, amount_ucents, updated_ms) values ('test:h', ${accountId(wallet(orgId))}, 3, 1)`,
    );
    expect(await nextHour()).toEqual([`customer_wallet:${orgId}: holds kept 0, entries sum to 3`]);
  });

  test('finds a new charge that differs from its receipt, and a charge without a receipt', async () => {
    await charge(idOf(1), idOf(2));
    await write(sql`update request_receipts set charged_ucents = 6 where id = ${idOf(1)}`);
    await write(sql`delete from request_receipts where id = ${idOf(2)}`);
    expect(await nextHour()).toEqual([
      `${idOf(1)}: charged 6, the ledger says 5`,
      `the ledger has charged 5 for what has no row, 0 of it was forgotten; among them ${idOf(2)}`,
    ]);
  });

  test('does not read proven transfers again; the nightly proof does', async () => {
    await write(sql`update request_receipts set charged_ucents = 6`);
    await forge('f', 1);
    expect(await nextHour()).toEqual([]);
    expect(await nextNight()).toEqual([`${idOf(0)}: charged 6, the ledger says 5`, ...forged()]);
  });

  test('reports a fault each hour until it is repaired', async () => {
    const change = (by: number): Promise<number> =>
      write(sql`update request_receipts set charged_ucents = charged_ucents + ${by} where id = ${idOf(1)}`);
    await charge(idOf(1));
    await change(1);
    const fault = `${idOf(1)}: charged 6, the ledger says 5`;
    expect(await nextHour()).toEqual([fault]);
    expect(logged.every(({ level }) => level === ERROR)).toBe(true);
    expect(await nextHour()).toEqual([fault]);
    expect(await faultsTold()).toBe(1);
    await change(-1);
    expect(await nextHour()).toEqual([]);
    expect(await faultsTold()).toBe(0);
  });

  test('accepts a transfer that was posted while the clock was set back', async () => {
    world.clock.step(-2 * DAY_MS);
    await charge(idOf(1));
    world.clock.step(2 * DAY_MS);
    expect(await nextHour()).toEqual([]);
    await charge(idOf(2));
    expect(await nextHour()).toEqual([]);
  });
});

describe('the full proof', () => {
  test.each([0, PIECE - 1, PIECE, 2 * PIECE])('finds a single fault among many, at position %d', async (number) => {
    await charge(...Array.from({ length: 2 * PIECE + 1 }, (_, i) => idOf(i)));
    expect(await nextNight()).toEqual([]);
    await write(sql`delete from request_receipts where id = ${idOf(number)}`);
    const without = `the ledger has charged 5 for what has no row, 0 of it was forgotten; among them ${idOf(number)}`;
    expect(await nextNight()).toEqual([without]);
  });

  test('names twenty of many charges without a row, and counts all of them', async () => {
    await charge(...Array.from({ length: PIECE + 30 }, (_, i) => idOf(i)));
    await write(sql`delete from request_receipts`);
    const ids = Array.from({ length: 20 }, (_, i) => idOf(i)).join(', ');
    expect(await books.verify()).toEqual([
      `the ledger has charged ${5 * (PIECE + 30)} for what has no row, 0 of it was forgotten; among them ${ids}`,
    ]);
  });

  test('finds a rental that was metered but never charged', async () => {
    await write(
      sql`insert into meter_segments (id, subject_id, org_id, supplier_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, started_ms, posted_through_ms)
          values ('seg', 'i-1', ${orgId}, 's', 'H100', 1, 3600000, 0, 0, 1000)`,
    );
    expect(await nextNight()).toEqual(['i-1: 1000 should be charged for its segments, the ledger has 0']);
  });

  test.each([
    ['ends where the next one begins', 1_000, []],
    ['ends a millisecond later', 1_001, ['i-1: its segment seg-2 begins before seg-1 has ended']],
    ['has not ended', null, ['i-1: its segment seg-2 begins before seg-1 has ended']],
  ])('finds no fault or one in a rental whose first segment %s', async (_what, endedMs, faults) => {
    for (const [id, startedMs, toMs] of [
      ['seg-1', 0, endedMs],
      ['seg-2', 1_000, 2_000],
    ] as const)
      await write(
        sql`insert into meter_segments (id, subject_id, org_id, supplier_id, gpu_type, gpu_count, rate_ucents_per_hour, supplier_bps, started_ms, posted_through_ms, ended_ms)
            values (${id}, 'i-1', ${orgId}, 's', 'H100', 1, 0, 0, ${startedMs}, ${startedMs}, ${toMs})`,
      );
    expect(await nextNight()).toEqual(faults);
  });

  test('continues in the next tick if it takes long, while others write', async () => {
    await charge(...Array.from({ length: PIECE + 1 }, (_, i) => idOf(i)));
    await write(sql`update request_receipts set charged_ucents = 6 where id = ${idOf(PIECE)}`);
    let monotonicMs = 0;
    // Each read of the clock is half a slice later, so one piece fits into a tick.
    const clock = { ...world.clock, monotonicMs: () => (monotonicMs += 30_000) };
    const slow = openBooks({ ...world.core, clock, proofs: () => world.brings() });
    let runs = 1;
    for (; await slow.run(NEVER); runs += 1) await charge(idOf(10_000 + runs));
    expect(runs).toBeGreaterThan(8);
    expect(await faultsTold()).toBe(1);
  });

  test('stops on a signal, and starts again in the next process', async () => {
    await charge(idOf(0));
    const stop = new AbortController();
    stop.abort();
    expect(await books.run(stop.signal)).toBe(false);
    expect(await proofState(world.db.read)).toMatchObject({ whole_proven_ms: null });
    expect(await nextHour()).toEqual([]);
  });
});

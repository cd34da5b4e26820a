// The proofs of tables that grow for ever read pages, each in a transaction of its own, and find a fault on whatever page it is.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql, type Sql } from '../../../control-plane/base/db/db.ts';
import { CREDIT_PROOFS } from '../../../control-plane/money/credits/verify.ts';
import { insertDeposit, type Deposit } from '../../../control-plane/money/deposits/store.ts';
import { DEPOSIT_PROOFS } from '../../../control-plane/money/deposits/verify.ts';
import {
  accountId,
  depositClearing,
  inFlight,
  revenue,
  suspense,
  wallet,
} from '../../../control-plane/money/ledger/accounts.ts';
import { openBooks } from '../../../control-plane/money/ledger/books.ts';
import type { PagedProof } from '../../../control-plane/money/ledger/charges.ts';
import { proofState } from '../../../control-plane/money/ledger/proof-store.ts';
import { move } from '../../../control-plane/money/payouts/states.ts';
import { findPayout, insertPayout } from '../../../control-plane/money/payouts/store.ts';
import { PAYOUT_PROOFS } from '../../../control-plane/money/payouts/verify.ts';
import { openWorld, type World } from '../../kit/world.ts';

const HOUR_MS = 3_600_000;
const LIMIT = 2;
const NUMBERS = [1, 2, 3, 4, 5];

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const write = (statement: Sql): Promise<number> => world.db.tx('plant', (tx) => tx.run(statement));

/** The faults of each page, with LIMIT rows a page. */
async function pagesOf(proof: PagedProof): Promise<string[][]> {
  const pages: string[][] = [];
  for (let afterId: string | undefined = ''; afterId !== undefined;) {
    const page = await proof(world.db.read, afterId, LIMIT);
    pages.push(page.faults);
    afterId = page.lastId;
  }
  return pages;
}
/** The faults of all pages of each proof. */
const faultsOf = (proofs: readonly PagedProof[]): Promise<string[][]> =>
  Promise.all(proofs.map(async (proof) => (await pagesOf(proof)).flat()));
/** A transfer that no row explains. */
async function post(id: string, kind: string, subjectId: string): Promise<void> {
  const { orgId } = await world.customer(100);
  const [debit, credit] = kind.startsWith('deposit') ? [revenue, wallet(orgId)] : [wallet(orgId), revenue];
  const transfer = { id, kind, subjectId, debit, credit, amountUcents: 7n, effectiveMs: 1 };
  await world.db.tx('plant', (tx) => world.rooms.ledger.post(tx, id, [transfer]));
}

test('each proof of the books reads all pages, each in a transaction of its own: by hand, at night and each hour', async () => {
  let isFaulty = true;
  const seen: string[] = [];
  const next: Record<string, string> = { '': 'a', a: 'b' };
  const page: PagedProof = async (_, afterId) => {
    seen.push(afterId);
    return { faults: afterId === 'b' && isFaulty ? ['a fault'] : [], lastId: next[afterId] };
  };
  const snapshots: string[] = [];
  const snapshot: World['db']['snapshot'] = (name, body) => {
    snapshots.push(name);
    return world.db.snapshot(name, body);
  };
  const books = openBooks({ ...world.core, db: { ...world.db, snapshot }, proofs: () => [{ pages: [page] }] });
  const wholeMs = async (): Promise<number | null> => (await proofState(world.db.read)).whole_proven_ms;
  expect(await books.verify()).toEqual(['a fault']);
  expect(seen.splice(0)).toEqual(['', 'a', 'b']);
  // The accounts are one page, and those of the room are three.
  expect(snapshots).toEqual(Array.from({ length: 4 }, () => 'books.page'));
  isFaulty = false;
  await books.run(new AbortController().signal);
  expect(seen.splice(0)).toEqual(['', 'a', 'b']);
  const nightMs = await wholeMs();
  world.clock.step(HOUR_MS);
  await books.run(new AbortController().signal);
  expect(seen.splice(0)).toEqual(['', 'a', 'b']);
  expect(await wholeMs()).toBe(nightMs);
});

describe('the proof of credits', () => {
  const HELD = {
    rows: sql`id, kind, why, free_time_id, cause, subject_id, org_id, supplier_id, amount_ucents, wallet_ucents, supplier_bps, from_ms,
      until_ms, evidence, state, created_ms`,
    values: (id: string) =>
      sql`${id}, 'payment', 'supplier_bound', null, 'own_outage', 'i', 'o', 's', 5, 0, 0, 0, 1, 'x', 'held', 1`,
  };
  beforeEach(async () => {
    for (const number of NUMBERS) {
      await write(
        sql`insert into free_times (id, subject_id, org_id, supplier_id, machine_id, cause, rate_ucents_per_hour, supplier_bps, from_ms, counted_ms,
              counted_at_ms, ended_ms, free_ms, granted_ucents, held_ucents, evidence)
            values (${`free_${number}`}, ${`i_${number}`}, 'o', 's', 'm', 'outage', 10, 0, 0, 0, 0, 1, ${HOUR_MS}, 5, 5, 'x')`,
      );
      await write(sql`insert into held_credits (${HELD.rows}) values (${HELD.values(`held_${number}`)})`);
      const [timeId, subjectId, id] = [`free_${number}`, `i_${number}`, `held_${number}`];
      await write(sql`update held_credits set free_time_id = ${timeId}, subject_id = ${subjectId} where id = ${id}`);
    }
    expect(await faultsOf(CREDIT_PROOFS)).toEqual([[], [], []]);
  });

  test.each(NUMBERS)('finds the wrong time %d of five', async (number) => {
    await write(sql`update free_times set granted_ucents = 6 where id = ${`free_${number}`}`);
    const fault = `free_${number}: worth 10, of which 11 was given or held`;
    expect(await faultsOf(CREDIT_PROOFS)).toEqual([[fault], [], []]);
  });

  test.each(NUMBERS)('finds the held amount %d of five that a time lacks', async (number) => {
    await write(sql`update held_credits set amount_ucents = 4 where id = ${`held_${number}`}`);
    expect(await faultsOf(CREDIT_PROOFS)).toEqual([[`free_${number}: 5 is to be held, 4 is`], [], []]);
  });

  test.each(NUMBERS)('finds the decision %d of five that was not posted', async (number) => {
    await write(sql`update held_credits set state = 'released' where id = ${`held_${number}`}`);
    const fault = `held_${number}:own_outage.released: 5 should be posted, the ledger has 0`;
    expect(await faultsOf(CREDIT_PROOFS)).toEqual([[], [fault], []]);
  });

  test('finds transfers that no decision explains, and an account that is not what is held', async () => {
    for (const number of NUMBERS) await post(`held_${number}:credit.held`, 'credit.held', 'i');
    await write(sql`update held_credits set kind = 'credit' where id = 'held_5'`);
    const [, held = [], posted] = await faultsOf(CREDIT_PROOFS);
    expect(held[0]).toBe(`${accountId(suspense)} has 0, 5 is held`);
    expect(posted).toEqual(NUMBERS.map((number) => `held_${number}:credit.held: 0 should be posted, the ledger has 7`));
  });
});

describe('the proof of deposits', () => {
  const DEPOSIT: Omit<Deposit, 'id' | 'address' | 'position'> = {
    org_id: 'o',
    status: 'created',
    chain: 'base',
    asset: 'usdc',
    family: 'evm',
    amount_cents: 100,
    due_units: 1_000_000n,
    tx_hash: null,
    credited_units: null,
    credited_cents: null,
    note: null,
    created_ms: 100,
    expires_ms: 500,
    watched_until_ms: 1_000,
    due_ms: null,
  };
  beforeEach(async () => {
    for (const position of NUMBERS) {
      const row = { ...DEPOSIT, id: `dep_${position}`, address: `0x${position}`, position };
      await world.db.tx('plant', (tx) => insertDeposit(tx, row));
    }
    expect(await faultsOf(DEPOSIT_PROOFS)).toEqual([[], []]);
  });

  test.each(NUMBERS)('finds the wrong deposit %d of five', async (number) => {
    await write(sql`update deposits set credited_cents = 3 where id = ${`dep_${number}`}`);
    const fault = `dep_${number}: credited in cents: 3000000, and the books have 0`;
    expect(await faultsOf(DEPOSIT_PROOFS)).toEqual([[fault], []]);
  });

  test.each(NUMBERS)('finds the transfer of a chain of deposit %d of five that the books lack', async (number) => {
    await write(
      sql`insert into deposit_transfers (id, deposit_id, chain, tx_hash, log_index, block_number, block_hash, block_ms, from_address, asset, units,
            status, is_counted, booking)
          values ('t', ${`dep_${number}`}, 'base', '0xt', 0, 1, 'h', 1, '0xf', 'usdc', 10000, 'final', 1, 'returned')`,
    );
    expect(await faultsOf(DEPOSIT_PROOFS)).toEqual([[`dep_${number}: returned: 1000000, and the books have 0`], []]);
  });

  test('finds deposits of the ledger without a row, and an account that is not what was received', async () => {
    const ids = NUMBERS.map((number) => `gone_${number}`);
    for (const id of ids) await post(`${id}:credit`, 'deposit.credit', id);
    const [, rowless] = await faultsOf(DEPOSIT_PROOFS);
    expect(rowless).toEqual(ids.map((id) => `${id}: the ledger has a deposit without a row`));
    await write(
      sql`insert into deposit_transfers (id, deposit_id, chain, tx_hash, log_index, block_number, block_hash, block_ms, from_address, asset, units,
            status, is_counted, booking)
          values ('t', 'dep_1', 'base', '0xt', 0, 1, 'h', 1, '0xf', 'usdc', 10000, 'final', 1, 'wallet')`,
    );
    const account = accountId(depositClearing('base', 'usdc'));
    expect((await faultsOf(DEPOSIT_PROOFS))[0]).toContain(
      `${account}: the ledger has 0, the transfers of the chains -1000000`,
    );
  });
});

describe('the proof of payouts', () => {
  const idOf = (number: number): string => `pay_${number}`;
  beforeEach(async () => {
    for (const number of NUMBERS) {
      const named = { chain: null, address: null, period_ms: null, batch: null, reference: null, reason: null };
      const times = { created_ms: number, in_flight_ms: null, ended_ms: null };
      const row = { id: idOf(number), supplier_id: 's', state: 'due', amount_ucents: 5n, ...named, ...times } as const;
      await world.db.tx('plant', async (tx) => {
        await insertPayout(tx, row);
        await move(tx, row, { to: 'in_flight' }, { ...world, ledger: world.rooms.ledger });
      });
    }
    expect(await faultsOf(PAYOUT_PROOFS)).toEqual([[], []]);
  });

  test.each(NUMBERS)('finds the payout %d of five whose transfer the ledger lacks', async (number) => {
    await write(sql`update payouts set state = 'paid', ended_ms = 1 where id = ${idOf(number)}`);
    const [states = [], posted] = await faultsOf(PAYOUT_PROOFS);
    expect(states).toEqual([
      `${accountId(inFlight)} has 25, 20 is in flight`,
      `payout:${idOf(number)}:paid: 5 should be posted, the ledger has 0`,
    ]);
    expect(posted).toEqual([]);
  });

  test.each(NUMBERS)('finds the transfer of the payout %d of five, which vanished or is due again', async (number) => {
    const row = await findPayout(world.db.read, idOf(number));
    for (const statement of [
      sql`update payouts set state = 'due', in_flight_ms = null where id = ${row?.id}`,
      sql`delete from payouts where id = ${row?.id}`,
    ]) {
      await write(statement);
      const [, posted] = await faultsOf(PAYOUT_PROOFS);
      expect(posted).toEqual([`payout:${idOf(number)}:sent: the ledger has it, and no payout explains it`]);
    }
  });
});

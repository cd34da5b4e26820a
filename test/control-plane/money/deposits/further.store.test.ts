// Transfers that come in time after a deposit was credited: each is checked as the first one was, and credited once.
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text, ucents } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import { MINUTE_MS, TOKEN } from './deposit-world.ts';
import {
  at,
  chain,
  decide,
  noteReturned,
  deposits,
  openDepositsForEachTest,
  reopen,
  suspended,
  waiting,
} from './deposits-of-test.ts';

openDepositsForEachTest();

async function credited(): Promise<{ id: string; address: string }> {
  const { id, address } = await deposits.create();
  await payMore(address, 25n * TOKEN, 10);
  expect(await deposits.status(id)).toBe('credited');
  return { id, address };
}

async function payMore(address: string, units: bigint, minutes: number, from?: string): Promise<void> {
  await chain.pay(address, units, at(minutes), from === undefined ? {} : { from });
  await chain.finalize(at(minutes + 2));
  await deposits.settle();
}

/** The ids of the transfers of the ledger, with the cents of each. */
async function ledgerOf(id: string): Promise<[string, bigint][]> {
  const rows = await deposits.world.db.read.all(
    z.object({ id: text, amount_ucents: ucents }),
    sql`select id, amount_ucents from transfers where subject_id = ${id} order by id, amount_ucents`,
  );
  return rows.map((row) => [row.id.replaceAll(/deptx_\w+/g, '<transfer>').replace(id, '<id>'), row.amount_ucents]);
}

test('each is credited once, whole cents only, and has ids of its own in the books', async () => {
  const { id, address } = await credited();
  await payMore(address, 5n * TOKEN + 19_999n, 20);
  await payMore(address, 1n, 30);
  await deposits.settle();
  expect(await deposits.find(id)).toMatchObject({
    status: 'credited_overpaid',
    credited_cents: 3_001,
    credited_units: 30n * TOKEN + 20_000n,
  });
  expect(await deposits.cents()).toBe(3_001);
  expect(await ledgerOf(id)).toEqual([
    ['deposit:<id>:credit', 2_500_000_000n],
    ['deposit:<id>:credit:<transfer>', 501_000_000n],
    ['deposit:<id>:credit:<transfer>:rounding', 999_900n],
    ['deposit:<id>:credit:<transfer>:rounding', 100n],
  ]);
  const types = (await deposits.world.journal(id)).slice(-3);
  expect(types).toEqual(['deposit.credited', 'deposit.credited_overpaid', 'deposit.credited_overpaid']);
  expect(await waiting()).toEqual([]);
});

test('two processes that drive the same deposit credit each once', async () => {
  const { id, address } = await credited();
  const other = await deposits.restart();
  await chain.pay(address, 5n * TOKEN, at(20));
  await chain.pay(address, 6n * TOKEN, at(21));
  await chain.finalize(at(23));
  for (const { tick } of deposits.world.rooms.deposits.watchers) while ((await tick()) === 'again');
  const drivers = [deposits, other].map(({ world }) => world.rooms.deposits.driver);
  for (let i = 0; i < 6; i += 1)
    await Promise.all(drivers.map((driver) => driver.drive(id, new AbortController().signal)));
  expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 3_600 });
  expect(await deposits.cents()).toBe(3_600);
  await other.world.rooms.deposits.close();
});

/** A deposit whose sender nobody can check, and a further transfer to it. */
async function held(): Promise<string> {
  chain.fault = { fails: 'eth_call' };
  const { id, address } = await deposits.create();
  await payMore(address, 25n * TOKEN, 10);
  await payMore(address, 5n * TOKEN, 20);
  return id;
}

test('one that comes while the sender of the first is checked waits, and is credited after it', async () => {
  const id = await held();
  expect(await deposits.status(id)).toBe('held_screening');
  chain.fault = undefined;
  await deposits.world.clock.advance(10 * MINUTE_MS);
  await deposits.settle();
  expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 3_000 });
  expect(await deposits.cents()).toBe(3_000);
});

test('one that comes while the first is held goes into suspense if the first is refused', async () => {
  const id = await held();
  chain.fault = undefined;
  await decide(id, 'reject');
  await deposits.settle();
  expect([await deposits.status(id), await suspended(id)]).toEqual(['failed_screening', '30.00']);
});

test('a large one waits for the second node', async () => {
  await reopen({ second: { rpcUrl: 'http://127.0.0.1:9', fromUnits: 26n * TOKEN } });
  const { id, address } = await credited();
  await payMore(address, 26n * TOKEN, 20);
  expect(await deposits.find(id)).toMatchObject({
    status: 'credited',
    note: expect.stringContaining('the second node gave no answer'),
  });
  expect([await waiting(), await suspended(id)]).toEqual([[id], '0.00']);
  await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
  expect(await deposits.cents()).toBe(2_500);
});

describe('a sender', () => {
  test('who is sanctioned is never credited, and does not keep the others from it', async () => {
    const { id, address } = await credited();
    await chain.pay(address, TOKEN, at(20), { from: chain.sanctioned });
    await payMore(address, 5n * TOKEN, 21);
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 3_000 });
    expect([await waiting(), await suspended(id)]).toEqual([[id], '1.00']);
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    await noteReturned(id);
    expect([await waiting(), await suspended(id)]).toEqual([[], '0.00']);
    expect(await deposits.cents()).toBe(3_000);
  });

  test('who is sanctioned does not keep the late tokens of the others once its own are sent back', async () => {
    const { id, address } = await credited();
    await chain.pay(address, TOKEN, at(20), { from: chain.sanctioned });
    await chain.finalize(at(22));
    await deposits.settle();
    await noteReturned(id);
    await chain.pay(address, 5n * TOKEN, at(90));
    await chain.finalize(at(92));
    await deposits.settle();
    expect([await waiting(), await suspended(id)]).toEqual([[id], '5.00']);
    expect(await decide(id, 'credit')).toMatchObject({ status: 'credited_overpaid' });
    expect([await suspended(id), await deposits.cents()]).toEqual(['0.00', 3_000]);
  });

  test('whom nobody can check is checked again until somebody can', async () => {
    const { id, address } = await credited();
    chain.fault = { fails: 'eth_call' };
    await payMore(address, 5n * TOKEN, 20);
    const note = 'nobody could check the sender of a further transfer';
    expect(await deposits.find(id)).toMatchObject({ status: 'credited', note });
    expect(await waiting()).toEqual([id]);
    chain.fault = undefined;
    await deposits.world.clock.advance(5 * MINUTE_MS - 1);
    await deposits.settle();
    expect(await deposits.cents()).toBe(2_500);
    await deposits.world.clock.advance(1);
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 3_000, note: null });
    expect([await waiting(), await deposits.cents()]).toEqual([[], 3_000]);
  });

  test.each([
    ['credit', 'credited_overpaid', 3_000, '0.00'],
    ['reject', 'credited', 2_500, '5.00'],
  ] as const)('whom nobody can check is decided by the operator: %s', async (verb, status, cents, left) => {
    const { id, address } = await credited();
    chain.fault = { fails: 'eth_call' };
    await payMore(address, 5n * TOKEN, 20);
    expect(await decide(id, verb)).toMatchObject({ status });
    await expect(decide(id, verb)).rejects.toMatchObject({ code: 'conflict' });
    chain.fault = undefined;
    await deposits.world.clock.advance(5 * MINUTE_MS);
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status, credited_cents: cents, note: null });
    expect([await suspended(id), await deposits.cents()]).toEqual([left, cents]);
  });
});

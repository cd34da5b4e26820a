// What the operator decides about deposits, and what the nodes and the check of senders do to them.
import { sql } from '../../../../control-plane/base/db/db.ts';
import { describe, expect, test } from 'vitest';
import { MINUTE_MS, TOKEN } from './deposit-world.ts';
import {
  at,
  chain,
  decide,
  noteReturned,
  deposits,
  openDepositsForEachTest,
  operator,
  reopen,
  suspended,
  waiting,
} from './deposits-of-test.ts';

const DAY_MINUTES = 24 * 60;
openDepositsForEachTest();

async function paid(units: bigint, minutes: number, from?: string): Promise<string> {
  const { id, address } = await deposits.create();
  await chain.pay(address, units, at(minutes), from === undefined ? {} : { from });
  await chain.finalize(at(minutes + 2));
  await deposits.settle();
  return id;
}

describe('a sender', () => {
  // Specification 3.4: Stablecoin deposit status: failed_screening, if a sender is sanctioned.
  test('that the oracle knows as sanctioned is never credited, and its tokens can be noted as sent back', async () => {
    const id = await paid(25n * TOKEN, 10, chain.sanctioned);
    expect(await deposits.status(id)).toBe('failed_screening');
    expect([await waiting(), await suspended(id)]).toEqual([[id], '25.00']);
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    expect(await deposits.cents()).toBe(0);
    await noteReturned(id);
    expect([await waiting(), await suspended(id)]).toEqual([[], '0.00']);
    await expect(noteReturned(id)).rejects.toMatchObject({ code: 'conflict' });
  });

  test('of an imported list is refused too', async () => {
    const import_ = (addresses: string[]) =>
      operator.ask('POST', '/admin/deposits/screening', { source: 'a list', addresses });
    expect(await import_([chain.payer, chain.payer.toLowerCase()])).toEqual({ added: 1, total: 1 });
    expect(await import_([chain.payer])).toEqual({ added: 0, total: 1 });
    for (const line of ['', 'nobody', `${chain.payer}00`, chain.payer.replace(/[a-f]/, (c) => c.toUpperCase())]) {
      await expect(import_([chain.sanctioned, line])).rejects.toMatchObject({
        code: 'validation_failed',
        errors: [{ field: 'addresses[1]' }],
      });
    }
    expect(await deposits.status(await paid(25n * TOKEN, 10))).toBe('failed_screening');
  });

  // Specification 3.4: Stablecoin deposit status: held_screening, if nobody can say whether a sender is sanctioned.
  test('that nobody can check is held, and is checked again until somebody can', async () => {
    chain.fault = { fails: 'eth_call' };
    const id = await paid(25n * TOKEN, 10);
    expect(await deposits.status(id)).toBe('held_screening');
    expect(await waiting()).toEqual([id]);
    await deposits.world.clock.advance(5 * MINUTE_MS);
    await deposits.settle();
    expect(await deposits.status(id)).toBe('held_screening');
    chain.fault = undefined;
    await deposits.world.clock.advance(5 * MINUTE_MS - 1);
    await deposits.settle();
    expect(await deposits.status(id)).toBe('held_screening');
    await deposits.world.clock.advance(1);
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });

  test('without an oracle is decided by the lists, if there are some', async () => {
    await reopen({ oracle: null });
    const held = await paid(25n * TOKEN, 10);
    expect(await deposits.status(held)).toBe('held_screening');
    await operator.ask('POST', '/admin/deposits/screening', { source: 'x', addresses: [chain.sanctioned] });
    await deposits.world.clock.advance(5 * MINUTE_MS);
    await deposits.settle();
    expect(await deposits.status(held)).toBe('credited');
  });

  test.each([
    ['credit', 'credited', 2_500, '0.00'],
    ['reject', 'failed_screening', 0, '25.00'],
  ] as const)('that is held is decided by the operator: %s', async (verb, status, cents, left) => {
    await reopen({ oracle: chain.payer });
    const id = await paid(25n * TOKEN, 10);
    expect(await decide(id, verb)).toMatchObject({ deposit_id: id, status });
    expect([await deposits.cents(), await suspended(id)]).toEqual([cents, left]);
    await deposits.world.clock.advance(5 * MINUTE_MS);
    await deposits.settle();
    expect(await deposits.status(id)).toBe(status);
  });
});

test('a refusal that is repeated does not note that the tokens were sent back', async () => {
  await reopen({ oracle: chain.payer });
  const id = await paid(25n * TOKEN, 10);
  await expect(noteReturned(id)).rejects.toMatchObject({
    code: 'conflict',
    detail: expect.stringContaining('use reject first'),
  });
  await decide(id, 'reject');
  await expect(decide(id, 'reject')).rejects.toMatchObject({
    code: 'conflict',
    detail: expect.stringContaining('admin deposit returned'),
  });
  expect([await waiting(), await suspended(id)]).toEqual([[id], '25.00']);
});

describe('what came late', () => {
  test('is credited or noted as sent back, once', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(90));
    await chain.finalize(at(92));
    await deposits.settle();
    expect([await deposits.status(id), await suspended(id)]).toEqual(['expired_received', '25.00']);
    expect(await decide(id, 'credit')).toMatchObject({ status: 'credited', credited: '25.00' });
    expect(await deposits.cents()).toBe(2_500);
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    await expect(decide(id, 'reject')).rejects.toMatchObject({ code: 'conflict' });
    await expect(noteReturned(id)).rejects.toMatchObject({ code: 'conflict' });
    expect(await deposits.cents()).toBe(2_500);
    const { data } = await operator.ask('GET', '/admin/audit');
    expect(data).toMatchObject([{}, {}, {}, { operation: 'adminCreditDeposit', subject: id, outcome: 'ok' }]);
  });

  test('is noted as sent back for one transaction, so what has come meanwhile goes on waiting', async () => {
    const { id, address } = await deposits.create();
    const first = await chain.pay(address, 25n * TOKEN, at(90));
    await chain.finalize(at(92));
    await deposits.settle();
    // The operator sends the tokens back. Further ones come before the operator notes that.
    await chain.pay(address, 7n * TOKEN, at(95));
    await chain.finalize(at(97));
    await deposits.settle();
    await noteReturned(id, first);
    expect([await waiting(), await suspended(id)]).toEqual([[id], '7.00']);
    await expect(noteReturned(id, first)).rejects.toMatchObject({ code: 'conflict' });
    await expect(noteReturned(id, `0x${'0'.repeat(64)}`)).rejects.toMatchObject({
      code: 'conflict',
      detail: expect.stringContaining('admin deposit show'),
    });
    await noteReturned(id);
    expect([await waiting(), await suspended(id)]).toEqual([[], '0.00']);
  });

  test('completes a deposit that was credited with too little', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 10n * TOKEN + 9_999n, at(10));
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_underpaid', credited_cents: 1_000 });
    await chain.pay(address, 15n * TOKEN, at(70));
    await chain.finalize(at(72));
    await deposits.settle();
    expect(await deposits.cents()).toBe(1_000);
    expect(await decide(id, 'credit')).toMatchObject({ status: 'credited_overpaid', credited: '25.009999' });
    expect(await deposits.find(id)).toMatchObject({ credited_cents: 2_500 });
    expect(await deposits.cents()).toBe(2_500);
  });

  test('leaves a deposit complete that was complete by an earlier tolerance', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 24n * TOKEN, at(10));
    await chain.finalize(at(61));
    await deposits.settle();
    // A process with a tolerance of a dollar would have come to this.
    const { db } = deposits.world;
    await db.tx('test', (tx) => tx.run(sql`update deposits set status = 'credited' where id = ${id}`));
    await chain.pay(address, TOKEN / 2n, at(70));
    await chain.finalize(at(72));
    await deposits.settle();
    expect(await decide(id, 'credit')).toMatchObject({ status: 'credited', credited: '24.50' });
    expect(await deposits.cents()).toBe(2_450);
  });

  test('from a sanctioned sender is not credited', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(90), { from: chain.sanctioned });
    await chain.finalize(at(92));
    await deposits.settle();
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    await noteReturned(id);
    expect([await deposits.status(id), await suspended(id)]).toEqual(['expired_received', '0.00']);
  });

  test('after the 30 days is found by its transaction', async () => {
    const { id, address } = await deposits.create();
    await chain.finalize(at(61));
    await deposits.settle();
    await chain.finalize(at(31 * DAY_MINUTES));
    await deposits.settle();
    const tx_hash = await chain.pay(address, 25n * TOKEN, at(31 * DAY_MINUTES + 10));
    const rescan = (hash: string) =>
      operator.ask('POST', `/admin/deposits/${id}/rescan`, { tx_hash: hash, reason: 'the customer named it' });
    await expect(rescan(tx_hash)).rejects.toMatchObject({ code: 'conflict', detail: expect.stringContaining('final') });
    await chain.finalize(at(31 * DAY_MINUTES + 20));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
    await expect(rescan(`0x${'0'.repeat(64)}`)).rejects.toMatchObject({ code: 'not_found' });
    const elsewhere = await chain.pay(chain.sanctioned, TOKEN, at(31 * DAY_MINUTES + 30));
    await expect(rescan(elsewhere)).rejects.toMatchObject({ code: 'conflict' });
    chain.fault = 'down';
    await expect(rescan(tx_hash)).rejects.toMatchObject({
      code: 'deposits_unavailable',
      detail: expect.stringContaining('Try again later.'),
    });
    chain.fault = undefined;
    await rescan(tx_hash);
    await rescan(tx_hash);
    await deposits.settle();
    expect([await deposits.status(id), await suspended(id)]).toEqual(['expired_received', '25.00']);
  });
});

describe('an open deposit', () => {
  // Specification 3.4: Stablecoin deposit status: failed, if the operator cancels it.
  test('is cancelled by the operator, and what comes for it later waits', async () => {
    const { id, address } = await deposits.create();
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
    expect(await decide(id, 'reject')).toMatchObject({ status: 'failed' });
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(12));
    await deposits.settle();
    expect([await deposits.status(id), await suspended(id)]).toEqual(['failed', '25.00']);
    await expect(decide(id, 'credit')).rejects.toMatchObject({ code: 'conflict' });
  });

  test('that does not exist is not found', async () => {
    await expect(decide('dep_x', 'credit')).rejects.toMatchObject({ code: 'not_found' });
    await expect(operator.ask('GET', '/admin/deposits/dep_x')).rejects.toMatchObject({ code: 'not_found' });
    await expect(decide('dep_x', 'reject', ' ')).rejects.toMatchObject({ code: 'validation_failed' });
  });
});

describe('the nodes', () => {
  test('a large deposit waits for the second node, a smaller one does not', async () => {
    const second = { rpcUrl: 'http://127.0.0.1:9', fromUnits: 25n * TOKEN };
    await reopen({ second });
    expect(await deposits.status(await paid(25n * TOKEN - 1n, 10))).toBe('confirming');
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.cents()).toBe(2_499);
    await deposits.world.clock.advance(61 * MINUTE_MS);
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(62));
    await chain.finalize(at(64));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({
      status: 'confirming',
      note: expect.stringContaining('the second node gave no answer'),
    });
    expect(await waiting()).toEqual([id]);
  });

  test('a large deposit is credited if the second node has the same', async () => {
    await reopen({ second: { rpcUrl: chain.url, fromUnits: 25n * TOKEN } });
    expect(await deposits.status(await paid(25n * TOKEN, 10))).toBe('credited');
  });

  test.each([
    ['of another chain', () => ({}), 'polygon', 'the id 1, and polygon has 137'],
    [
      'with a contract of other decimals',
      () => ({ usdc: chain.tokens.withEighteenDecimals }),
      'ethereum',
      '18 decimals',
    ],
    ['with a contract that is none', () => ({ usdt: chain.payer }), 'ethereum', 'usdt has no decimals'],
  ] as const)('a node %s pauses the chain and takes no deposits', async (_what, contracts, name, reason) => {
    await reopen({ contracts: { usdc: chain.tokens.usdc, usdt: chain.tokens.usdt, ...contracts() } }, name);
    await expect(deposits.create({ chain: name })).rejects.toMatchObject({ code: 'deposits_unavailable' });
    const { data } = await operator.ask('GET', '/admin/deposits/chains');
    expect(data).toMatchObject([{ chain: name, paused: expect.stringContaining(reason) }]);
  });

  test('addresses and balances are listed for the wallet that collects the tokens', async () => {
    const [first, second] = [await deposits.create(), await deposits.create()];
    await chain.pay(second.address, 7n * TOKEN, at(10));
    await chain.pay(second.address, 5n * TOKEN, at(11), { token: chain.tokens.usdt });
    await chain.finalize(at(12));
    await deposits.settle();
    const addresses = await operator.ask('GET', '/admin/deposits/addresses');
    expect(addresses['data']).toMatchObject([
      { index: 0, address: first.address, deposit_id: first.id },
      { index: 1, address: second.address, deposit_id: second.id },
    ]);
    const about = { index: 1, address: second.address, chain: 'ethereum' };
    expect(await operator.ask('GET', '/admin/deposits/balances?chain=ethereum')).toEqual({
      data: [
        { ...about, asset: 'usdc', received: '7.00', balance: '7.00' },
        { ...about, asset: 'usdt', received: '5.00', balance: '5.00' },
      ],
      next_after_index: null,
    });
    expect(await operator.ask('GET', '/admin/deposits/balances?chain=ethereum&limit=1')).toMatchObject({
      next_after_index: 1,
    });
    const rest = await operator.ask('GET', '/admin/deposits/balances?chain=ethereum&limit=1&after_index=1');
    expect(rest).toEqual({ data: [], next_after_index: null });
    chain.fault = 'down';
    const asked = operator.ask('GET', '/admin/deposits/balances?chain=ethereum');
    await expect(asked).rejects.toMatchObject({ code: 'deposits_unavailable' });
  });
});

describe('two processes', () => {
  test('one watches a chain at a time, and the other one goes on as soon as the first has ended', async () => {
    const other = await deposits.restart();
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await other.settle();
    expect(await deposits.status(id)).toBe('created');
    await deposits.settle();
    expect(await deposits.status(id)).toBe('detected');
    await deposits.world.rooms.deposits.close();
    await chain.finalize(at(12));
    await other.settle();
    expect(await deposits.status(id)).toBe('credited');
    await other.world.rooms.deposits.close();
  });

  test('a watcher that was paused too long changes nothing', async () => {
    const other = await deposits.restart();
    const { id, address } = await deposits.create();
    await other.settle();
    await deposits.world.clock.advance(121_000);
    await other.settle();
    await chain.pay(address, 25n * TOKEN, at(10));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
    await other.settle();
    expect(await deposits.status(id)).toBe('detected');
    await other.world.rooms.deposits.close();
  });
});

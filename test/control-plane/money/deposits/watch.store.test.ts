// Deposits on a real EVM chain: every way to pay ends in its status, is booked once, and the books agree after it.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addDeposit } from '../../../kit/deposits.ts';
import { type EvmChain, startEvmChain } from '../../../kit/evm-chain.ts';
import { type DepositWorld, MINUTE_MS, openDepositWorld, settingsFor, TOKEN } from './deposit-world.ts';

const START_MS = Date.UTC(2026, 0, 1);
/** The time of a block, in minutes after the deposit was made. */
const at = (minutes: number): number => START_MS + minutes * MINUTE_MS;

let chain: EvmChain;
let deposits: DepositWorld;
beforeAll(async () => {
  chain = await startEvmChain(START_MS - 10 * MINUTE_MS);
});
afterAll(() => chain.close());
beforeEach(async () => {
  await chain.reset();
  await chain.finalize(START_MS - 5 * MINUTE_MS);
  deposits = await openDepositWorld(settingsFor(chain));
  await deposits.settle();
});
afterEach(async () => {
  await deposits.world.verify();
  await deposits.world.close();
});

const events = (id: string): Promise<string[]> => deposits.world.journal(id);

describe('a payment', () => {
  // Specification 3.4: Stablecoin deposit status: created, detected, confirming, settled, screening and credited follow each other.
  test('of the exact amount is credited when it is final', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('detected');
    await chain.mine(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    expect(await deposits.cents()).toBe(0);
    await chain.finalize(at(12));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
    const order = ['created', 'detected', 'confirming', 'settled', 'screening', 'credited'];
    expect(await events(id)).toEqual(order.map((status) => `deposit.${status}`));
    await deposits.settle();
    expect(await deposits.cents()).toBe(2_500);
  });

  test('in several parts adds up until it is enough', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 10n * TOKEN, at(10));
    await chain.finalize(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    await chain.pay(address, 15n * TOKEN, at(30));
    await chain.finalize(at(31));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
  });

  // Specification 3.4: Stablecoin deposit status: credited_underpaid, if less came until the end.
  test('of too little is credited when the time of the chain is over', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 24n * TOKEN + 999_999n, at(10));
    await chain.finalize(at(59));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_underpaid', credited_cents: 2_499 });
    expect(await deposits.cents()).toBe(2_499);
  });

  // Specification 3.4: Stablecoin deposit status: credited_overpaid, if more came.
  test('of too much is credited with all of it', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 26n * TOKEN, at(10));
    await chain.finalize(at(12));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 2_600 });
    expect(await deposits.cents()).toBe(2_600);
  });

  test.each([
    [at(60), 'credited'],
    [at(60) + 1_000, 'expired_received'],
  ])('in a block of the last second counts, one second later it does not', async (blockMs, status) => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, blockMs);
    await chain.finalize(at(70));
    await deposits.settle();
    expect(await deposits.status(id)).toBe(status);
    expect(await deposits.cents()).toBe(status === 'credited' ? 2_500 : 0);
  });

  // Specification 3.4: Stablecoin deposit status: expired and expired_received, if nothing or something comes later.
  test('after the end is kept for the operator', async () => {
    const { id, address } = await deposits.create();
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
    await chain.pay(address, 25n * TOKEN, at(29 * 24 * 60));
    await chain.finalize(at(29 * 24 * 60 + 1));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired_received');
    expect(await deposits.cents()).toBe(0);
  });

  test('that comes in time after the credit is credited too', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(12));
    await deposits.settle();
    await chain.pay(address, 5n * TOKEN, at(20));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited', credited_cents: 2_500 });
    await chain.finalize(at(21));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_cents: 3_000 });
    expect(await deposits.cents()).toBe(3_000);
  });

  test('that comes too late after the credit is kept for the operator, and the status stays', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(12));
    await deposits.settle();
    await chain.pay(address, 5n * TOKEN, at(61));
    await chain.finalize(at(62));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
  });

  test('that is complete is credited at once, although a stranger has just sent a tiny amount', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(12));
    await chain.pay(address, 1n, at(13));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited', credited_cents: 2_500 });
    await chain.finalize(at(14));
    await deposits.settle();
    expect(await deposits.find(id)).toMatchObject({ status: 'credited_overpaid', credited_units: 25n * TOKEN + 1n });
    expect(await deposits.cents()).toBe(2_500);
  });

  test('in a token that only looks alike does not count, and leaves no trace', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10), { token: chain.tokens.lookAlike });
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
  });

  test('in the other token is kept for the operator, and the deposit goes on', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10), { token: chain.tokens.usdt });
    await chain.finalize(at(12));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
    await chain.pay(address, 25n * TOKEN, at(20));
    await chain.finalize(at(22));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
  });

  test('of nothing is no payment', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 0n, at(10));
    await chain.finalize(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
  });
});

describe('a reorganisation', () => {
  test('that takes a payment leads back to created, and then to expired', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.mine(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    await chain.reorg(2);
    await chain.mine(at(12));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
    expect((await deposits.find(id)).tx_hash).toBeNull();
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
  });

  test('that puts a payment into another block changes nothing in the end', async () => {
    const { id, address } = await deposits.create();
    const hash = await chain.pay(address, 25n * TOKEN, at(10));
    await chain.mine(at(11));
    await deposits.settle();
    await chain.reorg(2, hash);
    await chain.mine(at(12));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    await chain.finalize(at(13));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
  });

  test('that nobody saw while it happened still ends well', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await deposits.settle();
    await chain.reorg(1);
    await chain.finalize(at(61));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
  });

  test('that happened while the watcher was far behind takes the payment too', async () => {
    await deposits.world.close();
    deposits = await openDepositWorld(settingsFor(chain, { blocksPerQuery: 1 }));
    await deposits.settle();
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await deposits.settle();
    await chain.reorg(1);
    await chain.mine(at(61), 50);
    await deposits.settle();
    expect(await deposits.status(id)).toBe('expired');
  });

  test('of a final block pauses the chain until the operator has it read again', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    await chain.reorg(6);
    await chain.mine(at(12), 2);
    await deposits.settle();
    await expect(deposits.create()).rejects.toMatchObject({ code: 'deposits_unavailable' });
    const rewound = await deposits.world.rooms.deposits.decisions.rewind('ethereum', (await chain.head()) - 8);
    expect(rewound).toEqual({ orphaned: 0, booked: [id] });
    await deposits.settle();
    expect(await deposits.status((await deposits.create()).id)).toBe('created');
  });
});

describe('a node', () => {
  test('that is down for an hour expires nothing that was paid in time', async () => {
    const { id, address } = await deposits.create();
    chain.fault = 'down';
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(70));
    for (let minutes = 0; minutes < 60; minutes += 10) {
      await deposits.world.clock.advance(10 * MINUTE_MS);
      await expect(deposits.settle()).rejects.toMatchObject({ name: 'OutboundError' });
    }
    expect(await deposits.status(id)).toBe('created');
    chain.fault = undefined;
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
    expect(await deposits.cents()).toBe(2_500);
  });

  test('that lags behind a payment in time expires nothing', async () => {
    const { id, address } = await deposits.create();
    await chain.mine(at(5), 2);
    await deposits.settle();
    await chain.pay(address, 25n * TOKEN, at(59));
    await chain.finalize(at(70));
    chain.fault = { lagBlocks: 7 };
    await deposits.world.clock.advance(120 * MINUTE_MS);
    await deposits.settle();
    expect(await deposits.status(id)).toBe('created');
    chain.fault = { lagBlocks: 1 };
    await deposits.settle();
    chain.fault = undefined;
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });

  test('that refuses many blocks at once is asked for fewer', async () => {
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(11));
    chain.fault = { rangeMax: 2 };
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });

  test('is asked about more addresses than fit into one query', async () => {
    const { world } = deposits;
    for (let i = 0; i < 501; i += 1) await addDeposit(world, `dep_${i}`, deposits.who.orgId, padded(i));
    const { deposits: room } = world.rooms;
    const request = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 } as const;
    const { orgId } = await world.customer(0);
    const { id, address } = await world.db.tx('test.deposit', (tx) => room.create(tx, orgId, request));
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.finalize(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });

  test('a payment on a chain whose finality is a number of blocks is believed after that number', async () => {
    await deposits.world.close();
    deposits = await openDepositWorld(settingsFor(chain, { finality: 2 }));
    await deposits.settle();
    const { id, address } = await deposits.create();
    await chain.pay(address, 25n * TOKEN, at(10));
    await chain.mine(at(11));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('confirming');
    await chain.mine(at(12));
    await deposits.settle();
    expect(await deposits.status(id)).toBe('credited');
  });
});

/** An address of nobody. */
function padded(number: number): string {
  return `0x${number.toString(16).padStart(40, '0')}`;
}

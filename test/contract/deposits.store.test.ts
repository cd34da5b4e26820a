// Stablecoin deposits over the API: every field, every refusal by its field, and what is there without a configuration.
import { describe, expect, test } from 'vitest';
import { Deposit, DepositMethods } from '../../shared/api/deposit.ts';
import { addChain, pause } from '../../control-plane/money/deposits/chains-store.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { noteRead, offlineDeposits } from '../kit/deposits.ts';
import { type Answer, type Api, openApi } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/deposits';
const WANTED = { asset: 'usdc', chain: 'ethereum', amount_usd_cents: 2_500 };

openApiForEachTest(() => ({ settings: { deposits: offlineDeposits() } }));

const post = (change: object = {}, headers: Record<string, string> = {}): Promise<Answer> =>
  api.call('POST', PATH, { key: owner.key, body: { ...WANTED, ...change }, headers });

async function started(change: object = {}): Promise<Deposit> {
  const { json, status } = await post(change);
  expect(status).toBe(201);
  return Deposit.parse(json);
}

const ready = async (): Promise<void> => {
  for (const chain of ['ethereum', 'base'] as const) await noteRead(api.world, chain);
};

describe('POST /v1/deposits', () => {
  // Specification 2.18: A deposit has deposit_id, status, chain, asset, amount_usd_cents, created_at, pay_address, pay_amount and expires_at.
  // Specification 2.18: tx_hash and credited_cents are absent until there is a transfer and a credit.
  test('answers with all that a payer needs', async () => {
    await ready();
    expect(await started()).toEqual({
      deposit_id: expect.stringMatching(/^dep_/),
      status: 'created',
      chain: 'ethereum',
      asset: 'usdc',
      amount_usd_cents: 2_500,
      created_at: '2026-01-01T00:00:00.000Z',
      pay_address: '0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266',
      pay_amount: '25.00',
      expires_at: '2026-01-01T01:00:00.000Z',
    });
  });

  // Specification 2.18: pay_address is unique to the deposit.
  test('gives each deposit an address of its own, also on another chain and to another organisation', async () => {
    await ready();
    const other = await api.account();
    const { json } = await api.call('POST', PATH, { key: other.key, body: WANTED });
    const all = [await started(), await started(), await started({ chain: 'base' }), Deposit.parse(json)];
    expect(new Set(all.map((deposit) => deposit.pay_address)).size).toBe(4);
    expect(new Set(all.map((deposit) => deposit.deposit_id)).size).toBe(4);
  });

  // Specification 2.18: pay_amount is an exact decimal string, never a number.
  test.each([
    [1_000, '10.00'],
    [1_001, '10.01'],
    [10_000_000, '100000.00'],
  ])('takes %s cents, at both edges of what is allowed', async (cents, amount) => {
    await ready();
    expect(await started({ amount_usd_cents: cents })).toMatchObject({ amount_usd_cents: cents, pay_amount: amount });
  });

  test.each([
    ['below the limit', { amount_usd_cents: 999 }, 'amount_usd_cents', 'must be at least 1000 ($10.00)'],
    ['above the limit', { amount_usd_cents: 10_000_001 }, 'amount_usd_cents', 'must be at most 10000000 ($100000.00)'],
    ['zero', { amount_usd_cents: 0 }, 'amount_usd_cents', ''],
    ['negative', { amount_usd_cents: -2_500 }, 'amount_usd_cents', ''],
    ['a fraction', { amount_usd_cents: 2_500.5 }, 'amount_usd_cents', ''],
    ['a text', { amount_usd_cents: '2500' }, 'amount_usd_cents', ''],
    ['of an unknown chain', { chain: 'bitcoin' }, 'chain', ''],
    ['of a chain that is not taken', { chain: 'polygon' }, 'chain', 'must be ethereum or base'],
    ['of an unknown asset', { asset: 'dai' }, 'asset', ''],
    ['of usdt on base', { chain: 'base', asset: 'usdt' }, 'asset', 'its issuer has none there'],
  ])('refuses an amount or a pair that is %s, and makes nothing', async (_what, change, field, rule) => {
    await ready();
    const answer = await post(change);
    const { fields, text } = expectRefused(PATH, answer, 'validation_failed');
    expect([fields, text]).toEqual([[field], expect.stringContaining(rule)]);
    expect((await api.call('GET', PATH, { key: owner.key })).json).toEqual({ data: [], next_cursor: null });
    expect((await started()).pay_address).toBe('0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266');
  });

  test('takes as many open deposits as the operator allows, and not one more', async () => {
    await ready();
    for (let i = 0; i < 20; i += 1) await started();
    const refused = await post();
    expect(expectRefused(PATH, refused, 'rate_limit_exceeded').text).toContain('20 deposits open');
    expect(refused.headers['retry-after']).toBe('60');
  });

  test('takes no more deposits after 100 have expired without a payment in 30 days', async () => {
    await ready();
    const expire = (): Promise<number> =>
      api.world.db.tx('test', (tx) => tx.run(sql`update deposits set status = 'expired', due_ms = null`));
    for (let i = 0; i < 99; i += 1) await started().then(expire);
    await started();
    await expire();
    const refused = await post();
    expect(expectRefused(PATH, refused, 'rate_limit_exceeded').text).toContain(
      '100 deposits of this organisation have expired',
    );
    expect(refused.headers['retry-after']).toBe('3600');
    // One of them is 30 days old.
    const old = api.world.clock.now() - 30 * 24 * 3_600_000;
    await api.world.db.tx('test', (tx) =>
      tx.run(sql`update deposits set created_ms = ${old} where id = (select min(id) from deposits)`),
    );
    await started();
  });

  test('makes one deposit of a repeated request', async () => {
    await ready();
    const [first, second] = [await post({}, { 'idempotency-key': 'k' }), await post({}, { 'idempotency-key': 'k' })];
    expect(second.body).toBe(first.body);
    expect((await api.call('GET', PATH, { key: owner.key })).json.data).toHaveLength(1);
  });

  test('is 503 on a chain that was not read yet, and names the others', async () => {
    const { text } = expectRefused(PATH, await post(), 'deposits_unavailable');
    expect(text).toBe('Deposits on ethereum are paused. Try again later, or choose base.');
  });
});

describe('a chain whose addresses are imported', () => {
  test('is 503 while none is left, and nothing is made', async () => {
    const solana = await openApi({ settings: { deposits: { ...offlineDeposits(['solana']), evmKey: null } } });
    await noteRead(solana.world, 'solana');
    const { key } = await solana.account();
    const answer = await solana.call('POST', PATH, { key, body: { ...WANTED, chain: 'solana' } });
    expect(expectRefused(PATH, answer, 'deposit_addresses_exhausted').text).toContain('No address on solana is left');
    expect((await solana.call('GET', PATH, { key })).json.data).toEqual([]);
    await solana.close();
  });
});

describe('a service that takes no deposits', () => {
  test('answers 503 to a new one, and shows an empty list', async () => {
    const without = await openApi();
    const { key } = await without.account();
    const answer = await without.call('POST', PATH, { key, body: WANTED });
    expect(expectRefused(PATH, answer, 'deposits_unavailable').text).toContain('takes no stablecoin deposits');
    expect((await without.call('GET', PATH, { key })).json).toEqual({ data: [], next_cursor: null });
    await without.close();
  });
});

describe('GET /v1/deposits/methods', () => {
  const methodsOf = async (of: Api, key: string): Promise<unknown> => {
    const { status, json } = await of.call('GET', `${PATH}/methods`, { key });
    expect(status).toBe(200);
    return DepositMethods.parse(json);
  };

  test('lists the chains and tokens that are taken, whether each is paused or was not read yet, and the limits', async () => {
    await noteRead(api.world, 'ethereum');
    await api.world.db.tx('test', (tx) => addChain(tx, 'base', api.world.clock.now()));
    expect(await methodsOf(api, owner.key)).toEqual({
      min_usd_cents: 1_000,
      max_usd_cents: 10_000_000,
      methods: [
        { chain: 'ethereum', asset: 'usdc', available: true },
        { chain: 'ethereum', asset: 'usdt', available: true },
        { chain: 'base', asset: 'usdc', available: false },
      ],
    });
    await api.world.db.tx('test', (tx) => pause(tx, 'ethereum', 'its node is wrong', api.world.clock.now()));
    expect(await methodsOf(api, owner.key)).toMatchObject({
      methods: [{ available: false }, { available: false }, {}],
    });
  });

  test('is empty if the service takes no deposits', async () => {
    const without = await openApi();
    const { key } = await without.account();
    expect(await methodsOf(without, key)).toEqual({ min_usd_cents: null, max_usd_cents: null, methods: [] });
    await without.close();
  });
});

test('a deposit is read by its organisation', async () => {
  await ready();
  const { deposit_id: id } = await started();
  const { json } = await api.call('GET', `${PATH}/${id}`, { key: owner.key });
  expect(json).toMatchObject({ deposit_id: id, status: 'created' });
  expectRefused(PATH, await api.call('GET', `${PATH}/dep_nothing`, { key: owner.key }), 'not_found');
});

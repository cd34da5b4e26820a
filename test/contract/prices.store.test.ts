// What a launch costs (specification 4.3): the cap, the price that was viewed, the pin, and the rate that stays for its whole life.
import { describe, expect, test } from 'vitest';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made, newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

openApiForEachTest();

const launch = (body: object = {}): Promise<Answer> => postLaunch(api, owner, { ...LAUNCH, ...body });
/** The price at which the launch was placed; else why it was not. */
async function placed(body: object): Promise<unknown> {
  const { status, json } = await launch(body);
  expect(status).toBe(202);
  await api.world.drive();
  const instance = await newestInstance(api, owner);
  if (instance['status'] === 'allocating') return instance['price_per_hour'];
  const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
  return operation.json['error'];
}

describe('max_price_per_hour', () => {
  const refusal = { code: 'no_capacity', detail: expect.stringContaining('within the price') as string };

  // Specification 4.3: max_price_per_hour caps the price of the whole instance.
  test('caps the price of the whole instance, at its edge', async () => {
    await api.world.machine({ gpus: 4, dollars: 1.25 });
    expect(await placed({ gpu_count: 2, max_price_per_hour: 2.49999999 })).toMatchObject(refusal);
    expect(await placed({ gpu_count: 2, max_price_per_hour: 2.5 })).toBe(2.5);
  });

  // Specification 4.3: A cap is never dropped, whatever digits it has.
  test('means the exact decimal if the client computed it in doubles, and is as strict a cap', async () => {
    expect(3 * 2.49).toBe(7.470000000000001);
    await api.world.machine({ gpus: 3, dollars: 2.5 });
    expect(await placed({ gpu_count: 3, max_price_per_hour: 3 * 2.49 })).toMatchObject(refusal);
    await api.world.machine({ gpus: 3, dollars: 2.49 });
    expect(await placed({ gpu_count: 3, max_price_per_hour: 3 * 2.49 })).toBe(7.47);
  });

  // Specification 4.3: Capacity above the cap is skipped; without a pin or cap the rate is set at placement and can exceed the catalog row.
  test('skips dearer offerings, which a launch without it would take', async () => {
    for (const dollars of [1, 2, 3]) await api.world.machine({ dollars });
    expect(await placed({ max_price_per_hour: 1.5 })).toBe(1);
    expect(await placed({ max_price_per_hour: 1.5 })).toMatchObject(refusal);
    expect([await placed({}), await placed({})]).toEqual([2, 3]);
  });

  // Specification 4.3: The cap goes before the preferred region.
  test('comes before the preferred region: a dearer offering there is skipped for a cheaper one elsewhere', async () => {
    await api.world.machine({ dollars: 5, region: 'near' });
    await api.world.machine({ dollars: 1, region: 'far' });
    expect(await placed({ region: 'near', max_price_per_hour: 2 })).toBe(1);
    expect(await placed({ region: 'near' })).toBe(5);
  });

  // Specification 4.3: The cap holds for a boot rescue, which never binds above the originally placed rate.
  test('holds for a boot rescue too, which never costs more than the first place', async () => {
    for (const dollars of [1, 2]) await api.world.machine({ dollars });
    const { json } = await launch({ max_price_per_hour: 5 });
    const id = String((await newestInstance(api, owner))['id']);
    await api.world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await api.world.drive();
    const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
    expect(operation.json).toMatchObject({ state: 'failed', error: { code: 'operation_failed' } });
    const detail = expect.stringMatching(/ The price cap is what the first host costs, \$1\.00 an hour\.$/) as string;
    expect(operation.json).toMatchObject({ error: { detail } });
    await api.world.machine({ dollars: 1 });
    const second = await launch({ max_price_per_hour: 5 });
    expect(second.status).toBe(202);
    await api.world.machine({ dollars: 1 });
    const rescued = String((await newestInstance(api, owner))['id']);
    await api.world.observe(rescued, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await api.world.drive();
    expect(await newestInstance(api, owner)).toMatchObject({ id: rescued, status: 'allocating', price_per_hour: 1 });
  });
});

describe('offering_id', () => {
  // Specification 4.3: offering_id pins the launch to one offering at its listed rate.
  test('places the launch on that offering at its own rate, even if another one is cheaper', async () => {
    await api.world.machine({ dollars: 1 });
    await api.world.machine({ gpus: 2, dollars: 4 });
    const { json } = await api.call('GET', '/v1/pricing');
    const dear = json.data?.find((row) => row['price_per_hour'] === 4)?.['offering_id'];
    expect(await placed({ offering_id: dear, gpu_count: 2 })).toBe(8);
    expect(await placed({ offering_id: dear })).toMatchObject({ code: 'no_capacity' });
  });

  // Specification 4.3: A pinned offering that is gone refuses the launch.
  test('is refused if it is not listed, and nothing is made', async () => {
    await api.world.machine();
    const before = await made(api, owner);
    const refused = await launch({ offering_id: 'off_gone' });
    expect(refused).toMatchObject({ status: 422, json: { code: 'offering_unavailable' } });
    expect(refused.json['detail']).toContain('Choose another from GET /v1/pricing');
    expect(await made(api, owner)).toEqual(before);
  });
});

// Specification 7.2: insufficient_balance is 402.
test('a launch is 402 and makes nothing if the balance does not cover its first ten minutes, and runs if the balance just covers them', async () => {
  await api.world.machine({ gpus: 2, dollars: 30_000.06 });
  const before = await made(api, owner);
  const refused = await launch({ gpu_count: 2 });
  expect(refused).toMatchObject({ status: 402, json: { code: 'insufficient_balance' } });
  expect(refused.json['detail']).toBe('This needs $10000.02 and $10000.00 is available. Add funds and try again.');
  expect(await made(api, owner)).toEqual(before);
  await api.world.machine({ gpus: 2, dollars: 30_000 });
  expect(await placed({ gpu_count: 2 })).toBe(60_000);
});

test.each([
  [0.000000001, 'must be at least 0.00000001'],
  [0.123456789, 'must have at most 8 decimals'],
])('a machine cannot be offered for %d dollars an hour', async (price, rule) => {
  await api.call('POST', '/v1/community/supplier', { key: owner.key });
  const body = { region: 'eu', price_per_hour: price };
  const refused = await api.call('POST', '/v1/community/machines', { key: owner.key, body });
  expect(refused).toMatchObject({ status: 422, json: { errors: [{ field: 'price_per_hour', rule }] } });
});

describe('viewed_price_per_hour', () => {
  // Specification 4.3: viewed_price_per_hour: a launch-time price more than 0.01 above fails with price_changed, which carries the new price.
  // Specification 7.2: price_changed carries the new price.
  test('is the price of the whole instance; a refusal carries the new price and makes nothing', async () => {
    await api.world.machine({ gpus: 4, dollars: 1.5 });
    const before = await made(api, owner);
    const refused = await launch({ gpu_count: 3, viewed_price_per_hour: 1.5 });
    expect(refused).toMatchObject({ status: 409, json: { code: 'price_changed', current_price_per_hour: 4.5 } });
    expect(refused.json['detail']).toContain('The price is now $4.50 an hour.');
    expect(await made(api, owner)).toEqual(before);
    expect(await placed({ gpu_count: 3, viewed_price_per_hour: 4.5 })).toBe(4.5);
  });

  // Specification 4.3: The viewed price is a refusal only and never raises what is charged.
  test('never raises what is charged', async () => {
    await api.world.machine({ dollars: 1 });
    expect(await placed({ viewed_price_per_hour: 9 })).toBe(1);
  });

  test('is accepted if the client computed it in doubles', async () => {
    await api.world.machine({ gpus: 3, dollars: 2.49 });
    expect(await placed({ gpu_count: 3, viewed_price_per_hour: 3 * 2.49 })).toBe(7.47);
  });

  // Specification 4.3: The viewed price holds at the placement, also a late one.
  test('also applies if capacity appears only after the launch was accepted', async () => {
    await api.world.machine({ dollars: 1 });
    await launch();
    const { json } = await launch({ viewed_price_per_hour: 1 });
    const before = await made(api, owner);
    await api.world.machine({ dollars: 1.02 });
    await api.world.drive();
    const operation = await api.call('GET', `/v1/operations/${String(json['operation_id'])}`, { key: owner.key });
    expect(operation.json).toMatchObject({
      state: 'failed',
      error: { code: 'price_changed', detail: expect.stringContaining('The price is now $1.02 an hour.') as string },
    });
    const { workloads, held_cents: heldCents } = await made(api, owner);
    expect([workloads, heldCents]).toEqual([before['workloads'], before['held_cents']]);
  });
});

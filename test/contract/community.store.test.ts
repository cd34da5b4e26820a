// A supplier's own view (specification 2.17, 3.4): what it is, its machines, and what it can do with them.
import { describe, expect, test } from 'vitest';
import { findInstance } from '../../control-plane/rental/instances/store.ts';
import { GPUS_PER_MACHINE_MAX } from '../../shared/limits.ts';
import type { Answer } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { bringMachine } from './suppliers.ts';
import { loseHost } from '../kit/machines.ts';

openApiForEachTest();

const MACHINES = '/v1/community/machines';
const ask = (method: 'GET' | 'POST' | 'PATCH' | 'DELETE', url: string, body?: object): Promise<Answer> =>
  api.call(method, url, body === undefined ? { key: owner.key } : { key: owner.key, body });

const bring = (declared?: object): Promise<string> => bringMachine(api, owner, declared);

// Specification 2.17: CommunitySupplier: supplier_id, org_id, status, created_at, updated_at.
// Specification 3.4: Community supplier status: active, suspended.
test('an organisation is no supplier before it registers as one, and is active from then on', async () => {
  expect(await ask('GET', '/v1/community/supplier')).toMatchObject({ status: 404, json: { code: 'not_found' } });
  const { json: made } = await ask('POST', '/v1/community/supplier');
  const { status, json } = await ask('GET', '/v1/community/supplier');
  expect([status, json]).toEqual([200, made]);
  expect(json).toMatchObject({ org_id: owner.orgId, status: 'active' });
  const supplierId = String(json['supplier_id']);
  await api.world.rooms.supply.suspendSupplier(supplierId);
  expect((await ask('GET', '/v1/community/supplier')).json).toMatchObject({ status: 'suspended' });
  const refused = await ask('POST', MACHINES, { region: 'eu', price_per_hour: 1 });
  expect(refused).toMatchObject({ status: 409, json: { code: 'conflict' } });
});

describe('a machine', () => {
  // Specification 2.17: CommunityMachine: gpu_count, gpu_type, region, price_per_hour and vram_per_gpu_gb may be null and are as declared.
  // Specification 2.17: CommunityMachineRegistration: machine and enrollment_token.
  // Specification 2.17: CommunityMachine: its fields, those that are optional as they were declared.
  // Specification 2.17: The hash of the enrolment token is never serialized.
  // Specification 3.4: Community machine status: pending_verification, then listed.
  test('shows what was declared and how it stands, from its registration on', async () => {
    await ask('POST', '/v1/community/supplier');
    const declared = { region: 'eu', price_per_hour: 1.25, gpu_type: 'L4', gpu_count: 2, vram_per_gpu_gb: 24 };
    const { json } = await ask('POST', MACHINES, declared);
    const { machine_id: id } = json['machine'] as { machine_id: string };
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toEqual(json['machine']);
    expect(json['machine']).toMatchObject({
      ...declared,
      tier: 'on_demand',
      status: 'pending_verification',
      status_reason: 'The host has not enrolled yet.',
      verification_status: 'unverified',
      last_heartbeat_at: null,
    });
    expect(JSON.stringify(json['machine'])).not.toContain('token');
  });

  // Specification 2.17: CommunityMachine: last_heartbeat_at is the last sign of its agent.
  test('has no status_reason while it is listed, and shows the time of its last heartbeat', async () => {
    const id = await bring();
    const { json } = await ask('GET', `${MACHINES}/${id}`);
    expect(json).toMatchObject({ status: 'listed', status_reason: null, verification_detail: null });
    expect(Date.parse(String(json['last_heartbeat_at']))).toBe(api.world.clock.now());
  });

  test('shows what its host reports, whether it is online, what is rented of it and what it has earned today', async () => {
    await ask('POST', '/v1/community/supplier');
    const { json } = await ask('POST', MACHINES, { region: 'eu', price_per_hour: 1 });
    const fresh = { online: false, reported_gpus: [], earned_today_cents: 0, platform_fee_percent: 20 };
    expect(json['machine']).toMatchObject(fresh);
    const id = await bringMachine(api, owner, { gpu_type: 'H100_SXM' }, 3);
    const read = async () => (await ask('GET', `${MACHINES}/${id}`)).json;
    const gpus = { gpu_type: 'H100_SXM', vram_per_gpu_gb: 80, count: 3, rented: 0, reserved: 0 };
    expect(await read()).toMatchObject({ online: true, reported_gpus: [gpus], earned_today_cents: 0 });
    const customer = await api.world.customer(10_000);
    const rented = await api.world.run(customer);
    expect(await read()).toMatchObject({ reported_gpus: [{ ...gpus, rented: 1 }] });
    await api.world.clock.advance(30 * 60_000);
    await api.world.end(customer, rented);
    // Half an hour at $2, less the fee of a fifth.
    expect(await read()).toMatchObject({ reported_gpus: [gpus], earned_today_cents: 80 });
    const { json: list } = await ask('GET', MACHINES);
    expect(list.data?.map((machine) => machine['earned_today_cents'])).toEqual(
      list.data?.map((machine) => (machine['machine_id'] === id ? 80 : 0)),
    );
    await api.world.clock.advance(24 * 3_600_000);
    await loseHost(api.world, id);
    expect(await read()).toMatchObject({ online: false, earned_today_cents: 0 });
  });

  // Specification 2.17: Spec fields are self-declared and unverified; a host that contradicts them fails.
  test('is failed with a reason if its host contradicts the declared fields, which stay as declared', async () => {
    const id = await bring();
    await ask('PATCH', `${MACHINES}/${id}`, { gpu_count: 8 });
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({
      gpu_count: 8,
      status: 'listed',
      status_reason: 'Its verification failed: gpu_count is declared as 8, the host shows 1.',
      verification_status: 'failed',
      verification_detail: 'gpu_count is declared as 8, the host shows 1.',
    });
    expect((await ask('GET', '/v1/pricing')).json.data).toEqual([]);
  });

  test('on the spot tier says that spot is not sold', async () => {
    const id = await bring({ tier: 'spot' });
    const { json } = await ask('GET', `${MACHINES}/${id}`);
    expect(json).toMatchObject({ tier: 'spot', status_reason: 'Spot capacity is not sold at present.' });
  });
});

describe('a change of a machine', () => {
  test('shows in the catalog at once, and a running rental keeps its price', async () => {
    const id = await bring();
    const instanceId = await api.world.run(await api.world.customer(10_000));
    const changed = await ask('PATCH', `${MACHINES}/${id}`, { price_per_hour: 0.37, gpu_count: 1 });
    expect(changed).toMatchObject({ status: 200, json: { price_per_hour: 0.37, gpu_count: 1, status: 'listed' } });
    expect((await ask('GET', '/v1/pricing')).json.data).toMatchObject([{ price_per_hour: 0.37 }]);
    expect((await findInstance(api.world.db.read, instanceId))?.price_ucents_per_hour).toBe(200_000_000n);
  });

  test.each<[object, string]>([
    [{}, 'must name at least one field'],
    [{ price_per_hour: 0 }, 'price_per_hour'],
    [{ price_per_hour: 1000.01 }, 'price_per_hour'],
    [{ price_per_hour: 0.000000001 }, 'price_per_hour must be at least 0.00000001'],
    [{ price_per_hour: 1.000000001 }, 'price_per_hour must have at most 8 decimals'],
    [{ gpu_count: GPUS_PER_MACHINE_MAX + 1 }, 'gpu_count'],
    [{ gpu_count: 0 }, 'gpu_count'],
    [{ vram_per_gpu_gb: 1025 }, 'vram_per_gpu_gb'],
    [{ region: '' }, 'region'],
    [{ tier: 'reserved' }, 'tier'],
    [{ status: 'listed' }, 'status'],
  ])('to %j is refused with the field and the rule', async (body, rule) => {
    const id = await bring();
    const refused = await ask('PATCH', `${MACHINES}/${id}`, body);
    expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed' } });
    expect(refused.json['detail']).toContain(rule);
  });

  test.each([
    { price_per_hour: 1000 },
    { price_per_hour: 0.00000001 },
    { gpu_count: GPUS_PER_MACHINE_MAX },
    { vram_per_gpu_gb: 1024 },
    { gpu_type: null, gpu_count: null, vram_per_gpu_gb: null },
    { region: 'r'.repeat(64) },
    { tier: 'spot' },
  ])('to %j is accepted', async (body) => {
    const id = await bring();
    expect(await ask('PATCH', `${MACHINES}/${id}`, body)).toMatchObject({ status: 200, json: body });
  });
});

describe('delisting', () => {
  // Specification 2.17: CommunityMachineDelistResult: machine_id and status.
  // Specification 3.4: Delisting an idle machine gives delisted at once and it leaves supply immediately.
  test('takes an idle machine out of supply at once; a repeat has the same answer; a new listing brings it back', async () => {
    const id = await bring();
    for (let i = 0; i < 2; i += 1) {
      const answer = await ask('DELETE', `${MACHINES}/${id}`);
      expect([answer.status, answer.json]).toEqual([200, { machine_id: id, status: 'delisted' }]);
    }
    expect((await ask('GET', '/v1/pricing')).json.data).toEqual([]);
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({ status: 'delisted' });
    expect(await ask('POST', `${MACHINES}/${id}/list`)).toMatchObject({ status: 200, json: { status: 'listed' } });
    expect((await ask('GET', '/v1/pricing')).json.data).toHaveLength(1);
  });

  // Specification 2.17: CommunityMachineDelistResult: status is delisted or draining.
  // Specification 3.4: Delisting a machine that is occupied gives draining: the existing rental keeps running and is never killed.
  test('drains an occupied machine: its rental keeps running, and the machine is delisted when the rental ends', async () => {
    const id = await bring();
    const instanceId = await api.world.run(await api.world.customer(10_000));
    expect((await ask('DELETE', `${MACHINES}/${id}`)).json).toEqual({ machine_id: id, status: 'draining' });
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({
      status: 'delisted',
      status_reason: 'It was delisted; a rental on it goes on until it ends.',
    });
    await api.world.observe(instanceId, { phase: 'stopped' });
    await api.world.drive();
    await api.world.observe(instanceId, { phase: 'removed' });
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({ status: 'delisted' });
  });

  test('answers a repeat with the same Idempotency-Key as before, whatever has happened since', async () => {
    const id = await bring();
    const options = { key: owner.key, headers: { 'idempotency-key': 'once' } };
    const first = await api.call('DELETE', `${MACHINES}/${id}`, options);
    await ask('POST', `${MACHINES}/${id}/list`);
    const second = await api.call('DELETE', `${MACHINES}/${id}`, options);
    expect([second.body, second.headers['idempotent-replayed']]).toEqual([first.body, 'true']);
    expect((await ask('GET', `${MACHINES}/${id}`)).json).toMatchObject({ status: 'listed' });
  });
});

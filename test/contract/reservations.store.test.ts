// Reserved capacity as a customer meets it (specification 2.7, 4.4, 7.2): the list of contracts, and the four refusals with their status.
import { expect, test } from 'vitest';
import type { NewReservation, Reservation } from '../../shared/api/reservation.ts';
import { LAUNCH } from '../kit/world.ts';
import { type Answer, made } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';

const DAY_MS = 24 * 3_600_000;

openApiForEachTest();

const iso = (offsetMs: number): string => new Date(api.world.clock.now() + offsetMs).toISOString();
const launch = (patch: object = {}): Promise<Answer> =>
  api.call('POST', '/v1/instances', { key: owner.key, body: { ...LAUNCH, tier: 'reserved', ...patch } });
const list = async (): Promise<Reservation[]> => {
  const answer = await api.call('GET', '/v1/reservations', { key: owner.key });
  expect(answer.status).toBe(200);
  return answer.json as unknown as Reservation[];
};
async function contract(gpus: number, patch: Partial<NewReservation> = {}): Promise<string> {
  const made = await api.world.rooms.reservations.create({
    org_id: owner.orgId,
    title: 'Training cluster',
    starts_at: iso(0),
    ends_at: iso(30 * DAY_MS),
    renewal: 'manual',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: gpus, region: 'eu-west' }],
    ...patch,
  });
  return made.contract.id;
}

// Specification 4.4: GET /v1/reservations is a plain array, empty when none.
test('the list is an empty array without a contract', async () => {
  expect(await list()).toEqual([]);
});

// Specification 2.7: status is pending, active or cancelled.
// Specification 2.7: renewal.mode is auto_renew, manual or none.
// Specification 4.4: GET /v1/reservations lists all contracts, newest first.
test('contracts are listed newest first with their renewal, also before they begin and after they end', async () => {
  await api.world.machine({ gpus: 3 });
  const automatic = await contract(1, { renewal: 'auto_renew' });
  await api.world.clock.advance(1);
  const manual = await contract(1, { renewal: 'manual', starts_at: iso(DAY_MS) });
  await api.world.clock.advance(1);
  const single = await contract(1, { renewal: 'none' });
  await api.world.rooms.reservations.cancel(single);
  const shown = (await list()).map(({ reservation_id: id, status, renewal }) => [id, status, renewal.mode]);
  expect(shown).toEqual([
    [single, 'cancelled', 'none'],
    [manual, 'pending', 'manual'],
    [automatic, 'active', 'auto_renew'],
  ]);
});

// Specification 4.4: GET /v1/reservations shows contracts of the own organisation alone.
test('a contract is visible only to its organisation', async () => {
  await api.world.machine();
  await contract(1);
  const stranger = await api.account();
  expect((await api.call('GET', '/v1/reservations', { key: stranger.key })).json).toEqual([]);
  expect(await list()).toHaveLength(1);
});

// Specification 2.7: renewal.days_until_end counts to ends_at; expiring_soon is true when it is 14 or less.
test('a contract expires soon from 14 days before its end', async () => {
  await api.world.machine();
  await contract(1);
  const renewal = async (): Promise<unknown> => (await list())[0]?.renewal;
  await api.world.clock.advance(16 * DAY_MS - 1);
  expect(await renewal()).toEqual({ mode: 'manual', days_until_end: 15, expiring_soon: false });
  await api.world.clock.advance(1);
  expect(await renewal()).toEqual({ mode: 'manual', days_until_end: 14, expiring_soon: true });
});

// Specification 4.4: GET /v1/reservations is not a page, and there is no self-serve checkout.
test('the list has no checkout and no pages, and takes no POST', async () => {
  const body = { title: 'mine', gpu_type: 'H100_SXM' };
  expect((await api.call('POST', '/v1/reservations', { key: owner.key, body })).status).toBe(405);
  const paged = await api.call('GET', '/v1/reservations?limit=1', { key: owner.key });
  expect(paged).toMatchObject({ status: 422, json: { errors: [{ field: 'limit' }] } });
});

// Specification 2.7: title, starts_at, ends_at, status, renewal, commitment, utilization and instances are there.
// Specification 2.7: commitment[] has gpu_type, gpu_count and region.
// Specification 2.7: utilization: allocated and committed GPUs, and their quotient from 0.0 to 1.0.
// Specification 2.7: Commercial terms are omitted.
test('a contract shows its term, its commitment and its utilization, and no commercial terms', async () => {
  await api.world.machine({ gpus: 4 });
  const id = await contract(4);
  const fresh = {
    reservation_id: id,
    title: 'Training cluster',
    starts_at: iso(0),
    ends_at: iso(30 * DAY_MS),
    status: 'active',
    renewal: { mode: 'manual', days_until_end: 30, expiring_soon: false },
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 4, region: 'eu-west' }],
    utilization: { allocated_gpus: 0, committed_gpus: 4, pct: 0 },
    instances: [],
  };
  expect(await list()).toEqual([fresh]);
  expect((await launch({ gpu_count: 3 })).status).toBe(202);
  const [used] = await list();
  expect(used?.utilization).toEqual({ allocated_gpus: 3, committed_gpus: 4, pct: 0.75 });
  expect((await launch()).status).toBe(202);
  expect((await list())[0]?.utilization).toEqual({ allocated_gpus: 4, committed_gpus: 4, pct: 1 });
});

// Specification 8: Reservation expiring_soon: 14 days or fewer remain.
test.each([
  [14 * DAY_MS, 14, true],
  [14 * DAY_MS + 1, 15, false],
])('a contract that ends in %d ms has %d days until its end, and expires soon: %s', async (leftMs, days, isSoon) => {
  await api.world.machine();
  await api.world.rooms.reservations.create({
    org_id: owner.orgId,
    title: 'Training cluster',
    starts_at: iso(0),
    ends_at: iso(leftMs),
    renewal: 'none',
    commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'eu-west' }],
  });
  expect((await list())[0]?.renewal).toEqual({ mode: 'none', days_until_end: days, expiring_soon: isSoon });
});

// Specification 2.2: A reservation listing shows booting for an instance that starts.
// Specification 2.2: tier is reserved under a contract.
// Specification 2.2: reservation_id of a reserved instance is that of GET /v1/reservations.
// Specification 2.7: instances[] are the non-terminated instances with instance_id, hostname, gpu_count and status.
// Specification 4.4: Launching against a contract uses POST /v1/instances with tier reserved.
test('a contract shows its instances until they have ended, as booting while they start', async () => {
  await api.world.machine();
  const reservationId = await contract(1);
  await launch();
  const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
  const id = String(json.data?.[0]?.['id']);
  expect(json.data?.[0]).toMatchObject({ tier: 'reserved', reservation_id: reservationId, price_per_hour: 0 });
  const shown = async (): Promise<unknown> => (await list())[0]?.instances;
  const entry = { instance_id: id, hostname: `${id}.ssh.test`, gpu_count: 1 };
  expect(await shown()).toEqual([{ ...entry, status: 'allocating' }]);
  await api.world.observe(id, { phase: 'pulling' });
  await api.world.drive();
  expect(await shown()).toEqual([{ ...entry, status: 'booting' }]);
  await api.world.start(id);
  expect(await shown()).toEqual([{ ...entry, status: 'running' }]);
  await api.world.clock.advance(3_600_000);
  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect(await shown()).toEqual([{ ...entry, status: 'stopping' }]);
  await api.world.observe(id, { phase: 'stopped' });
  await api.world.drive();
  expect(await shown()).toEqual([]);
  const usage = await api.call('GET', '/v1/usage', { key: owner.key });
  expect(usage.json.data).toMatchObject([{ instance_id: id, gpu_seconds: 3600, cost_cents: 0 }]);
});

// Specification 2.7: instances[] are non-terminated: one that failed is among them until it is deleted.
test('a contract shows a failed instance as error until it is deleted, and the instance takes no slot', async () => {
  await api.world.machine();
  await contract(1);
  await launch();
  const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
  const id = String(json.data?.[0]?.['id']);
  await api.world.observe(id, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
  await api.world.drive();
  await api.world.observe(id, { phase: 'removed' });
  const [shown] = await list();
  expect(shown?.instances).toEqual([{ instance_id: id, hostname: `${id}.ssh.test`, gpu_count: 1, status: 'error' }]);
  expect(shown?.utilization.allocated_gpus).toBe(0);
  await api.call('DELETE', `/v1/instances/${id}`, { key: owner.key });
  expect((await list())[0]?.instances).toEqual([]);
});

// Specification 3.4: Only active accepts new reserved launches: not cancelled.
// Specification 7.2: reservation/contract_inactive: also one that is cancelled and still listed.
test('a contract that is cancelled and still listed refuses launches as inactive', async () => {
  await api.world.machine();
  await api.world.rooms.reservations.cancel(await contract(1));
  expect(await list()).toMatchObject([{ status: 'cancelled' }]);
  const refused = await launch();
  expect(refused).toMatchObject({ status: 403, json: { code: 'reservation/contract_inactive' } });
  expect(refused.json['detail']).toContain('is cancelled');
});

// Specification 4.3: reserved requires an active contract for the GPU type and region.
// Specification 4.4: A launch that no contract covers is refused.
// Specification 7.2: reservation/no_contract is 403, contract_inactive 403, gpu_type_mismatch 400, no_capacity 429.
test('a reserved launch is 403, 403, 400 and 429 for no contract, an inactive one, other GPUs and too many GPUs, and makes nothing', async () => {
  await api.world.machine();
  expect(await launch()).toMatchObject({ status: 403, json: { code: 'reservation/no_contract' } });
  const id = await contract(1);
  await api.world.rooms.reservations.suspend(id);
  expect(await launch()).toMatchObject({ status: 403, json: { code: 'reservation/contract_inactive' } });
  await api.world.rooms.reservations.resume(id);
  const before = await made(api, owner);
  expect(await launch({ gpu_type: 'A100' })).toMatchObject({
    status: 400,
    json: { code: 'reservation/gpu_type_mismatch' },
  });
  const elsewhere = await launch({ region: 'us-east' });
  expect(elsewhere).toMatchObject({ status: 400, json: { code: 'reservation/gpu_type_mismatch' } });
  const tooMany = await launch({ gpu_count: 2 });
  expect(tooMany).toMatchObject({ status: 429, json: { code: 'reservation/no_capacity' } });
  expect(tooMany.headers['retry-after']).toBe('30');
  expect(await made(api, owner)).toEqual(before);
  expect((await launch()).status).toBe(202);
});

// Specification 4.3: gpu_type may be left out with template_id, with tier reserved too: the contract has the GPUs.
test('a template without gpu_type gets the smallest GPU of the contract that is large enough and free', async () => {
  const L40S = { name: 'NVIDIA L40S', memory_mib: 46_068 };
  const L4 = { name: 'NVIDIA L4', memory_mib: 23_034 };
  const entry = (gpuType: string) => ({ gpu_type: gpuType, gpu_count: 1, region: 'eu-west' });
  for (const gpu of [undefined, L40S, L4]) await api.world.machine(gpu === undefined ? {} : { gpu });
  api.world.modelHub.known.set('Qwen/Qwen3-8B', { bytes: 30 * 1024 ** 3 });
  const env = { MODEL: 'Qwen/Qwen3-8B' };
  const deploy = (): Promise<Answer> =>
    launch({ image: undefined, gpu_type: undefined, gpu_count: 1, template_id: 'vllm', env });
  expect(await deploy()).toMatchObject({ status: 403, json: { code: 'reservation/no_contract' } });
  await contract(1, { commitment: ['H100_SXM', 'L40S', 'L4'].map(entry) });
  const types: unknown[] = [];
  for (let i = 0; i < 2; i += 1) {
    await api.world.clock.advance(1);
    expect((await deploy()).status).toBe(202);
    const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
    types.push(json.data?.[0]?.['gpu_type']);
    expect(json.data?.[0]).toMatchObject({ tier: 'reserved', price_per_hour: 0 });
  }
  // The L4 is too small for the model, and an H100 is taken only if nothing smaller is free.
  expect(types).toEqual(['L40S', 'H100_SXM']);
  expect(await deploy()).toMatchObject({ status: 429, json: { code: 'reservation/no_capacity' } });
});

test('a disk_gb is placed only on slots whose host enforces sizes, and refused if no host does', async () => {
  await api.world.machine();
  await contract(1);
  const refused = await launch({ disk_gb: 50 });
  expect(refused).toMatchObject({ status: 422, json: { code: 'disk_unavailable', errors: [{ field: 'disk_gb' }] } });
  await api.world.machine({ gpus: 2, diskEnforced: true, storageBytes: 300 * 1024 ** 3 });
  await contract(2);
  expect((await launch({ disk_gb: 200 })).status).toBe(202);
  const { json } = await api.call('GET', '/v1/instances', { key: owner.key });
  expect(json.data?.[0]).toMatchObject({ disk_gb: 200, price_per_hour: 0 });
  // The machine has a free slot, but not that much disk any more.
  const full = await launch({ disk_gb: 200 });
  expect(full).toMatchObject({ status: 429, json: { code: 'reservation/no_capacity' } });
  expect(full.json['detail']).toContain('none of these hosts has 200 GB of disk left');
  expect((await launch({ disk_gb: 60 })).status).toBe(202);
});

// Reserved capacity on a real database: contracts set GPUs aside, launches use those and no others, and an end stops nothing.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/offerings.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { OperatorView } from '../../../control-plane/rental/reservations/reservations.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import type { NewReservation } from '../../../shared/api/reservation.ts';
import { LAUNCH, openWorld, type World } from '../../kit/world.ts';

const DAY_MS = 24 * 3_600_000;
const ROUNDS = process.env['SOAK'] === '1' ? 500 : 50;
const H100 = { gpu_type: 'H100_SXM', region: 'eu-west' };

let world: World;
/** Without a cent: reserved capacity is paid for by contract. */
let who: { orgId: string; apiKeyId: string };
beforeEach(async () => {
  world = await openWorld();
  who = { orgId: (await world.rooms.accounts.createOrg('holder')).id, apiKeyId: 'apk_holder' };
});
afterEach(async () => {
  await world.verify();
  await world.close();
});

const iso = (offsetMs: number): string => new Date(world.clock.now() + offsetMs).toISOString();
/** Begins now and lasts 30 days. */
async function contract(gpus: number, patch: Partial<NewReservation> = {}): Promise<string> {
  const made = await world.rooms.reservations.create({
    org_id: who.orgId,
    title: 'training',
    starts_at: iso(0),
    ends_at: iso(30 * DAY_MS),
    renewal: 'none',
    commitment: [{ ...H100, gpu_count: gpus }],
    ...patch,
  });
  return made.contract.id;
}
const launch = (request: Partial<CreateInstance> = {}, by = who): Promise<string> =>
  world.launch(by, { tier: 'reserved', ...request });
async function run(request: Partial<CreateInstance> = {}): Promise<string> {
  const id = await launch(request);
  await world.observe(id, { phase: 'running', host_key: 'ssh-ed25519 AAAA' });
  await world.drive();
  return id;
}
async function end(id: string): Promise<void> {
  await world.rooms.instances.remove(who, id, async () => undefined);
  await world.observe(id, { phase: 'removed' });
  await world.drive();
}
const refusal = (code: string, detail: RegExp): object => ({
  code,
  details: expect.objectContaining({ detail: expect.stringMatching(detail) }),
});
const seen = async () => (await world.rooms.reservations.ofOrg(who.orgId))[0];
const statusOf = async (id: string): Promise<string> => (await world.rooms.reservations.show(id)).contract.status;
const totals = ({ slots }: OperatorView): { slots: number; inUse: number; free: number } => ({
  slots: slots.reduce((sum, machine) => sum + machine.slots, 0),
  inUse: slots.reduce((sum, machine) => sum + machine.in_use, 0),
  free: slots.reduce((sum, machine) => sum + machine.free, 0),
});
const available = async (): Promise<number[]> =>
  (await listedOfferings(world.db.read, sql`1 = 1`, 10)).map((row) => row.gpu_free).toSorted((a, b) => a - b);

describe('a contract', () => {
  test('sets its GPUs aside at once, on as few machines as possible, also where it begins later', async () => {
    await world.machine({ gpus: 4 });
    await world.machine({ gpus: 8 });
    const id = await contract(9, { starts_at: iso(DAY_MS) });
    expect(id).toMatch(/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/);
    const { slots, contract: made } = await world.rooms.reservations.show(id);
    expect(made.status).toBe('pending');
    expect(slots.map((machine) => machine.slots).toSorted((a, b) => a - b)).toEqual([1, 8]);
    expect(await available()).toEqual([0, 3]);
  });

  test('that asks for more than is free is refused with how many there are, and nothing is set aside', async () => {
    await world.machine({ gpus: 4 });
    await world.machine({ gpus: 2, region: 'us-east' });
    const tooMuch = [
      { ...H100, gpu_count: 3 },
      { gpu_type: 'H100_SXM', gpu_count: 3, region: 'us-east' },
    ];
    await expect(contract(0, { commitment: tooMuch })).rejects.toMatchObject(
      refusal('conflict', /^3 H100_SXM in us-east are needed and 2 are free/),
    );
    expect(await available()).toEqual([2, 4]);
    expect(await world.rooms.reservations.list()).toEqual([]);
  });

  test('takes no GPU that is in use', async () => {
    await world.machine({ gpus: 2 });
    const other = await world.customer(10_000);
    await world.launch(other);
    await expect(contract(2)).rejects.toMatchObject({ code: 'conflict' });
    expect(totals(await world.rooms.reservations.show(await contract(1)))).toEqual({ slots: 1, inUse: 0, free: 1 });
  });

  test('lasts a day at least, and ends in the future', async () => {
    await world.machine();
    const short = { starts_at: iso(DAY_MS), ends_at: iso(2 * DAY_MS - 1) };
    await expect(contract(1, short)).rejects.toMatchObject(refusal('validation_failed', /a day after starts_at/));
    const past = { starts_at: iso(-DAY_MS), ends_at: iso(0) };
    await expect(contract(1, past)).rejects.toMatchObject(refusal('validation_failed', /in the future/));
    await contract(1, { starts_at: iso(-DAY_MS), ends_at: iso(1) });
  });

  test('begins and ends by itself, and its end puts the GPUs on offer again', async () => {
    await world.machine({ gpus: 2 });
    const id = await contract(2, { starts_at: iso(DAY_MS), ends_at: iso(3 * DAY_MS) });
    await world.clock.advance(DAY_MS - 1);
    await world.drive();
    expect(await statusOf(id)).toBe('pending');
    await world.clock.advance(1);
    await world.drive();
    expect(await statusOf(id)).toBe('active');
    await world.clock.advance(2 * DAY_MS - 1);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['active', [0]]);
    await world.clock.advance(1);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['expired', [2]]);
    expect(await world.journal(id)).toEqual(['reservation.pending', 'reservation.active', 'reservation.expired']);
  });

  test('with auto_renew goes on with a term of the same length and keeps its slots', async () => {
    await world.machine();
    const id = await contract(1, { renewal: 'auto_renew' });
    await world.clock.advance(65 * DAY_MS);
    // Before the engine gets to it, nobody is refused and everybody sees the new term.
    expect(await seen()).toMatchObject({ status: 'active', ends_at: iso(25 * DAY_MS) });
    await launch();
    await world.drive();
    expect(await seen()).toMatchObject({ status: 'active', starts_at: iso(-5 * DAY_MS), ends_at: iso(25 * DAY_MS) });
    expect((await world.journal(id)).filter((type) => type === 'reservation.extended')).toHaveLength(2);
  });

  test('is suspended and resumed, before its term too, and keeps its slots meanwhile', async () => {
    await world.machine();
    const id = await contract(1, { starts_at: iso(DAY_MS) });
    const { reservations } = world.rooms;
    expect((await reservations.suspend(id)).contract.status).toBe('suspended');
    await expect(reservations.suspend(id)).rejects.toMatchObject(refusal('conflict', /is suspended already/));
    expect((await reservations.resume(id)).contract.status).toBe('pending');
    await reservations.suspend(id);
    await world.clock.advance(2 * DAY_MS);
    await world.drive();
    expect([await statusOf(id), await available()]).toEqual(['suspended', [0]]);
    expect((await reservations.resume(id)).contract.status).toBe('active');
    await expect(reservations.resume(id)).rejects.toMatchObject(refusal('conflict', /is active, not suspended/));
  });

  test('is cancelled for good', async () => {
    await world.machine();
    const id = await contract(1);
    const { reservations } = world.rooms;
    expect((await reservations.cancel(id)).contract.status).toBe('cancelled');
    expect(await available()).toEqual([1]);
    for (const verb of ['suspend', 'resume', 'cancel', 'reassign'] as const) {
      await expect(reservations[verb](id)).rejects.toMatchObject({ code: 'conflict' });
    }
    await expect(reservations.extend(id, world.clock.now() + 90 * DAY_MS)).rejects.toMatchObject({ code: 'conflict' });
    await expect(reservations.show('01NOBODY')).rejects.toMatchObject({ code: 'not_found' });
  });

  test('is extended to a later end, never to an earlier one', async () => {
    await world.machine();
    const id = await contract(1);
    const endsMs = world.clock.now() + 30 * DAY_MS;
    const { reservations } = world.rooms;
    await expect(reservations.extend(id, endsMs)).rejects.toMatchObject(refusal('validation_failed', /must be later/));
    expect((await reservations.extend(id, endsMs + 1)).contract.ends_ms).toBe(endsMs + 1);
    await world.clock.advance(30 * DAY_MS);
    await world.drive();
    expect(await statusOf(id)).toBe('active');
  });

  test('gets other GPUs for unused slots on a machine that has left, all of them or none', async () => {
    const gone = await world.machine({ gpus: 4 });
    const id = await contract(4);
    const running = await run();
    await world.rooms.supply.setOnline(gone.machineId, false);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/no_capacity', /1 of 4 slots of H100_SXM are in use, 3 are on hosts that are not available/),
    );
    await world.machine({ gpus: 2 });
    await expect(world.rooms.reservations.reassign(id)).rejects.toMatchObject(refusal('conflict', /2 are free/));
    await world.machine({ gpus: 1 });
    expect(totals(await world.rooms.reservations.reassign(id))).toEqual({ slots: 4, inUse: 1, free: 3 });
    expect(totals(await world.rooms.reservations.reassign(id))).toEqual({ slots: 4, inUse: 1, free: 3 });
    await launch({ gpu_count: 2 });
    await world.rooms.supply.setOnline(gone.machineId, true);
    expect(await available()).toEqual([0, 0, 3]);
    await end(running);
    expect(totals(await world.rooms.reservations.show(id))).toEqual({ slots: 4, inUse: 2, free: 2 });
  });
});

describe('a reserved launch', () => {
  test('takes a slot, needs no balance, costs nothing and is metered', async () => {
    await world.machine({ dollars: 5 });
    const id = await contract(1);
    const instanceId = await run({ max_price_per_hour: 0.01, viewed_price_per_hour: 0 });
    expect(await findInstance(world.db.read, instanceId)).toMatchObject({
      status: 'running',
      reservation_id: id,
      price_ucents_per_hour: 0n,
      region: 'eu-west',
    });
    await world.clock.advance(2 * 3_600_000);
    expect(await world.rooms.metering.tick(new AbortController().signal)).toEqual([]);
    await end(instanceId);
    expect(await world.rooms.ledger.balance(world.db.read, wallet(who.orgId))).toMatchObject({ postedUcents: 0n });
    expect(totals(await world.rooms.reservations.show(id))).toEqual({ slots: 1, inUse: 0, free: 1 });
  });

  test('without a contract is no_contract, also where the only one is cancelled or belongs to others', async () => {
    await world.machine({ gpus: 2 });
    const other = await world.customer(1);
    await contract(1, { org_id: other.orgId });
    await expect(launch()).rejects.toMatchObject(refusal('reservation/no_contract', /holds no reservation contract/));
    await world.rooms.reservations.cancel(await contract(1));
    await expect(launch()).rejects.toMatchObject({ code: 'reservation/no_contract' });
  });

  test('with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term', async () => {
    await world.machine();
    const id = await contract(1, { starts_at: iso(DAY_MS), ends_at: iso(2 * DAY_MS) });
    await world.clock.advance(DAY_MS - 1);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/contract_inactive', new RegExp(`${id} begins at`)),
    );
    await world.clock.advance(1);
    await end(await run());
    await world.rooms.reservations.suspend(id);
    await expect(launch()).rejects.toMatchObject(refusal('reservation/contract_inactive', /is suspended/));
    await world.rooms.reservations.resume(id);
    await world.clock.advance(DAY_MS - 1);
    await end(await run());
    await world.clock.advance(1);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/contract_inactive', new RegExp(`${id} ended at`)),
    );
  });

  test('for another GPU type or region is gpu_type_mismatch and says what is covered', async () => {
    await world.machine();
    await world.machine({ region: 'us-east' });
    await contract(1);
    const covered = /Covered: H100_SXM in eu-west/;
    await expect(launch({ gpu_type: 'A100' })).rejects.toMatchObject(refusal('reservation/gpu_type_mismatch', covered));
    await expect(launch({ region: 'us-east' })).rejects.toMatchObject(
      refusal('reservation/gpu_type_mismatch', covered),
    );
    await launch({ region: 'eu-west' });
  });

  test('that only an inactive contract would cover is contract_inactive, whatever else is active', async () => {
    await world.machine();
    await world.machine({ region: 'us-east' });
    const far = await contract(1, { commitment: [{ gpu_type: 'H100_SXM', gpu_count: 1, region: 'us-east' }] });
    await contract(1);
    await world.rooms.reservations.suspend(far);
    await expect(launch({ region: 'us-east' })).rejects.toMatchObject(
      refusal('reservation/contract_inactive', new RegExp(`active: ${far} is suspended\\.`)),
    );
    await expect(launch({ region: 'ap-south' })).rejects.toMatchObject({ code: 'reservation/gpu_type_mismatch' });
  });

  test('may pin an offering that the contract has slots on, and no other', async () => {
    const slotOn = await world.machine({ gpus: 2 });
    await contract(2);
    const free = await world.machine({ gpus: 2 });
    const offeringOf = async ({ machineId }: { machineId: string }): Promise<string> =>
      (await listedOfferings(world.db.read, sql`machine_id = ${machineId}`, 1))[0]?.id ?? '';
    await expect(launch({ offering_id: await offeringOf(free) })).rejects.toMatchObject(
      refusal('reservation/gpu_type_mismatch', /Leave offering_id out/),
    );
    const id = await launch({ offering_id: await offeringOf(slotOn) });
    expect((await findInstance(world.db.read, id))?.machine_id).toBe(slotOn.machineId);
  });

  test('beyond the slots is no_capacity, never a GPU that is free beside them', async () => {
    await world.machine({ gpus: 8 });
    await contract(2);
    await launch({ gpu_count: 2 });
    await expect(launch()).rejects.toMatchObject({
      code: 'reservation/no_capacity',
      details: { retryAfterSeconds: 30, detail: expect.stringMatching(/2 of 2 slots of H100_SXM are in use/) },
    });
    expect(await available()).toEqual([6]);
  });

  test('needs its GPUs on one machine, and says so', async () => {
    await world.machine({ gpus: 2 });
    await world.machine({ gpus: 2 });
    await contract(4);
    await expect(launch({ gpu_count: 3 })).rejects.toMatchObject(
      refusal('reservation/no_capacity', /needs 3 on one machine: 0 of 4 slots .* at most 2 are free on one machine/),
    );
    await launch({ gpu_count: 2 });
    await launch({ gpu_count: 2 });
  });

  test('goes under the active contract with room that ends last', async () => {
    await world.machine({ gpus: 8 });
    const short = await contract(2, { ends_at: iso(10 * DAY_MS) });
    const long = await contract(1, { ends_at: iso(90 * DAY_MS) });
    const suspended = await contract(1, { ends_at: iso(900 * DAY_MS) });
    await world.rooms.reservations.suspend(suspended);
    const contracts = [];
    for (let i = 0; i < 3; i += 1) {
      contracts.push((await findInstance(world.db.read, await launch()))?.reservation_id);
    }
    expect(contracts).toEqual([long, short, short]);
    await expect(launch()).rejects.toMatchObject({ code: 'reservation/no_capacity' });
  });

  test('whose host fails is tried on another machine of the contract, and on no other', async () => {
    await world.machine({ gpus: 1 });
    await world.machine({ gpus: 1 });
    const id = await contract(2);
    await world.machine({ gpus: 4 });
    const instanceId = await launch();
    const first = (await findInstance(world.db.read, instanceId))?.machine_id;
    await world.observe(instanceId, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await world.drive();
    const rescued = await findInstance(world.db.read, instanceId);
    expect(rescued).toMatchObject({ status: 'allocating', reservation_id: id, price_ucents_per_hour: 0n });
    expect(rescued?.machine_id).not.toBe(first);
    await world.observe(instanceId, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
    await world.drive();
    const failed = await findInstance(world.db.read, instanceId);
    expect(failed).toMatchObject({
      status: 'error',
      status_reason: expect.stringContaining('no free slot on another'),
    });
    expect(await available()).toEqual([0, 0, 4]);
  });

  test('is rescued under a suspended contract too, and under an ended one it fails', async () => {
    await world.machine();
    await world.machine();
    await world.machine();
    const id = await contract(3);
    const fails = async (instanceId: string): Promise<string | undefined> => {
      await world.observe(instanceId, { phase: 'failed', failure_code: 'start_failed', detail: 'no such runtime' });
      await world.drive();
      return (await findInstance(world.db.read, instanceId))?.status;
    };
    const instanceId = await launch();
    await world.rooms.reservations.suspend(id);
    expect(await fails(instanceId)).toBe('allocating');
    await world.rooms.reservations.cancel(id);
    expect(await fails(instanceId)).toBe('error');
  });

  test(`races another one for the last slot: exactly one gets it, ${ROUNDS} rounds`, async () => {
    const { machineId } = await world.machine({ gpus: 2 });
    await contract(1);
    for (let round = 0; round < ROUNDS; round += 1) {
      const request: CreateInstance = { ...LAUNCH, tier: 'reserved' };
      const create = (): Promise<unknown> => world.rooms.instances.create(who, request, async () => undefined);
      const outcomes = await Promise.allSettled([create(), create()]);
      const refused = outcomes.filter((outcome) => outcome.status === 'rejected');
      expect(refused).toMatchObject([{ reason: { code: 'reservation/no_capacity' } }]);
      const gpus = await gpusOf(world.db.read, machineId);
      expect(gpus.filter((gpu) => gpu.held_by !== null).map((gpu) => gpu.reserved_by)).toHaveLength(1);
      const [newest] = await world.rooms.instances.list(who.orgId, sql`1 = 1`, 1);
      await end(newest?.instance.id ?? '');
      await world.clock.advance(1);
    }
  }, 120_000);
});

describe('on demand', () => {
  test('never gets a reserved GPU, however it races the contract', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    const other = await world.customer(10_000);
    const [made, launched] = await Promise.allSettled([contract(1), world.launch(other)]);
    await world.drive();
    const [gpu] = await gpusOf(world.db.read, machineId);
    expect(made.status === 'fulfilled').toBe(gpu?.reserved_by !== null);
    expect(gpu?.held_by === null).toBe(gpu?.reserved_by !== null);
    expect(launched.status).toBe('fulfilled');
  });

  test('takes only the GPUs beside the slots of its machine', async () => {
    const { machineId } = await world.machine({ gpus: 3 });
    await contract(2);
    const other = await world.customer(10_000);
    await world.launch(other);
    const gpus = await gpusOf(world.db.read, machineId);
    expect(gpus.map((gpu) => [gpu.reserved_by !== null, gpu.held_by !== null])).toEqual([
      [true, false],
      [true, false],
      [false, true],
    ]);
  });

  test('finds nothing where all GPUs are reserved, although they are free', async () => {
    await world.machine({ gpus: 2 });
    await contract(2);
    const other = await world.customer(10_000);
    const id = await world.launch(other);
    await world.drive();
    expect((await findInstance(world.db.read, id))?.status).toBe('error');
  });
});

test('what is in use is counted by slots: one that is taken again while an instance stops counts once', async () => {
  await world.machine({ gpus: 2 });
  const id = await contract(2);
  const first = await run({ gpu_count: 2 });
  await world.rooms.instances.remove(who, first, async () => undefined);
  await world.observe(first, { phase: 'stopped' });
  const second = await launch({ gpu_count: 2 });
  const full = {
    utilization: { allocated_gpus: 2, committed_gpus: 2, pct: 1 },
    instances: [
      { instance_id: first, status: 'stopping' },
      { instance_id: second, status: 'allocating' },
    ],
  };
  expect(await seen()).toMatchObject(full);
  await world.rooms.reservations.cancel(id);
  expect(await seen()).toMatchObject(full);
});

describe('what still runs when a contract ends', () => {
  test.each(['expires', 'is cancelled'])('goes on, and its GPUs come free at their release: it %s', async (how) => {
    await world.machine({ gpus: 3 });
    const id = await contract(3);
    const instanceId = await run({ gpu_count: 2 });
    if (how === 'expires') {
      await world.clock.advance(30 * DAY_MS);
      await world.drive();
    } else await world.rooms.reservations.cancel(id);
    expect(await findInstance(world.db.read, instanceId)).toMatchObject({ status: 'running', reservation_id: id });
    expect(await available()).toEqual([1]);
    expect(await seen()).toMatchObject({
      utilization: { allocated_gpus: 2 },
      instances: [{ instance_id: instanceId }],
    });
    await end(instanceId);
    expect(await available()).toEqual([3]);
    expect(await seen()).toMatchObject({ utilization: { allocated_gpus: 0 }, instances: [] });
  });
});

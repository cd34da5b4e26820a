// Launches under a contract, and what those on demand find beside it: slots, terms, races, and hosts that fail.
import { describe, expect, test } from 'vitest';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { wallet } from '../../../control-plane/money/ledger/accounts.ts';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { LAUNCH } from '../../kit/world.ts';
import {
  available,
  contract,
  DAY_MS,
  iso,
  launch,
  openReservedWorldForEachTest,
  refusal,
  run,
  totals,
  who,
  world,
} from './reserved-world.ts';

const ROUNDS = process.env['SOAK'] === '1' ? 500 : 50;

openReservedWorldForEachTest();

describe('a reserved launch', () => {
  // Specification 4.3: reserved launches cost nothing by the hour.
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
    await world.end(who, instanceId);
    expect(await world.rooms.ledger.balance(world.db.read, wallet(who.orgId))).toMatchObject({ postedUcents: 0n });
    expect(totals(await world.rooms.reservations.show(id))).toEqual({ slots: 1, inUse: 0, free: 1 });
  });

  // Specification 7.2: reservation/no_contract: the organisation holds no reservation contract.
  test('without a contract is no_contract, also if the only one belongs to others', async () => {
    await world.machine({ gpus: 2 });
    const other = await world.customer(1);
    await contract(1, { org_id: other.orgId });
    await expect(launch()).rejects.toMatchObject(refusal('reservation/no_contract', /holds no reservation contract/));
  });

  // Specification 3.4: Only active accepts new reserved launches: not pending, suspended or expired.
  // Specification 7.2: reservation/contract_inactive: a contract exists but is pending, suspended, expired or outside its term.
  test('with a contract that is pending, suspended or expired is contract_inactive, at both edges of the term', async () => {
    await world.machine();
    const id = await contract(1, { starts_at: iso(DAY_MS), ends_at: iso(2 * DAY_MS) });
    await world.clock.advance(DAY_MS - 1);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/contract_inactive', new RegExp(`${id} begins at`)),
    );
    await world.clock.advance(1);
    await world.end(who, await run());
    await world.rooms.reservations.suspend(id);
    await expect(launch()).rejects.toMatchObject(refusal('reservation/contract_inactive', /is suspended/));
    await world.rooms.reservations.resume(id);
    await world.clock.advance(DAY_MS - 1);
    await world.end(who, await run());
    await world.clock.advance(1);
    await expect(launch()).rejects.toMatchObject(
      refusal('reservation/contract_inactive', new RegExp(`${id} ended at`)),
    );
  });

  // Specification 7.2: reservation/gpu_type_mismatch: the contract does not cover the gpu_type, or no slot in the region matches.
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
    const offerings = async (): Promise<string[]> =>
      (await listedOfferings(world.db.read, { count: 10 })).map(({ id }) => id);
    const slotOn = await world.machine({ gpus: 2 });
    const [slotOffering = ''] = await offerings();
    await contract(2);
    await world.machine({ gpus: 2 });
    const freeOffering = (await offerings()).find((id) => id !== slotOffering);
    await expect(launch({ offering_id: freeOffering })).rejects.toMatchObject(
      refusal('reservation/gpu_type_mismatch', /Leave offering_id out/),
    );
    const id = await launch({ offering_id: slotOffering });
    expect((await findInstance(world.db.read, id))?.machine_id).toBe(slotOn.machineId);
  });

  // Specification 7.2: reservation/no_capacity: all slots allocated; no automatic fallback.
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

  test('finds no slot if the host has found the GPU broken, until it is mended', async () => {
    const { machineId, inventory } = await world.machine({ gpus: 2 });
    const id = await contract(2);
    const broken = { uuid: inventory.gpus[0]?.uuid ?? '', severity: 'broken', detail: 'Xid 79' } as const;
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpu_faults: [broken] });
    expect(totals(await world.rooms.reservations.show(id))).toEqual({ slots: 2, inUse: 0, free: 1 });
    await expect(launch({ gpu_count: 2 })).rejects.toMatchObject({ code: 'reservation/no_capacity' });
    await world.rooms.supply.reportInventory(machineId, inventory);
    await launch({ gpu_count: 2 });
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
      const [newest] = await world.rooms.instances.list(who.orgId, { count: 1 });
      await world.end(who, newest?.instance.id ?? '');
      await world.clock.advance(1);
    }
  });
});

describe('an on-demand launch', () => {
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

  test('finds no capacity if all GPUs are reserved, although they are free', async () => {
    await world.machine({ gpus: 2 });
    await contract(2);
    const other = await world.customer(10_000);
    const id = await world.launch(other);
    await world.drive();
    expect((await findInstance(world.db.read, id))?.status).toBe('error');
  });
});

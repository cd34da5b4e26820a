// The disk of machines with GPUs that are set aside for a contract: what the contract, others on demand and borrowers get of it.
import { describe, expect, test } from 'vitest';
import { findInstance } from '../../../control-plane/rental/instances/store.ts';
import type { WorldAccount } from '../../kit/world.ts';
import { contract, DAY_MS, iso, launch, openReservedWorldForEachTest, refusal, run, world } from './reserved-world.ts';

const GIB = 1024 ** 3;
const HOUR_MS = 3_600_000;

openReservedWorldForEachTest();

/** A machine with 8 GPUs whose host limits disks. */
const machine = (storageGb: number): Promise<unknown> =>
  world.machine({ gpus: 8, diskEnforced: true, storageBytes: storageGb * GIB });
/** Null if the launch has no place. */
const diskOf = async (id: string): Promise<number | null | undefined> =>
  (await findInstance(world.db.read, id))?.disk_gb;
const launchOnDemand = (by: WorldAccount, request: object): Promise<string> =>
  world.launch(by, { tier: 'on_demand', ...request });

describe('a machine with GPUs that are set aside', () => {
  test('keeps the included disk for each of them, and others can have the rest', async () => {
    await machine(1_600);
    await contract(7);
    const other = await world.customer(1_000);
    expect(await diskOf(await launchOnDemand(other, { disk_gb: 901 }))).toBeNull();
    expect(await diskOf(await launchOnDemand(other, { disk_gb: 900 }))).toBe(900);
    for (let i = 0; i < 7; i += 1) expect(await diskOf(await run())).toBe(100);
    await expect(launch()).rejects.toMatchObject(refusal('reservation/no_capacity', /7 of 7 slots/));
  });

  test('keeps an equal share of a small storage for each of them', async () => {
    await machine(404);
    await contract(6);
    const other = await world.customer(1_000);
    const ids = [await launchOnDemand(other, { disk_gb: 10 }), await launchOnDemand(other, {})];
    expect(await Promise.all(ids.map(diskOf))).toEqual([10, 94]);
    await expect(launch({ gpu_count: 6, disk_gb: 301 })).rejects.toMatchObject(
      refusal('reservation/no_capacity', /none of these hosts has 301 GB of disk left/),
    );
    expect(await diskOf(await run({ gpu_count: 6, disk_gb: 300 }))).toBe(300);
  });

  test('has no more disk for the contract than others have left', async () => {
    await machine(1_000);
    const other = await world.customer(1_000);
    await launchOnDemand(other, { disk_gb: 940 });
    await contract(7);
    expect(await diskOf(await run())).toBe(60);
    await expect(launch()).rejects.toMatchObject(refusal('reservation/no_capacity', /none of these hosts has 10 GB/));
  });

  test('lends the shares with the GPUs to a launch that is over before the contract begins', async () => {
    await machine(800);
    await contract(8, { starts_at: iso(5 * HOUR_MS), ends_at: iso(30 * DAY_MS) });
    const other = await world.customer(1_000);
    const borrow = { auto_terminate_hours: 1 };
    expect(await diskOf(await launchOnDemand(other, {}))).toBeNull();
    expect(await diskOf(await launchOnDemand(other, borrow))).toBe(100);
    expect(await diskOf(await launchOnDemand(other, { ...borrow, disk_gb: 700 }))).toBe(700);
    expect(await diskOf(await launchOnDemand(other, borrow))).toBeNull();
  });

  test('gives the shares back when the contract ends', async () => {
    await machine(800);
    const id = await contract(8);
    await world.rooms.reservations.cancel(id);
    const other = await world.customer(1_000);
    expect(await diskOf(await launchOnDemand(other, { disk_gb: 800 }))).toBe(800);
  });
});

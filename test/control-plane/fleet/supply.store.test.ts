// Supply: enrolment with a one-time token, offerings that follow their machine, and what is never on offer.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { text } from '../../../control-plane/base/db/columns.ts';
import { join, sql } from '../../../control-plane/base/db/db.ts';
import { listedOfferings } from '../../../control-plane/fleet/supply/catalog.ts';
import { candidates, findListed } from '../../../control-plane/fleet/supply/offerings.ts';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { ENROLLMENT_TOKEN_MS, MACHINES_AWAITED_MAX, MACHINES_PER_SUPPLIER_MAX } from '../../../shared/limits.ts';
import type { EnrollRequest } from '../../../shared/protocol/inventory.ts';
import { ANYWHERE, inventoryOf, linkHost, loseHost } from '../../kit/machines.ts';
import { openWorld, type World } from '../../kit/world.ts';

let world: World;
beforeEach(async () => {
  world = await openWorld();
});
afterEach(() => world.close());

const KEY = 'a'.repeat(43);
const OTHER_KEY = 'b'.repeat(43);

async function register(): Promise<{ token: string; machineId: string; orgId: string }> {
  const org = await world.rooms.accounts.createOrg('supplier');
  const { machine, token } = await world.db.tx('register', async (tx) => {
    await world.rooms.supply.registerSupplier(tx, org.id);
    return world.rooms.supply.registerMachine(tx, org.id, {
      gpuCount: null,
      gpuType: null,
      vramPerGpuGb: null,
      region: 'eu',
      priceUcentsPerHour: 100_000_000n,
      tier: 'on_demand',
    });
  });
  return { token, machineId: machine.id, orgId: org.id };
}

const enroll = (patch: Partial<EnrollRequest>): Promise<{ machineId: string }> =>
  world.rooms.supply.enroll({ token: '', public_key: KEY, inventory: inventoryOf(1, () => 'x'), ...patch });
const offered = async (): Promise<{ gpu_total: number; gpu_free: number }[]> => {
  const { read } = world.db;
  const listed = await listedOfferings(read, { count: 10 });
  const whole = await Promise.all(listed.map(({ id }) => findListed(read, id)));
  return whole.flatMap((one) => (one === undefined ? [] : [{ gpu_total: one.gpu_total, gpu_free: one.gpu_free }]));
};

describe('enrolment', () => {
  test('binds the key once; a repeat with the same key gets the same answer', async () => {
    const { token, machineId } = await register();
    expect(await enroll({ token })).toEqual({ machineId });
    expect(await enroll({ token })).toEqual({ machineId });
    await expect(enroll({ token, public_key: OTHER_KEY })).rejects.toMatchObject({ code: 'enrollment_token_used' });
  });

  test('refuses a host that is enrolled as another machine, and leaves both machines unchanged', async () => {
    const [first, second] = [await register(), await register()];
    await enroll({ token: first.token });
    const refused = await enroll({ token: second.token }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'conflict' });
    expect(String(refused)).toContain(first.machineId);
    expect(await gpusOf(world.db.read, second.machineId)).toEqual([]);
    expect(await enroll({ token: second.token, public_key: OTHER_KEY })).toEqual({ machineId: second.machineId });
  });

  test('refuses a wrong token, and a token at the moment of its expiry', async () => {
    await expect(enroll({ token: 'enroll_wrong' })).rejects.toMatchObject({ code: 'enrollment_token_invalid' });
    const { token } = await register();
    await world.clock.advance(ENROLLMENT_TOKEN_MS);
    await expect(enroll({ token })).rejects.toMatchObject({ code: 'enrollment_token_expired' });
    const late = await register();
    await world.clock.advance(ENROLLMENT_TOKEN_MS - 1);
    expect(await enroll({ token: late.token })).toEqual({ machineId: late.machineId });
  });

  test('ends the previous token with each new one, and gives none to an enrolled machine', async () => {
    const { token, machineId, orgId } = await register();
    const again = await world.db.tx('again', (tx) => world.rooms.supply.reissueToken(tx, orgId, machineId));
    await expect(enroll({ token })).rejects.toMatchObject({ code: 'enrollment_token_expired' });
    expect(await enroll({ token: again.token })).toEqual({ machineId });
    const refused = world.db.tx('again', (tx) => world.rooms.supply.reissueToken(tx, orgId, machineId));
    await expect(refused).rejects.toMatchObject({ code: 'conflict' });
  });

  test('limits the machines that wait for their hosts; an enrolment frees a place', async () => {
    const { token, orgId } = await register();
    const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu', tier: 'on_demand' } as const;
    const more = (count: number): Promise<void> =>
      world.db.tx('register', async (tx) => {
        for (let i = 0; i < count; i += 1)
          await world.rooms.supply.registerMachine(tx, orgId, { ...declared, priceUcentsPerHour: 1n });
      });
    await more(MACHINES_AWAITED_MAX - 1);
    await expect(more(1)).rejects.toMatchObject({ code: 'conflict' });
    await enroll({ token });
    await more(1);
  });

  test('limits the machines of a supplier, including delisted ones', async () => {
    const { machineId, orgId } = await register();
    const declared = { gpuCount: null, gpuType: null, vramPerGpuGb: null, region: 'eu', tier: 'on_demand' } as const;
    const more = (): Promise<unknown> =>
      world.db.tx('register', (tx) =>
        world.rooms.supply.registerMachine(tx, orgId, { ...declared, priceUcentsPerHour: 1n }),
      );
    const numbers = Array.from({ length: MACHINES_PER_SUPPLIER_MAX - 2 }, (_, i) => sql`(${`m-${i}`})`);
    await world.db.tx('fill', async (tx) => {
      for (let i = 0; i < numbers.length; i += 500) {
        const ids = sql`with numbered(number) as (values ${join(numbers.slice(i, i + 500))})`;
        await tx.run(sql`${ids} insert into machines (id, supplier_id, status, verification_status, region, price_ucents_per_hour, tier,
            created_ms, updated_ms, public_key)
          select number, m.supplier_id, 'delisted', 'unverified', 'eu', 1, 'on_demand', 0, 0, number from numbered, machines m where m.id = ${machineId}`);
      }
    });
    await world.db.tx('count', (tx) =>
      tx.run(sql`update suppliers set machine_count = machine_count + ${numbers.length} where org_id = ${orgId}`),
    );
    await more();
    await expect(more()).rejects.toThrow(`A supplier may have ${MACHINES_PER_SUPPLIER_MAX} machines`);
  });

  test('gives no token to a machine of another supplier', async () => {
    const { machineId } = await register();
    const other = await register();
    const foreign = world.db.tx('foreign', (tx) => world.rooms.supply.reissueToken(tx, other.orgId, machineId));
    await expect(foreign).rejects.toMatchObject({ code: 'not_found' });
  });

  // Specification 2.17: CommunityMachineRegistration: the token is shown exactly once, and kept as a hash.
  test('stores only the hash of the token', async () => {
    const { token } = await register();
    const rows = await world.db.read.all(z.object({ token_hash: text }), sql`select token_hash from enrollment_tokens`);
    expect(JSON.stringify(rows)).not.toContain(token);
  });
});

describe('an approval', () => {
  test('waits for the host, and reports if there is nothing to do', async () => {
    const { token, machineId } = await register();
    const { supply } = world.rooms;
    await expect(supply.approve(machineId)).rejects.toThrow('This machine has not enrolled yet');
    await enroll({ token });
    expect((await supply.approve(machineId)).status).toBe('listed');
    await expect(supply.approve(machineId)).rejects.toThrow('The machine is listed already.');
    await supply.suspend(machineId);
    await expect(supply.suspend(machineId)).rejects.toThrow('The machine is suspended already.');
  });
});

describe('an offering', () => {
  // Specification 2.4: A machine is listed while it is approved and online.
  test('appears with approval and link, and disappears if either is gone', async () => {
    const { token, machineId } = await register();
    await enroll({ token, inventory: inventoryOf(3, () => String(Math.random())) });
    expect(await offered()).toEqual([]);
    await world.rooms.supply.approve(machineId);
    expect(await offered()).toEqual([]);
    await linkHost(world, machineId);
    expect(await offered()).toEqual([{ gpu_total: 3, gpu_free: 3 }]);
    await loseHost(world, machineId);
    expect(await offered()).toEqual([]);
    await linkHost(world, machineId);
    await world.rooms.supply.suspend(machineId);
    expect(await offered()).toEqual([]);
  });

  test('waits for the report of the host after an outage of our own', async () => {
    const { machineId } = await world.machine();
    await world.rooms.supply.setAllOffline();
    await linkHost(world, machineId);
    expect(await offered()).toEqual([]);
    const nothing = { type: 'observed' as const, held: null, unknown_workload_ids: [], workloads: [] };
    await world.rooms.workloads.observe(machineId, nothing);
    expect(await offered()).toHaveLength(1);
  });

  // Specification 2.4: GPUs that a foreign process uses are not listed.
  test('excludes GPUs that a foreign process uses or that the host reports as lost', async () => {
    const { machineId } = await world.machine({ gpus: 4 });
    const gpus = (await gpusOf(world.db.read, machineId)).map((gpu) => gpu.gpu_uuid);
    const inventory = inventoryOf(4, () => '');
    const shown = inventory.gpus.map((gpu, i) => ({ ...gpu, uuid: gpus[i] ?? '', foreign_use: i === 0 }));
    await world.rooms.supply.reportInventory(machineId, {
      ...inventory,
      gpus: shown.slice(0, 3),
      gpu_faults: [{ uuid: gpus[3] ?? '', severity: 'broken', detail: 'Xid 79: it has fallen off the bus' }],
    });
    expect(await offered()).toEqual([{ gpu_total: 2, gpu_free: 2 }]);
    const want = {
      machineIds: [machineId],
      gpuType: 'H100_SXM',
      count: 3,
      heldBy: 'w',
      reservedBy: null,
      endsMs: null,
      diskGb: 0,
    };
    expect(await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, want))).toBeUndefined();
    const two = await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, { ...want, count: 2 }));
    expect(two?.gpuUuids.toSorted()).toEqual(gpus.slice(1, 3).toSorted());
    expect(await offered()).toEqual([{ gpu_total: 2, gpu_free: 0 }]);
    await world.db.tx('release', (tx) => world.rooms.supply.release(tx, 'w'));
    expect(await offered()).toEqual([{ gpu_total: 2, gpu_free: 2 }]);
  });

  test('disappears while nvidia-smi fails on the host; rentals keep their GPUs, and the offering returns unchanged', async () => {
    const { machineId } = await world.machine({ gpus: 2 });
    const enrolled = (await gpusOf(world.db.read, machineId)).map((gpu) => gpu.gpu_uuid);
    const want = {
      machineIds: [machineId],
      gpuType: 'H100_SXM',
      count: 1,
      heldBy: 'w',
      reservedBy: null,
      endsMs: null,
      diskGb: 0,
    };
    await world.db.tx('hold', (tx) => world.rooms.supply.hold(tx, want));
    const inventory = inventoryOf(2, () => '');
    const broken = { ...inventory, gpus: [], gpu_error: 'Driver/library version mismatch' };
    await world.rooms.supply.reportInventory(machineId, broken);
    expect(await offered()).toEqual([]);
    expect((await gpusOf(world.db.read, machineId)).filter((gpu) => gpu.held_by === 'w')).toHaveLength(1);
    const gpus = inventory.gpus.map((gpu, i) => ({ ...gpu, uuid: enrolled[i] ?? '' }));
    await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
    expect(await offered()).toEqual([{ gpu_total: 2, gpu_free: 1 }]);
  });

  test('disappears while the network fence of the host is down, and returns with it; a host without a fence is on offer', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    const [gpu] = await gpusOf(world.db.read, machineId);
    const fresh = inventoryOf(1, () => '');
    const inventory = { ...fresh, gpus: fresh.gpus.map((each) => ({ ...each, uuid: gpu?.gpu_uuid ?? '' })) };
    await world.rooms.supply.reportInventory(machineId, { ...inventory, fence_error: 'the program nft is missing' });
    expect(await offered()).toEqual([]);
    await world.rooms.supply.reportInventory(machineId, { ...inventory, network_fence: 'none' });
    expect(await offered()).toEqual([{ gpu_total: 1, gpu_free: 1 }]);
  });

  test('disappears while the engine of the host does not answer, and returns with it', async () => {
    const { machineId } = await world.machine({ gpus: 1 });
    const [gpu] = await gpusOf(world.db.read, machineId);
    const inventory = inventoryOf(1, () => '');
    const shown = { ...inventory, gpus: inventory.gpus.map((each) => ({ ...each, uuid: gpu?.gpu_uuid ?? '' })) };
    await world.rooms.supply.reportInventory(machineId, { ...shown, engine_version: '' });
    expect(await offered()).toEqual([]);
    await world.rooms.supply.reportInventory(machineId, shown);
    expect(await offered()).toEqual([{ gpu_total: 1, gpu_free: 1 }]);
  });

  test('leaves a bounded number of rows, however many GPUs a host claims one after another', async () => {
    const { machineId } = await world.machine();
    const who = await world.customer(10_000);
    const id = await world.launch(who);
    const [held] = await gpusOf(world.db.read, machineId);
    let count = 0;
    for (let round = 0; round < 6; round += 1) {
      const inventory = inventoryOf(16, () => `claimed-${(count += 1)}`);
      const gpus = inventory.gpus.map((gpu) => ({ ...gpu, name: `GPU ${round} ${gpu.index}` }));
      await world.rooms.supply.reportInventory(machineId, { ...inventory, gpus });
    }
    const gpus = await gpusOf(world.db.read, machineId);
    expect(gpus).toHaveLength(16 + 1);
    expect(gpus.filter((gpu) => gpu.held_by !== null)).toEqual([{ ...held, usable: false }]);
    const Row = z.object({ gpu_type: text });
    const rows = await world.db.read.all(Row, sql`select gpu_type from offerings where machine_id = ${machineId}`);
    expect(rows).toHaveLength(16 + 1 + 16);
    expect(rows.map((row) => row.gpu_type)).toContain('H100_SXM');
    await world.remove(who, id);
    await world.observe(id, { phase: 'removed' });
    await world.rooms.supply.reportInventory(
      machineId,
      inventoryOf(0, () => ''),
    );
    expect(await gpusOf(world.db.read, machineId)).toEqual([]);
  });

  test('is found only on machines with enough free GPUs, cheapest first', async () => {
    await world.machine({ gpus: 8, dollars: 3 });
    await world.machine({ gpus: 2, dollars: 2 });
    await world.machine({ gpus: 1, dollars: 1 });
    const request = {
      gpuType: 'H100_SXM',
      ...ANYWHERE,
    };
    const found = async (gpuCount: number): Promise<number[]> =>
      (await candidates(world.db.read, { ...request, gpuCount })).map((offering) => offering.gpu_free);
    expect(await found(1)).toEqual([1, 2, 8]);
    expect(await found(2)).toEqual([2, 8]);
    expect(await found(8)).toEqual([8]);
  });
});

// The catalog (specification 2.3, 2.4, 4.1): the machines on offer as everybody sees them, in stable pages.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { sql } from '../../control-plane/base/db/db.ts';
import type { Inventory } from '../../shared/protocol/inventory.ts';
import { inventoryOf, linkHost, loseHost } from '../kit/machines.ts';
import { LAUNCH } from '../kit/world.ts';
import { newestInstance, postLaunch } from './api.ts';
import { api, openApiForEachTest } from './api-of-test.ts';

openApiForEachTest();

/** A listed machine whose host reports `inventory` instead of what the kit makes up, and which the operator has approved as it is. */
async function machineWith(inventory: Partial<Inventory> & { gpuName?: string }, dollars = 2): Promise<string> {
  const { gpuName, ...rest } = inventory;
  const { machineId } = await api.world.machine({ gpus: 2, dollars });
  const made = inventoryOf(2, () => api.ids.uuid());
  const gpus = made.gpus.map((gpu) => ({ ...gpu, name: gpuName ?? gpu.name }));
  await api.world.rooms.supply.reportInventory(machineId, { ...made, gpus, ...rest });
  await api.world.rooms.supply.approve(machineId);
  return machineId;
}
const rows = async (path: string): Promise<Record<string, unknown>[]> => {
  const answer = await api.call('GET', path);
  expect(answer.status).toBe(200);
  return answer.json.data ?? [];
};

describe('GPU types', () => {
  // Specification 4.1: GET /v1/gpu-types without an offer is an empty page.
  test('are an empty page if nothing is on offer', async () => {
    expect((await api.call('GET', '/v1/gpu-types')).json).toEqual({ data: [], next_cursor: null });
  });

  // Specification 2.3: cpu_cores, ram_gb and storage_gb are representative.
  // Specification 2.3: instance_disk_gb is 0 if the size is unknown.
  // Specification 2.3: disk_configurable is false if no offering does.
  test('show the smallest host that is on offer', async () => {
    await machineWith({ cpu_cores: 128, ram_bytes: 2 * 1024 ** 4, storage_bytes: 100 * 1024 ** 3 });
    await machineWith({ cpu_cores: 64, ram_bytes: 4 * 1024 ** 4, storage_bytes: 900 * 1024 ** 3 });
    expect(await rows('/v1/gpu-types')).toEqual([
      {
        gpu_type: 'H100_SXM',
        vram_gb: 80,
        architecture: 'Hopper',
        cpu_cores: 64,
        ram_gb: 2048,
        storage_gb: 100,
        instance_disk_gb: 0,
        disk_configurable: false,
      },
    ]);
  });

  // Specification 2.3: cpu_cores, ram_gb and storage_gb: 0 means unreported.
  test('show 0 for what no host reports, and a host without a report does not hide the reports of others', async () => {
    await machineWith({ cpu_cores: 0, ram_bytes: 0, storage_bytes: 0 });
    expect(await rows('/v1/gpu-types')).toMatchObject([{ cpu_cores: 0, ram_gb: 0, storage_gb: 0 }]);
    await machineWith({ cpu_cores: 32, ram_bytes: 1024 ** 3, storage_bytes: 5 * 1024 ** 3 });
    expect(await rows('/v1/gpu-types')).toMatchObject([{ cpu_cores: 32, ram_gb: 1, storage_gb: 5 }]);
  });

  // Specification 2.3: vram_gb is the smallest on offer for a model that spans variants.
  test('show the smallest VRAM on offer if a model has variants', async () => {
    const large = inventoryOf(1, () => api.ids.uuid()).gpus.map((gpu) => ({
      ...gpu,
      name: 'NVIDIA GeForce RTX 4090',
      memory_mib: 49_140,
    }));
    await machineWith({ gpus: large });
    expect(await rows('/v1/gpu-types')).toMatchObject([{ gpu_type: 'RTX_4090', vram_gb: 48 }]);
    const machineId = await machineWith({ gpus: large.map((gpu) => ({ ...gpu, uuid: 'GPU-s', memory_mib: 24_564 })) });
    expect(await rows('/v1/gpu-types')).toMatchObject([{ gpu_type: 'RTX_4090', vram_gb: 24 }]);
    await loseHost(api.world, machineId);
    expect(await rows('/v1/gpu-types')).toMatchObject([{ gpu_type: 'RTX_4090', vram_gb: 48 }]);
  });

  // Specification 2.3: architecture, absent for a model that nobody knows.
  test('have no architecture if the model is unknown', async () => {
    await machineWith({ gpuName: 'NVIDIA Zeta 9' });
    const [row] = await rows('/v1/gpu-types');
    expect(row).toMatchObject({ gpu_type: 'ZETA_9', vram_gb: 80 });
    expect(row).not.toHaveProperty('architecture');
  });

  // Specification 4.1: GET /v1/gpu-types is a page of GPU type.
  test('come in pages by name, also if a type appears or goes between two pages', async () => {
    for (const name of ['D', 'B', 'F']) await machineWith({ gpuName: name });
    const first = await api.call('GET', '/v1/gpu-types?limit=2');
    expect(first.json.data).toMatchObject([{ gpu_type: 'B' }, { gpu_type: 'D' }]);
    await machineWith({ gpuName: 'C' });
    await machineWith({ gpuName: 'E' });
    expect(await rows(`/v1/gpu-types?limit=2&cursor=${first.json.next_cursor}`)).toMatchObject([
      { gpu_type: 'E' },
      { gpu_type: 'F' },
    ]);
  });
});

describe('pricing', () => {
  // Specification 2.4: A pricing row has gpu_type, region, tier on_demand, price_per_hour, available and offering_id.
  // Specification 2.3: Exact per-offering values are carried by the pricing rows.
  // Specification 2.4: price_per_hour is that of one GPU, exactly.
  // Specification 2.4: available is the live count: held GPUs do not count, and a host that is away has no row.
  test('has one row for each offering, with the price of one GPU and what is free now', async () => {
    const { machineId } = await api.world.machine({ gpus: 4, dollars: 2.345678, region: 'eu-north' });
    const [row] = await rows('/v1/pricing');
    expect(row).toEqual({
      offering_id: expect.stringMatching(/^off_/),
      gpu_type: 'H100_SXM',
      region: 'eu-north',
      tier: 'on_demand',
      price_per_hour: 2.345678,
      available: 4,
      vram_gb: 80,
      cpu_cores: 64,
      ram_gb: 512,
      storage_gb: 4000,
      host_gpu_count: 4,
      driver_version: '550.54.15',
      cuda_version: '12.4',
      disk_configurable: false,
      disk_price_per_gb_hour: 0,
    });
    const want = { gpuType: 'H100_SXM', count: 3, heldBy: 'w', reservedBy: null, endsMs: null, diskGb: 0 };
    await api.world.db.tx('hold', (tx) => api.world.rooms.supply.hold(tx, { ...want, machineIds: [machineId] }));
    expect(await rows('/v1/pricing')).toMatchObject([{ offering_id: row?.['offering_id'], available: 1 }]);
    await loseHost(api.world, machineId);
    expect(await rows('/v1/pricing')).toEqual([]);
    await linkHost(api.world, machineId);
    expect(await rows('/v1/pricing')).toMatchObject([{ offering_id: row?.['offering_id'] }]);
  });

  // Specification 2.4: tier=spot returns no offerings.
  test('has no offerings for tier=spot, has on_demand as its default, and refuses another tier', async () => {
    await api.world.machine();
    expect((await api.call('GET', '/v1/pricing?tier=spot')).json).toEqual({ data: [], next_cursor: null });
    expect(await rows('/v1/pricing?tier=on_demand')).toHaveLength(1);
    const refused = await api.call('GET', '/v1/pricing?tier=reserved');
    expect(refused).toMatchObject({ status: 422, json: { code: 'validation_failed', errors: [{ field: 'tier' }] } });
  });

  // Specification 2.4: offering_id pins a launch to the row.
  test('has an offering_id in each row that pins a launch to that offering, at its rate', async () => {
    const owner = await api.account();
    await api.world.machine({ gpus: 2, dollars: 1 });
    await api.world.machine({ gpus: 2, dollars: 7, region: 'eu-north' });
    const dear = (await rows('/v1/pricing')).find((row) => row['price_per_hour'] === 7);
    const body = { ...LAUNCH, gpu_count: 2, offering_id: dear?.['offering_id'] };
    expect((await postLaunch(api, owner, body)).status).toBe(202);
    expect(await newestInstance(api, owner)).toMatchObject({ region: 'eu-north', price_per_hour: 14 });
    expect(await rows('/v1/pricing')).toContainEqual({ ...dear, available: 0 });
  });

  // Specification 9: Spot capacity is unavailable: no offering shows.
  test('never shows machines of the tier spot', async () => {
    const { machineId } = await api.world.machine();
    await api.world.db.tx('spot', (tx) => tx.run(sql`update machines set tier = 'spot' where id = ${machineId}`));
    await loseHost(api.world, machineId);
    await linkHost(api.world, machineId);
    for (const path of ['/v1/pricing', '/v1/pricing?tier=spot', '/v1/gpu-types']) expect(await rows(path)).toEqual([]);
  });

  // Specification 2.1: Pages of offerings hold still while rows are inserted.
  // Specification 4.1: GET /v1/pricing is a page of pricing rows.
  test('never skips or repeats a row between its pages, whatever is listed meanwhile', async () => {
    const step = fc.record({ limit: fc.integer({ min: 1, max: 4 }), added: fc.nat(2), sameMs: fc.boolean() });
    await fc.assert(
      fc.asyncProperty(fc.nat(6), fc.array(step, { minLength: 1, maxLength: 5 }), async (initial, steps) => {
        const add = async (count: number, sameMs: boolean): Promise<void> => {
          for (let i = 0; i < count; i += 1) {
            if (!sameMs) await api.world.clock.advance(1);
            await api.world.machine();
          }
        };
        await add(initial, true);
        const before = (await rows('/v1/pricing?limit=200')).map((row) => row['offering_id']);
        const seen: unknown[] = [];
        let query: string | undefined = '';
        for (let i = 0; query !== undefined; i += 1) {
          const { limit, added, sameMs } = steps[i % steps.length] ?? { limit: 1, added: 0, sameMs: true };
          const { json } = await api.call('GET', `/v1/pricing?limit=${limit}${query}`);
          seen.push(...(json.data ?? []).map((row) => row['offering_id']));
          query = json.next_cursor === null ? undefined : `&cursor=${json.next_cursor}`;
          if (i < steps.length) await add(added, sameMs);
        }
        expect(new Set(seen).size).toBe(seen.length);
        expect(seen.filter((id) => before.includes(id))).toEqual(before);
      }),
      { seed: 4, numRuns: 12 },
    );
  });
});

describe('pages', () => {
  // Specification 2.1: limit below 1 or above 200 is refused.
  // Specification 4.1: Both take cursor and limit.
  test.each(['/v1/gpu-types', '/v1/pricing'])(
    '%s takes a limit from 1 to 200 and refuses an unknown parameter',
    async (path) => {
      for (const query of ['', '?limit=1', '?limit=200'])
        expect((await api.call('GET', path + query)).status).toBe(200);
      for (const query of [
        'limit=0',
        'limit=201',
        'limit=1.5',
        'limit=',
        'cursor=',
        'cursor=x',
        'offset=1',
        'limit=1&limit=2',
      ]) {
        const refused = await api.call('GET', `${path}?${query}`);
        expect(refused.status).toBe(422);
        expect(refused.json.errors).toMatchObject([{ field: query.split('=')[0] }]);
      }
    },
  );
  // Specification 4.1: GET /v1/gpu-types and GET /v1/pricing need no authentication.
  test.each(['/v1/gpu-types', '/v1/pricing'])('%s is open to everybody, with any key or none', async (path) => {
    await api.world.machine();
    const { key } = await api.account(['ssh_keys: read']);
    const open = await api.call('GET', path);
    expect(open).toMatchObject({ status: 200, json: { data: [{ gpu_type: 'H100_SXM' }], next_cursor: null } });
    for (const each of [key, 'svc_live_none'])
      expect((await api.call('GET', path, { key: each })).json).toEqual(open.json);
  });
  // Specification 2.1: A cursor belongs to its list.
  test('a cursor of one list is refused by the other', async () => {
    for (const gpuName of ['A', 'B']) await machineWith({ gpuName });
    const { json } = await api.call('GET', '/v1/gpu-types?limit=1');
    expect((await api.call('GET', `/v1/pricing?cursor=${json.next_cursor}`)).status).toBe(422);
  });
});

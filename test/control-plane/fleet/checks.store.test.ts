// The checklist of a machine: it agrees with what is on offer, and says what is missing and what to do.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { gpusOf } from '../../../control-plane/fleet/supply/store.ts';
import { type MachineCheck, MachineChecklist } from '../../../shared/api/community.ts';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { type Api, openApi } from '../../contract/api.ts';
import { inventoryOf, loseHost, type MadeMachine } from '../../kit/machines.ts';

let api: Api;
let made: MadeMachine;
let key: string;
beforeEach(async () => {
  api = await openApi();
  made = await api.world.machine({ gpus: 2 });
  ({ key } = await api.world.rooms.accounts.createKey({
    orgId: made.orgId,
    name: 'x',
    scopes: ['supply:read', 'supply:write'],
    expiresMs: null,
  }));
});
afterEach(() => api.close());

async function checklist(id = made.machineId): Promise<MachineChecklist> {
  const { status, json } = await api.call('GET', `/v1/community/machines/${id}/checks`, { key });
  expect(status).toBe(200);
  const { json: machine } = await api.call('GET', `/v1/community/machines/${id}`, { key });
  const list = MachineChecklist.parse(json);
  // The machine and its checklist never disagree.
  const [first] = list.checks.filter(({ required, state }) => required && state !== 'passed');
  expect([list.on_offer, first?.evidence ?? null]).toEqual([first === undefined, machine['status_reason']]);
  return list;
}
const notPassed = async (id = made.machineId): Promise<[string, MachineCheck['state']][]> =>
  (await checklist(id)).checks
    .filter(({ required, state }) => required && state !== 'passed')
    .map(({ name, state }) => [name, state]);

/** The two GPUs of the host, with changes. */
async function report(patch: Partial<Inventory>): Promise<void> {
  const uuids = (await gpusOf(api.world.db.read, made.machineId)).map((gpu) => gpu.gpu_uuid);
  const plain = inventoryOf(2, () => '');
  const gpus = plain.gpus.map((gpu, i) => ({ ...gpu, uuid: uuids[i] ?? '' }));
  await api.world.rooms.supply.reportInventory(made.machineId, { ...plain, gpus, ...patch });
}

describe('the checklist of a machine', () => {
  test('that is on offer has passed all required checks, each with its evidence and no remedy', async () => {
    const { machine_id: id, on_offer: isOnOffer, checks } = await checklist();
    expect([id, isOnOffer]).toEqual([made.machineId, true]);
    const passed = checks.filter(({ state }) => state === 'passed');
    expect(passed.every(({ evidence, remedy }) => evidence !== '' && remedy === null)).toBe(true);
    expect(checks.filter(({ state }) => state !== 'passed').map(({ name, required }) => [name, required])).toEqual([
      ['disk', false],
    ]);
    expect(checks.find(({ name }) => name === 'gpus')?.evidence).toBe('2 H100_SXM (0 rented, 0 reserved).');
  });

  test('before the enrolment waits for the host, and then for the operator', async () => {
    const body = { region: 'eu', price_per_hour: 1 };
    const { json } = await api.call('POST', '/v1/community/machines', { key, body });
    const id = String((json['machine'] as Record<string, unknown>)['machine_id']);
    const waiting = await checklist(id);
    expect((await notPassed(id)).every(([, state]) => state === 'waiting')).toBe(true);
    expect(waiting.checks.find(({ name }) => name === 'enrolment')).toMatchObject({
      evidence: 'The host has not enrolled yet.',
      remedy: expect.stringContaining('Install the agent') as string,
    });
    const { supply } = api.world.rooms;
    await supply.enroll({
      token: String(json['enrollment_token']),
      public_key: 'n'.repeat(43),
      inventory: inventoryOf(1, () => 'n'),
    });
    expect(await notPassed(id)).toEqual([
      ['approval', 'waiting'],
      ['connection', 'failed'],
    ]);
  });

  const suspend = () => api.world.rooms.supply.suspend(made.machineId);
  const unknown = (ids: string[] | null): Promise<void> =>
    api.world.db.tx('unknown', (tx) => api.world.rooms.supply.setUnknownWorkloads(tx, made.machineId, ids));
  const change = (body: object) => api.call('PATCH', `/v1/community/machines/${made.machineId}`, { key, body });
  const CASES: [string, () => Promise<unknown>, [string, string][]][] = [
    ['that is offline', () => loseHost(api.world, made.machineId), [['connection', 'failed']]],
    ['without an engine', () => report({ engine_version: '' }), [['engine', 'failed']]],
    ['whose fence does not stand', () => report({ fence_error: 'no nft' }), [['fence', 'failed']]],
    [
      'whose toolkit lets containers out',
      () => report({ container_toolkit_version: '1.17.7' }),
      [['container_toolkit', 'failed']],
    ],
    [
      'whose nvidia-smi fails, and without an engine',
      () => report({ gpus: [], gpu_error: 'x', engine_version: '' }),
      [
        ['engine', 'failed'],
        ['gpus', 'failed'],
      ],
    ],
    ['with containers that nobody knows', () => unknown(['w']), [['containers', 'failed']]],
    ['that has not said what it runs', () => unknown(null), [['containers', 'waiting']]],
    ['that is declared wrongly', () => change({ gpu_count: 8 }), [['verification', 'failed']]],
    ['of the tier spot', () => change({ tier: 'spot' }), [['tier', 'failed']]],
    [
      'that is delisted',
      () => api.call('DELETE', `/v1/community/machines/${made.machineId}`, { key }),
      [['listing', 'failed']],
    ],
    [
      'that the operator has suspended',
      suspend,
      [
        ['listing', 'failed'],
        ['approval', 'waiting'],
      ],
    ],
    [
      'of a suspended supplier',
      () => api.world.rooms.supply.suspendSupplier(made.supplierId),
      [['supplier', 'failed']],
    ],
  ];
  test.each(CASES)('%s names what keeps it off the market, all of it', async (_what, make, expected) => {
    await make();
    expect(await notPassed()).toEqual(expected);
  });

  test('says whether disks hold their size, which launches without disk_gb do not need', async () => {
    await report({ disk_enforced: true, storage_bytes: 100 * 1024 ** 3 });
    expect((await checklist()).checks.find(({ name }) => name === 'disk')).toEqual({
      name: 'disk',
      state: 'passed',
      required: false,
      evidence: 'Disks of containers hold their size; 100 GB in all.',
      remedy: null,
    });
  });

  test('shows rentals that do not answer with the evidence of the probes, and does not take it off the market for that', async () => {
    const owner = await api.account();
    const id = await api.world.run(owner);
    const rentals = async (): Promise<MachineCheck | undefined> =>
      (await checklist()).checks.find(({ name }) => name === 'rentals');
    expect(await rentals()).toMatchObject({
      state: 'passed',
      evidence: expect.stringContaining('Rented GPUs: 1.') as string,
    });
    const signal = new AbortController().signal;
    const watch = async (): Promise<void> => {
      for (let second = 0; second < 60; second += 1) {
        await api.world.rooms.watch.run(signal);
        await api.world.clock.advance(1000);
      }
    };
    await watch();
    api.world.probeAnswers.set(id, { ok: false, leg: 'banner', detail: 'banner: the connection was closed' });
    await watch();
    expect(await rentals()).toMatchObject({
      state: 'failed',
      required: false,
      evidence: expect.stringMatching(/^Rentals that do not answer .*: 1\. \d+ failed SSH probes since /) as string,
    });
    expect((await checklist()).on_offer).toBe(true);
    const { checks } = await checklist();
    expect(JSON.stringify(checks)).not.toContain(id);
  });
});

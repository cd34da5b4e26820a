// What a launch needs from a host: from its request, and again from its row after a host has failed it.
import { describe, expect, test } from 'vitest';
import { newInstance } from '../../../control-plane/rental/instances/create.ts';
import { gpuGrace } from '../../../control-plane/rental/instances/host-messages.ts';
import { capacityRequest, inOrder, wantedCapacity } from '../../../control-plane/rental/instances/place.ts';
import type { InstanceRow } from '../../../control-plane/rental/instances/store.ts';
import { LAUNCH } from '../../kit/world.ts';

const MINUTE_MS = 60_000;
const LAUNCHED = {
  image: 'app',
  own_image: true,
  registry_credential_id: null,
  entrypoint: null,
  cmd: null,
  sealed_env: null,
  ports: [],
  min_vram_gb: 24,
  trusted_only: true,
  avoided_machine_ids: ['m-bad'],
};
const row = (request: object = {}, patch: Partial<InstanceRow> = {}): InstanceRow => ({
  ...newInstance(
    'i',
    { orgId: 'o', principalId: 'k' },
    { request: { ...LAUNCH, ...request }, gpuType: 'L40', launch: LAUNCHED },
    { operationId: 'op', nowMs: 5 },
  ),
  ...patch,
});

describe('the capacity for a request', () => {
  test('has what the request names, and nothing else', () => {
    expect(wantedCapacity({ ...LAUNCH, gpu_count: 3 }, 7)).toEqual({
      gpuCount: 3,
      offeringId: null,
      region: null,
      maxPriceUcentsPerHour: null,
      diskGb: null,
      roomGb: 10,
      endsMs: null,
      exceptMachineIds: [],
      trustedOnly: false,
    });
    const requirements = { regions: ['eu'], min_ram_gb: 8 };
    const named = {
      requirements,
      offering_id: 'off',
      region: 'eu',
      max_price_per_hour: 2.5,
      disk_gb: 50,
      auto_terminate_hours: 2,
    };
    const whereabouts = { trustedOnly: true, avoidedMachineIds: ['m'] };
    expect(wantedCapacity({ ...LAUNCH, ...named }, 7, whereabouts)).toEqual({
      gpuCount: 1,
      offeringId: 'off',
      region: 'eu',
      maxPriceUcentsPerHour: 250_000_000n,
      diskGb: 50,
      // A minute to acknowledge, 25 minutes to start, two hours to run and five minutes to stop.
      endsMs: 7 + (1 + 25 + 120 + 5) * MINUTE_MS,
      exceptMachineIds: ['m'],
      trustedOnly: true,
      requirements,
    });
  });
});

describe('the capacity for an instance', () => {
  test('has its type, its VRAM, and no machine that was tried or is avoided', () => {
    expect(capacityRequest(row({}, { tried_machine_ids: ['m-1', 'm-2'] }), 7)).toMatchObject({
      gpuType: 'L40',
      minVramGb: 24,
      trustedOnly: true,
      exceptMachineIds: ['m-1', 'm-2', 'm-bad'],
      maxPriceUcentsPerHour: null,
    });
  });

  // Specification 4.3: A boot rescue never re-binds above the originally placed rate.
  test.each<[number | undefined, bigint, bigint | null]>([
    [undefined, 0n, null],
    [undefined, 100n, 100n],
    [1, 0n, 100_000_000n],
    [1, 99_999_999n, 99_999_999n],
    [1, 100_000_001n, 100_000_000n],
    [1, 100_000_000n, 100_000_000n],
  ])('with a cap of %s and a first price of %s may cost %s', (cap, placed, most) => {
    const request = cap === undefined ? {} : { max_price_per_hour: cap };
    const wanted = capacityRequest(row(request, { price_ucents_per_hour: placed }), 7);
    expect(wanted.maxPriceUcentsPerHour).toBe(most);
  });
});

test('a new instance waits for the engine at once, and keeps no variable in the clear', () => {
  const { request, ...rest } = row({ env: { SECRET: 'x' }, name: 'mine', region: 'eu', gpu_count: 2 });
  expect(JSON.stringify(request)).not.toContain('SECRET');
  expect(rest).toMatchObject({
    id: 'i',
    org_id: 'o',
    api_key_id: 'k',
    name: 'mine',
    status: 'allocating',
    gpu_type: 'L40',
    gpu_count: 2,
    region: 'eu',
    price_ucents_per_hour: 0n,
    tried_machine_ids: [],
    create_operation_id: 'op',
    created_ms: 5,
    entered_ms: 5,
    due_ms: 5,
    facts_version: 0,
  });
  expect(row()).toMatchObject({ name: null, region: '' });
});

test('a broken GPU may be mended for half an hour from its fault on', () => {
  const grace = (fault: string | null, sinceMs: number | null, wholeMs: number | null = null) =>
    gpuGrace({ gpu_fault: fault, gpu_fault_since_ms: sinceMs, gpu_whole_ms: wholeMs }, 7, []);
  const broken = { untilMs: 5 + 30 * MINUTE_MS, fault: 'Xid 79' };
  expect(grace('Xid 79', 5)).toEqual({ ...broken, endsMs: null });
  expect(grace('Xid 79', 5, 7)).toEqual({ ...broken, endsMs: 5 + MINUTE_MS });
  expect([grace(null, 5), grace('Xid 79', null), grace(null, null)]).toEqual([undefined, undefined, undefined]);
});

test('of several errors the first in the list is thrown, after all are there', async () => {
  const late = Promise.withResolvers<void>();
  const done: string[] = [];
  const work = inOrder([
    late.promise.then(() => Promise.reject(new Error('first'))),
    Promise.reject(new Error('second')),
    late.promise.then(() => done.push('third')),
  ]);
  late.resolve();
  await expect(work).rejects.toThrow('first');
  expect(done).toEqual(['third']);
});

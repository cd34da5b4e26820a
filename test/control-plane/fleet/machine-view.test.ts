// A machine as its supplier and as the operator see it, field by field, and the prices that a supplier may ask.
import { describe, expect, test } from 'vitest';
import { machineView, priceUcents } from '../../../control-plane/fleet/supply/machine-view.ts';
import { machineFields } from '../../../control-plane/fleet/supply/operator-routes.ts';
import { supplierView } from '../../../control-plane/fleet/supply/owners.ts';
import type { MachineRow } from '../../../control-plane/fleet/supply/store.ts';
import { inventoryOf, NO_FACTS } from '../../kit/machines.ts';

const names = ['a', 'b'];
const INVENTORY = inventoryOf(2, () => names.shift() ?? '');
const FAULT = { uuid: 'GPU-a', severity: 'unfit' as const, detail: 'NVLink' };
const ROW: MachineRow = {
  id: 'm',
  supplier_id: 's',
  name: 'rack 7',
  status: 'listed',
  approved: true,
  trusted: true,
  approved_gpus: [],
  inventory_fault: null,
  verification_status: 'unverified',
  verification_detail: 'so',
  declared_gpu_count: 2,
  declared_gpu_type: 'H100_SXM',
  declared_vram_per_gpu_gb: 80,
  region: 'eu',
  price_ucents_per_hour: 250_000_000n,
  tier: 'on_demand',
  public_key: 'key',
  inventory: INVENTORY,
  online: true,
  last_heartbeat_ms: Date.UTC(2026, 0, 2),
  unknown_workloads: [],
  copied_ms: null,
  rentable_until_ms: null,
  offer_ended: false,
  created_ms: Date.UTC(2026, 0, 1),
  updated_ms: Date.UTC(2026, 0, 1),
  supplier_status: 'active',
};

describe('a price', () => {
  test.each([
    [2.5, 250_000_000n],
    [0.00000001, 1n],
    [1_000, 100_000_000_000n],
  ])('of %d dollars is exact', (dollars, ucents) => {
    expect(priceUcents(dollars)).toBe(ucents);
  });

  test.each([
    [0, 'must be at least 0.00000001'],
    [0.000000001, 'must be at least 0.00000001'],
    [1.123456789, 'must have at most 8 decimals'],
  ])('of %d dollars is refused', (dollars, rule) => {
    expect(() => priceUcents(dollars)).toThrow(
      expect.objectContaining({
        code: 'validation_failed',
        details: expect.objectContaining({ errors: [{ field: 'price_per_hour', rule }] }) as object,
      }),
    );
  });
});

describe('a machine', () => {
  test('is shown to its supplier with what was declared, what is there, and what it earns', () => {
    const use = { machine_id: 'm', gpu_type: 'H100_SXM', vram_gb: 80, count: 2, rented: 1, reserved: 1 };
    const facts = { ...NO_FACTS, gpus: [use], earnedTodayUcents: 1_999_999n, platformFeeBps: 1_550 };
    expect(machineView({ ...ROW, inventory: { ...INVENTORY, gpu_faults: [FAULT] } }, facts)).toEqual({
      machine_id: 'm',
      supplier_id: 's',
      name: 'rack 7',
      hostname: 'host',
      status: 'listed',
      status_reason: null,
      on_offer: true,
      verification_status: 'unverified',
      verification_detail: 'so',
      gpu_faults: [{ gpu_uuid: 'GPU-a', severity: 'unfit', detail: 'NVLink' }],
      created_at: '2026-01-01T00:00:00.000Z',
      gpu_count: 2,
      gpu_type: 'H100_SXM',
      region: 'eu',
      price_per_hour: 2.5,
      platform_fee_percent: 15.5,
      vram_per_gpu_gb: 80,
      tier: 'on_demand',
      rentable_until: null,
      online: true,
      reported_gpus: [{ gpu_type: 'H100_SXM', vram_per_gpu_gb: 80, count: 2, rented: 1, reserved: 1 }],
      // Whole cents, rounded down.
      earned_today_cents: 1,
      reliability: NO_FACTS.reliability,
      last_heartbeat_at: '2026-01-02T00:00:00.000Z',
    });
  });

  test('that has reported nothing has no faults and no heartbeat, and says first what keeps it off the market', () => {
    const silent = machineView({ ...ROW, inventory: null, last_heartbeat_ms: null, online: false }, NO_FACTS);
    expect(silent).toMatchObject({ gpu_faults: [], last_heartbeat_at: null });
    expect(silent).toMatchObject({ on_offer: false, status_reason: 'The agent of the host is not connected.' });
    const spot = machineView({ ...ROW, tier: 'spot' }, NO_FACTS);
    expect(spot.status_reason).toBe('Spot capacity is not sold at present.');
    expect(machineView({ ...ROW, tier: 'spot', online: false }, NO_FACTS).status_reason).toContain('not connected');
  });

  test('is shown to the operator in one row', () => {
    expect(machineFields({ ...ROW, inventory: { ...INVENTORY, gpu_faults: [FAULT], gpu_error: '' } })).toEqual({
      machine_id: 'm',
      name: 'rack 7',
      hostname: 'host',
      supplier_id: 's',
      status: 'listed',
      approved: true,
      trusted: true,
      off_market_because: null,
      verification_status: 'unverified',
      verification_detail: 'so',
      online: true,
      gpus: 2,
      gpu_name: 'NVIDIA H100 80GB HBM3',
      gpu_error: '',
      gpu_faults: 'GPU-a is unfit: NVLink',
      engine: '20.10.24',
      network_fence: 'nftables',
      fence_error: '',
      region: 'eu',
      price_per_hour: 2.5,
      unknown_workloads: '',
      copied_since: null,
      last_heartbeat_at: '2026-01-02T00:00:00.000Z',
    });
  });

  test('that has reported nothing, or that two hosts are, is shown to the operator as that', () => {
    expect(
      machineFields({
        ...ROW,
        inventory: null,
        unknown_workloads: null,
        last_heartbeat_ms: null,
        copied_ms: Date.UTC(2026, 0, 3),
      }),
    ).toMatchObject({
      hostname: null,
      gpus: null,
      gpu_name: null,
      gpu_error: null,
      gpu_faults: '',
      engine: null,
      network_fence: null,
      fence_error: null,
      unknown_workloads: 'not reported yet',
      copied_since: '2026-01-03T00:00:00.000Z',
      last_heartbeat_at: null,
    });
    expect(machineFields({ ...ROW, unknown_workloads: ['w-1', 'w-2'] }).unknown_workloads).toBe('w-1, w-2');
    expect(machineFields({ ...ROW, inventory: { ...INVENTORY, gpus: [] } })).toMatchObject({ gpus: 0, gpu_name: null });
  });
});

test('a supplier is shown with its organisation and its times', () => {
  const row = { id: 's', org_id: 'o', status: 'active' as const, created_ms: 0, updated_ms: 1_000 };
  expect(supplierView(row)).toEqual({
    supplier_id: 's',
    org_id: 'o',
    status: 'active',
    created_at: '1970-01-01T00:00:00.000Z',
    updated_at: '1970-01-01T00:00:01.000Z',
  });
});

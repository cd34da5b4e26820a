// The filters of the launch form: what an instance would get of a host, which offerings the filters hide, and what the launch then requires.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  choicesOf,
  type Filters,
  filteredBy,
  hiddenBy,
  hiddenByEach,
  NO_FILTERS,
  percent,
  requirementOptions,
  requirementsOf,
} from '../../../control-plane/console/web/customer/launch-filters.ts';
import type { PricingRow } from '../../../shared/api/pricing.ts';

const ROW: PricingRow = {
  offering_id: 'off_1',
  gpu_type: 'H100_SXM',
  region: 'eu-north',
  tier: 'on_demand',
  price_per_hour: 2.5,
  available: 4,
  vram_gb: 80,
  cpu_cores: 100,
  ram_gb: 513,
  storage_gb: 1_000,
  host_gpu_count: 8,
  driver_version: '570.86.15',
  cuda_version: '12.8',
  disk_configurable: true,
  disk_price_per_gb_hour: 0.0001,
  uptime: 0.995,
};

const draft = (
  filters: Partial<Filters>,
  rest: { gpuCount?: number; disk?: string; tier?: 'reserved'; isPinned?: true } = {},
) => ({
  tier: 'on_demand' as const,
  isPinned: false,
  gpuCount: 1,
  disk: '',
  ...rest,
  filters: { ...NO_FILTERS, ...filters },
});

describe('an offering', () => {
  test.each<[Partial<Filters>, Partial<PricingRow>, string | undefined]>([
    [{}, {}, undefined],
    [{ type: 'H100_SXM', region: 'eu-north', vramGb: '80', most: '2.5' }, {}, undefined],
    [{ cpuCores: '12', ramGb: '64', cuda: '12.8' }, {}, undefined],
    [{ type: 'L4' }, {}, 'of another type'],
    [{ vramGb: '141' }, {}, 'under 141 GB of VRAM'],
    [{ region: 'us-east' }, {}, 'not in us-east'],
    [{ cpuCores: '13' }, {}, 'under 13 CPUs'],
    [{ cpuCores: '13' }, { cpu_cores: 0 }, 'with unknown CPUs'],
    [{ ramGb: '65' }, {}, 'under 65 GB of RAM'],
    [{ ramGb: '65' }, { host_gpu_count: 0 }, 'with unknown RAM'],
    [{ cuda: '13.0' }, {}, 'with CUDA before 13.0'],
    [{ cuda: '12.8' }, { cuda_version: '12.10' }, undefined],
    [{ cuda: '12.10' }, {}, 'with CUDA before 12.10'],
    [{ cuda: '12.8' }, { cuda_version: undefined }, 'with unknown CUDA'],
    [{ uptime: '0.995' }, {}, undefined],
    [{ uptime: '0.999' }, {}, 'under 99.9 % uptime'],
    [{ uptime: '0.95' }, { uptime: 0.949 }, 'under 95 % uptime'],
    [{ uptime: '0.95' }, { uptime: undefined }, 'with unknown uptime'],
    [{}, { uptime: undefined }, undefined],
    [{ most: '2.49' }, {}, 'above $2.49 per GPU'],
  ])('with the filters %j and the host %j is hidden by: %s', (filters, host, reason) => {
    const row = { ...ROW, ...host } as PricingRow;
    expect(filteredBy(row, draft(filters))).toBe(reason);
    expect(hiddenBy(row, draft(filters))).toBe(reason);
  });

  test('is hidden if its host has too few GPUs for the launch', () => {
    const few = { ...ROW, host_gpu_count: 2 };
    expect(hiddenBy(few, draft({}, { gpuCount: 2 }))).toBe(undefined);
    expect(hiddenBy(few, draft({}, { gpuCount: 4 }))).toBe('with fewer than 4 GPUs');
    expect(hiddenBy({ ...ROW, host_gpu_count: 0 }, draft({}, { gpuCount: 4 }))).toBe(undefined);
  });

  test('is compared by what so many GPUs would get', () => {
    const filters = { cpuCores: '25', ramGb: '128' };
    expect(hiddenBy(ROW, draft(filters))).toBe('under 25 CPUs');
    expect(hiddenBy(ROW, draft(filters, { gpuCount: 2 }))).toBe(undefined);
  });

  test.each([
    ['200', {}, undefined],
    ['200', { disk_configurable: false }, 'no choice of disk'],
    ['1001', {}, 'under 1001 GB disk'],
  ])('with a disk of %s GB and the host %j is hidden by: %s, which is no filter', (disk, host, reason) => {
    expect(hiddenBy({ ...ROW, ...host }, draft({}, { disk }))).toBe(reason);
    expect(filteredBy({ ...ROW, ...host }, draft({}, { disk }))).toBe(undefined);
  });

  test('is listed exactly if the API takes its host for the launch', () => {
    const some = { min: 1, max: 400 };
    const facts = fc.record({
      cpu: fc.nat(400),
      ram: fc.nat(400),
      host: fc.nat(8),
      gpuCount: fc.integer({ min: 1, max: 8 }),
    });
    fc.assert(
      fc.property(facts, fc.integer(some), fc.integer(some), ({ cpu, ram, host, gpuCount }, cores, gb) => {
        const row = { ...ROW, cpu_cores: cpu, ram_gb: ram, host_gpu_count: host };
        const isListed = (filters: Partial<Filters>): boolean =>
          hiddenBy(row, draft(filters, { gpuCount })) === undefined;
        expect(isListed({ cpuCores: String(cores) })).toBe(host >= gpuCount && cpu * gpuCount >= cores * host);
        expect(isListed({ ramGb: String(gb) })).toBe(host >= gpuCount && (ram - 1) * gpuCount >= gb * host);
      }),
    );
  });
});

describe('a launch', () => {
  const ALL = { region: 'eu-north', vramGb: '80', cpuCores: '16', ramGb: '64', cuda: '12.8', uptime: '0.99' };
  const REQUIRED = {
    regions: ['eu-north'],
    min_vram_gb: 80,
    min_cpu_cores: 16,
    min_ram_gb: 64,
    min_cuda_version: '12.8',
    min_uptime: 0.99,
  };

  test('requires what the person has filtered for', () => {
    expect(requirementsOf(draft(ALL))).toEqual(REQUIRED);
    expect(requirementsOf(draft({ ramGb: '64' }))).toEqual({ min_ram_gb: 64 });
  });

  test('requires nothing without a filter, and nothing for the filters of the type and the price', () => {
    expect(requirementsOf(draft({}))).toBe(undefined);
    expect(requirementsOf(draft({ type: 'H100_SXM', most: '3' }))).toBe(undefined);
  });

  test('requires nothing if a contract pays for it, or if it is pinned to a host', () => {
    expect(requirementsOf(draft(ALL, { tier: 'reserved' }))).toBe(undefined);
    expect(requirementsOf(draft(ALL, { isPinned: true }))).toBe(undefined);
  });

  test('has the same requirements in its command line', () => {
    expect(requirementOptions(REQUIRED)).toEqual([
      ['--only-region', 'eu-north'],
      ['--min-vram', 80],
      ['--min-cpus', 16],
      ['--min-ram', 64],
      ['--min-cuda', '12.8'],
      ['--min-uptime', 0.99],
    ]);
    expect(requirementOptions({ min_cpu_cores: 16 })).toEqual([['--min-cpus', 16]]);
    expect(requirementOptions(undefined)).toEqual([]);
  });
});

test.each([
  [1, '100 %'],
  [0.998, '99.8 %'],
  [0.99, '99 %'],
  [0.07, '7 %'],
  [0, '0 %'],
])('an uptime of %d is shown as %s', (uptime, shown) => {
  expect(percent(uptime)).toBe(shown);
});

test('a filter offers each value of the offerings once and in order, and its own although no offering has it any more', () => {
  expect(choicesOf(['12.8', '12.10', undefined, '12.8', '9.2'], '')).toEqual(['9.2', '12.8', '12.10']);
  expect(choicesOf(['eu-north'], 'us-east')).toEqual(['eu-north', 'us-east']);
});

test('each filter names the offerings that it hides by itself, and the number of GPUs those that are too small', () => {
  const rows = [
    ROW,
    { ...ROW, region: 'us-east', vram_gb: 24 },
    { ...ROW, gpu_type: 'L4' },
    { ...ROW, host_gpu_count: 1 },
  ];
  const wish = draft({ type: 'H100_SXM', region: 'eu-west', vramGb: '48' }, { gpuCount: 2, disk: '2000' });
  expect(hiddenByEach(rows, wish)).toEqual([
    ['not in eu-west', 3],
    ['under 2000 GB disk', 3],
    ['with fewer than 2 GPUs', 1],
    ['of another type', 1],
    ['under 48 GB of VRAM', 1],
  ]);
  expect(hiddenByEach(rows, draft({}))).toEqual([]);
});

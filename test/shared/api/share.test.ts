// The share of its host that an instance gets.
import { describe, expect, test } from 'vitest';
import { shareOf } from '../../../shared/api/share.ts';

const HOST = { cpu_cores: 100, ram_gb: 513, host_gpu_count: 8 };

describe('the share of a host', () => {
  test.each([
    [1, 12, 64],
    [3, 37, 192],
    [8, 100, 512],
  ])('of %d of 8 GPUs is rounded down, and leaves 1 GB to the host', (gpuCount, cpuCores, ramGb) => {
    expect(shareOf(HOST, gpuCount)).toEqual({ cpuCores, ramGb });
  });

  test.each([
    [7, 1],
    [8, 1],
    [15, 1],
    [16, 2],
  ])('of one of 8 GPUs on a host with %d processors has %d of them', (cpuCores, expected) => {
    expect(shareOf({ ...HOST, cpu_cores: cpuCores }, 1)).toMatchObject({ cpuCores: expected });
  });

  test.each([
    [{ host_gpu_count: 0 }, { cpuCores: undefined, ramGb: undefined }],
    [{ cpu_cores: 0 }, { cpuCores: undefined, ramGb: 64 }],
    [{ ram_gb: 0 }, { cpuCores: 12, ramGb: undefined }],
  ])('of a host with %j is unknown where the host reports nothing', (unreported, share) => {
    expect(shareOf({ ...HOST, ...unreported }, 1)).toEqual(share);
  });
});

// What an instance gets of its host: all of its GPUs, and a share of the processors and of the memory.
import { z } from 'zod';
import { HOST_RAM_GB } from '../limits.ts';

/** Members of an instance. They are absent before its first placement. */
export const instanceShare = {
  offering_id: z
    .string()
    .optional()
    .describe(
      'The offering where it was placed last, as in GET /v1/pricing. Another launch can name it to get the same host. Absent before the first placement',
    ),
  vram_gb: z.int().optional().describe('Nameplate VRAM of each of its GPUs, in GB; absent with `offering_id`'),
  cpu_cores: z
    .int()
    .optional()
    .describe('Its share of the processors of the host, rounded down, at least 1. Absent if the host reported none'),
  ram_gb: z
    .int()
    .optional()
    .describe('Its share of the memory of the host in GB, rounded down. Absent if the host reported none'),
};

/** The share of one instance. Undefined: the host has not reported it. */
export interface Share {
  cpuCores: number | undefined;
  ramGb: number | undefined;
}

/** The figures of a host, as in GET /v1/pricing: 0 is unreported. */
interface HostFigures {
  cpu_cores: number;
  ram_gb: number;
  host_gpu_count: number;
}

/** The share of an instance with `gpuCount` GPUs, rounded down. The agent gives each instance one processor at least. */
export function shareOf(host: HostFigures, gpuCount: number): Share {
  const { cpu_cores: cpuCores, ram_gb: ramGb, host_gpu_count: gpus } = host;
  const part = (whole: number): number => Math.floor((whole * gpuCount) / gpus);
  return {
    cpuCores: cpuCores === 0 || gpus === 0 ? undefined : Math.max(1, part(cpuCores)),
    ramGb: ramGb === 0 || gpus === 0 ? undefined : part(ramGb - HOST_RAM_GB),
  };
}

// The conditions of a launch on its host, in SQL and in words: one list for placement, for the explanation of a refusal, and for the catalogue.
import type { Requirements } from '../../../shared/api/requirements.ts';
import { HOST_RAM_GB } from '../../../shared/limits.ts';
import { join, type Sql, sql } from '../../base/db/db.ts';
import { cudaNumber } from './cuda.ts';

export interface Requirement {
  /** The field of the request. */
  field: string;
  /** Completes "offerings ...". */
  words: string;
  /** Holds for the offerings that meet it. */
  condition: Sql;
}

/** What a launch with `gpuCount` GPUs requires, in the order of the API. It leaves out `gpu_types`: the type has been chosen before. */
export function requirementsOf({
  gpuCount,
  requirements: { regions, ...minimums } = {},
}: {
  gpuCount: number;
  requirements?: Requirements;
}): Requirement[] {
  const { min_vram_gb: vramGb, min_cpu_cores: cores, min_ram_gb: ramGb } = minimums;
  const { min_cuda_version: cuda, min_uptime: uptime } = minimums;
  const found: Requirement[] = [];
  const require = (field: keyof Requirements, words: string, condition: Sql): void => {
    found.push({ field: `requirements.${field}`, words, condition });
  };
  if (regions !== undefined) require('regions', `in ${regions.join(' or ')}`, sql`region in (${join(regions)})`);
  if (vramGb !== undefined)
    require('min_vram_gb', `with at least ${vramGb} GB of VRAM for each GPU`, sql`vram_gb >= ${vramGb}`);
  // An instance gets this share (`shapeOf` of the agent). The comparison multiplies, so that nothing is rounded.
  if (cores !== undefined) {
    // Each instance gets one processor at least.
    const part = cores === 1 ? sql`cpu_cores > 0` : sql`cpu_cores * ${gpuCount} >= ${cores} * host_gpu_count`;
    const condition = sql`${part} and host_gpu_count > 0`;
    require('min_cpu_cores', `with at least ${cores} processors for the instance`, condition);
  }
  if (ramGb !== undefined) {
    const condition = sql`(ram_gb - ${HOST_RAM_GB}) * ${gpuCount} >= ${ramGb} * host_gpu_count and host_gpu_count > 0`;
    require('min_ram_gb', `with at least ${ramGb} GB of memory for the instance`, condition);
  }
  if (cuda !== undefined)
    require('min_cuda_version', `with CUDA ${cuda} or newer`, sql`cuda_version >= ${cudaNumber(cuda)}`);
  if (uptime !== undefined) {
    const words = `with an uptime of at least ${percentOf(uptime)} % in the last 30 days`;
    require('min_uptime', words, sql`uptime_bps >= ${leastBps(uptime)}`);
  }
  return found;
}

/** The least uptime that meets `share`. It is a multiple of 10, as each stored one: the product with 10,000 would be inexact for 0.07 and others. */
function leastBps(share: number): number {
  return Math.ceil(share * 1_000) * 10;
}

/** A share in percent, with at most two decimals: 0.995 is 99.5. */
function percentOf(share: number): number {
  return Number((share * 100).toFixed(2));
}

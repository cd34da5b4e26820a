// What a launch requires of its host beyond a GPU type, and the same conditions as filters of GET /v1/pricing.
import { z } from 'zod';
import { label } from './label.ts';

/** GPU types or regions among which a launch may choose. */
export const CHOICES_MAX = 20;

const CudaVersion = z.string().regex(/^\d{1,2}\.\d{1,2}$/, 'must be a version of CUDA such as 12.8');

/**
 * Conditions on the host and on the share of it that the instance gets. Each member that is left out is no condition. `number` parses a number, from
 * JSON or from the text of a query.
 */
export function hostMinimums(number: z.ZodNumber | z.ZodCoercedNumber<unknown>) {
  const whole = number.int();
  return {
    min_vram_gb: whole.min(1).max(4_096).optional().describe('Minimum nameplate VRAM of each GPU, in GB'),
    min_cpu_cores: whole
      .min(1)
      .max(4_096)
      .optional()
      .describe(
        'Minimum number of processors of the instance. It gets a share of those of its host, and at least one: `cpu_cores` * `gpu_count` / `host_gpu_count`',
      ),
    min_ram_gb: whole
      .min(1)
      .max(65_536)
      .optional()
      .describe(
        'Minimum memory of the instance, in GB. It gets a share of the memory of its host, which keeps 1 GB: (`ram_gb` - 1) * `gpu_count` / `host_gpu_count`',
      ),
    min_cuda_version: CudaVersion.optional().describe(
      'Minimum version of CUDA that the driver of the host supports, such as 12.8. Hosts whose version is unknown are left out',
    ),
    min_uptime: number
      .min(0)
      .max(1)
      .optional()
      .describe(
        'Minimum share of the last 30 days in which the host was connected, such as 0.99. Hosts whose uptime is not known yet are left out',
      ),
  };
}

const choices = <T extends z.ZodType>(choice: T) => z.array(choice).min(1).max(CHOICES_MAX).optional();

/** Conditions that no placement breaks, neither the first one nor one after a host has failed. */
export const Requirements = z
  .strictObject({
    gpu_types: choices(z.string().min(1).max(64)).describe(
      'Instead of `gpu_type`: the launch takes the cheapest of these GPU types that is free now, in the preferred `region` if one is free there. The type then stays: if the host fails before the instance runs, the next host has the same type',
    ),
    regions: choices(label(64)).describe(
      'Only these regions. `region` may name one of them, which is then tried before the others',
    ),
    ...hostMinimums(z.number()),
  })
  .meta({ id: 'Requirements' });
export type Requirements = z.infer<typeof Requirements>;

/** The fields of a launch that say where it may be placed. */
export interface PlacementWish {
  gpu_type?: unknown;
  template_id?: unknown;
  offering_id?: unknown;
  tier?: unknown;
  region?: unknown;
  requirements?: Requirements | undefined;
}

/** Refuses fields of a launch about its host that contradict each other. */
export function refusePlacement(request: PlacementWish, context: z.RefinementCtx): void {
  const refuse = (path: string[], message: string): void => context.addIssue({ code: 'custom', path, message });
  const { gpu_type: gpuType, region, requirements } = request;
  const { gpu_types: gpuTypes, regions } = requirements ?? {};
  const others = [request.template_id, request.offering_id, gpuTypes];
  if (gpuType === undefined && others.every((other) => other === undefined))
    refuse(['gpu_type'], 'is required without template_id, offering_id and requirements.gpu_types');
  if (requirements === undefined || Object.keys(requirements).length === 0) return;
  if (gpuType !== undefined && gpuTypes !== undefined)
    refuse(['requirements', 'gpu_types'], 'cannot be combined with gpu_type');
  if (request.offering_id !== undefined) refuse(['requirements'], 'cannot be combined with offering_id');
  if (request.tier === 'reserved') refuse(['requirements'], 'cannot be combined with tier reserved');
  if (typeof region === 'string' && regions?.includes(region) === false)
    refuse(['region'], 'must be one of requirements.regions');
}

// Chooses the GPU type of a launch and checks that its VRAM is large enough (specification 4.3, 7.2).
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { fail } from '../../../shared/errors.ts';
import type { Query } from '../../base/db/db.ts';
import { type CapacityRequest, cheapestType, largestVramGb, type Offering } from '../../fleet/supply/offerings.ts';
import type { Runnable } from '../launch/runnable.ts';

export interface GpuChoice {
  gpuType: string;
  /** VRAM that each GPU needs, on any host. */
  minVramGb: number;
  warnings: string[];
}

/** A model server needs VRAM beyond the weights: for its cache and for CUDA. */
const VRAM_FACTOR = 1.2;
const GIB = 1024 ** 3;

/**
 * Chooses the GPU type. If the request names a type, or pins an offering, that type is taken; a type that is too small is refused. Otherwise
 * the tier decides: a reserved launch takes the type of its contract (`choices.reserved`), and every other launch takes the cheapest type that
 * is large enough. `want` is the launch without the type. `choices.pinned` is the pinned offering; undefined if none is pinned or listed.
 * @throws ServiceError `gpu_vram_too_small`, `model_too_large`, `environment_unavailable`
 */
export async function chooseGpu(
  query: Query,
  wish: { request: CreateInstance; runnable: Runnable },
  want: Omit<CapacityRequest, 'gpuType' | 'minVramGb'>,
  choices: { pinned: Promise<Offering | undefined>; reserved(minVramGb: number): Promise<string> },
): Promise<GpuChoice> {
  const { request, runnable } = wish;
  const pinned = await choices.pinned;
  const gpuType = request.gpu_type ?? pinned?.gpu_type;
  if (gpuType !== undefined) {
    const anyWillDo = runnable.minVramGb === 0 && runnable.model === null;
    if (anyWillDo) return { gpuType, minVramGb: 0, warnings: [] };
    const vramGb = await largestVramGb(query, { gpuType, offeringId: pinned?.id ?? null });
    return { gpuType, ...checkGpu(runnable, { gpuType, gpuCount: want.gpuCount, vramGb }) };
  }
  const minVramGb = floorGb(runnable, want.gpuCount, VRAM_FACTOR);
  if (request.tier === 'reserved') return { gpuType: await choices.reserved(minVramGb), minVramGb, warnings: [] };
  const cheapest = await cheapestType(query, { ...want, minVramGb });
  if (cheapest !== undefined) return { gpuType: cheapest, minVramGb, warnings: [] };
  const { gpu_types: types } = request.requirements ?? {};
  if (types !== undefined) return chooseTight(query, runnable, { types, want });
  return fail('environment_unavailable', {
    detail: `No host on offer has ${gpusInWords(want.gpuCount)} with at least ${minVramGb} GB of VRAM, as ${needOf(runnable)}. Change gpu_count, or name a gpu_type.`,
    errors: [{ field: 'template_id', rule: `needs GPUs with ${minVramGb} GB of VRAM` }],
  });
}

/** Chooses among types on which a model just fits, as if the request named one of them. @throws ServiceError if it fits on none of them */
async function chooseTight(
  query: Query,
  runnable: Runnable,
  { types, want }: { types: string[]; want: Omit<CapacityRequest, 'gpuType' | 'minVramGb'> },
): Promise<GpuChoice> {
  const { gpuCount } = want;
  const minVramGb = floorGb(runnable, gpuCount, 1);
  const gpuType = await cheapestType(query, { ...want, minVramGb });
  if (gpuType !== undefined) {
    const vramGb = await largestVramGb(query, { gpuType, offeringId: null });
    return { gpuType, ...checkGpu(runnable, { gpuType, gpuCount, vramGb }) };
  }
  const need = minVramGb === 0 ? '' : ` with at least ${minVramGb} GB of VRAM, as ${needOf(runnable)}`;
  return fail(runnable.ownImage ? 'image_unavailable' : 'environment_unavailable', {
    detail: `No host on offer has ${gpusInWords(gpuCount)} of one of the types ${types.join(', ')}${need}. Choose other types from GET /v1/gpu-types, or another gpu_count.`,
    errors: [{ field: 'requirements.gpu_types', rule: `must have a type with ${gpusInWords(gpuCount)} on one host` }],
  });
}

const gpusInWords = (count: number): string => (count === 1 ? 'a GPU' : `${count} GPUs`);

/** Completes "with at least 24 GB of VRAM, as ...". */
function needOf({ model }: Runnable): string {
  return `this template needs${model === null ? '' : ` for the ${gigabytes(model.bytes)} GB of ${model.name}`}`;
}

/**
 * Refuses a GPU type whose VRAM is too small, and adds a warning if it is only just large enough. `vramGb` is 0 for a type that is not on offer;
 * `prospect` refuses such a type later.
 */
function checkGpu(
  runnable: Runnable,
  gpu: { gpuType: string; gpuCount: number; vramGb: number },
): Omit<GpuChoice, 'gpuType'> {
  const { gpuType, gpuCount, vramGb } = gpu;
  const { model } = runnable;
  const minVramGb = floorGb(runnable, gpuCount, 1);
  if (vramGb === 0) return { minVramGb, warnings: [] };
  if (vramGb < runnable.minVramGb) {
    fail('gpu_vram_too_small', {
      detail: `${gpuType} has ${vramGb} GB of VRAM, and the template needs ${runnable.minVramGb} GB. Choose a larger gpu_type, or leave it out.`,
      errors: [{ field: 'gpu_type', rule: `must have at least ${runnable.minVramGb} GB of VRAM` }],
    });
  }
  if (model === null) return { minVramGb, warnings: [] };
  const [weightsGb, allGb] = [gigabytes(model.bytes), vramGb * gpuCount];
  const gpus = `${gpuCount} x ${gpuType} with ${vramGb} GB each`;
  if (model.bytes > allGb * GIB) {
    fail('model_too_large', {
      detail: `The weights of ${model.name} take ${weightsGb} GB, more than the ${allGb} GB of VRAM of ${gpus}. Choose a larger gpu_type or gpu_count, or leave gpu_type out.`,
      errors: [{ field: 'env.MODEL', rule: `must fit into ${allGb} GB` }],
      extra: { weights_gb: weightsGb, vram_gb: allGb },
    });
  }
  const isTight = model.bytes * VRAM_FACTOR > allGb * GIB;
  const warning = `The weights of ${model.name} take ${weightsGb} of the ${allGb} GB of VRAM of ${gpus}: little or nothing is left to work with.`;
  return { minVramGb, warnings: isTight ? [warning] : [] };
}

function floorGb({ minVramGb, model }: Runnable, gpuCount: number, factor: number): number {
  return Math.max(minVramGb, Math.ceil(((model?.bytes ?? 0) * factor) / gpuCount / GIB));
}

/** Converts bytes to GB, rounded up to one decimal. */
function gigabytes(bytes: number): number {
  return Math.ceil((bytes / GIB) * 10) / 10;
}

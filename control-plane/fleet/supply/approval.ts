// Pure: the differences between the GPUs that a host shows and those that the operator has approved.
import { z } from 'zod';
import type { Inventory } from '../../../shared/protocol/inventory.ts';
import { identifyGpu } from './known-gpus.ts';

export const ApprovedGpu = z.strictObject({
  uuid: z.string(),
  gpu_type: z.string(),
  vram_gb: z.int(),
  driver_version: z.string(),
});
export type ApprovedGpu = z.infer<typeof ApprovedGpu>;

/** Limit of GPUs that a message names, so that it stays readable. */
const NAMED_MAX = 3;

/** The GPUs of the inventory in the form that an approval stores. */
export function gpusToApprove({ gpus }: Inventory): ApprovedGpu[] {
  return gpus
    .map((gpu) => ({
      uuid: gpu.uuid,
      ...identifyGpu(gpu.name, gpu.memory_mib),
      driver_version: gpu.driver_version,
    }))
    .toSorted((a, b) => (a.uuid < b.uuid ? -1 : 1));
}

/** Whether approving `inventory` again would store the same GPUs and drivers. */
export function isApproved(approved: readonly ApprovedGpu[], inventory: Inventory): boolean {
  return JSON.stringify(gpusToApprove(inventory)) === JSON.stringify(approved);
}

/**
 * Names GPUs that nobody has approved, or that have another type than the approved one; undefined if there are none. No repair can explain
 * them.
 */
export function foreignWords(approved: readonly ApprovedGpu[], inventory: Inventory): string | undefined {
  const byUuid = new Map(approved.map((gpu) => [gpu.uuid, gpu]));
  const foreign = gpusToApprove(inventory).flatMap((gpu) => {
    const known = byUuid.get(gpu.uuid);
    if (known === undefined) return [`${gpu.uuid} (${gpu.gpu_type}, ${gpu.vram_gb} GB)`];
    if (known.gpu_type === gpu.gpu_type && known.vram_gb === gpu.vram_gb) return [];
    return [
      `${gpu.uuid} as ${gpu.gpu_type} with ${gpu.vram_gb} GB, approved as ${known.gpu_type} with ${known.vram_gb} GB`,
    ];
  });
  return foreign.length === 0 ? undefined : `the host showed what the operator has not approved: ${named(foreign)}`;
}

/**
 * Names approved GPUs that the host neither shows nor reports as faulty; undefined if there are none, or if it cannot count its GPUs now.
 */
export function missingWords(approved: readonly ApprovedGpu[], inventory: Inventory): string | undefined {
  if (inventory.gpu_error !== '') return undefined;
  const known = new Set([...inventory.gpus, ...inventory.gpu_faults].map(({ uuid }) => uuid));
  const missing = approved.filter(({ uuid }) => !known.has(uuid)).map(({ uuid }) => uuid);
  if (missing.length === 0) return undefined;
  return `the host does not show ${missing.length} of the ${approved.length} GPUs that the operator approved: ${named(missing)}`;
}

/** Names a GPU with another driver than the approved one; undefined if there is none. */
export function driverWords(approved: readonly ApprovedGpu[], { gpus }: Inventory): string | undefined {
  const driverOf = new Map(approved.map((gpu) => [gpu.uuid, gpu.driver_version]));
  const changed = gpus.find(({ uuid, driver_version: driver }) => (driverOf.get(uuid) ?? driver) !== driver);
  if (changed === undefined) return undefined;
  return `the host runs the GPU driver ${changed.driver_version}, and the operator approved ${driverOf.get(changed.uuid) ?? ''}`;
}

function named(words: readonly string[]): string {
  const shown = words.slice(0, NAMED_MAX).join(', ');
  return words.length > NAMED_MAX ? `${shown} and ${words.length - NAMED_MAX} more` : shown;
}

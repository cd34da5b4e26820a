// Finds a machine for a job: one that the operator trusts, of the preferred types first, never dearer than the job. All in the caller's
// transaction.
import { ucentsPerHour, type FineTuning } from '../catalog/fine-tuning.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { rank } from '../../fleet/placement/placement.ts';
import { findOffer } from '../../fleet/supply/holding.ts';
import { type Candidate, candidates, type CapacityRequest, cheapestType } from '../../fleet/supply/offerings.ts';
import type { FineTuningDeps } from './deps.ts';
import type { Job } from './store.ts';

/** A machine whose GPUs are held for the job. */
export interface Place {
  machineId: string;
  supplierId: string;
  gpuType: string;
  gpuUuids: string[];
  /** Null if the host cannot limit the disk. */
  diskGb: number | null;
  /** The price of the machine's GPUs. */
  supplierUcentsPerHour: bigint;
}

/**
 * Finds a machine and holds its GPUs under `workloadId`. Undefined if no machine is free. A machine that has had the job before is taken only if
 * there is no other machine. The job may succeed there now, for example after a restart of the machine.
 */
export async function takePlace(
  tx: Tx,
  wanted: { job: Job; workloadId: string },
  deps: FineTuningDeps,
): Promise<Place | undefined> {
  const request = capacityRequest(wanted.job);
  const place = await placeOf(tx, wanted, request, deps);
  if (place !== undefined || request.exceptMachineIds.length === 0) return place;
  return placeOf(tx, wanted, { ...request, exceptMachineIds: [] }, deps);
}

async function placeOf(
  tx: Tx,
  { job, workloadId }: { job: Job; workloadId: string },
  request: Omit<CapacityRequest, 'gpuType'>,
  deps: FineTuningDeps,
): Promise<Place | undefined> {
  for (const gpuType of await typesOf(tx, job, request)) {
    const found = rank(request, await candidates(tx, { ...request, gpuType }));
    for (const candidate of found) {
      const place = await holdAt(tx, { job, workloadId, gpuType, candidate }, deps);
      if (place !== undefined) return place;
    }
  }
  return undefined;
}

/** The preferred GPU types in their order. */
export function preferredTypes(preference: string | null): string[] {
  return (preference ?? '')
    .split(',')
    .map((type) => type.trim())
    .filter((type) => type !== '');
}

function capacityRequest({ terms, tried_machine_ids: tried }: Job): Omit<CapacityRequest, 'gpuType'> {
  return {
    gpuCount: terms.gpu_count,
    offeringId: null,
    region: null,
    maxPriceUcentsPerHour: ucentsPerHour(terms),
    diskGb: null,
    roomGb: terms.disk_gb,
    minVramGb: terms.min_vram_gb,
    endsMs: null,
    exceptMachineIds: tried,
    trustedOnly: true,
  };
}

/** The GPU types to try, in this order: the preferred ones, then the cheapest one. A preference is only a wish, so the job may get another type. */
async function typesOf(
  query: Query,
  { request: { gpu_preference: preference } }: Job,
  request: Omit<CapacityRequest, 'gpuType'>,
): Promise<string[]> {
  const preferred = preferredTypes(preference);
  const cheapest = await cheapestType(query, request);
  return cheapest === undefined || preferred.includes(cheapest) ? preferred : [...preferred, cheapest];
}

interface Trial {
  job: Job;
  workloadId: string;
  gpuType: string;
  candidate: Candidate;
}

/**
 * Locks the machine of the candidate, checks again what was read before the lock, and holds the GPUs. Undefined if the candidate does not fit any
 * more.
 */
async function holdAt(
  tx: Tx,
  { job, workloadId, gpuType, candidate }: Trial,
  { supply, workloads }: FineTuningDeps,
): Promise<Place | undefined> {
  const { machine_id: machineId } = candidate;
  const { terms } = job;
  const diskGb = candidate.disk_configurable ? terms.disk_gb : null;
  await tx.lock('machine', machineId);
  const gpus = { reservedBy: null, endsMs: null };
  const offer = await findOffer(tx, candidate.id, gpus);
  if (offer === undefined || !fits(offer, candidate, terms) || !(await workloads.hasCapacity(tx, machineId)))
    return undefined;
  const want = { machineId, gpuType, count: terms.gpu_count, heldBy: workloadId, ...gpus };
  const gpuUuids = await supply.hold(tx, { ...want, diskGb: diskGb ?? 0 });
  if (gpuUuids === undefined) return undefined;
  const supplierUcentsPerHour = offer.price_ucents_per_hour * BigInt(terms.gpu_count);
  return { machineId, supplierId: offer.supplier_id, gpuType, gpuUuids, diskGb, supplierUcentsPerHour };
}

function fits(
  offer: Pick<Candidate, 'price_ucents_per_hour' | 'disk_configurable' | 'disk_free_gb'>,
  candidate: Candidate,
  terms: FineTuning,
): boolean {
  if (offer.disk_configurable && offer.disk_free_gb < terms.disk_gb) return false;
  return offer.price_ucents_per_hour * BigInt(terms.gpu_count) <= ucentsPerHour(terms)
    ? offer.disk_configurable === candidate.disk_configurable
    : false;
}

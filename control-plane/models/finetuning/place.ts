// Finds a machine for a job: one that the operator trusts, of the preferred types first, never dearer than the job. No job takes a place that a job
// before it in the queue could use (`headsOfQueue`). The search and the hold are one transaction, which is the caller's.
import { ucentsPerHour, type FineTuning } from '../catalog/fine-tuning.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import { rank } from '../../fleet/placement/placement.ts';
import type { Offer } from '../../fleet/supply/holding.ts';
import { type Candidate, candidates, type CapacityRequest, cheapestType } from '../../fleet/supply/offerings.ts';
import { hasCapacity } from '../../fleet/workloads/store.ts';
import type { FineTuningDeps } from './deps.ts';
import { type Head, headsOfQueue, type Job } from './store.ts';

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

/** What a search has found: a place, or the waiting job that comes first for a free place that both could use, or nothing. */
interface Found {
  place?: Place;
  firstId?: string;
}

/** A job that wants a place, and the id of its workload there. */
interface Wanted {
  job: Job;
  workloadId: string;
  nowMs: number;
}

/**
 * Finds a machine and holds its GPUs under `workloadId`. A machine that has had the job before is taken only if there is no other machine. The job
 * may succeed there now, for example after a restart of the machine.
 */
export async function takePlace(tx: Tx, wanted: Wanted, deps: FineTuningDeps): Promise<Found> {
  const request = capacityRequest(wanted.job);
  const found = await placeOf(tx, wanted, request, deps);
  if (found.place !== undefined || request.exceptMachineIds.length === 0) return found;
  return { ...found, ...(await placeOf(tx, wanted, { ...request, exceptMachineIds: [] }, deps)) };
}

async function placeOf(
  tx: Tx,
  { job, workloadId, nowMs }: Wanted,
  request: Omit<CapacityRequest, 'gpuType'>,
  deps: FineTuningDeps,
): Promise<Found> {
  let firstId: string | undefined;
  for (const gpuType of await typesOf(tx, job, request)) {
    const found = rank(request, await candidates(tx, { ...request, gpuType }));
    if (found.length === 0) continue;
    const earlier = await headsBefore(tx, job, nowMs);
    for (const candidate of found) {
      const first = await firstInLine(tx, earlier, { gpuType, candidate });
      firstId ??= first;
      const place = first === undefined ? await holdAt(tx, { job, workloadId, gpuType, candidate }, deps) : undefined;
      if (place !== undefined) return { place };
    }
  }
  return firstId === undefined ? {} : { firstId };
}

/** The heads that come before the job. If it is no head itself, the head with its terms is among them, and decides for all places of the job. */
async function headsBefore(query: Query, { id }: Job, nowMs: number): Promise<Head[]> {
  const heads = await headsOfQueue(query, nowMs);
  const own = heads.findIndex((head) => head.id === id);
  return own === -1 ? heads : heads.slice(0, own);
}

/** The first of these jobs that could use the place. Undefined if none of them could. */
async function firstInLine(
  query: Query,
  earlier: readonly Head[],
  { gpuType, candidate }: Pick<Trial, 'gpuType' | 'candidate'>,
): Promise<string | undefined> {
  for (const { id, terms } of earlier) {
    const request = { ...capacityRequest({ terms, tried_machine_ids: [] }), gpuType, offeringId: candidate.id };
    if ((await candidates(query, request)).length > 0) return id;
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

function capacityRequest({
  terms,
  tried_machine_ids: tried,
}: Pick<Job, 'terms' | 'tried_machine_ids'>): Omit<CapacityRequest, 'gpuType'> {
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
  { supply }: FineTuningDeps,
): Promise<Place | undefined> {
  const { machine_id: machineId } = candidate;
  const { terms } = job;
  const diskGb = candidate.disk_configurable ? terms.disk_gb : null;
  const gpus = { machineIds: [machineId], gpuType, count: terms.gpu_count, reservedBy: null, endsMs: null };
  const held = await supply.hold(tx, { ...gpus, heldBy: workloadId, diskGb: diskGb ?? 0, onlyIf: hasCapacity });
  if (held === undefined) return undefined;
  const { offer } = held;
  if (offer === undefined || !fits(offer, candidate, terms)) {
    await supply.release(tx, workloadId);
    return undefined;
  }
  const supplierUcentsPerHour = offer.price_ucents_per_hour * BigInt(terms.gpu_count);
  const { supplier_id: supplierId } = offer;
  return { machineId, supplierId, gpuType, gpuUuids: held.gpuUuids, diskGb, supplierUcentsPerHour };
}

function fits(offer: Offer, candidate: Candidate, terms: FineTuning): boolean {
  if (offer.id !== candidate.id || offer.disk_configurable !== candidate.disk_configurable) return false;
  if (offer.disk_configurable && offer.disk_free_gb < terms.disk_gb) return false;
  return offer.price_ucents_per_hour * BigInt(terms.gpu_count) <= ucentsPerHour(terms);
}

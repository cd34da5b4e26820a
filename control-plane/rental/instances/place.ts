// Places an instance on a host, at creation and again after a host has failed. All in the caller's transaction.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { DISK_GB_INCLUDED, DISK_GB_MIN } from '../../../shared/limits.ts';
import { dollarsFromUcents, dollarText, nearestUcents, UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { Metering } from '../../money/metering/metering.ts';
import {
  candidates,
  type Candidate,
  type CapacityRequest,
  extraDiskUcentsPerHour,
  findListed,
  narrowing,
  type Offering,
} from '../../fleet/supply/offerings.ts';
import { slotCandidates } from '../../fleet/supply/slots.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import * as supplyStore from '../../fleet/supply/store.ts';
import { explain, rank } from '../../fleet/placement/placement.ts';
import type { Workloads } from '../../fleet/workloads/workloads.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import { latestEnd } from './plan.ts';
import * as store from './store.ts';

/** Specification 4.3: the price may exceed the viewed one by this much. */
const PRICE_TOLERANCE_UCENTS = UCENTS_PER_CENT;

export interface PlaceDeps {
  clock: Clock;
  ids: Ids;
  supply: Supply;
  metering: Metering;
  workloads: Workloads;
  endpoints: Endpoints;
}

/**
 * Takes GPUs of the best offering that fits, holds the money, and adds the workload to the machine's desired state. Returns the machine's id, or
 * undefined if nothing fits. If the instance was placed before, the old host gets a tombstone, and the price does not rise.
 * @throws ServiceError `insufficient_balance`, `price_changed`
 */
export async function place(tx: Tx, instance: store.InstanceRow, deps: PlaceDeps): Promise<string | undefined> {
  const { launch } = instance;
  if (instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  const workloadId = deps.ids.prefixed('wl');
  const found = await holdBest(tx, instance, workloadId, deps);
  if (found === undefined) return undefined;
  const { offering, gpuUuids, diskGb } = found;
  const machine = await supplyStore.findMachine(tx, offering.machine_id);
  refuseChangedPrice(instance, offering);
  const priceUcentsPerHour = priceOf(instance, offering, diskGb);
  await deps.metering.holdForLaunch(tx, instance.id, instance.org_id, priceUcentsPerHour);
  await deps.workloads.want(tx, offering.machine_id, {
    workload_id: workloadId,
    instance_id: instance.id,
    image: launch.image,
    pull_login: launch.registry_credential_id !== null,
    command: { entrypoint: launch.entrypoint, cmd: launch.cmd },
    sealed_env: launch.sealed_env,
    gpu_uuids: gpuUuids,
    disk_gb: diskGb,
    ends_at_ms: null,
  });
  if ((await deps.endpoints.find(tx, instance.id)) === undefined) {
    const tcpPorts = launch.ports.filter(({ protocol }) => protocol === 'tcp').map(({ port }) => port);
    await deps.endpoints.open(tx, instance.id, tcpPorts);
  }
  await store.setPlacement(tx, instance.id, {
    machineId: offering.machine_id,
    supplierId: machine?.supplier_id ?? '',
    workloadId,
    region: offering.region,
    priceUcentsPerHour,
    diskGb,
    triedMachineIds: [...instance.tried_machine_ids, offering.machine_id],
  });
  return offering.machine_id;
}

/** Explains why nothing fits: the error code for the operation, and one sentence. */
export async function explainNoPlace(
  query: Query,
  instance: store.InstanceRow,
  nowMs: number,
): Promise<{ code: 'no_capacity' | 'offering_unavailable'; detail: string }> {
  if (instance.tier === 'spot') {
    return {
      code: 'no_capacity',
      detail: 'There is no spot capacity at present, of any GPU type. Use tier on_demand.',
    };
  }
  if (instance.reservation_id !== null) {
    return {
      code: 'no_capacity',
      detail: `The reservation ${instance.reservation_id} has no free slot on another machine. Launch again when an instance of it has ended.`,
    };
  }
  const request = capacityRequest(instance, nowMs);
  if (request.offeringId !== null) return explainPin(request.offeringId, await findListed(query, request.offeringId));
  return { code: 'no_capacity', detail: explain(request, await narrowing(query, request)) };
}

function explainPin(
  offeringId: string,
  offering: Offering | undefined,
): { code: 'no_capacity' | 'offering_unavailable'; detail: string } {
  const only =
    'The launch was pinned to it, so it was tried nowhere else. Leave offering_id out to be placed anywhere.';
  if (offering === undefined) {
    return { code: 'offering_unavailable', detail: `The offering ${offeringId} is not listed any more. ${only}` };
  }
  const has = `${offering.gpu_free} of ${offering.gpu_total} GPUs free, at $${dollarText(offering.price_ucents_per_hour)} an hour each`;
  return { code: 'no_capacity', detail: `The offering ${offeringId} does not fit: it has ${has}. ${only}` };
}

interface Held {
  offering: Offering;
  gpuUuids: string[];
  /** Null if the host cannot limit the disk. */
  diskGb: number | null;
}

async function holdBest(
  tx: Tx,
  instance: store.InstanceRow,
  heldBy: string,
  { supply, workloads, clock }: PlaceDeps,
): Promise<Held | undefined> {
  const request = capacityRequest(instance, clock.now());
  for (const candidate of await fitting(tx, instance, request)) {
    const offering = await findListed(tx, candidate.id);
    if (offering === undefined || !(await workloads.hasCapacity(tx, offering.machine_id))) continue;
    const diskGb = diskOn(offering, instance.request.disk_gb);
    const gpuUuids = await supply.hold(tx, {
      machineId: offering.machine_id,
      gpuType: instance.gpu_type,
      count: instance.gpu_count,
      heldBy,
      reservedBy: instance.reservation_id,
      endsMs: request.endsMs,
      diskGb: diskGb ?? 0,
    });
    if (gpuUuids !== undefined) return { offering, gpuUuids, diskGb };
  }
  return undefined;
}

/** A launch that names no size may also go to a host with little disk. It gets the disk that is there. */
function diskOn(offering: Offering, wantedGb: number | undefined): number | null {
  if (!offering.disk_configurable) return null;
  return wantedGb ?? Math.max(DISK_GB_MIN, Math.min(DISK_GB_INCLUDED, offering.disk_free_gb));
}

/** A boot rescue never costs more than the first placement, and a reserved launch costs nothing. The viewed price has no extra disk in it. */
function refuseChangedPrice(instance: store.InstanceRow, offering: Offering): void {
  const viewed = instance.request.viewed_price_per_hour;
  if (viewed === undefined || instance.reservation_id !== null) return;
  const priceUcents = offering.price_ucents_per_hour * BigInt(instance.gpu_count);
  if (priceUcents <= nearestUcents(viewed) + PRICE_TOLERANCE_UCENTS) return;
  fail('price_changed', {
    detail: `The price is now $${dollarText(priceUcents)} an hour. Launch again with that as viewed_price_per_hour to accept it.`,
    extra: { current_price_per_hour: dollarsFromUcents(priceUcents) },
  });
}

/** The price of the whole instance. Reserved capacity is paid by contract. */
function priceOf(instance: store.InstanceRow, offering: Offering, diskGb: number | null): bigint {
  if (instance.reservation_id !== null) return 0n;
  return offering.price_ucents_per_hour * BigInt(instance.gpu_count) + extraDiskUcentsPerHour(offering, diskGb);
}

/** Candidates in the preferred region, or, if it has none, elsewhere. A reserved launch stays within the slots of its contract. */
async function fitting(query: Query, instance: store.InstanceRow, request: CapacityRequest): Promise<Candidate[]> {
  if (instance.tier === 'spot') return [];
  if (instance.reservation_id !== null) {
    return rank(request, await slotCandidates(query, instance.reservation_id, request));
  }
  const inRegion = request.region === null ? [] : await candidates(query, request);
  return rank(request, inRegion.length > 0 ? inRegion : await candidates(query, { ...request, region: null }));
}

/** The capacity that an instance needs if it is placed now. */
export function capacityRequest(instance: store.InstanceRow, nowMs: number): CapacityRequest {
  const wanted = wantedCapacity(instance.request, nowMs);
  const placed = instance.price_ucents_per_hour > 0n ? instance.price_ucents_per_hour : null;
  const caps = [wanted.maxPriceUcentsPerHour, placed].filter((value) => value !== null);
  return {
    ...wanted,
    gpuType: instance.gpu_type,
    minVramGb: instance.launch.min_vram_gb,
    maxPriceUcentsPerHour: caps.toSorted((a, b) => (a < b ? -1 : 1))[0] ?? null,
    exceptMachineIds: instance.tried_machine_ids,
  };
}

/** The capacity that a request needs, before its GPU type is chosen. */
export function wantedCapacity(request: CreateInstance, nowMs: number): Omit<CapacityRequest, 'gpuType' | 'minVramGb'> {
  const { max_price_per_hour: cap, auto_terminate_hours: hours } = request;
  return {
    gpuCount: request.gpu_count,
    offeringId: request.offering_id ?? null,
    region: request.region ?? null,
    maxPriceUcentsPerHour: cap === undefined ? null : nearestUcents(cap),
    diskGb: request.disk_gb ?? null,
    endsMs: hours === undefined ? null : latestEnd(nowMs, hours),
    exceptMachineIds: [],
  };
}

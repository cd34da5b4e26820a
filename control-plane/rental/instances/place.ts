// Places an instance on a host, at creation and again after a host has failed. All in the caller's transaction.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { shareOf } from '../../../shared/api/share.ts';
import { DISK_GB_INCLUDED, DISK_GB_MIN } from '../../../shared/limits.ts';
import { dollarsFromUcents, dollarText, nearestUcents, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
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
  type Offering,
} from '../../fleet/supply/offerings.ts';
import { narrowing } from '../../fleet/supply/narrowing.ts';
import type { Offer } from '../../fleet/supply/holding.ts';
import { slotCandidates } from '../../fleet/supply/slots.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import { explain, rank } from '../../fleet/placement/placement.ts';
import { hasCapacity } from '../../fleet/workloads/store.ts';
import type { Workloads } from '../../fleet/workloads/workloads.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import { ANYWHERE, type Launch, type Placed, type Whereabouts } from './launch.ts';
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

/** A place on a host that was found for an instance. Its GPUs are held already. */
export interface Place {
  workloadId: string;
  machineId: string;
  supplierId: string;
  region: string;
  gpuUuids: string[];
  placed: Placed;
  /** Null if the host cannot limit the disk. */
  diskGb: number | null;
  priceUcentsPerHour: bigint;
}

/**
 * Thrown if another launch took the GPUs of a candidate after the candidate was read. The transaction then ends and releases that machine's lock.
 */
export class TakenMeanwhile extends Error {}

/**
 * Holds GPUs of the first candidate that still fits. Undefined if there is none. Here and in `occupy`, statements that do not depend on each
 * other are sent together: on PostgreSQL each wait for an answer costs a round trip, and the locks are held meanwhile.
 * @throws ServiceError `price_changed`; TakenMeanwhile if `leavesTaken` is set, another launch took the GPUs, and the next machine has to be
 * waited for or there is none
 */
export async function takePlace(
  tx: Tx,
  instance: store.InstanceRow,
  { fitting, leavesTaken = false }: { fitting: readonly Candidate[]; leavesTaken?: boolean },
  deps: PlaceDeps,
): Promise<Place | undefined> {
  const workloadId = deps.ids.prefixed('wl');
  let left = fitting;
  let waitedInVain = false;
  for (;;) {
    const [best] = left;
    if (best === undefined) {
      // Another GPU type or another region may still have free GPUs.
      if (waitedInVain && leavesTaken) throw new TakenMeanwhile();
      return undefined;
    }
    // Several machines that are alike are tried at once, without a wait for a lock. The wait is for the lock of a single machine.
    const alike = left.filter((other) => isAlike(other, best, instance));
    let held = alike.length > 1 ? await holdAt(tx, instance, { tried: alike, workloadId }, deps) : undefined;
    if (held === undefined) {
      if (waitedInVain && leavesTaken) throw new TakenMeanwhile();
      held = await holdAt(tx, instance, { tried: [best], workloadId }, deps);
      waitedInVain ||= held === undefined;
    }
    if (held?.place !== undefined) return held.place;
    const machineId = held?.machineId ?? best.machine_id;
    left = left.filter((candidate) => candidate.machine_id !== machineId);
  }
}

/**
 * Holds the money, adds the workload to the machine's desired state, and opens an endpoint with the taken ports, unless there is one.
 * @throws ServiceError `insufficient_balance`, `unavailable` if there are too few ports
 */
export async function occupy(
  tx: Tx,
  instance: store.InstanceRow,
  { place, ports }: { place: Place; ports: readonly number[] | undefined },
  deps: PlaceDeps,
): Promise<void> {
  const { launch } = instance;
  await inOrder([
    deps.metering.holdForLaunch(tx, instance.id, instance.org_id, place.priceUcentsPerHour),
    deps.workloads.want(tx, place.machineId, {
      workload_id: place.workloadId,
      instance_id: instance.id,
      image: launch.image,
      pull_login: launch.registry_credential_id !== null,
      command: { entrypoint: launch.entrypoint, cmd: launch.cmd },
      sealed_env: launch.sealed_env,
      gpu_uuids: place.gpuUuids,
      disk_gb: place.diskGb,
      ends_at_ms: null,
      ...(instance.shown.auto_terminate_on_exit === true ? { runs_once: true } : {}),
    }),
    ports === undefined
      ? Promise.resolve()
      : deps.endpoints.open(tx, instance.id, { taken: ports, tcpPorts: tcpPortsOf(launch) }),
  ]);
}

/**
 * Places an instance that exists. Returns the machine's id, or undefined if nothing fits. If the instance was placed before, the old host
 * gets a tombstone, and the price does not rise. @throws ServiceError as `takePlace` and `occupy`
 */
export async function place(tx: Tx, instance: store.InstanceRow, deps: PlaceDeps): Promise<string | undefined> {
  const fitting = await fittingOrAvoided(tx, instance, capacityRequest(instance, deps.clock.now()));
  const found = await takePlace(tx, instance, { fitting }, deps);
  if (found === undefined) return undefined;
  if (instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  const isOpen = (await deps.endpoints.find(tx, instance.id)) !== undefined;
  const ports = isOpen ? undefined : await takePorts(tx, instance, deps);
  await occupy(tx, instance, { place: found, ports }, deps);
  await store.setPlacement(tx, instance.id, {
    machineId: found.machineId,
    supplierId: found.supplierId,
    workloadId: found.workloadId,
    region: found.region,
    priceUcentsPerHour: found.priceUcentsPerHour,
    placed: found.placed,
    diskGb: found.diskGb,
    triedMachineIds: [...instance.tried_machine_ids, found.machineId],
  });
  return found.machineId;
}

/** A public port for SSH, and one for each TCP port of the application. */
export function takePorts(tx: Tx, { id, launch }: store.InstanceRow, { endpoints }: PlaceDeps): Promise<number[]> {
  return endpoints.takePorts(tx, id, 1 + tcpPortsOf(launch).length);
}

function tcpPortsOf({ ports }: Launch): number[] {
  return ports.filter(({ protocol }) => protocol === 'tcp').map(({ port }) => port);
}

/** Waits for all promises. If several fail, the error of the first one in the list is thrown, whichever failed first. */
export async function inOrder<T extends readonly unknown[]>(work: {
  readonly [K in keyof T]: Promise<T[K]>;
}): Promise<unknown> {
  await Promise.allSettled(work);
  return Promise.all(work);
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
  if (request.offeringId !== null)
    return explainPin(request.offeringId, request, await findListed(query, request.offeringId));
  const left = await narrowing(query, request);
  const isTooDear = left.affordable === 0 && left.priced < left.trusted;
  const cap = isTooDear ? wordsOfFirstPrice(instance, request) : '';
  return { code: 'no_capacity', detail: `${explain(request, left)}${cap}` };
}

/** A boot rescue never costs more than the first placement, and the customer may know of no other cap. */
function wordsOfFirstPrice(instance: store.InstanceRow, { maxPriceUcentsPerHour: cap }: CapacityRequest): string {
  const first = instance.price_ucents_per_hour;
  return cap === first ? ` The price cap is what the first host costs, $${dollarText(first)} an hour.` : '';
}

function explainPin(
  offeringId: string,
  { maxPriceUcentsPerHour: cap, exceptMachineIds, gpuCount, diskGb, endsMs }: CapacityRequest,
  offering: Offering | undefined,
): { code: 'no_capacity' | 'offering_unavailable'; detail: string } {
  const only =
    'The launch was pinned to it, so it was tried nowhere else. Leave offering_id out to be placed anywhere.';
  if (offering === undefined) {
    return { code: 'offering_unavailable', detail: `The offering ${offeringId} is not listed any more. ${only}` };
  }
  if (exceptMachineIds.includes(offering.machine_id)) {
    return { code: 'no_capacity', detail: `The host of the offering ${offeringId} could not start it. ${only}` };
  }
  const { rentable_until_ms: untilMs } = offering;
  if (untilMs !== null && (endsMs === null || endsMs > untilMs)) {
    const leaves = `can be rented until ${isoTime(untilMs)}, and the launch may last longer (see auto_terminate_hours)`;
    return { code: 'no_capacity', detail: `The offering ${offeringId} ${leaves}. ${only}` };
  }
  const costs = offering.price_ucents_per_hour * BigInt(gpuCount) + extraDiskUcentsPerHour(offering, diskGb);
  if (cap !== null && costs > cap) {
    const above = `costs $${dollarText(costs)} an hour, above the price cap of $${dollarText(cap)}`;
    return { code: 'no_capacity', detail: `The offering ${offeringId} ${above}. ${only}` };
  }
  const price = `$${dollarText(offering.price_ucents_per_hour)} an hour each`;
  const disk = offering.disk_configurable ? `, and ${offering.disk_free_gb} GB of disk left` : '';
  const has = `${offering.gpu_free} of ${offering.gpu_total} GPUs free, at ${price}${disk}`;
  return { code: 'no_capacity', detail: `The offering ${offeringId} does not fit: it has ${has}. ${only}` };
}

/** Launches at the same moment go to any of several machines that are alike, so that they do not wait for each other. */
function isAlike(a: Candidate, b: Candidate, { request }: store.InstanceRow): boolean {
  return (
    a.price_ucents_per_hour === b.price_ucents_per_hour && diskOn(a, request.disk_gb) === diskOn(b, request.disk_gb)
  );
}

/**
 * Locks the machine of one of the candidates, holds its GPUs, and checks again what was read before the lock. It waits for the lock of a single
 * one, and takes the first of several that no other launch has locked. `place` is undefined if the machine does not fit any more; then nothing is
 * held there. Without a machine that has enough free GPUs now, it returns undefined.
 */
async function holdAt(
  tx: Tx,
  instance: store.InstanceRow,
  { tried, workloadId }: { tried: readonly Candidate[]; workloadId: string },
  { supply, clock }: PlaceDeps,
): Promise<{ machineId: string; place: Place | undefined } | undefined> {
  const { request, gpu_type: gpuType, gpu_count: count, reservation_id: reservedBy } = instance;
  const [first] = tried;
  const diskGb = first === undefined ? null : diskOn(first, request.disk_gb);
  const { endsMs } = capacityRequest(instance, clock.now());
  const machineIds = tried.map((candidate) => candidate.machine_id);
  const gpus = { machineIds, gpuType, count, heldBy: workloadId, reservedBy, endsMs };
  const held = await supply.hold(tx, { ...gpus, diskGb: diskGb ?? 0, onlyIf: hasCapacity });
  if (held === undefined) return undefined;
  const { machineId, gpuUuids, offer } = held;
  const candidate = tried.find((each) => each.machine_id === machineId);
  if (candidate === undefined || offer === undefined || !isAsRead(offer, candidate, instance)) {
    await supply.release(tx, workloadId);
    return { machineId, place: undefined };
  }
  refuseChangedPrice(instance, offer);
  const { supplier_id: supplierId, region } = offer;
  const priceUcentsPerHour = priceOf(instance, offer, diskGb);
  const placed = placedAt(offer, count);
  return {
    machineId,
    place: { workloadId, machineId, supplierId, region, gpuUuids, placed, diskGb, priceUcentsPerHour },
  };
}

function placedAt(offer: Offer, gpuCount: number): Placed {
  const { cpuCores = null, ramGb = null } = shareOf(offer, gpuCount);
  const until = offer.rentable_until_ms === null ? {} : { rentable_until_ms: offer.rentable_until_ms };
  return { offering_id: offer.id, vram_gb: offer.vram_gb, cpu_cores: cpuCores, ram_gb: ramGb, ...until };
}

/**
 * Whether the offering, its price and its disk are those that the candidate was chosen for. A launch without a size would get less if less is left
 * now.
 */
function isAsRead(
  offer: Offer,
  candidate: Candidate,
  { request, reservation_id: contract }: store.InstanceRow,
): boolean {
  if (offer.id !== candidate.id) return false;
  if (contract === null && offer.price_ucents_per_hour !== candidate.price_ucents_per_hour) return false;
  if (request.disk_gb !== undefined && offer.disk_free_gb < request.disk_gb) return false;
  return diskOn(offer, request.disk_gb) === diskOn(candidate, request.disk_gb);
}

/** A launch that names no size may also go to a host with little disk, of at least DISK_GB_MIN. It gets the disk that is there. */
function diskOn(
  offering: Pick<Offer, 'disk_configurable' | 'disk_free_gb'>,
  wantedGb: number | undefined,
): number | null {
  if (!offering.disk_configurable) return null;
  return wantedGb ?? Math.min(DISK_GB_INCLUDED, offering.disk_free_gb);
}

/**
 * Refuses a price that is more than PRICE_TOLERANCE_UCENTS above the viewed one. A boot rescue never costs more than the first placement, and a
 * reserved launch costs nothing. The viewed price does not include extra disk.
 */
function refuseChangedPrice(instance: store.InstanceRow, offering: Offer): void {
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
function priceOf(instance: store.InstanceRow, offering: Offer, diskGb: number | null): bigint {
  if (instance.reservation_id !== null) return 0n;
  return offering.price_ucents_per_hour * BigInt(instance.gpu_count) + extraDiskUcentsPerHour(offering, diskGb);
}

/**
 * Candidates in the preferred region, or, if it has none, elsewhere; the best one first. A reserved launch stays within the slots of its
 * contract.
 */
export async function fittingCandidates(
  query: Query,
  { tier, reservation_id: contract }: Pick<store.InstanceRow, 'tier' | 'reservation_id'>,
  request: CapacityRequest,
): Promise<Candidate[]> {
  if (tier === 'spot') return [];
  if (contract !== null) return rank(request, await slotCandidates(query, contract, request));
  const inRegion = request.region === null ? [] : await candidates(query, request);
  return rank(request, inRegion.length > 0 ? inRegion : await candidates(query, { ...request, region: null }));
}

/** The result of `fittingCandidates`. If that is empty, also machines that the launch only avoids: one of them is better than none. */
async function fittingOrAvoided(
  query: Query,
  instance: store.InstanceRow,
  request: CapacityRequest,
): Promise<Candidate[]> {
  const fitting = await fittingCandidates(query, instance, request);
  if (fitting.length > 0 || instance.launch.avoided_machine_ids.length === 0) return fitting;
  return fittingCandidates(query, instance, { ...request, exceptMachineIds: instance.tried_machine_ids });
}

/** The capacity that an instance needs if it is placed now. */
export function capacityRequest(instance: store.InstanceRow, nowMs: number): CapacityRequest {
  const { trusted_only: trustedOnly, avoided_machine_ids: avoidedMachineIds } = instance.launch;
  const wanted = wantedCapacity(instance.request, nowMs, { trustedOnly, avoidedMachineIds });
  const placed = instance.price_ucents_per_hour > 0n ? instance.price_ucents_per_hour : null;
  const caps = [wanted.maxPriceUcentsPerHour, placed].filter((value) => value !== null);
  return {
    ...wanted,
    gpuType: instance.gpu_type,
    minVramGb: instance.launch.min_vram_gb,
    maxPriceUcentsPerHour: caps.toSorted((a, b) => (a < b ? -1 : 1))[0] ?? null,
    exceptMachineIds: [...instance.tried_machine_ids, ...avoidedMachineIds],
  };
}

/** The capacity that a request needs, before its GPU type is chosen. */
export function wantedCapacity(
  request: CreateInstance,
  nowMs: number,
  { trustedOnly, avoidedMachineIds }: Whereabouts = ANYWHERE,
): Omit<CapacityRequest, 'gpuType' | 'minVramGb'> {
  const { max_price_per_hour: cap, auto_terminate_hours: hours } = request;
  return {
    gpuCount: request.gpu_count,
    offeringId: request.offering_id ?? null,
    region: request.region ?? null,
    maxPriceUcentsPerHour: cap === undefined ? null : nearestUcents(cap),
    diskGb: request.disk_gb ?? null,
    ...(request.disk_gb === undefined ? { roomGb: DISK_GB_MIN } : {}),
    endsMs: hours === undefined ? null : latestEnd(nowMs, hours),
    exceptMachineIds: avoidedMachineIds,
    trustedOnly,
    ...(request.requirements === undefined ? {} : { requirements: request.requirements }),
  };
}

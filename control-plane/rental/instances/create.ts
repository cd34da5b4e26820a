// POST /v1/instances: the checks before a launch is accepted, and the one transaction that accepts it.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { OperationRow, Operations } from '../../base/operations/operations.ts';
import { type Candidate, findListed, isOffered, type Offering, offeredRegion } from '../../fleet/supply/offerings.ts';
import type { Runnable } from '../launch/runnable.ts';
import type { ChosenContract } from '../reservations/choose.ts';
import type { Reservations } from '../reservations/reservations.ts';
import { chooseGpu, type GpuChoice } from './gpu-choice.ts';
import { ANYWHERE, type Launch, launchOf, type Whereabouts, shownOf } from './launch.ts';
import {
  fittingCandidates,
  inOrder,
  occupy,
  type Place,
  type PlaceDeps,
  TakenMeanwhile,
  takePlace,
  takePorts,
  wantedCapacity,
} from './place.ts';
import { ACKNOWLEDGE_MS_MAX } from './plan.ts';
import * as store from './store.ts';
import { standingOf } from './standing.ts';
import { refuseUnpaidHolds } from './unpaid-holds.ts';

/** Retry-After, about as long as a launch takes. */
const OPEN_LAUNCHES_RETRY_SECONDS = 30;
/** Retry-After while operators have paused launches. Nobody knows how long that lasts. */
const PAUSED_RETRY_SECONDS = 300;

export interface CreateDeps extends PlaceDeps {
  /** Launches of one organisation that may be in progress at once. */
  openLaunchesMax(): number;
  /** GPU hours that launches of one organisation may hold without paying, in any 24 hours. */
  unpaidGpuHoursMax: number;
  events: Events;
  operations: Operations;
  reservations: Pick<Reservations, 'choose' | 'chooseType'>;
  /** Refuses a caller whose API key or session has just ended. @throws ServiceError `unauthorized` */
  refuseKey(principalId: string): never;
  /** @throws ServiceError `ssh_keys/org_mismatch` or `validation_failed` */
  assertSshKeys(tx: Tx, orgId: string, ids: string[]): Promise<void>;
}

/** Ends the transaction of `assertMayLaunch`, which must leave nothing behind. */
class Retracted extends Error {}

/** Stands for an own image that was not verified yet. What the checks read of a runnable is the same for all own images. */
const UNVERIFIED: Runnable = {
  image: '',
  ownImage: true,
  registryCredentialId: null,
  entrypoint: null,
  cmd: null,
  env: {},
  ports: [],
  minVramGb: 0,
  model: null,
  warnings: [],
};

/**
 * Makes the checks of a launch of an own image that need no registry, and tries to hold its money. Nothing stays. Without this, somebody without
 * an offer, a contract or money could make this service send requests to a host of their choice. @throws ServiceError as `create`
 */
export async function assertMayLaunch(
  db: Pick<Db, 'tx'>,
  caller: { orgId: string; principalId: string },
  request: CreateInstance,
  deps: CreateDeps,
): Promise<void> {
  const nowMs = deps.clock.now();
  const wish = { request, runnable: UNVERIFIED, whereabouts: undefined, nowMs };
  const tried = db.tx('instances.may_launch', async (tx) => {
    await tx.lock('org', caller.orgId);
    const { fitting, contract } = await prospect(tx, caller, wish, deps);
    const price = fitting[0]?.price_ucents_per_hour ?? UCENTS_PER_CENT;
    const rate = contract === undefined ? price * BigInt(request.gpu_count) : 0n;
    await deps.metering.holdForLaunch(tx, deps.ids.instance(), caller.orgId, rate);
    throw new Retracted();
  });
  await tried.catch((error: unknown) => {
    if (!(error instanceof Retracted)) throw error;
  });
}

/** The request, and what it runs. */
export interface LaunchRequest {
  request: CreateInstance;
  runnable: Runnable;
  /** Set for a launch of the platform itself, which the limits of customers do not bound. */
  whereabouts: Whereabouts | undefined;
  /** If true, `create` throws TakenMeanwhile when another launch was faster. The caller then reads the candidates anew and tries again. */
  mayStartOver: boolean;
  /** Stores the reply under the caller's Idempotency-Key. */
  settle(tx: Tx, operation: OperationRow, instanceId: string): Promise<void>;
}

export interface Created {
  operation: OperationRow;
  instanceId: string;
  /** The machine on which it was placed; undefined if nothing fits now. The engine then tries once more and fails the launch. */
  machineId: string | undefined;
}

/** Accepts the launch or throws; a refusal leaves nothing behind. */
export async function create(
  tx: Tx,
  caller: { orgId: string; principalId: string },
  wish: LaunchRequest,
  deps: CreateDeps,
): Promise<Created> {
  const { request, runnable } = wish;
  const nowMs = deps.clock.now();
  const { fitting, contract, ...gpu } = await prospect(tx, caller, { ...wish, nowMs }, deps);
  // Another launch may have taken the last GPUs of the type after it was chosen. Another type may still have some.
  if (fitting.length === 0 && wish.mayStartOver && choosesType(request)) throw new TakenMeanwhile();
  const id = deps.ids.instance();
  const launch = launchOf(runnable, {
    ...(wish.whereabouts ?? ANYWHERE),
    sealedEnv: deps.workloads.sealEnv(id, runnable.env),
    minVramGb: gpu.minVramGb,
  });
  const operation = deps.operations.make({
    kind: 'instance.create',
    orgId: caller.orgId,
    principalId: caller.principalId,
    warnings: [...runnable.warnings, ...gpu.warnings],
  });
  const birth = { operationId: operation.id, nowMs };
  const asked = {
    ...newInstance(id, caller, { request, gpuType: gpu.gpuType, launch }, birth),
    reservation_id: contract?.id ?? null,
  };
  const [place, ports] = await Promise.all([
    takePlace(tx, asked, { fitting, leavesTaken: wish.mayStartOver }, deps),
    fitting.length === 0 ? [] : takePorts(tx, asked, deps),
  ]);
  if (place === undefined && ports.length > 0) await deps.endpoints.giveBack(tx, id, ports);
  // If the best candidate left the market meanwhile, its region is still the one in which the launch was let in.
  const wanted = request.region ?? request.requirements?.regions?.[0];
  const known = place?.region ?? wanted ?? contract?.region ?? fitting[0]?.region;
  const region = known ?? (await regionOfOffers(tx, wish, gpu.gpuType));
  const instance = { ...asked, ...(place && placedFields(place, nowMs)), region };
  await tx.together((writes) =>
    inOrder([
      place === undefined ? Promise.resolve() : occupy(writes, instance, { place, ports }, deps),
      store.insertInstance(writes, instance),
      deps.operations.insert(writes, operation),
      deps.events.append(writes, {
        type: 'instance.creating',
        subjectId: id,
        orgId: caller.orgId,
        data: { status: 'allocating', gpu_type: instance.gpu_type, gpu_count: instance.gpu_count, region },
      }),
      // Last, because this write may wait for another request with the same Idempotency-Key. After it, the transaction must not wait for a lock.
      wish.settle(writes, operation, id),
    ]),
  );
  return { operation, instanceId: id, machineId: place?.machineId };
}

/** Whether the launch takes the cheapest of several GPU types. */
function choosesType({ gpu_type: gpuType, offering_id: offeringId, tier }: CreateInstance): boolean {
  return gpuType === undefined && offeringId === undefined && tier === 'on_demand';
}

interface Prospect extends GpuChoice {
  /** Candidates for the launch, the best one first. */
  fitting: Candidate[];
  /** The contract of a reserved launch. */
  contract: ChosenContract | undefined;
}

/** Makes all checks of a launch, and reads where it can be placed. Checks and reads that do not depend on each other run at the same time. */
async function prospect(
  tx: Tx,
  caller: { orgId: string; principalId: string },
  { nowMs, ...wish }: Pick<LaunchRequest, 'request' | 'runnable' | 'whereabouts'> & { nowMs: number },
  deps: CreateDeps,
): Promise<Prospect> {
  const { request, whereabouts } = wish;
  const { orgId } = caller;
  const want = wantedCapacity(request, nowMs, whereabouts);
  const pinned = want.offeringId === null ? Promise.resolve(undefined) : findListed(tx, want.offeringId);
  const checked = [
    whereabouts === undefined ? refuseUnlessInBounds(tx, caller, { request, nowMs }, deps) : Promise.resolve(),
    request.ssh_key_ids === undefined ? Promise.resolve() : deps.assertSshKeys(tx, orgId, request.ssh_key_ids),
    pinned.then((offering) => refusePin(request, offering)),
  ];
  const chosen = chooseGpu(tx, wish, want, {
    pinned,
    reserved: (vramGb) => deps.reservations.chooseType(tx, { ...want, minVramGb: vramGb, orgId }),
  });
  const read = chosen.then(async (gpu): Promise<Prospect> => {
    const capacity = { ...want, gpuType: gpu.gpuType, minVramGb: gpu.minVramGb };
    const isReserved = request.tier === 'reserved';
    const contract = isReserved ? await deps.reservations.choose(tx, { ...capacity, orgId }) : undefined;
    const which = { tier: request.tier, reservation_id: contract?.id ?? null };
    return { ...gpu, contract, fitting: await fittingCandidates(tx, which, capacity) };
  });
  await inOrder([...checked, read]);
  const found = await read;
  // A candidate, a contract or a pin proves that there is an offer.
  if (found.fitting.length === 0 && found.contract === undefined && request.offering_id === undefined)
    await refuseWithoutOffer(tx, wish, found.gpuType);
  return found;
}

/** The region that is shown until the launch is placed. The last offering may have left the market since the launch was let in. */
async function regionOfOffers(tx: Tx, { request, runnable }: LaunchRequest, gpuType: string): Promise<string> {
  const { offering_id: offeringId = null } = request;
  const region = await offeredRegion(tx, { gpuType, offeringId });
  if (region !== undefined) return region;
  return offeringId === null ? failUnoffered(runnable, gpuType) : failUnlisted(offeringId);
}

function failUnoffered({ ownImage }: Runnable, gpuType: string): never {
  return fail(ownImage ? 'image_unavailable' : 'environment_unavailable', {
    detail: `No host that can run this offers ${gpuType}. Choose a gpu_type from GET /v1/gpu-types.`,
    errors: [{ field: 'gpu_type', rule: 'must be on offer' }],
  });
}

function failUnlisted(offeringId: string): never {
  return fail(
    'offering_unavailable',
    `The offering ${offeringId} is not listed, or not any more. Choose another from GET /v1/pricing.`,
  );
}

/** What the placement adds to a new instance. The engine is needed again if the host does not acknowledge the workload in time. */
function placedFields(place: Place, nowMs: number): Partial<store.InstanceRow> {
  return {
    machine_id: place.machineId,
    supplier_id: place.supplierId,
    workload_id: place.workloadId,
    price_ucents_per_hour: place.priceUcentsPerHour,
    placed: place.placed,
    disk_gb: place.diskGb,
    tried_machine_ids: [place.machineId],
    due_ms: nowMs + ACKNOWLEDGE_MS_MAX,
  };
}

/** Refuses a launch that no host can run. Busy hosts count: with one of these the launch is accepted, and its operation reports the result. */
async function refuseWithoutOffer(
  tx: Tx,
  { request, runnable }: Pick<LaunchRequest, 'request' | 'runnable'>,
  gpuType: string,
): Promise<void> {
  const diskGb = request.disk_gb ?? null;
  if (!(await isOffered(tx, { gpuType, diskGb: null }))) failUnoffered(runnable, gpuType);
  if (diskGb === null || (await isOffered(tx, { gpuType, diskGb }))) return;
  fail('disk_unavailable', {
    detail: `No offering of ${gpuType} honours a disk of ${diskGb} GB. GET /v1/pricing shows disk_configurable and storage_gb; or leave disk_gb out.`,
    errors: [{ field: 'disk_gb', rule: 'must be honoured by an offering of the gpu_type' }],
  });
}

/**
 * Refuses a launch while operators have paused them, whose caller has just lost its key, or whose organisation has used what it may. Each launch
 * holds GPUs, a port and work of the engine, so one caller in a loop must not take them from everybody.
 */
async function refuseUnlessInBounds(
  tx: Tx,
  caller: { orgId: string; principalId: string },
  { request, nowMs }: { request: CreateInstance; nowMs: number },
  { openLaunchesMax, unpaidGpuHoursMax: gpuHoursMax, refuseKey }: CreateDeps,
): Promise<void> {
  const { mayAct, pausedBecause, openLaunches, unpaidGpuMs: launchesMs } = await standingOf(tx, caller, nowMs);
  if (!mayAct) refuseKey(caller.principalId);
  if (pausedBecause !== null) {
    fail('unavailable', {
      detail: `The operator has paused new launches. What runs goes on. Send the request again later. The reason: ${pausedBecause}`,
      retryAfterSeconds: PAUSED_RETRY_SECONDS,
    });
  }
  const max = openLaunchesMax();
  if (openLaunches >= max) {
    fail('rate_limit_exceeded', {
      detail: `${max} launches of this organisation are in progress already. Try again when some of them run.`,
      retryAfterSeconds: OPEN_LAUNCHES_RETRY_SECONDS,
    });
  }
  // The contract pays for the GPUs, even if the launch never runs.
  if (request.tier === 'reserved') return;
  await refuseUnpaidHolds(tx, caller.orgId, { gpuCount: request.gpu_count, nowMs, gpuHoursMax, launchesMs });
}

/** `offering` is the pinned one, if it is listed. */
function refusePin(request: CreateInstance, offering: Offering | undefined): void {
  const { offering_id: offeringId } = request;
  if (offeringId === undefined) return;
  if (offering === undefined) return failUnlisted(offeringId);
  if (request.gpu_type !== undefined && offering.gpu_type !== request.gpu_type) {
    failField('offering_id', `must be of gpu_type ${request.gpu_type}`);
  }
  const { disk_gb: diskGb } = request;
  if (diskGb === undefined) return;
  if (!offering.disk_configurable) {
    fail('disk_unavailable', {
      detail: `The offering ${offeringId} does not honour disk_gb. Leave it out, or choose one with disk_configurable.`,
      errors: [{ field: 'disk_gb', rule: 'must be honoured by the pinned offering' }],
    });
  }
  if (diskGb <= offering.storage_gb) return;
  fail('disk_exceeds_offering', {
    detail: `The offering ${offeringId} has ${offering.storage_gb} GB of storage, less than the ${diskGb} GB asked for. Ask for less, or choose another from GET /v1/pricing.`,
    errors: [{ field: 'disk_gb', rule: `must be at most ${offering.storage_gb}` }],
  });
}

export function newInstance(
  id: string,
  caller: { orgId: string; principalId: string },
  what: { request: CreateInstance; gpuType: string; launch: Launch },
  birth: { operationId: string; nowMs: number },
): store.InstanceRow {
  const { request } = what;
  return {
    id,
    org_id: caller.orgId,
    api_key_id: caller.principalId,
    name: request.name ?? null,
    status: 'allocating',
    status_reason: null,
    balance_below_hours: null,
    // Variables may be secrets. They are stored in the launch, sealed.
    request: { ...request, env: undefined },
    env_names: Object.keys(request.env ?? {}),
    launch: what.launch,
    shown: shownOf(request, what.launch),
    gpu_type: what.gpuType,
    gpu_count: request.gpu_count,
    tier: request.tier,
    region: request.region ?? '',
    reservation_id: null,
    price_ucents_per_hour: 0n,
    machine_id: null,
    supplier_id: null,
    workload_id: null,
    tried_machine_ids: [],
    disk_gb: null,
    placed: null,
    create_operation_id: birth.operationId,
    created_ms: birth.nowMs,
    entered_ms: birth.nowMs,
    due_ms: birth.nowMs,
    facts_version: 0,
    ready_ms: null,
    auto_terminate_ms: null,
    terminated_ms: null,
    last_reachable_ms: null,
    unreachable_since_ms: null,
    gpu_fault: null,
    gpu_fault_since_ms: null,
    gpu_whole_ms: null,
    main_exit: null,
    main_exit_ms: null,
  };
}

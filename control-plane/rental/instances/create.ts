// POST /v1/instances: the checks before a launch is accepted, and the one transaction that accepts it.
import type { CreateInstance } from '../../../shared/api/instance.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { OperationRow, Operations } from '../../base/operations/operations.ts';
import { findListed, isOffered, offeredRegion } from '../../fleet/supply/offerings.ts';
import type { Runnable } from '../launch/runnable.ts';
import type { ChosenContract } from '../reservations/choose.ts';
import type { Reservations } from '../reservations/reservations.ts';
import { chooseGpu } from './gpu-choice.ts';
import { type Launch, launchOf } from './launch.ts';
import { capacityRequest, place, type PlaceDeps, wantedCapacity } from './place.ts';
import * as store from './store.ts';
import { refuseUnpaidHolds } from './unpaid-holds.ts';

/** About as long as a launch takes. */
const OPEN_LAUNCHES_RETRY_SECONDS = 30;

export interface CreateDeps extends PlaceDeps {
  /** Launches of one organisation that may be in progress at once. */
  openLaunchesMax(): number;
  /** GPU hours that launches of one organisation may hold without running, in any 24 hours. */
  unpaidGpuHoursMax: number;
  events: Events;
  operations: Operations;
  reservations: Pick<Reservations, 'choose' | 'chooseType'>;
  /** @throws ServiceError `ssh_keys/org_mismatch` or `validation_failed` */
  assertSshKeys(tx: Tx, orgId: string, ids: string[]): Promise<void>;
}

/** The request, and what it runs. */
export interface LaunchRequest {
  request: CreateInstance;
  runnable: Runnable;
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
  caller: { orgId: string; apiKeyId: string },
  wish: LaunchRequest,
  deps: CreateDeps,
): Promise<Created> {
  const { request, runnable } = wish;
  const now = deps.clock.now();
  await refuseTooMany(tx, caller.orgId, deps);
  if (request.tier !== 'reserved') {
    const { unpaidGpuHoursMax: gpuHoursMax } = deps;
    await refuseUnpaidHolds(tx, caller.orgId, { gpuCount: request.gpu_count, nowMs: now, gpuHoursMax });
  }
  if (request.ssh_key_ids !== undefined) await deps.assertSshKeys(tx, caller.orgId, request.ssh_key_ids);
  if (request.offering_id !== undefined) await refusePin(tx, request, request.offering_id);
  const want = wantedCapacity(request, now);
  const { gpuType, minVramGb, warnings } = await chooseGpu(tx, wish, want, {
    reserved: (vramGb) => deps.reservations.chooseType(tx, { ...want, minVramGb: vramGb, orgId: caller.orgId }),
  });
  if (request.offering_id === undefined && request.tier !== 'reserved') await refuseWithoutOffer(tx, wish, gpuType);
  const operation = await deps.operations.create(tx, {
    kind: 'instance.create',
    orgId: caller.orgId,
    apiKeyId: caller.apiKeyId,
    warnings: [...runnable.warnings, ...warnings],
  });
  const id = deps.ids.instance();
  const launch = launchOf(runnable, { sealedEnv: deps.workloads.sealEnv(id, runnable.env), minVramGb });
  const birth = { operationId: operation.id, nowMs: now };
  const asked = newInstance(id, caller, { request, gpuType, launch }, birth);
  const contract = await contractOf(tx, asked, deps);
  const region =
    request.region ?? contract?.region ?? (await regionOfOffers(tx, { gpuType, offeringId: want.offeringId }));
  const instance = { ...asked, reservation_id: contract?.id ?? null, region };
  await store.insertInstance(tx, instance);
  await deps.events.append(tx, {
    type: 'instance.creating',
    subjectId: instance.id,
    orgId: caller.orgId,
    data: { status: 'allocating', gpu_type: instance.gpu_type, gpu_count: instance.gpu_count, region: instance.region },
  });
  const machineId = await place(tx, instance, deps);
  return { operation, instanceId: instance.id, machineId };
}

/** The contract of a reserved launch. Its slots, not the offerings, decide where the launch can run. */
async function contractOf(
  tx: Tx,
  instance: store.InstanceRow,
  { reservations, clock }: CreateDeps,
): Promise<ChosenContract | undefined> {
  if (instance.tier !== 'reserved') return undefined;
  return reservations.choose(tx, { ...capacityRequest(instance, clock.now()), orgId: instance.org_id });
}

/** The region that is shown until the launch is placed. There is an offering, because a launch without any was refused. */
async function regionOfOffers(tx: Tx, which: { gpuType: string; offeringId: string | null }): Promise<string> {
  const region = await offeredRegion(tx, which);
  if (region === undefined) throw new Error(`nothing of ${which.gpuType} is on offer, but the launch was let in`);
  return region;
}

/** Refuses a launch that no host can run. Busy hosts count: with one of these the launch is accepted, and its operation reports the result. */
async function refuseWithoutOffer(tx: Tx, { request, runnable }: LaunchRequest, gpuType: string): Promise<void> {
  const diskGb = request.disk_gb ?? null;
  if (!(await isOffered(tx, { gpuType, diskGb: null }))) {
    fail(runnable.ownImage ? 'image_unavailable' : 'environment_unavailable', {
      detail: `No host that can run this offers ${gpuType}. Choose a gpu_type from GET /v1/gpu-types.`,
      errors: [{ field: 'gpu_type', rule: 'must be on offer' }],
    });
  }
  if (diskGb === null || (await isOffered(tx, { gpuType, diskGb }))) return;
  fail('disk_unavailable', {
    detail: `No offering of ${gpuType} honours a disk of ${diskGb} GB. GET /v1/pricing shows disk_configurable and storage_gb; or leave disk_gb out.`,
    errors: [{ field: 'disk_gb', rule: 'must be honoured by an offering of the gpu_type' }],
  });
}

/** Each launch holds GPUs, a port and work of the engine, so one caller in a loop must not take them from everybody. */
async function refuseTooMany(tx: Tx, orgId: string, { openLaunchesMax }: CreateDeps): Promise<void> {
  const max = openLaunchesMax();
  if ((await store.countOpenLaunches(tx, orgId)) < max) return;
  fail('rate_limit_exceeded', {
    detail: `${max} launches of this organisation are in progress already. Try again when some of them run.`,
    retryAfterSeconds: OPEN_LAUNCHES_RETRY_SECONDS,
  });
}

async function refusePin(tx: Tx, request: CreateInstance, offeringId: string): Promise<void> {
  const offering = await findListed(tx, offeringId);
  if (offering === undefined) {
    return fail(
      'offering_unavailable',
      `The offering ${offeringId} is not listed, or not any more. Choose another from GET /v1/pricing.`,
    );
  }
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
  caller: { orgId: string; apiKeyId: string },
  what: { request: CreateInstance; gpuType: string; launch: Launch },
  birth: { operationId: string; nowMs: number },
): store.InstanceRow {
  const { request } = what;
  return {
    id,
    org_id: caller.orgId,
    api_key_id: caller.apiKeyId,
    name: request.name ?? null,
    status: 'allocating',
    status_reason: null,
    // Variables may be secrets. They are stored in the launch, sealed.
    request: { ...request, env: undefined },
    launch: what.launch,
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
  };
}

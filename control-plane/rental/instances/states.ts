// The one `move` of an instance: status, event, billing, endpoint and operation change together or not at all.
import type { ErrorCode } from '../../../shared/errors.ts';
import { INSTANCE_STATES, type InstanceState, mayMove } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events, EventType } from '../../base/events/events.ts';
import type { Operations } from '../../base/operations/operations.ts';
import type { Metering } from '../../money/metering/metering.ts';
import type { Workloads } from '../../fleet/workloads/workloads.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import * as store from './store.ts';

export interface MoveDeps {
  events: Events;
  operations: Operations;
  metering: Metering;
  workloads: Workloads;
  endpoints: Endpoints;
  platformFeeBps: number;
  /** A rental runs for the first time: a room above begins to watch it. In the same transaction. */
  onRunning(tx: Tx, rental: { instanceId: string; machineId: string; nowMs: number }): Promise<void>;
  /** Whether a rental that counts as running has been out of reach for so long that only the verdict is missing. */
  downSince(tx: Tx, instanceId: string, nowMs: number): Promise<Down | undefined>;
}

/** An outage, and what shows it. */
export interface Down {
  sinceMs: number;
  evidence: string;
}

export interface Move {
  to: InstanceState;
  nowMs: number;
  /** Shown as `status_reason`. */
  reason?: string;
  /** For a launch that fails: becomes the operation's error. */
  error?: { code: ErrorCode; detail: string };
  /** When billing stops, if that is not now: the last proof of life of a dead host. */
  billedUntilMs?: number;
  /** When billing begins again, if that is not now: the first proof of life after an outage. */
  billedFromMs?: number;
  /** Kept on the transfers that a stop before `posted through` reverses. */
  evidence?: string;
  patch?: store.InstancePatch;
}

const EVENT_OF: Record<InstanceState, EventType> = {
  allocating: 'instance.placed',
  starting: 'instance.starting',
  running: 'instance.running',
  stopping: 'instance.stopping',
  stopped: 'instance.terminated',
  terminated: 'instance.terminated',
  unreachable: 'instance.unreachable',
  error: 'instance.failed',
};

const TERMINAL = new Set<InstanceState>(['stopped', 'terminated', 'error']);

/**
 * Moves `instance`, or returns false where it has another status by now (the caller drops its plan).
 * Coming back from `unreachable` tells `instance.recovered`, and leaving `error` or `stopped` tells nothing: the four public events
 * fire once each (specification 6.1).
 */
export async function move(tx: Tx, instance: store.InstanceRow, step: Move, deps: MoveDeps): Promise<boolean> {
  const { status: from } = instance;
  const { to, nowMs } = step;
  if (!mayMove(INSTANCE_STATES, from, to)) throw new Error(`instance ${instance.id} cannot go from ${from} to ${to}`);
  const down = from === 'running' ? await deps.downSince(tx, instance.id, nowMs) : undefined;
  const reason = step.reason ?? (down && `The SSH path was down: ${down.evidence}. That time is not charged.`);
  const moved = await store.setStatus(tx, instance.id, {
    from,
    to,
    nowMs,
    patch: {
      due_ms: TERMINAL.has(to) ? null : nowMs,
      unreachable_since_ms: null,
      ...(reason === undefined ? {} : { status_reason: reason }),
      ...(to === 'terminated' || to === 'stopped' ? { terminated_ms: nowMs } : {}),
      ...step.patch,
    },
  });
  if (!moved) return false;
  await bill(tx, instance, { ...step, down }, deps);
  if (TERMINAL.has(to)) await letGo(tx, instance, deps);
  if (to === 'running' && from === 'starting') {
    await deps.onRunning(tx, { instanceId: instance.id, machineId: instance.machine_id ?? '', nowMs });
  }
  await finishOperations(tx, instance, step, deps);
  const sinceMs = step.billedFromMs ?? earliest(step.billedUntilMs, down?.sinceMs) ?? null;
  await tellMove(tx, instance, { ...step, ...(reason === undefined ? {} : { reason }), sinceMs }, deps);
  return true;
}

function earliest(...times: (number | undefined)[]): number | undefined {
  const known = times.filter((ms) => ms !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

async function bill(
  tx: Tx,
  instance: store.InstanceRow,
  step: Move & { down: Down | undefined },
  deps: MoveDeps,
): Promise<void> {
  const { metering } = deps;
  if (step.to === 'running') {
    // As it is now: `instance` may be from before a probe.
    const isWhole = (await store.findInstance(tx, instance.id))?.gpu_fault === null;
    if (isWhole) await chargeFrom(tx, instance, step.billedFromMs ?? step.nowMs, deps);
  } else if (instance.status === 'running') {
    // Whoever ends a rental that is out of reach does not pay for the time until we would have been sure of it.
    const billedUntilMs = earliest(step.billedUntilMs, step.down?.sinceMs) ?? step.nowMs;
    await metering.closeSegment(tx, instance.id, billedUntilMs, step.evidence ?? step.down?.evidence);
  }
  // A rental that can still come back keeps its hold; closeSegment has released it, so it is the tick's to take again.
  if (TERMINAL.has(step.to) || step.to === 'stopping') await metering.releaseHold(tx, instance.id, instance.org_id);
}

/** A new metering segment at the price of the placement. */
export async function chargeFrom(tx: Tx, instance: store.InstanceRow, nowMs: number, deps: MoveDeps): Promise<void> {
  await deps.metering.openSegment(tx, {
    subjectId: instance.id,
    orgId: instance.org_id,
    supplierId: instance.supplier_id ?? '',
    machineId: instance.machine_id ?? '',
    gpuType: instance.gpu_type,
    gpuCount: instance.gpu_count,
    rateUcentsPerHour: instance.price_ucents_per_hour,
    supplierBps: 10_000 - deps.platformFeeBps,
    startedMs: nowMs,
  });
}

async function letGo(tx: Tx, instance: store.InstanceRow, deps: MoveDeps): Promise<void> {
  if (instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  await deps.endpoints.close(tx, instance.id);
}

async function finishOperations(tx: Tx, instance: store.InstanceRow, step: Move, deps: MoveDeps): Promise<void> {
  const { operations } = deps;
  const create = instance.create_operation_id;
  if (step.to === 'starting') await operations.move(tx, create, 'in_progress', { resourceId: instance.id });
  if (step.to === 'running') await operations.move(tx, create, 'succeeded', { resourceId: instance.id });
  if (step.to === 'error') {
    const error = step.error ?? { code: 'operation_failed' as const, detail: step.reason ?? 'The instance failed.' };
    await operations.move(tx, create, 'in_progress', { resourceId: instance.id });
    await operations.move(tx, create, 'failed', { resourceId: instance.id, error });
  }
  if (step.to === 'terminated' || step.to === 'stopped') {
    await operations.move(tx, create, 'cancelled', { resourceId: instance.id });
    await operations.moveAll(tx, { kind: 'instance.delete', resourceId: instance.id }, 'succeeded');
  }
}

async function tellMove(
  tx: Tx,
  instance: store.InstanceRow,
  step: Move & { sinceMs: number | null },
  deps: MoveDeps,
): Promise<void> {
  const ended = instance.status === 'error' || instance.status === 'stopped';
  if (ended) return;
  const recovered = step.to === 'running' && instance.status === 'unreachable';
  const type = recovered ? 'instance.recovered' : EVENT_OF[step.to];
  await tell(tx, instance, { type, status: step.to, reason: step.reason ?? null, sinceMs: step.sinceMs }, deps);
}

/** Writes down what has happened to an instance. `sinceMs`: from when on it counts for billing, if that is not now. */
export async function tell(
  tx: Tx,
  instance: store.InstanceRow,
  told: { type: EventType; status: InstanceState; reason: string | null; sinceMs: number | null },
  { events }: Pick<MoveDeps, 'events'>,
): Promise<void> {
  const { gpu_type, gpu_count, region, machine_id } = instance;
  const { status, reason, sinceMs: since_ms } = told;
  const data = { status, gpu_type, gpu_count, region, machine_id, reason, since_ms };
  await events.append(tx, { type: told.type, subjectId: instance.id, orgId: instance.org_id, data });
}

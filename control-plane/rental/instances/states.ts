// The states of an instance and the only function that changes them: `move`.
//
// One call of `move` does all of this in one transaction, or nothing of it:
//   1. It changes the status, if the instance still has the status that the caller has read.
//   2. It opens or closes the metering segment, and releases the hold on the balance.
//   3. It removes the workload and closes the endpoint, if the new status is an end.
//   4. It moves the operation of the launch, and the operations of the DELETE requests.
//   5. It appends the event. Webhooks and the API read that event later.
// So an instance can never be charged without running, and no event can report a change that did not happen.
//
//              next host (boot rescue)
//                ┌───────────────┐
//                ▼               │
//   POST ──► allocating ──► starting ──► running ◄──► unreachable
//                │               │          │              │
//                │               │          ├─► stopping   │
//                ▼               ▼          ▼      ▼       ▼
//              ends: terminated (by DELETE, operator or limit), stopped (by its host), error (failed; a DELETE moves it to terminated)
//
// | from        | to          | why                                          | billing                      | event                |
// | allocating  | starting    | the host reported the workload               | none                         | instance.starting    |
// | starting    | allocating  | the host failed, another one is tried        | none                         | instance.placed      |
// | starting    | running     | the container runs, a real SSH login works   | segment opens now            | instance.running     |
// | (launching) | error       | no host was found, or the launch failed      | hold released, no charge     | instance.failed      |
// | (launching) | terminated  | DELETE, operator, program ended              | hold released, no charge     | instance.terminated  |
// | running     | unreachable | probes have confirmed an outage              | closes at last proof of life | instance.unreachable |
// | unreachable | running     | two good probes in a row                     | opens at the first good one  | instance.recovered   |
// | running     | stopping    | DELETE, operator, limit, balance, program    | closes now, hold released    | instance.stopping    |
// | stopping    | terminated  | the container is gone, or 5 minutes passed   | already closed               | instance.terminated  |
// | running     | stopped     | the host ended the container                 | closes now, hold released    | instance.terminated  |
// | running     | error       | the container failed, a GPU stayed broken    | closes now, hold released    | instance.failed      |
// | unreachable | error       | the outage has lasted 30 minutes             | already closed               | instance.failed      |
// | unreachable | terminated  | DELETE, operator, runtime limit, program     | already closed               | instance.terminated  |
// | error       | terminated  | DELETE cleans up                             | already closed               | none, the end was sent |
// (launching) is allocating or starting. The allowed moves are in shared/states.ts.
//
// Example: an instance costs 3.60 dollars an hour (0.1 cent a second) and runs from 12:00:00. Its host freezes at 12:30:00; the last proof of
// life was at 12:29:52. At 12:30:18 the outage is confirmed, and the segment closes at 12:29:52. If charges were posted past that time, they
// are reversed, and the reversing transfers carry the evidence. The first good probe is at 12:40:02, and a new segment opens then.
// The customer pays 1 792 seconds (179.2 cents) for the first part, nothing for 10 min 10 s, and 0.1 cent a second from 12:40:02 on.
//
// A DELETE may arrive while probes fail and the outage is not yet confirmed. `downSince` then returns the last proof of life, and
// billing ends there too. The customer does not lose by acting faster than we do.
//
// What must never happen: another writer of the column `status`; a running instance with two open segments; a charge for time in which
// the instance was known to be out of reach; a public event that is sent twice.
import type { ErrorCode } from '../../../shared/errors.ts';
import { INSTANCE_STATES, type InstanceState, mayMove } from '../../../shared/states.ts';
import type { Tx } from '../../base/db/db.ts';
import type { Events, EventType } from '../../base/events/events.ts';
import type { Operations } from '../../base/operations/operations.ts';
import type { Metering } from '../../money/metering/metering.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import type { Workloads } from '../../fleet/workloads/workloads.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import * as store from './store.ts';
import { runningReason } from './view.ts';

export interface MoveDeps {
  events: Events;
  operations: Operations;
  metering: Metering;
  workloads: Workloads;
  endpoints: Endpoints;
  platformFeeBps: number;
  /** Called in the same transaction when an instance runs for the first time. Its probes begin then. */
  onRunning(tx: Tx, rental: { instanceId: string; machineId: string; nowMs: number }): Promise<void>;
  /** The outage of an instance that still counts as running: enough probes have failed, only the verdict is missing. */
  downSince(tx: Tx, instanceId: string, nowMs: number): Promise<Down | undefined>;
}

/** When an outage began, and the evidence for it. */
export interface Down {
  sinceMs: number;
  evidence: string;
}

export interface Move {
  to: InstanceState;
  nowMs: number;
  /** Shown as `status_reason`. */
  reason?: string;
  /** Set if a launch fails. It becomes the error of the operation. */
  error?: { code: ErrorCode; detail: string };
  /** When billing stops, if not now: the last proof of life of a silent host. */
  billedUntilMs?: number | undefined;
  /** When billing begins again, if not now: the first good probe after an outage. */
  billedFromMs?: number;
  /** The evidence for reversed charges, if billing stops at a time that was already posted. The reversing transfers store it. */
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
/** Statuses whose reason also explains the next one. What is shown of a container that starts or runs explains nothing after that. */
const EXPLAINS_NEXT = new Set<InstanceState>(['unreachable', 'stopping', 'stopped', 'error']);

/**
 * Locks what a move of the instance may change: the credits of its organisation and of its supplier, and the instance itself. Must be the
 * first statement of the transaction.
 */
export async function lockRental(
  tx: Tx,
  { id, org_id: orgId, supplier_id: supplierId }: Pick<store.RentalRow, 'id' | 'org_id' | 'supplier_id'>,
): Promise<void> {
  await tx.lock('org', orgId);
  if (supplierId !== null) await tx.lock('supplier', supplierId);
  await tx.lock('instance', id);
}

/**
 * Moves `instance`. Returns false if its status has changed since the caller read it; the caller then drops its plan.
 * The way back from `unreachable` appends `instance.recovered`, and the way out of `error` or `stopped` appends nothing, because each of
 * the four public events is sent once (specification 6.1).
 */
export async function move(tx: Tx, instance: store.RentalRow, step: Move, deps: MoveDeps): Promise<boolean> {
  const { id, status: from } = instance;
  const { to, nowMs } = step;
  if (!mayMove(INSTANCE_STATES, from, to)) throw new Error(`instance ${id} cannot go from ${from} to ${to}`);
  // If the instance is out of reach but the outage is not yet confirmed, the customer does not pay for that time either.
  const down = from === 'running' ? await deps.downSince(tx, id, nowMs) : undefined;
  const reason = step.reason ?? (down && `The SSH path was down: ${down.evidence}. That time is not charged.`);
  if (!(await changeStatus(tx, instance, step, reason))) return false;

  const limitMs = from === 'running' ? passedLimitMs(instance, nowMs) : undefined;
  const billedUntilMs = earliest(step.billedUntilMs, limitMs, down?.sinceMs);
  if (to === 'running') await beginBilling(tx, instance, step, deps);
  else if (from === 'running') {
    await deps.metering.closeSegment(tx, id, billedUntilMs ?? nowMs, step.evidence ?? down?.evidence);
  }
  // `unreachable` keeps no hold: closeSegment has settled it, and the metering tick takes a new one if the instance comes back.
  if (TERMINAL.has(to) || to === 'stopping') await releaseHold(tx, instance, nowMs, deps);

  if (TERMINAL.has(to)) await removeFromHost(tx, instance, deps);
  if (to === 'running' && from === 'starting') {
    await deps.onRunning(tx, { instanceId: id, machineId: instance.machine_id ?? '', nowMs });
  }
  await finishOperations(tx, instance, step, deps);
  const sinceMs = step.billedFromMs ?? billedUntilMs ?? null;
  await appendMove(tx, instance, { to, reason: reason ?? null, sinceMs }, deps);
  return true;
}

/** False if the status is no longer that of `instance`. Without a `reason`, the reason that is shown stays if it also explains the next status. */
function changeStatus(
  tx: Tx,
  { id, status: from }: store.RentalRow,
  { to, nowMs, patch }: Move,
  reason: string | undefined,
): Promise<boolean> {
  const keepsReason = reason === undefined && EXPLAINS_NEXT.has(from);
  const isOver = to === 'terminated' || to === 'stopped';
  return store.setStatus(tx, id, {
    from,
    to,
    nowMs,
    patch: {
      due_ms: TERMINAL.has(to) ? null : nowMs,
      unreachable_since_ms: null,
      ...(keepsReason ? {} : { status_reason: reason ?? null }),
      ...(isOver ? { terminated_ms: nowMs } : {}),
      ...patch,
    },
  });
}

/** The runtime limit of a rental, if it has passed. It may have passed while we were away. A rental is not charged beyond it, however it ends. */
function passedLimitMs({ auto_terminate_ms: limitMs }: store.RentalRow, nowMs: number): number | undefined {
  return limitMs !== null && limitMs < nowMs ? limitMs : undefined;
}

function earliest(...times: (number | undefined)[]): number | undefined {
  const known = times.filter((ms) => ms !== undefined);
  return known.length === 0 ? undefined : Math.min(...known);
}

/** Charges the instance from now on, or from its first good probe after an outage. It is not charged while a GPU is broken. */
async function beginBilling(
  tx: Tx,
  instance: store.RentalRow,
  { nowMs, billedFromMs }: Move,
  deps: MoveDeps,
): Promise<void> {
  // The instance is read again, because `instance` may be older than the last probe.
  const current = await store.findRental(tx, instance.id);
  if (current?.gpu_fault === null) {
    const wholeMs = Math.min(current.gpu_whole_ms ?? 0, nowMs);
    await chargeFrom(tx, instance, Math.max(billedFromMs ?? nowMs, wholeMs), deps);
  } else if (instance.status === 'starting') {
    // The launch holds money for a charge that does not begin now.
    await deps.metering.releaseHold(tx, instance.id, instance.org_id);
  }
}

/** A rental is not charged beyond its limit, so it gets no credit for later time either. */
async function releaseHold(tx: Tx, instance: store.RentalRow, nowMs: number, { metering }: MoveDeps): Promise<void> {
  await metering.releaseHold(tx, instance.id, instance.org_id, passedLimitMs(instance, nowMs) ?? nowMs);
}

/** Opens a metering segment at the price of the placement. */
export async function chargeFrom(tx: Tx, instance: store.RentalRow, nowMs: number, deps: MoveDeps): Promise<void> {
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

/** What an instance that runs from now on shows as `status_reason`. Row and report are read again, because `instance` is older than the probe. */
export async function presentReason(tx: Tx, { id, workload_id }: store.RentalRow): Promise<string | null> {
  const workload = await findWorkload(tx, workload_id ?? '');
  const gpuFault = (await store.findRental(tx, id))?.gpu_fault ?? null;
  return runningReason({ gpuFault, observed: workload?.observed ?? null });
}

async function removeFromHost(tx: Tx, instance: store.RentalRow, deps: MoveDeps): Promise<void> {
  if (instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  await deps.endpoints.close(tx, instance.id);
}

async function finishOperations(tx: Tx, instance: store.RentalRow, step: Move, deps: MoveDeps): Promise<void> {
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

async function appendMove(
  tx: Tx,
  instance: store.RentalRow,
  { to, reason, sinceMs }: { to: InstanceState; reason: string | null; sinceMs: number | null },
  deps: MoveDeps,
): Promise<void> {
  const wasOver = instance.status === 'error' || instance.status === 'stopped';
  if (wasOver) return;
  const hasRecovered = to === 'running' && instance.status === 'unreachable';
  const type = hasRecovered ? 'instance.recovered' : EVENT_OF[to];
  await appendEvent(tx, instance, { type, status: to, reason, sinceMs }, deps);
}

/** Appends an event about an instance. `sinceMs` is the time from which the change counts for billing, if not now. */
export async function appendEvent(
  tx: Tx,
  instance: Pick<store.RentalRow, 'id' | 'org_id' | 'gpu_type' | 'gpu_count' | 'region' | 'machine_id'>,
  change: { type: EventType; status: InstanceState; reason: string | null; sinceMs: number | null },
  { events }: Pick<MoveDeps, 'events'>,
): Promise<void> {
  const { gpu_type, gpu_count, region, machine_id } = instance;
  const { status, reason, sinceMs: since_ms } = change;
  const data = { status, gpu_type, gpu_count, region, machine_id, reason, since_ms };
  await events.append(tx, { type: change.type, subjectId: instance.id, orgId: instance.org_id, data });
}

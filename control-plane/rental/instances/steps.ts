// Performs the steps of the plan. Probes run outside of transactions; each result is applied only if the facts have not changed meanwhile.
import { type ErrorCode, ServiceError } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import type { CreateDeps } from './create.ts';
import { endFault } from './host-messages.ts';
import { explainNoPlace, place } from './place.ts';
import { HOUR_MS, type Step } from './plan.ts';
import { isQuiet, type Quiet } from './quiet.ts';
import { lockRental, move, type MoveDeps, presentReason } from './states.ts';
import * as store from './store.ts';
import { exitReason } from './view.ts';

/** Errors of `place` that fail the launch. */
const REFUSALS_AT_PLACE = new Set<ErrorCode>(['insufficient_balance', 'price_changed', 'unavailable']);

/** How soon a place is searched again while hosts reconnect. */
const PLACE_AGAIN_MS = 5_000;

/** The result of one probe. */
export type ProbeResult = { ok: true } | { ok: false; leg: string; detail: string };

export interface StepDeps extends CreateDeps, MoveDeps {
  db: Db;
  log: Log;
  probes: Probes;
  quiet: Quiet;
  /** Keeps what the container has printed, because it is removed soon. Never throws. */
  keepLog(instance: { id: string; org_id: string }): Promise<void>;
}

/** Probes of the SSH path. They never throw. */
export interface Probes {
  /** Logs in at the SSH server of the holder, over a stream that neither strangers nor the tenant can fill. */
  holder(instanceId: string): Promise<ProbeResult>;
  /** Whether our own public SSH port accepts connections. */
  listener(instanceId: string): Promise<ProbeResult>;
}

/** Performs one step. Returns the ids of machines whose desired state has changed. */
export async function perform(instance: store.RentalRow, step: Step, deps: StepDeps): Promise<string[]> {
  switch (step.do) {
    case 'place':
      return withMoneyHeldForLater(instance.org_id, () => replace(instance, step.because, deps), deps).catch(
        (error: unknown) => refusedAtPlace(instance, error, deps),
      );
    case 'fail':
      return moved(instance, deps, async (tx, nowMs) => {
        const isFailed = await failLaunch(tx, instance, { ...step, nowMs }, deps);
        if (isFailed && step.code === 'operation_failed') await blameHost(tx, instance, deps);
        return isFailed;
      });
    case 'start':
      return moved(instance, deps, (tx, now) => move(tx, instance, { to: 'starting', nowMs: now }, deps));
    case 'lose':
    case 'stop': {
      const to = step.do === 'lose' ? 'error' : 'stopped';
      const { reason } = step;
      const lostMs = await keepLogOfBatchJob(instance, deps);
      const touched = await moved(instance, deps, async (tx, nowMs) => {
        if (await isMended(tx, instance)) return false;
        return move(tx, instance, { to, nowMs, reason, billedUntilMs: earlier(lostMs, nowMs) }, deps);
      });
      if (touched.length > 0)
        deps.log.warn({ instance_id: instance.id, machine_id: instance.machine_id, to, reason }, 'rental lost');
      return touched;
    }
    case 'expire':
      await keepLogOfBatchJob(instance, deps);
      return moved(instance, deps, (tx, nowMs) => expire(tx, instance, nowMs, deps));
    case 'exit':
      await keepLogOfBatchJob(instance, deps);
      return moved(instance, deps, (tx, nowMs) => endWithProgram(tx, instance, nowMs, deps));
    case 'finish':
      deps.log.info({ instance_id: instance.id, machine_id: instance.machine_id }, 'instance terminated');
      return moved(instance, deps, (tx, now) => move(tx, instance, { to: 'terminated', nowMs: now }, deps));
    case 'probe':
      return tryEndpoint(instance, step.againMs, deps);
    case 'probe-early':
      if ((await probeBoth(instance.id, deps)).ok)
        await deps.db.tx('instances.reached', (tx) =>
          store.setReachable(tx, [{ id: instance.id, goodMs: deps.clock.now() }]),
        );
      return note(instance, step, deps);
    case 'run':
      return run(instance, deps);
    case 'mend':
      await deps.db.tx('instances.mend', async (tx) => {
        await lockRental(tx, instance);
        const nowMs = deps.clock.now();
        await endFault(tx, instance.id, nowMs, deps);
        await store.makeDue(tx, instance.id, nowMs);
      });
      return [];
    case 'note':
      return note(instance, step, deps);
    case 'wait':
      await deps.db.tx('instances.wait', (tx) => store.patchInstance(tx, instance, { due_ms: step.untilMs }));
      return [];
  }
}

/**
 * Keeps what a batch job has printed, before its container goes. That may take a while, which is not charged: resolves with the time at which it
 * began. Other instances are left alone: undefined.
 */
async function keepLogOfBatchJob(instance: store.RentalRow, { clock, keepLog }: StepDeps): Promise<number | undefined> {
  if (instance.shown.auto_terminate_on_exit !== true) return undefined;
  const sinceMs = clock.now();
  await keepLog(instance);
  return sinceMs;
}

/** The clock may have been set back meanwhile. */
function earlier(ms: number | undefined, nowMs: number): number | undefined {
  return ms === undefined ? undefined : Math.min(ms, nowMs);
}

/** Ends an instance at its runtime limit, like a DELETE with another reason (specification 3.1). Time after the limit is not charged. */
async function expire(tx: Tx, instance: store.RentalRow, nowMs: number, deps: StepDeps): Promise<boolean> {
  const hours = instance.shown.auto_terminate_hours ?? 0;
  const reason = `The runtime limit of ${hours} hour${hours === 1 ? '' : 's'} was reached.`;
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  const patch = { auto_terminate_ms: null };
  const happened = await move(tx, instance, { to, nowMs, reason, patch }, deps);
  if (happened && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return happened;
}

/** Ends an instance whose program has ended, like a DELETE with another reason. Time after the report of the host is not charged. */
async function endWithProgram(tx: Tx, instance: store.RentalRow, nowMs: number, deps: StepDeps): Promise<boolean> {
  const {
    main_exit: exit,
    main_exit_ms: exitedMs,
    gpu_fault: gpuFault,
  } = (await store.findRental(tx, instance.id)) ?? instance;
  // The program runs again since the plan was made.
  if (exit === null) return false;
  const to = instance.status === 'running' ? 'stopping' : 'terminated';
  const billedUntilMs = Math.min(exitedMs ?? nowMs, nowMs);
  const happened = await move(tx, instance, { to, nowMs, reason: exitReason({ exit, gpuFault }), billedUntilMs }, deps);
  if (happened && instance.workload_id !== null) await deps.workloads.remove(tx, instance.workload_id);
  return happened;
}

/**
 * True if the broken GPU of the instance works again since `instance` was read, for example at the end of its grace. Other changes do not stop a
 * step: a host that reports something new all the time could otherwise hold it off for ever.
 */
async function isMended(tx: Tx, instance: store.RentalRow): Promise<boolean> {
  return instance.gpu_fault !== null && (await store.findRental(tx, instance.id))?.gpu_fault === null;
}

async function moved(
  instance: store.RentalRow,
  deps: StepDeps,
  body: (tx: Tx, nowMs: number) => Promise<boolean>,
): Promise<string[]> {
  const happened = await deps.db.tx('instances.move', async (tx) => {
    await lockRental(tx, instance);
    return body(tx, deps.clock.now());
  });
  return happened && instance.machine_id !== null ? [instance.machine_id] : [];
}

/** Places an instance that found no host at creation, or rescues it on another host. */
async function replace(seen: store.RentalRow, because: string | null, deps: StepDeps): Promise<string[]> {
  return deps.db.tx('instances.place', async (tx) => {
    await lockRental(tx, seen);
    const placeable = await store.findPlaceable(tx, seen.id);
    if (placeable === undefined || placeable.facts_version !== seen.facts_version) return [];
    const nowMs = deps.clock.now();
    const touched = seen.machine_id === null ? [] : [seen.machine_id];
    const instance = placeable.whole;
    if (instance === null) {
      await failUnreadable(tx, seen, { because, nowMs }, deps);
      return touched;
    }
    const machineId = await place(tx, instance, deps);
    if (machineId === undefined && isQuiet(instance.created_ms, deps.quiet, nowMs)) {
      // The other hosts are still reconnecting.
      await store.patchInstance(tx, instance, { due_ms: nowMs + PLACE_AGAIN_MS });
      return touched;
    }
    if (because !== null) await blameHost(tx, instance, deps);
    if (machineId === undefined) {
      const nothing = await explainNoPlace(tx, instance, nowMs);
      const detail = because === null ? nothing.detail : `On the chosen host, ${because}. ${nothing.detail}`;
      const code = because === null || nothing.code === 'offering_unavailable' ? nothing.code : 'operation_failed';
      await failLaunch(tx, instance, { code, detail, nowMs }, deps);
      return touched;
    }
    if (because !== null)
      deps.log.warn(
        { instance_id: instance.id, machine_id: instance.machine_id, because },
        'boot rescue: trying another host',
      );
    if (instance.status === 'starting') await move(tx, instance, { to: 'allocating', nowMs }, deps);
    else await store.patchInstance(tx, instance, { due_ms: nowMs });
    return [...touched, machineId];
  });
}

/** Without its documents, nobody knows what the instance should run. It would look for a host for ever. */
async function failUnreadable(
  tx: Tx,
  instance: store.RentalRow,
  { because, nowMs }: { because: string | null; nowMs: number },
  deps: StepDeps,
): Promise<void> {
  deps.log.error({ instance_id: instance.id }, 'the request or the launch of an instance cannot be read: it fails');
  if (because !== null) await blameHost(tx, instance, deps);
  const lost = 'What was launched cannot be read any more, so no other host can run it. Launch again.';
  const detail = because === null ? lost : `On the chosen host, ${because}. ${lost}`;
  await failLaunch(tx, instance, { code: 'operation_failed', detail, nowMs }, deps);
}

/**
 * Calls `attempt`. If the balance is too small, gives back what running instances of the organisation hold for later hours, and calls `attempt` once
 * more: a launch needs the money now.
 */
export async function withMoneyHeldForLater<T>(
  orgId: string,
  attempt: () => Promise<T>,
  { metering }: Pick<StepDeps, 'metering'>,
): Promise<T> {
  return attempt().catch(async (error: unknown) => {
    const isShort = error instanceof ServiceError && error.code === 'insufficient_balance';
    if (isShort && (await metering.shortenHolds(orgId))) return attempt();
    throw error;
  });
}

/** Counts a failed launch for the machine of the instance. The machine's supplier sees that number. */
async function blameHost(tx: Tx, { machine_id: machineId }: store.RentalRow, { supply }: StepDeps): Promise<void> {
  if (machineId !== null) await supply.countLaunch(tx, machineId, true);
}

/**
 * Fails the launch if the balance does not cover the place that was found, if that place costs more than the customer has seen, or if all public
 * ports are in use. The same request would be refused then.
 */
async function refusedAtPlace(instance: store.RentalRow, error: unknown, deps: StepDeps): Promise<string[]> {
  if (!(error instanceof ServiceError) || !REFUSALS_AT_PLACE.has(error.code)) throw error;
  const { code, details } = error;
  return moved(instance, deps, async (tx, nowMs) => {
    const isFailed = await failLaunch(tx, instance, { code, detail: details.detail, nowMs }, deps);
    // The launch was placed before and needs a place again, so a host has failed it.
    if (isFailed) await blameHost(tx, instance, deps);
    return isFailed;
  });
}

function failLaunch(
  tx: Tx,
  instance: store.RentalRow,
  { code, detail, nowMs }: { code: ErrorCode; detail: string; nowMs: number },
  deps: StepDeps,
): Promise<boolean> {
  deps.log.warn({ instance_id: instance.id, machine_id: instance.machine_id, code, detail }, 'launch failed');
  return move(tx, instance, { to: 'error', nowMs, reason: detail, error: { code, detail } }, deps);
}

/** An instance runs only if the login at its holder works and our public port is open. */
async function probeBoth(instanceId: string, { probes }: StepDeps): Promise<ProbeResult> {
  const holder = await probes.holder(instanceId);
  return holder.ok ? probes.listener(instanceId) : holder;
}

async function tryEndpoint(instance: store.RentalRow, againMs: number, deps: StepDeps): Promise<string[]> {
  const result = await probeBoth(instance.id, deps);
  const nowMs = deps.clock.now();
  if (result.ok) return run({ ...instance, last_reachable_ms: nowMs }, deps);
  return note(instance, { progress: `checking SSH: ${result.detail}`, untilMs: nowMs + againMs }, deps);
}

async function note(
  instance: store.RentalRow,
  { progress, untilMs }: { progress: string; untilMs: number },
  deps: StepDeps,
): Promise<string[]> {
  await deps.db.tx('instances.note', async (tx) => {
    await tx.lock('instance', instance.id);
    if (!(await store.patchInstance(tx, instance, { due_ms: untilMs }))) return;
    await deps.operations.setProgress(tx, instance.create_operation_id, progress);
  });
  return [];
}

async function run(instance: store.RentalRow, deps: StepDeps): Promise<string[]> {
  const { id, machine_id, workload_id, last_reachable_ms, created_ms: createdMs } = instance;
  const ran = await deps.db.tx('instances.run', async (tx) => {
    await lockRental(tx, instance);
    // The time is read inside the transaction, which may wait. So charging begins when the customer can see `running`.
    const nowMs = deps.clock.now();
    const endsAtMs = endOf(instance, nowMs);
    const status_reason = await presentReason(tx, instance);
    const patch = { ready_ms: nowMs, last_reachable_ms, auto_terminate_ms: endsAtMs, status_reason };
    // `move` makes the row due now. So the engine reads the facts again, and finds what the host has reported during the probe.
    if (!(await move(tx, instance, { to: 'running', nowMs, patch }, deps))) return undefined;
    if (endsAtMs !== null && workload_id !== null) await deps.workloads.setEnd(tx, workload_id, endsAtMs);
    return { nowMs, endsAtMs };
  });
  if (ran === undefined) return [];
  deps.log.info({ instance_id: id, machine_id, after_ms: ran.nowMs - createdMs }, 'instance running');
  return ran.endsAtMs === null || machine_id === null ? [] : [machine_id];
}

/** The runtime limit counts from the time at which the instance runs. */
function endOf({ shown }: store.RentalRow, readyMs: number): number | null {
  const hours = shown.auto_terminate_hours;
  return hours === null ? null : readyMs + hours * HOUR_MS;
}

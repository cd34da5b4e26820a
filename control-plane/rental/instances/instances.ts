// The interface of this room: commands of customers, the driver for the engine, and functions for the rooms above.
import type { CreateInstance, Instance } from '../../../shared/api/instance.ts';
import type { ReservedInstance } from '../../../shared/api/reservation.ts';
import type { PullLogin } from '../../../shared/protocol/link.ts';
import type { ObservedWorkload } from '../../../shared/protocol/workload.ts';
import { fail } from '../../../shared/errors.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { OperationRow } from '../../base/operations/operations.ts';
import { findWorkload } from '../../fleet/workloads/store.ts';
import type { LaunchRoom } from '../launch/launch.ts';
import type { AppSite } from '../endpoints/app-address.ts';
import type { Endpoint, Endpoints } from '../endpoints/endpoints.ts';
import type { ClockStep } from './clock-steps.ts';
import { assertMayLaunch, create, type Created } from './create.ts';
import { endByOperator, stopUnpaid, remove } from './ending.ts';
import type { HeldGpus } from '../../fleet/supply/intake.ts';
import type { Whereabouts } from './launch.ts';
import { gpuStatesOf } from './gpu-store.ts';
import { noteEvent } from './host-leaving.ts';
import { gpuGrace, noteGpus, pullLogin, type PullLoginDeps } from './host-messages.ts';
import { confirmOutage, endOutage, giveUp, makeGood } from './outages.ts';
import { plan } from './plan.ts';
import { runningReason, instanceView, reservedView } from './view.ts';
import { TakenMeanwhile } from './place.ts';
import { openDue, timesOf } from './set-back.ts';
import { lockRental } from './states.ts';
import { perform, type StepDeps, withMoneyHeldForLater } from './steps.ts';
import { type InstancesPage, instancesOfOrg } from './search.ts';
import * as store from './store.ts';

/** Retry-After while the process ends, about as long as a restart takes. */
const RESTART_RETRY_SECONDS = 10;
/** Attempts of a launch while others take the machines that it has read. */
const STARTS_MAX = 4;

export interface CallerKey {
  orgId: string;
  principalId: string;
}

/** Stores the reply under the caller's idempotency key, in the transaction of the command. */
export type Settle = (tx: Tx, operation: OperationRow, instanceId: string) => Promise<void>;

export interface InstanceWithEndpoint {
  instance: store.ShownInstance;
  /** Undefined if nobody can connect now. */
  endpoint: Endpoint | undefined;
}

/** Applies verdicts about the SSH path, in the caller's transaction. False if the status of the instance has changed meanwhile. */
export interface Verdicts {
  /** The first statement of a transaction that carries out a verdict. */
  lock(tx: Tx, instance: store.RentalRow): Promise<void>;
  /** The instance is out of reach since `sinceMs`, and is not charged from then on. */
  confirmOutage(tx: Tx, instance: store.RentalRow, outage: { sinceMs: number; evidence: string }): Promise<boolean>;
  /** The instance runs again, and is charged from `sinceMs`, the time of the first good probe. */
  endOutage(tx: Tx, instance: store.RentalRow, sinceMs: number): Promise<boolean>;
  /** The instance was out of reach between the two times while it counted as running. It is not charged for them. */
  makeGood(
    tx: Tx,
    instance: store.RentalRow,
    outage: { sinceMs: number; untilMs: number; evidence: string },
  ): Promise<boolean>;
  /** The grace of an outage is over, so the instance has failed. */
  giveUp(tx: Tx, instance: store.RentalRow, reason: string): Promise<boolean>;
  /** Good probes advance `last_reachable_at`. */
  noteReachable(tx: Tx, rows: readonly { id: string; goodMs: number }[]): Promise<void>;
}

export interface Instances extends Verdicts {
  /**
   * Accepts a launch. `whereabouts` is set for a launch of the platform itself, which the limits of customers do not bound.
   * @throws ServiceError for every refusal of specification 4.3
   */
  create(caller: CallerKey, request: CreateInstance, settle: Settle, whereabouts?: Whereabouts): Promise<OperationRow>;
  /** Accepts a termination. @throws ServiceError `not_found` */
  remove(caller: CallerKey, id: string, settle: Settle): Promise<OperationRow>;
  /** @throws ServiceError `not_found` */
  rename(tx: Tx, orgId: string, id: string, name: string | null): Promise<InstanceWithEndpoint>;
  /** @throws ServiceError `not_found` */
  get(orgId: string, id: string): Promise<InstanceWithEndpoint>;
  list(orgId: string, page: InstancesPage): Promise<InstanceWithEndpoint[]>;
  /** The instances in the form of the API, without credentials. Instances of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<Map<string, Instance>>;
  /** The instance in the form of the API. `credentials` shows the application's password, which nothing else does. */
  show(found: InstanceWithEndpoint, options?: { credentials: boolean }): Instance;
  /** The driver that the engine calls for due instances. */
  driver: Driver;
  /** A host reported something new about the workload of an instance. */
  noteObserved(tx: Tx, instanceId: string, observed: ObservedWorkload): Promise<void>;
  /** The host has found the GPUs of a workload broken (`fault` says what), or whole again (null). */
  noteGpus(found: readonly HeldGpus[]): Promise<void>;
  /** Called for each event, in its transaction. */
  noteEvent(tx: Tx, event: EventRow): Promise<void>;
  /** The instances of each contract that have not ended, as the list of contracts shows them (specification 2.7). */
  ofReservations(query: Query, reservationIds: readonly string[]): Promise<Map<string, ReservedInstance[]>>;
  /** The login with which a machine pulls the private image of its workload; undefined if the workload is not the machine's. */
  pullLogin(machineId: string, workloadId: string): Promise<PullLogin | null | undefined>;
  /** Ends an instance if the balance does not cover it any more. */
  stopUnpaid(id: string): Promise<void>;
  /** Ends an instance for the operator. The customer reads the reason. @throws ServiceError `not_found`, `conflict` if it is ending or has ended */
  end(id: string, reason: string): Promise<store.RentalRow>;
}

export type InstancesDeps = StepDeps &
  PullLoginDeps & {
    runnable: LaunchRoom['runnable'];
    /** The times that never passed, because the wall clock was set forward over them. */
    clockSteps(query: Query): Promise<ClockStep[]>;
    /** Called after a commit: sends the machine its desired state. */
    push(machineId: string): void;
    /** Called after a commit that may have opened or closed an endpoint. */
    onEndpointsChanged(): void;
    /** Called after a commit that made a row due. */
    nudge(): void;
    /** Called after a commit that may have appended an event. */
    onEvents(): void;
    /** True while this process ends so slowly that a launch could not wait for the next process to open its public port. */
    endsSlowly(): boolean;
    /** The domain of applications; undefined if applications are not served. */
    appSite: AppSite | undefined;
  };

export function openInstances(deps: InstancesDeps): Instances {
  const { db, clock, endpoints } = deps;

  const afterCommit = (machineIds: readonly (string | null | undefined)[], isDue = true): void => {
    for (const machineId of new Set(machineIds)) if (machineId) deps.push(machineId);
    deps.onEndpointsChanged();
    deps.onEvents();
    if (isDue) deps.nudge();
  };
  return {
    create: async (caller, request, settle, whereabouts) => {
      if (whereabouts === undefined && deps.endsSlowly()) failEnding();
      const mayLaunch = (): Promise<void> =>
        withMoneyHeldForLater(caller.orgId, () => assertMayLaunch(db, caller, request, deps), deps);
      const runnable = await deps.runnable(caller.orgId, request, whereabouts === undefined ? mayLaunch : undefined);
      const once = (mayStartOver: boolean): Promise<Created> =>
        db.tx('instances.create', async (tx) => {
          await tx.lock('org', caller.orgId);
          return create(tx, caller, { request, runnable, settle, whereabouts, mayStartOver }, deps);
        });
      const created = await withMoneyHeldForLater(caller.orgId, () => untilPlaced(once), deps);
      deps.log.info(
        { instance_id: created.instanceId, machine_id: created.machineId, org_id: caller.orgId },
        'launch accepted',
      );
      // An instance with a place waits for its host, and the engine has nothing to do until then.
      afterCommit([created.machineId], created.machineId === undefined);
      return created.operation;
    },
    remove: async (caller, id, settle) => {
      const removed = await remove(caller, id, settle, deps);
      deps.log.info({ instance_id: id, machine_id: removed.machineId, org_id: caller.orgId }, 'termination accepted');
      afterCommit([removed.machineId]);
      return removed.operation;
    },
    rename: (tx, orgId, id, name) => rename(tx, orgId, { id, name }, deps),
    get: (orgId, id) => shownInstance(db.read, orgId, id, endpoints),
    list: async (orgId, page) => withEndpoints(db.read, await instancesOfOrg(db.read, orgId, page), deps),
    describe: async (query, orgId, ids) => {
      const found = await withEndpoints(query, await store.instancesByIds(query, orgId, ids), deps);
      return new Map(found.map((each) => [each.instance.id, show(each, undefined, deps)]));
    },
    show: (found, options) => show(found, options, deps),
    driver: {
      name: 'instances',
      due: openDue(deps),
      drive: async (id) => afterCommit(await driveOne(id, deps)),
    },
    noteObserved: (tx, instanceId, observed) => noteObserved(tx, instanceId, observed, deps),
    noteGpus: (found) => noteGpus(found, clock.now(), deps),
    noteEvent: (tx, event) => noteEvent(tx, event, deps),
    ofReservations: (query, reservationIds) => ofReservations(query, reservationIds, deps),
    pullLogin: (machineId, workloadId) => pullLogin(machineId, workloadId, deps),
    ...verdictsOf(deps),
    end: async (id, reason) => {
      const [ended, machineId] = await endByOperator(id, reason, deps);
      deps.log.info({ instance_id: id, org_id: ended.org_id, reason }, 'the operator ended an instance');
      afterCommit([machineId]);
      return ended;
    },
    stopUnpaid: async (id) => {
      const machineId = await stopUnpaid(id, deps);
      if (machineId !== undefined) afterCommit([machineId]);
    },
  };
}

/** Nobody could log in before the next process, and after its time to start the launch would be moved to another host. */
function failEnding(): never {
  return fail('unavailable', {
    detail: 'The service restarts. Send the request again.',
    retryAfterSeconds: RESTART_RETRY_SECONDS,
  });
}

/**
 * Launches at the same moment wait for the lock of the cheapest machine, one after another. If a launch then finds the GPUs taken, and has to wait
 * for the next machine too, it leaves its transaction and begins again. Otherwise it would keep the lock of the full machine, and the launches
 * behind it would wait. The last attempt does not begin again: it waits for the next machine.
 */
async function untilPlaced<T>(attempt: (mayStartOver: boolean) => Promise<T>): Promise<T> {
  for (let left = STARTS_MAX - 1; left > 0; left -= 1) {
    try {
      return await attempt(true);
    } catch (error) {
      if (!(error instanceof TakenMeanwhile)) throw error;
    }
  }
  return attempt(false);
}

function verdictsOf(deps: InstancesDeps): Verdicts {
  const { clock } = deps;
  return {
    confirmOutage: (tx, instance, outage) => confirmOutage(tx, instance, { ...outage, nowMs: clock.now() }, deps),
    endOutage: (tx, instance, sinceMs) => endOutage(tx, instance, { sinceMs, nowMs: clock.now() }, deps),
    makeGood: (tx, instance, outage) => makeGood(tx, instance, { ...outage, nowMs: clock.now() }, deps),
    giveUp: (tx, instance, reason) => giveUp(tx, instance, { nowMs: clock.now(), reason }, deps),
    noteReachable: store.setReachable,
    lock: lockRental,
  };
}

function show(
  { instance, endpoint }: InstanceWithEndpoint,
  options: { credentials: boolean } | undefined,
  { endpoints, appSite }: InstancesDeps,
): Instance {
  const withPassword = options?.credentials === true && endpoint !== undefined;
  const password = withPassword ? { appPassword: endpoints.appPassword(endpoint) } : {};
  return instanceView(instance, { endpoint, site: appSite, ...password });
}

async function withEndpoints(
  query: Query,
  rows: readonly store.ShownInstance[],
  { endpoints }: InstancesDeps,
): Promise<InstanceWithEndpoint[]> {
  const ids = rows.flatMap(({ id, status }) => (store.CONNECTABLE.has(status) ? [id] : []));
  const endpointOf = await endpoints.ofInstances(query, ids);
  return rows.map((instance) => ({ instance, endpoint: endpointOf.get(instance.id) }));
}

async function ofReservations(
  query: Query,
  reservationIds: readonly string[],
  { endpoints }: InstancesDeps,
): Promise<Map<string, ReservedInstance[]>> {
  const rows = await store.liveOfReservations(query, reservationIds);
  const endpointOf = await endpoints.ofInstances(
    query,
    rows.map((row) => row.id),
  );
  const byContract = Map.groupBy(rows, (row) => row.reservation_id ?? '');
  return new Map(
    [...byContract].map(([id, ofContract]) => [
      id,
      ofContract.flatMap((row) => reservedView(row, endpointOf.get(row.id))),
    ]),
  );
}

async function rename(
  tx: Tx,
  orgId: string,
  { id, name }: { id: string; name: string | null },
  { endpoints }: InstancesDeps,
): Promise<InstanceWithEndpoint> {
  const { instance, endpoint } = await shownInstance(tx, orgId, id, endpoints);
  await store.setName(tx, id, name);
  return { instance: { ...instance, name }, endpoint };
}

async function shownInstance(
  query: Query,
  orgId: string,
  id: string,
  endpoints: Endpoints,
): Promise<InstanceWithEndpoint> {
  const instance = await store.findShown(query, orgId, id);
  if (instance === undefined) return fail('not_found', `There is no instance ${id}.`);
  const isConnectable = store.CONNECTABLE.has(instance.status);
  return { instance, endpoint: isConnectable ? await endpoints.find(query, id) : undefined };
}

async function driveOne(id: string, deps: InstancesDeps): Promise<string[]> {
  const { db } = deps;
  const instance = await store.findRental(db.read, id);
  if (instance === undefined) return [];
  const workload = instance.workload_id === null ? undefined : await findWorkload(db.read, instance.workload_id);
  const steps = instance.gpu_fault === null ? [] : await deps.clockSteps(db.read);
  const nowMs = deps.clock.now();
  const step = plan(
    {
      status: instance.status,
      enteredMs: instance.entered_ms,
      ...timesOf(instance, workload, nowMs),
      endsByItself: instance.shown.auto_terminate_hours !== null,
      ownImage: instance.launch?.own_image ?? false,
      triedMachines: instance.tried_machine_ids.length,
      autoTerminateMs: instance.auto_terminate_ms,
      observed: workload?.observed ?? null,
      gpuGrace: gpuGrace(instance, nowMs, steps),
      quiet: deps.quiet,
    },
    nowMs,
  );
  return perform(instance, step, deps);
}

/** Ignores a report about an earlier placement of the same instance. */
async function noteObserved(
  tx: Tx,
  instanceId: string,
  observed: ObservedWorkload,
  deps: InstancesDeps,
): Promise<void> {
  const [instance] = await gpuStatesOf(tx, [instanceId]);
  if (instance === undefined || instance.workload_id !== observed.workload_id) return;
  if (observed.host_key !== null) await deps.endpoints.setHostKey(tx, instanceId, observed.host_key);
  const nowMs = deps.clock.now();
  await Promise.all([
    store.noteReason(tx, instanceId, runningReason({ gpuFault: instance.gpu_fault, observed })),
    store.noteExit(tx, instanceId, observed.main_exit, nowMs),
    store.makeDue(tx, instanceId, nowMs),
  ]);
}

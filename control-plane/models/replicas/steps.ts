// Carries out the next step of one replica: launches its instance, asks its server, ends it and gives its machine back.
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import type { Rng } from '../../../shared/rng.ts';
import type { Modality } from '../../../shared/api/model.ts';
import { PLATFORM_ORG } from '../../base/accounts/accounts.ts';
import type { Exchanges } from '../../base/outbound/exchange.ts';
import type { Instances } from '../../rental/instances/instances.ts';
import type { Quiet } from '../../rental/instances/quiet.ts';
import { findInstance, type InstanceRow } from '../../rental/instances/store.ts';
import { launchOf } from '../catalog/deployments.ts';
import type { Loads } from './loads.ts';
import { failuresWith, planReplica } from './plan.ts';
import { fundReplicas, loadOf, move, type PoolDeps } from './pools.ts';
import { whyNoRealAnswer, whyNotReady, whyUnwell } from './readiness.ts';
import { NOTHING_TO_NOTE, serverOf, type ServersDeps } from './servers.ts';
import * as store from './store.ts';

export interface StepDeps extends PoolDeps {
  instances: Pick<Instances, 'create' | 'remove'>;
  exchanges: Exchanges;
  openStream: ServersDeps['openStream'];
  /** The modality of the model of a pool; undefined if it is not in the catalog any more. */
  modalityOf(poolId: string): Modality | undefined;
  quiet: Quiet;
  loads: Pick<Loads, 'isSteady'>;
  rng: Rng;
  counts: WakeCounts;
}

/** Starts that have ended since this process began, for the operator's metrics. */
export interface WakeCounts {
  ended(poolId: string, outcome: 'ready' | 'failed'): void;
}

/** The platform itself. Nobody has its key. */
const PLATFORM = { orgId: PLATFORM_ORG, principalId: 'platform' };
/** Time between two questions to a server that is not ready. */
const ASK_MS = 1_000;
/** Time between two health checks of a ready server. */
const CHECK_MS = 10_000;
/** How long a machine is avoided after a replica of the same pool has failed there. */
const AVOID_MS = 30 * 60_000;

/** Does one step. A second call for the same state is harmless. True if the state has changed. */
export async function driveReplica(id: string, signal: AbortSignal, deps: StepDeps): Promise<boolean> {
  const { db, clock } = deps;
  const replica = await store.findReplica(db.read, id);
  if (replica === undefined) return false;
  const instance = replica.instance_id === null ? undefined : await findInstance(db.read, replica.instance_id);
  const nowMs = clock.now();
  const step = planReplica(
    {
      state: replica.state,
      instance: instance && { status: instance.status, reason: instance.status_reason },
      createdMs: replica.created_ms,
      enteredMs: replica.entered_ms,
      startDeadlineMs: replica.deployment.start_deadline_seconds * 1000,
      unreadyBecause: replica.unready_because,
      healthFailures: replica.health_failures,
      isUnused: replica.state === 'draining' && (await isUnused(replica, deps)),
      quiet: deps.quiet,
    },
    nowMs,
  );
  switch (step.do) {
    case 'launch':
      return launch(replica, deps);
    case 'ask':
      return askServer(replica, instance, signal, deps);
    case 'check':
      await checkServer(replica, signal, deps);
      return false;
    case 'fail':
      return failReplica(replica, step.reason, deps);
    case 'end':
      return endReplica(replica, 'it was not needed any more', deps);
    case 'release':
      await release(replica, instance, deps);
      return false;
    case 'wait':
      await db.tx('replicas.wait', (tx) => store.setDue(tx, id, nowMs + step.ms));
      return false;
  }
}

/** Ends a replica that has failed. Another one may be started at once, on another machine. False if another process has moved it meanwhile. */
export async function failReplica(replica: store.ReplicaRow, reason: string, deps: StepDeps): Promise<boolean> {
  const { db, clock, log, counts } = deps;
  const { id, pool_id: poolId } = replica;
  const nowMs = clock.now();
  const instance = replica.instance_id === null ? undefined : await findInstance(db.read, replica.instance_id);
  const isFailed = await db.tx('replicas.fail', async (tx) => {
    await tx.lock('model_pool', poolId);
    const patch = {
      ended_ms: nowMs,
      ended_because: reason,
      has_failed: true,
      machine_id: instance?.machine_id ?? null,
    };
    if (!(await move(tx, replica, { state: 'ended', nowMs, patch }))) return false;
    const pool = await store.findPool(tx, poolId);
    const failures = failuresWith(replica.state, {
      failures: pool?.failures ?? 0,
      retryMs: pool?.retry_ms ?? 0,
      nowMs,
    });
    await store.noteFailure(tx, poolId, { reason, ...failures, nowMs });
    return true;
  });
  if (!isFailed) return false;
  log.warn({ model: poolId, replica_id: id, machine_id: instance?.machine_id ?? null, reason }, 'a replica failed');
  if (replica.state === 'starting') counts.ended(poolId, 'failed');
  return true;
}

async function launch(replica: store.ReplicaRow, deps: StepDeps): Promise<boolean> {
  const { db, clock, instances } = deps;
  const { id, pool_id: poolId, deployment } = replica;
  await fundReplicas(deps);
  const avoidedMachineIds = await store.failedMachines(db.read, poolId, clock.now() - AVOID_MS);
  try {
    await instances.create(
      PLATFORM,
      launchOf(deployment, `model ${poolId}`),
      async (tx, _operation, instanceId) => {
        // Another process may have launched it meanwhile. Then this launch leaves nothing behind.
        if (!(await store.setInstance(tx, id, instanceId))) throw new LaunchedMeanwhile();
      },
      { trustedOnly: deployment.placement === 'trusted', avoidedMachineIds },
    );
  } catch (error) {
    if (error instanceof LaunchedMeanwhile) return false;
    if (!(error instanceof ServiceError)) throw error;
    return failReplica(replica, messageOf(error), deps);
  }
  await db.tx('replicas.wait', (tx) => store.setDue(tx, id, clock.now() + ASK_MS));
  return false;
}

class LaunchedMeanwhile extends Error {}

async function askServer(
  replica: store.ReplicaRow,
  instance: InstanceRow | undefined,
  signal: AbortSignal,
  deps: StepDeps,
): Promise<boolean> {
  const { db, clock, log, counts } = deps;
  const { id, pool_id: poolId } = replica;
  const { machine_id: machineId = null, workload_id: workloadId = null } = instance ?? {};
  const placed = { ...replica, machine_id: machineId, workload_id: workloadId };
  const modality = deps.modalityOf(poolId);
  const complaint =
    modality === undefined
      ? 'its model is not in the catalog any more'
      : await whyNotReady(serverOf(placed, { ...deps, ...NOTHING_TO_NOTE }), modality, { ...deps, signal });
  const nowMs = clock.now();
  if (complaint !== undefined) {
    await db.tx('replicas.unready', (tx) => store.setUnready(tx, id, complaint, nowMs + ASK_MS));
    return false;
  }
  const isReady = await db.tx('replicas.ready', async (tx) => {
    await tx.lock('model_pool', poolId);
    const patch = { machine_id: machineId, workload_id: workloadId, ready_ms: nowMs };
    if (!(await move(tx, replica, { state: 'ready', nowMs, patch }))) return false;
    await store.noteSuccess(tx, poolId);
    return true;
  });
  if (!isReady) return false;
  counts.ended(poolId, 'ready');
  log.info(
    { model: poolId, replica_id: id, machine_id: machineId, wake_ms: nowMs - replica.created_ms },
    'a replica is ready',
  );
  return true;
}

async function checkServer(replica: store.ReplicaRow, signal: AbortSignal, deps: StepDeps): Promise<void> {
  const { db, clock } = deps;
  const server = serverOf(replica, { ...deps, ...NOTHING_TO_NOTE });
  const asking = { ...deps, signal };
  const modality = deps.modalityOf(replica.pool_id);
  const { suspects } = await loadOf(db.read, replica.pool_id, clock.now());
  const isSuspect = modality !== undefined && suspects.has(replica.id);
  const complaint = isSuspect ? await whyNoRealAnswer(server, modality, asking) : await whyUnwell(server, asking);
  const isWell = complaint === undefined;
  const nowMs = clock.now();
  const health = {
    failures: isWell ? 0 : replica.health_failures + 1,
    provenMs: isSuspect && isWell ? nowMs : null,
    dueMs: nowMs + CHECK_MS,
  };
  await db.tx('replicas.health', (tx) => store.setHealth(tx, replica.id, health));
}

async function endReplica(replica: store.ReplicaRow, reason: string, deps: StepDeps): Promise<boolean> {
  const { db, clock, log } = deps;
  const nowMs = clock.now();
  const patch = { ended_ms: nowMs, ended_because: reason };
  const isEnded = await db.tx('replicas.end', (tx) => move(tx, replica, { state: 'ended', nowMs, patch }));
  if (isEnded) log.info({ model: replica.pool_id, replica_id: replica.id, reason }, 'a replica has ended');
  return isEnded;
}

/** The row is due until its instance is on its way out, so a crash in between leaves no machine behind. */
async function release(
  replica: store.ReplicaRow,
  instance: InstanceRow | undefined,
  { db, instances }: StepDeps,
): Promise<void> {
  const isGone = instance === undefined || ['stopping', 'stopped', 'terminated'].includes(instance.status);
  if (!isGone) {
    await instances
      .remove(PLATFORM, instance.id, async () => undefined)
      .catch((error: unknown) => {
        if (!(error instanceof ServiceError) || error.code !== 'not_found') throw error;
      });
  }
  await db.tx('replicas.release', (tx) => store.setDue(tx, replica.id, null));
}

/**
 * True if no process has a request at the replica, and each process has read the replicas since it began to drain. After an absence, the rows of
 * processes that live look like those of dead ones, so nothing is said.
 */
async function isUnused(
  { id, pool_id: poolId, entered_ms: enteredMs }: store.ReplicaRow,
  deps: StepDeps,
): Promise<boolean> {
  if (!deps.loads.isSteady()) return false;
  const nowMs = deps.clock.now();
  const { open, seenMs } = await loadOf(deps.db.read, poolId, nowMs);
  return (open.get(id) ?? 0) === 0 && seenMs > enteredMs;
}

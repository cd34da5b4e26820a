// The SQL of pools, replicas and loads.
import { z } from 'zod';
import type { ReplicaState } from '../../../shared/states.ts';
import { flag, idRow, int, json, text } from '../../base/db/columns.ts';
import { join, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';
import type { Piece } from '../../base/db/pieces.ts';
import { Deployment } from '../catalog/deployments.ts';

const PoolRow = z.object({
  /** The name that calls use: `acme/tiny` or `acme/tiny:economy`. */
  id: text,
  /** The operator's limits in place of those in the file of models; null: the limit of the file counts. */
  min_replicas: int.nullable(),
  max_replicas: int.nullable(),
  /** The time at which all of its replicas were last needed. */
  busy_ms: int,
  /** Starts that failed in a row. */
  failures: int,
  /** No replica is started before this time. */
  retry_ms: int,
  last_failure: text.nullable(),
  /** The time at which two of its replicas were last asked the same. */
  compared_ms: int,
});
export type PoolRow = z.infer<typeof PoolRow>;
const POOL = sql`id, min_replicas, max_replicas, busy_ms, failures, retry_ms, last_failure, compared_ms`;

const ReplicaRow = z.object({
  id: text,
  pool_id: text,
  state: z.enum(['starting', 'ready', 'draining', 'ended']),
  /** The deployment as it was when the replica was started. */
  deployment: json(Deployment),
  instance_id: text.nullable(),
  machine_id: text.nullable(),
  workload_id: text.nullable(),
  health_failures: int,
  disagreements: int,
  /** When it last gave a real answer to our question, after some process had suspected it. */
  proven_ms: int.nullable(),
  unready_because: text.nullable(),
  ended_because: text.nullable(),
  has_failed: flag,
  created_ms: int,
  entered_ms: int,
  ready_ms: int.nullable(),
  ended_ms: int.nullable(),
});
export type ReplicaRow = z.infer<typeof ReplicaRow>;
const REPLICA = sql`id, pool_id, state, deployment, instance_id, machine_id, workload_id, health_failures, disagreements, proven_ms,
  unready_because, ended_because, has_failed, created_ms, entered_ms, ready_ms, ended_ms`;

const LoadRow = z.object({
  pool_id: text,
  process_id: text,
  waiting: int,
  /** Requests in progress by replica. */
  open: json(z.record(z.string(), z.int())),
  /** The replicas that have failed or refused the callers of this process again and again. */
  suspects: json(z.array(z.string())),
  last_request_ms: int,
  seen_ms: int,
});
export type LoadRow = z.infer<typeof LoadRow>;
const LOAD = sql`pool_id, process_id, waiting, open, suspects, last_request_ms, seen_ms`;

/** Creates the pool if it does not exist, and makes it due now. */
export async function wakePool(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into model_pools (id, busy_ms, compared_ms, due_ms, created_ms) values (${id}, ${nowMs}, ${nowMs}, ${nowMs}, ${nowMs})
        on conflict (id) do update set due_ms = excluded.due_ms`,
  );
}

export function findPool(query: Query, id: string): Promise<PoolRow | undefined> {
  return query.one(PoolRow, sql`select ${POOL} from model_pools where id = ${id}`);
}

/** Those of the ids that have a row. */
export async function poolsOf(query: Query, ids: readonly string[]): Promise<PoolRow[]> {
  if (ids.length === 0) return [];
  return query.all(PoolRow, sql`select ${POOL} from model_pools where id in (${join([...ids])})`);
}

/** There are at most as many as tiers of models. */
export function allPools(query: Query): Promise<PoolRow[]> {
  return query.all(PoolRow, sql`select ${POOL} from model_pools order by id`);
}

export async function setPool(
  tx: Tx,
  id: string,
  { busyMs, dueMs }: { busyMs: number; dueMs: number | null },
): Promise<void> {
  await tx.run(sql`update model_pools set busy_ms = ${busyMs}, due_ms = ${dueMs} where id = ${id}`);
}

/** The operator's limits; null: those of the file. The pool is due now. */
export async function setLimits(
  tx: Tx,
  id: string,
  { min, max, nowMs }: { min: number | null; max: number | null; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`update model_pools set min_replicas = ${min}, max_replicas = ${max}, due_ms = ${nowMs} where id = ${id}`,
  );
}

export async function noteFailure(
  tx: Tx,
  id: string,
  { reason, failures, retryMs, nowMs }: { reason: string; failures: number; retryMs: number; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`update model_pools set failures = ${failures}, last_failure = ${reason}, retry_ms = ${retryMs}, due_ms = ${nowMs}
        where id = ${id}`,
  );
}

export async function noteSuccess(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`update model_pools set failures = 0, retry_ms = 0, last_failure = null where id = ${id}`);
}

/** False if another process compares the replicas of the pool now. */
export async function claimComparison(tx: Tx, seen: PoolRow, nowMs: number): Promise<boolean> {
  const changed = await tx.run(
    sql`update model_pools set compared_ms = ${nowMs} where id = ${seen.id} and compared_ms = ${seen.compared_ms}`,
  );
  return changed === 1;
}

/** Sets the time of the last comparison, from which the next one is due. */
export async function comparedAt(tx: Tx, id: string, atMs: number): Promise<void> {
  await tx.run(sql`update model_pools set compared_ms = ${atMs} where id = ${id}`);
}

export async function duePools(query: Query, nowMs: number, limit: number): Promise<string[]> {
  return dueIn(query, sql`model_pools`, { nowMs, limit });
}

export async function dueReplicas(query: Query, nowMs: number, limit: number): Promise<string[]> {
  return dueIn(query, sql`model_replicas`, { nowMs, limit });
}

export async function insertReplica(
  tx: Tx,
  { id, poolId, deployment, nowMs }: { id: string; poolId: string; deployment: Deployment; nowMs: number },
): Promise<void> {
  await tx.run(
    sql`insert into model_replicas (id, pool_id, state, deployment, created_ms, entered_ms, due_ms)
        values (${id}, ${poolId}, 'starting', ${JSON.stringify(deployment)}, ${nowMs}, ${nowMs}, ${nowMs})`,
  );
}

export function findReplica(query: Query, id: string): Promise<ReplicaRow | undefined> {
  return query.one(ReplicaRow, sql`select ${REPLICA} from model_replicas where id = ${id}`);
}

/** All replicas that have not ended, of one pool or of all, the oldest first. */
export async function liveReplicas(query: Query, poolId?: string): Promise<ReplicaRow[]> {
  const which = poolId === undefined ? sql`state <> 'ended'` : sql`state <> 'ended' and pool_id = ${poolId}`;
  const rows = await query.all(ReplicaRow, sql`select ${REPLICA} from model_replicas where ${which}`);
  return rows.toSorted((a, b) => a.created_ms - b.created_ms || (a.id < b.id ? -1 : 1));
}

const StateRow = ReplicaRow.pick({ id: true, pool_id: true, state: true, proven_ms: true });

/** The states of all replicas that have not ended. Deployments are long, so the rows without them are read far faster. */
export function liveStates(query: Query): Promise<z.infer<typeof StateRow>[]> {
  return query.all(
    StateRow,
    sql`select id, pool_id, state, proven_ms from model_replicas where state <> 'ended' order by created_ms, id`,
  );
}

/** Those of the ids that have a row. */
export async function replicasOf(query: Query, ids: readonly string[]): Promise<ReplicaRow[]> {
  if (ids.length === 0) return [];
  return query.all(ReplicaRow, sql`select ${REPLICA} from model_replicas where id in (${join([...ids])})`);
}

const DeployedRow = z.object({ deployment: ReplicaRow.shape.deployment, count: int });

/** The number of replicas that have not ended, by deployment. */
export function countDeployed(query: Query): Promise<z.infer<typeof DeployedRow>[]> {
  return query.all(
    DeployedRow,
    sql`select deployment, count(*) as count from model_replicas where state <> 'ended' group by deployment`,
  );
}

const CountRow = z.object({ pool_id: text, state: ReplicaRow.shape.state, count: int });

/** The number of replicas of each pool in each state, without `ended`. */
export function countReplicas(query: Query): Promise<z.infer<typeof CountRow>[]> {
  return query.all(
    CountRow,
    sql`select pool_id, state, count(*) as count from model_replicas where state <> 'ended' group by pool_id, state`,
  );
}

const WakeRow = z.object({ wake_ms: int });

/** How long the newest replicas of a pool took from their start until they were ready. */
export async function wakeTimesMs(query: Query, poolId: string, limit: number): Promise<number[]> {
  const rows = await query.all(
    WakeRow,
    sql`select ready_ms - created_ms as wake_ms from model_replicas
        where pool_id = ${poolId} and ready_ms is not null order by created_ms desc, id desc limit ${limit}`,
  );
  return rows.map((row) => row.wake_ms);
}

/** The newest replicas of a pool, ended ones too. */
export function lastReplicas(query: Query, poolId: string, limit: number): Promise<ReplicaRow[]> {
  return query.all(
    ReplicaRow,
    sql`select ${REPLICA} from model_replicas where pool_id = ${poolId} order by created_ms desc, id desc limit ${limit}`,
  );
}

const MachineIdRow = z.object({ machine_id: text });

/** Machines on which replicas of the pool have failed since then. */
export async function failedMachines(query: Query, poolId: string, sinceMs: number): Promise<string[]> {
  const rows = await query.all(
    MachineIdRow,
    sql`select distinct machine_id from model_replicas
        where pool_id = ${poolId} and ended_ms > ${sinceMs} and has_failed = 1 and machine_id is not null`,
  );
  return rows.map((row) => row.machine_id);
}

/** False if the replica has an instance already or has ended. */
export async function setInstance(tx: Tx, id: string, instanceId: string): Promise<boolean> {
  const changed = await tx.run(
    sql`update model_replicas set instance_id = ${instanceId} where id = ${id} and instance_id is null and state = 'starting'`,
  );
  return changed === 1;
}

export interface ReplicaPatch {
  machine_id?: string | null;
  workload_id?: string | null;
  ready_ms?: number;
  ended_ms?: number;
  ended_because?: string;
  has_failed?: boolean;
}

/** The only writer of `state`. False if the replica is in another state now. */
export async function setState(
  tx: Tx,
  { id, state: from }: Pick<ReplicaRow, 'id' | 'state'>,
  to: { state: ReplicaState; nowMs: number; patch?: ReplicaPatch },
): Promise<boolean> {
  const { patch = {}, nowMs } = to;
  const changed = await tx.run(
    sql`update model_replicas set state = ${to.state}, entered_ms = ${nowMs}, due_ms = ${nowMs},
          machine_id = coalesce(${patch.machine_id ?? null}, machine_id), workload_id = coalesce(${patch.workload_id ?? null}, workload_id),
          ready_ms = coalesce(ready_ms, ${patch.ready_ms ?? null}), ended_ms = coalesce(ended_ms, ${patch.ended_ms ?? null}),
          ended_because = coalesce(ended_because, ${patch.ended_because ?? null}),
          has_failed = ${patch.has_failed ?? false}
        where id = ${id} and state = ${from}`,
  );
  return changed === 1;
}

export async function setDue(tx: Tx, id: string, dueMs: number | null): Promise<void> {
  await tx.run(sql`update model_replicas set due_ms = ${dueMs} where id = ${id}`);
}

export async function setUnready(tx: Tx, id: string, reason: string, dueMs: number): Promise<void> {
  await tx.run(sql`update model_replicas set unready_because = ${reason}, due_ms = ${dueMs} where id = ${id}`);
}

/** `provenMs`: when the replica has given a real answer; null if it was not asked for one. */
export async function setHealth(
  tx: Tx,
  id: string,
  { failures, provenMs, dueMs }: { failures: number; provenMs: number | null; dueMs: number },
): Promise<void> {
  await tx.run(
    sql`update model_replicas set health_failures = ${failures}, proven_ms = coalesce(${provenMs}, proven_ms), due_ms = ${dueMs}
        where id = ${id}`,
  );
}

export async function setDisagreements(tx: Tx, id: string, disagreements: number): Promise<void> {
  await tx.run(sql`update model_replicas set disagreements = ${disagreements} where id = ${id}`);
}

/** Something has happened to the instance, so its replica is due now. */
export async function makeDue(tx: Tx, instanceId: string, nowMs: number): Promise<void> {
  await tx.run(sql`update model_replicas set due_ms = ${nowMs} where instance_id = ${instanceId}`);
}

export async function removeEnded(tx: Tx, { untilMs, limit }: Piece): Promise<number> {
  return tx.run(
    sql`delete from model_replicas where id in (
          select id from model_replicas where state = 'ended' and due_ms is null and ended_ms <= ${untilMs} order by ended_ms, id limit ${limit})`,
  );
}

export async function saveLoad(tx: Tx, load: LoadRow): Promise<void> {
  await tx.run(
    sql`insert into model_loads (${LOAD}) values (${load.pool_id}, ${load.process_id}, ${load.waiting}, ${JSON.stringify(load.open)},
          ${JSON.stringify(load.suspects)}, ${load.last_request_ms}, ${load.seen_ms})
        on conflict (pool_id, process_id) do update set waiting = excluded.waiting, open = excluded.open,
          suspects = excluded.suspects, last_request_ms = excluded.last_request_ms, seen_ms = excluded.seen_ms`,
  );
}

export function loadsOf(query: Query, poolId: string): Promise<LoadRow[]> {
  return query.all(LoadRow, sql`select ${LOAD} from model_loads where pool_id = ${poolId} order by process_id`);
}

/** Removes the rows of processes that have not renewed them since then. */
export async function removeLoads(tx: Tx, beforeMs: number): Promise<number> {
  return tx.run(sql`delete from model_loads where seen_ms < ${beforeMs}`);
}

async function dueIn(query: Query, table: Sql, { nowMs, limit }: { nowMs: number; limit: number }): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from ${table} where due_ms is not null and due_ms <= ${nowMs} order by due_ms, id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

// Carries out the plan of a pool: starts replicas and lets them drain, and keeps the platform's wallet filled for what they cost.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { ucentsFromDollars } from '../../../shared/money.ts';
import { REPLICA_STATES, mayMove, type ReplicaState } from '../../../shared/states.ts';
import { ensurePlatform, PLATFORM_ORG } from '../../base/accounts/accounts.ts';
import type { Db, Query, Tx } from '../../base/db/db.ts';
import { revenue, wallet } from '../../money/ledger/accounts.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import { setWarnBelowHours } from '../../money/metering/runway.ts';
import { ECONOMY, type Catalog } from '../catalog/catalog.ts';
import type { Deployment } from '../catalog/deployments.ts';
import type { CatalogModel } from '../catalog/models.ts';
import { LOAD_MS_MAX, type Loads } from './loads.ts';
import { type PlannedReplica, planPool, type PoolFacts } from './plan.ts';
import * as store from './store.ts';

/** A tier of a model that has replicas. */
export interface Tier {
  poolId: string;
  model: CatalogModel;
  deployment: Deployment;
}

export interface PoolDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  ledger: Ledger;
  catalog: Pick<Catalog, 'models'>;
  /** How long ahead a launch holds its price. */
  launchHoldMinutes: number;
}

/** The time between two plans of a pool that has replicas or should have some. */
const PLAN_MS = 2_000;
/** How long ahead the wallet covers all replicas; longer if launches hold more. */
const FUNDED_MINUTES_MIN = 120;
/** The kind of the transfers with which the platform's revenue pays for its replicas. */
export const FUND_KIND = 'models.fund';

/** All tiers with a deployment. */
export function tiersOf({ models }: Pick<Catalog, 'models'>): Tier[] {
  const called = models.filter(({ status }) => status !== 'coming_soon');
  return called.flatMap((model) => [
    ...(model.deployment === undefined ? [] : [{ poolId: model.id, model, deployment: model.deployment }]),
    ...(model.economy?.deployment === undefined
      ? []
      : [{ poolId: `${model.id}${ECONOMY}`, model, deployment: model.economy.deployment }]),
  ]);
}

/** The limits that count now: the operator's, or those of the file. */
export function limitsOf(
  deployment: Deployment,
  pool: Pick<store.PoolRow, 'min_replicas' | 'max_replicas'> | undefined,
): { min: number; max: number } {
  return { min: pool?.min_replicas ?? deployment.min_replicas, max: pool?.max_replicas ?? deployment.max_replicas };
}

/** Plans the pool and writes what it decides. True if replicas were started or drain now. */
export async function drivePool(id: string, deps: PoolDeps & { loads: Pick<Loads, 'isSteady'> }): Promise<boolean> {
  const { db, clock, ids, log } = deps;
  const deployment = tiersOf(deps.catalog).find(({ poolId }) => poolId === id)?.deployment;
  const changed = await db.tx('replicas.plan', async (tx) => {
    await tx.lock('model_pool', id);
    const pool = await store.findPool(tx, id);
    if (pool === undefined) return [];
    const nowMs = clock.now();
    const facts = await factsOf(tx, pool, { deployment, nowMs, isLoadKnown: deps.loads.isSteady() });
    const step = planPool(facts, nowMs);
    const started = Array.from({ length: deployment === undefined ? 0 : step.start }, () => ids.prefixed('rep'));
    for (const replicaId of started)
      if (deployment !== undefined) await store.insertReplica(tx, { id: replicaId, poolId: id, deployment, nowMs });
    if (step.drain !== undefined)
      await store.setState(tx, { id: step.drain, state: 'ready' }, { state: 'draining', nowMs });
    const isAwake = facts.replicas.length + started.length + facts.waiting + (facts.wanted?.min ?? 0) > 0;
    await store.setPool(tx, id, { busyMs: step.busyMs, dueMs: isAwake ? nowMs + PLAN_MS : null });
    return [
      ...started.map((replicaId) => ({ replicaId, what: 'a replica is started' })),
      ...(step.drain === undefined ? [] : [{ replicaId: step.drain, what: 'a replica drains' }]),
    ];
  });
  for (const { replicaId, what } of changed) log.info({ model: id, replica_id: replicaId }, what);
  return changed.length > 0;
}

/** Moves a replica. False if the table forbids the move, or if another process has moved it meanwhile. */
export async function move(
  tx: Tx,
  replica: Pick<store.ReplicaRow, 'id' | 'state'>,
  to: { state: ReplicaState; nowMs: number; patch?: store.ReplicaPatch },
): Promise<boolean> {
  return mayMove(REPLICA_STATES, replica.state, to.state) && store.setState(tx, replica, to);
}

/** The platform's revenue pays its replicas: fills the wallet for all that run or start. */
export async function fundReplicas({ db, clock, ids, ledger, launchHoldMinutes }: PoolDeps): Promise<void> {
  const own = wallet(PLATFORM_ORG);
  const deployed = await store.countDeployed(db.read);
  const hourlyUcents = deployed.reduce(
    (sum, { deployment, count }) => sum + BigInt(count) * (ucentsFromDollars(deployment.max_price_per_hour) ?? 0n),
    0n,
  );
  const minutes = Math.max(FUNDED_MINUTES_MIN, 2 * launchHoldMinutes);
  const wantedUcents = (hourlyUcents * BigInt(minutes)) / 60n;
  // Half of the wanted amount is enough, so that most calls write nothing. It covers the launches of all replicas.
  if ((await ledger.balance(db.read, own)).availableUcents * 2n >= wantedUcents) return;
  await db.tx('replicas.platform', (tx) => ensurePlatform(tx, clock.now()));
  // Nobody reads warnings about a wallet that fills itself.
  await db.tx('replicas.unwarned', (tx) => setWarnBelowHours(tx, PLATFORM_ORG, []));
  await db.tx('replicas.fund', async (tx) => {
    const missingUcents = wantedUcents - (await ledger.availableNow(tx, own));
    if (missingUcents <= 0n) return;
    const transfer = {
      id: `${FUND_KIND}:${ids.uuid()}`,
      debit: revenue,
      credit: own,
      amountUcents: missingUcents,
      kind: FUND_KIND,
      subjectId: PLATFORM_ORG,
      effectiveMs: clock.now(),
    };
    await ledger.post(tx, transfer.id, [transfer]);
  });
}

/** What all living processes know of the replicas: their requests, whom they suspect, and the time as of which all of them have read the replicas. */
export async function loadOf(query: Query, poolId: string, nowMs: number): Promise<Load> {
  const rows = (await store.loadsOf(query, poolId)).filter((row) => row.seen_ms > nowMs - LOAD_MS_MAX);
  const open = new Map<string, number>();
  for (const row of rows)
    for (const [replicaId, count] of Object.entries(row.open)) open.set(replicaId, (open.get(replicaId) ?? 0) + count);
  return {
    open,
    suspects: new Set(rows.flatMap((row) => row.suspects)),
    waiting: rows.reduce((sum, row) => sum + row.waiting, 0),
    lastRequestMs: Math.max(0, ...rows.map((row) => row.last_request_ms)),
    seenMs: Math.min(nowMs, ...rows.map((row) => row.seen_ms)),
  };
}

export interface Load {
  open: ReadonlyMap<string, number>;
  /** Replicas that have failed or refused callers again and again. Their health check does not prove enough. */
  suspects: ReadonlySet<string>;
  waiting: number;
  lastRequestMs: number;
  /** Every process has seen the states of the replicas as of this time. */
  seenMs: number;
}

async function factsOf(
  tx: Tx,
  pool: store.PoolRow,
  {
    deployment,
    nowMs,
    isLoadKnown,
  }: { deployment: Deployment | undefined; nowMs: number } & Pick<PoolFacts, 'isLoadKnown'>,
): Promise<PoolFacts> {
  const rows = await store.liveReplicas(tx, pool.id);
  const load = await loadOf(tx, pool.id, nowMs);
  const replicas = rows.map((row): PlannedReplica => ({
    id: row.id,
    state: row.state,
    open: load.open.get(row.id) ?? 0,
    isOutdated: deployment !== undefined && !runsSame(row.deployment, deployment),
    createdMs: row.created_ms,
  }));
  const wanted = deployment && {
    ...limitsOf(deployment, pool),
    perReplica: deployment.max_open_requests,
    idleMs: deployment.idle_minutes * 60_000,
  };
  const { waiting, lastRequestMs } = load;
  return { wanted, replicas, waiting, lastRequestMs, isLoadKnown, busyMs: pool.busy_ms, retryMs: pool.retry_ms };
}

/** Whether both deployments run the same program with the same model. */
export function runsSame(one: Deployment, other: Deployment): boolean {
  return runsOf(one) === runsOf(other);
}

/** What a replica runs. Other fields of a deployment apply to replicas that run already. */
function runsOf({ image, entrypoint, args, env, port, gpu_type, gpu_count, model, engine }: Deployment): string {
  return JSON.stringify([image, entrypoint, args, env, port, gpu_type, gpu_count, model, engine]);
}

// The interface of this room: models that are served by replicas on the platform's own fleet.
//
//   caller ──► gateway ── no server? ──► wait ──► pool is due ──► plan ──► replica `starting` ──► instance of the platform's organisation
//                 ▲                                                             │ runs; its server gives a real answer
//                 └───────────── woken: looks for a server again ◄───────── replica `ready`
//
// A replica is an ordinary rental of the organisation `platform`: placement, holds, metering, outages and the supplier's earnings are those of
// any customer. The platform's revenue pays it, and what customers pay for tokens is revenue.
import type { Duplex } from 'node:stream';
import { fail } from '../../../shared/errors.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import type { Rng } from '../../../shared/rng.ts';
import { PLATFORM_ORG } from '../../base/accounts/accounts.ts';
import type { Query, Tx } from '../../base/db/db.ts';
import type { EventRow } from '../../base/events/events.ts';
import { openExchanges } from '../../base/outbound/exchange.ts';
import type { Driver } from '../../base/operations/engine.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import { isOffered } from '../../fleet/supply/offerings.ts';
import type { Instances } from '../../rental/instances/instances.ts';
import type { Quiet } from '../../rental/instances/quiet.ts';
import { type Callable, type Catalog, ECONOMY } from '../catalog/catalog.ts';
import { policyOf } from '../catalog/model-servers.ts';
import type { Upstream } from '../catalog/models.ts';
import { compareReplicas } from './comparisons.ts';
import { type Demand, openDemand, type Wait } from './demand.ts';
import {
  drivePool,
  fundReplicas,
  limitsOf,
  type Load,
  loadOf,
  move,
  type PoolDeps,
  type Tier,
  tiersOf,
} from './pools.ts';
import { openLoads, type Loads } from './loads.ts';
import { openServers, type Wakes } from './servers.ts';
import { driveReplica, type StepDeps } from './steps.ts';
import * as store from './store.ts';

export interface Replicas {
  /** The servers of a tier that can be asked now: those of the operator and the ready replicas. */
  serversOf(callable: Callable): readonly Upstream[];
  /** The ready replicas of all tiers. */
  all(): Upstream[];
  /** Waits until it is worth looking for a server of the tier again. @throws ServiceError `upstream_unavailable` */
  wait(callable: Callable, wait: Omit<Wait, 'deployment' | 'hasUpstreams'>): Promise<void>;
  /** How long replicas of a tier took to be ready; undefined if there was none. */
  wakes(poolId: string): Wakes | undefined;
  /** Requests that wait for a replica, by pool. */
  waiting: Loads['waiting'];
  /** An event was written in the caller's transaction. */
  noteEvent(tx: Tx, event: Pick<EventRow, 'org_id' | 'subject_id'>): Promise<void>;
  readonly counts: { wakes(): WakeCount[]; disagreements(): { poolId: string; count: number }[] };
  drivers: readonly Driver[];
  loops: readonly (LoopOptions & { everywhere?: boolean })[];
  operator: Operators;
  close(): Promise<void>;
}

/** What the operator can see and do. */
export interface Operators {
  tiers(): Tier[];
  show(query: Query, tier: Tier): Promise<TierFacts>;
  /** Replicas of the tier: all that have not ended, and the newest ended ones. Newest first. */
  replicas(query: Query, tier: Tier): Promise<{ row: store.ReplicaRow; open: number }[]>;
  /** Sets the limits of a pool. Null: the limit of the file of models counts again. */
  scale(poolId: string, limits: { min: number | null; max: number | null }): Promise<void>;
  /** Lets a replica answer its last requests and ends it. @throws ServiceError `not_found`, `conflict` if it is not ready */
  drain(replicaId: string): Promise<void>;
}

export interface TierFacts {
  pool: store.PoolRow | undefined;
  limits: { min: number; max: number };
  /** Replicas that have not ended. */
  live: store.ReplicaRow[];
  load: Load;
  /** Why no machine can hold a replica; undefined if some machine can. */
  obstacle: string | undefined;
}

export interface WakeCount {
  poolId: string;
  outcome: 'ready' | 'failed';
  count: number;
}

export interface ReplicasDeps extends PoolDeps {
  rng: Rng;
  catalog: Catalog;
  instances: Pick<Instances, 'create' | 'remove'>;
  supply: Pick<Supply, 'accuse'>;
  openStream(machineId: string, workloadId: string, target: OpenMessage['target']): Promise<Duplex>;
  quiet: Quiet;
  /** Called after a commit that made a row due. */
  nudge(): void;
}

/** The copies of the rows in memory are at most this old. */
const REFRESH_MS = 1_000;
const COMPARE_PERIOD_MS = 60_000;
/** How often the wallet is filled. Replicas take far longer to use up what it holds. */
const FUNDS_PERIOD_MS = 60_000;
/** How many of the newest replicas of a tier the operator sees, beside those that have not ended. */
const SHOWN_MAX = 50;

export function openReplicas(deps: ReplicasDeps): Replicas {
  const { db, clock, ids } = deps;
  const exchanges = openExchanges(policyOf(deps.catalog), deps);
  const counts = openCounts();
  const loads = openLoads({
    db,
    clock,
    processId: ids.prefixed('prc'),
    suspectsOf: (poolId) => servers.suspectsOf(poolId),
  });
  const servers = openServers({
    ...deps,
    deploymentOf: (poolId) => tiersOf(deps.catalog).find((tier) => tier.poolId === poolId)?.deployment,
    enter: (poolId, replicaId) => {
      loads.enter(poolId, replicaId);
      return () => {
        loads.leave(poolId, replicaId);
        demand.notify();
      };
    },
  });
  const demand: Demand = openDemand({ ...deps, loads, outlook: servers.outlook });
  const modalityOf: StepDeps['modalityOf'] = (poolId) =>
    tiersOf(deps.catalog).find((tier) => tier.poolId === poolId)?.model.modality;
  const steps = { ...deps, exchanges, modalityOf, counts, loads };
  const refresh = async (): Promise<number> => {
    const seenMs = await servers.refresh();
    demand.notify();
    return seenMs;
  };
  const wakeNew = openWaker(deps);
  return {
    serversOf: (callable) => {
      if (callable.deployment === undefined) return callable.upstreams;
      return [...callable.upstreams, ...servers.ofPool(poolOf(callable))];
    },
    all: servers.all,
    wait: async (callable, wait) => {
      if (callable.deployment === undefined) return;
      const { deployment, upstreams } = callable;
      await demand.wait(poolOf(callable), { ...wait, deployment, hasUpstreams: upstreams.length > 0 });
    },
    wakes: servers.wakes,
    waiting: loads.waiting,
    noteEvent: async (tx, { org_id: orgId, subject_id: subjectId }) => {
      if (orgId === PLATFORM_ORG) await store.makeDue(tx, subjectId, clock.now());
    },
    counts,
    drivers: driversOf(refresh, steps),
    loops: [
      {
        name: 'model-replicas',
        everywhere: true,
        periodMs: REFRESH_MS,
        run: async () => {
          await wakeNew();
          await loads.save(await refresh(), servers.drains);
        },
      },
      { name: 'replica-funds', periodMs: FUNDS_PERIOD_MS, run: () => fundReplicas(deps) },
      {
        name: 'replica-comparisons',
        periodMs: COMPARE_PERIOD_MS,
        run: (signal) => compareReplicas(tiersOf(deps.catalog), signal, steps),
      },
    ],
    operator: operatorOf(deps, refresh),
    close: () => exchanges.close(),
  };
}

/** After each change of a state, the copies in memory are read again at once. */
function driversOf(refresh: () => Promise<unknown>, deps: StepDeps): Driver[] {
  const { db } = deps;
  return [
    {
      name: 'model-pools',
      due: (nowMs, limit) => store.duePools(db.read, nowMs, limit),
      drive: async (id) => {
        if (await drivePool(id, deps)) await refresh();
      },
    },
    {
      name: 'model-replicas',
      due: (nowMs, limit) => store.dueReplicas(db.read, nowMs, limit),
      drive: async (id, signal) => {
        if (await driveReplica(id, signal, deps)) await refresh();
      },
    },
  ];
}

/** Makes all pools due once at the start and after each change of the file of models, so that new tiers start their `min_replicas`. */
function openWaker(deps: ReplicasDeps): () => Promise<void> {
  const { db, clock, log, catalog } = deps;
  let seen: unknown;
  return async () => {
    if (seen === catalog.models) return;
    const { models } = catalog;
    const tiers = tiersOf(catalog);
    const known = await store.allPools(db.read);
    const ids = new Set([...tiers.map(({ poolId }) => poolId), ...known.map(({ id }) => id)]);
    for (const id of ids) await db.tx('replicas.know', (tx) => store.wakePool(tx, id, clock.now()));
    for (const tier of tiers) {
      const obstacle = await obstacleOf(db.read, tier);
      if (obstacle !== undefined)
        log.warn({ model: tier.poolId, obstacle }, 'no machine can hold a replica of this model');
    }
    seen = models;
    deps.nudge();
  };
}

function operatorOf(deps: ReplicasDeps, refresh: () => Promise<unknown>): Operators {
  const { db, clock } = deps;
  return {
    tiers: () => tiersOf(deps.catalog),
    show: async (query, tier) => {
      const pool = await store.findPool(query, tier.poolId);
      return {
        pool,
        limits: limitsOf(tier.deployment, pool),
        live: await store.liveReplicas(query, tier.poolId),
        load: await loadOf(query, tier.poolId, clock.now()),
        obstacle: await obstacleOf(query, tier),
      };
    },
    replicas: async (query, { poolId }) => {
      const { open } = await loadOf(query, poolId, clock.now());
      const rows = [
        ...(await store.liveReplicas(query, poolId)),
        ...(await store.lastReplicas(query, poolId, SHOWN_MAX)),
      ];
      const once = [...new Map(rows.map((row) => [row.id, row])).values()];
      return once
        .toSorted((a, b) => b.created_ms - a.created_ms || (a.id < b.id ? 1 : -1))
        .map((row) => ({ row, open: open.get(row.id) ?? 0 }));
    },
    scale: async (poolId, limits) => {
      await db.tx('replicas.know', (tx) => store.wakePool(tx, poolId, clock.now()));
      await db.tx('replicas.scale', async (tx) => {
        await tx.lock('model_pool', poolId);
        await store.setLimits(tx, poolId, { ...limits, nowMs: clock.now() });
      });
      // Callers are refused or let in by the new limits at once.
      await refresh();
      deps.nudge();
    },
    drain: async (replicaId) => {
      const replica = await store.findReplica(db.read, replicaId);
      if (replica === undefined) return fail('not_found', `There is no replica ${replicaId}.`);
      const isDraining = await db.tx('replicas.drain', (tx) =>
        move(tx, replica, { state: 'draining', nowMs: clock.now() }),
      );
      if (!isDraining)
        fail('conflict', `The replica ${replicaId} is ${replica.state}. Only a ready one can be drained.`);
      deps.nudge();
    },
  };
}

/** Busy machines count: they may come free. */
async function obstacleOf(query: Query, { deployment }: Tier): Promise<string | undefined> {
  const { gpu_type: gpuType, gpu_count: gpuCount, placement } = deployment;
  const trustedOnly = placement === 'trusted';
  if (await isOffered(query, { gpuType, diskGb: null, gpuCount, trustedOnly })) return undefined;
  const which = trustedOnly ? 'No machine that the operator trusts' : 'No machine';
  return `${which} offers ${gpuCount} GPU${gpuCount === 1 ? '' : 's'} of the type ${gpuType}.`;
}

function poolOf({ model, tier }: Callable): string {
  return tier === 'economy' ? `${model.id}${ECONOMY}` : model.id;
}

function openCounts() {
  const wakes = new Map<string, WakeCount>();
  const disagreements = new Map<string, number>();
  return {
    ended: (poolId: string, outcome: WakeCount['outcome']): void => {
      const key = `${outcome} ${poolId}`;
      wakes.set(key, { poolId, outcome, count: (wakes.get(key)?.count ?? 0) + 1 });
    },
    disagreed: (poolId: string): void => void disagreements.set(poolId, (disagreements.get(poolId) ?? 0) + 1),
    wakes: () => [...wakes.values()],
    disagreements: () => [...disagreements].map(([poolId, count]) => ({ poolId, count })),
  };
}

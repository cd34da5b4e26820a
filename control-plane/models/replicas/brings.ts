// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import { type Db, type Query, sql } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { countDue, type DueRows, type Servers } from '../../base/http/overview.ts';
import type { Billed } from '../../money/ledger/wallets.ts';
import { replicaOperatorRoutes } from './operator-routes.ts';
import { FUND_KIND, limitsOf, type Tier, tiersOf } from './pools.ts';
import type { Replicas } from './replicas.ts';
import * as store from './store.ts';
import type { Catalog } from '../catalog/catalog.ts';

interface Deps {
  db: Db;
  clock: Clock;
  catalog: Catalog;
  replicas: Replicas;
  /** How long an ended replica is kept. */
  keepMs: number;
}

/** Loads of processes that have died. */
const LOADS_KEPT_MS = 3_600_000;

export function replicasBrings({ db, clock, catalog, replicas, keepMs }: Deps) {
  const forgets: Forgets[] = [
    {
      what: 'model replicas',
      run: (signal) =>
        inPieces(
          clock.now() - keepMs,
          (piece) => db.tx('replicas.forget', (tx) => store.removeEnded(tx, piece)),
          signal,
        ),
    },
    {
      what: 'model loads',
      run: () => db.tx('replicas.forget_loads', (tx) => store.removeLoads(tx, clock.now() - LOADS_KEPT_MS)),
    },
  ];
  return {
    billed: { [FUND_KIND]: { section: 'adjustment', by: 'batch' } } satisfies Billed,
    operatorRoutes: replicaOperatorRoutes({ db, replicas }),
    drivers: replicas.drivers,
    dueRows: DUE,
    servers: [replicaStates(catalog)],
    loops: replicas.loops,
    measures: measures(db, catalog, replicas),
    forgets,
    close: () => replicas.close(),
  };
}

const DUE: readonly DueRows[] = [
  {
    kind: 'model_pools',
    done: { driver: 'model-pools' },
    count: (query, nowMs) => countDue(query, sql`select due_ms from model_pools where due_ms <= ${nowMs}`),
  },
  {
    kind: 'model_replicas',
    done: { driver: 'model-replicas' },
    count: (query, nowMs) => countDue(query, sql`select due_ms from model_replicas where due_ms <= ${nowMs}`),
  },
];

/** One row for each tier that runs on the fleet. A tier is unhealthy if it should have a replica and none is ready. */
function replicaStates(catalog: Catalog): Servers {
  return async (query) => {
    const counts = Map.groupBy(await store.countReplicas(query), (row) => row.pool_id);
    const lacking = await lackingTiers(query, catalog);
    return tiersOf(catalog).map(({ poolId }) => {
      const states = counts.get(poolId) ?? [];
      return {
        model: poolId,
        server: 'replicas on the fleet',
        is_well: !lacking.has(poolId),
        state: states.length === 0 ? 'no replica' : states.map(({ state, count }) => `${count} ${state}`).join(', '),
      };
    });
  };
}

/** The ids of tiers that should have a ready replica, by the operator's limits or those of the file, and have none. */
async function lackingTiers(query: Query, catalog: Catalog): Promise<Set<string>> {
  const tiers = tiersOf(catalog);
  const rows = await store.countReplicas(query);
  const known = await store.poolsOf(
    query,
    tiers.map(({ poolId }) => poolId),
  );
  const pools = new Map(known.map((pool) => [pool.id, pool]));
  const ready = new Set(rows.flatMap((row) => (row.state === 'ready' ? [row.pool_id] : [])));
  const isLacking = ({ poolId, deployment }: Tier): boolean =>
    limitsOf(deployment, pools.get(poolId)).min > 0 && !ready.has(poolId);
  return new Set(tiers.flatMap((tier) => (isLacking(tier) ? [tier.poolId] : [])));
}

function measures(db: Db, catalog: Catalog, { counts, waiting }: Replicas): Measure[] {
  return [
    {
      name: 'svc_model_replicas',
      help: 'Replicas of models on the fleet by state',
      kind: 'gauge',
      labels: ['model', 'state'],
      read: async () =>
        (await store.countReplicas(db.read)).map(({ pool_id: model, state, count }) => ({
          labels: { model, state },
          value: count,
        })),
    },
    {
      name: 'svc_model_without_server',
      help: '1 for a model that should have a ready replica (min_replicas of at least 1, by the file or by `admin model scale`) and has none, 0 for others with a deployment',
      kind: 'gauge',
      labels: ['model'],
      read: async () => {
        const lacking = await lackingTiers(db.read, catalog);
        return tiersOf(catalog).map(({ poolId }) => ({
          labels: { model: poolId },
          value: lacking.has(poolId) ? 1 : 0,
        }));
      },
    },
    {
      name: 'svc_model_waiting_requests',
      help: 'Requests that wait until a replica of their model is ready',
      kind: 'gauge',
      everywhere: true,
      labels: ['model'],
      read: () => waiting().map(({ poolId, count }) => ({ labels: { model: poolId }, value: count })),
    },
    {
      name: 'svc_model_wakes_total',
      help: 'Replicas that were started, by what came of it',
      kind: 'counter',
      labels: ['model', 'outcome'],
      read: () =>
        OUTCOMES.flatMap((outcome) =>
          countsOf(
            catalog,
            counts.wakes().filter((each) => each.outcome === outcome),
          ).map(({ labels, value }) => ({ labels: { ...labels, outcome }, value })),
        ),
    },
    {
      name: 'svc_model_disagreements_total',
      help: 'Comparisons in which two replicas of a model answered the same question differently',
      kind: 'counter',
      labels: ['model'],
      read: () => countsOf(catalog, counts.disagreements()),
    },
  ];
}

const OUTCOMES = ['ready', 'failed'] as const;

/** A model without a count has 0: Prometheus sees no increase in a series that begins at 1. */
function countsOf(
  catalog: Catalog,
  counted: readonly { poolId: string; count: number }[],
): { labels: { model: string }; value: number }[] {
  const values = new Map(tiersOf(catalog).map(({ poolId }): [string, number] => [poolId, 0]));
  for (const { poolId, count } of counted) values.set(poolId, count);
  return [...values].map(([model, value]) => ({ labels: { model }, value }));
}

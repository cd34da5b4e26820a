// The operator's routes for models that run on the fleet. A model id has a slash, so it is a parameter of the query or a field of the body.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { fail, failField } from '../../../shared/errors.ts';
import { REPLICAS_MAX } from '../../../shared/limits.ts';
import type { ReplicaState } from '../../../shared/states.ts';
import type { Db } from '../../base/db/db.ts';
import { AnyFields, type Fields, Id, listOf, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Tier } from './pools.ts';
import type { Operators, Replicas, TierFacts } from './replicas.ts';
import type { ReplicaRow } from './store.ts';

const BASE = '/admin/models';
const Named = z.strictObject({ model: z.string() });
const Count = z.int().min(0).max(REPLICAS_MAX).nullable();
const Limits = z.strictObject({ model: z.string(), min_replicas: Count, max_replicas: Count });

interface Deps {
  db: Db;
  replicas: Pick<Replicas, 'operator' | 'wakes'>;
}

type Shown = (tier: Tier) => Promise<Fields>;
const ONE_TIER = { description: 'The tier of the model', schema: AnyFields };

export function replicaOperatorRoutes({ db, replicas }: Deps): Route[] {
  const { operator: operators } = replicas;
  const shown: Shown = async (tier) =>
    tierFields(tier, await operators.show(db.read, tier), replicas.wakes(tier.poolId)?.p50Ms);
  return [...readRoutes(db, operators, shown), ...changeRoutes(operators, shown)];
}

function readRoutes(db: Db, operators: Operators, shown: Shown): Route[] {
  return [
    route({
      ...operator,
      method: 'GET',
      path: BASE,
      operationId: 'adminListModels',
      summary: 'List the tiers of models that run on the fleet',
      responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: await Promise.all(operators.tiers().map(shown)) } }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: `${BASE}/tier`,
      operationId: 'adminShowModel',
      summary: 'Show one tier of a model',
      query: Named,
      responses: { 200: ONE_TIER },
      errors: ['not_found'],
      handler: async ({ query }) => ({ status: 200, body: await shown(tierOf(query.model, operators)) }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: `${BASE}/replicas`,
      operationId: 'adminListReplicas',
      summary: 'List the replicas of one tier of a model, newest first: all that have not ended, and the newest 50',
      query: Named,
      responses: { 200: { description: 'The replicas', schema: listOf(AnyFields) } },
      errors: ['not_found'],
      handler: async ({ query }) => {
        const shownRows = await operators.replicas(db.read, tierOf(query.model, operators));
        return { status: 200, body: { data: shownRows.map(({ row, open }) => replicaFields(row, open)) } };
      },
    }),
  ];
}

function changeRoutes(operators: Operators, shown: Shown): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/scale`,
      operationId: 'adminScaleModel',
      summary:
        'Set limits of a tier that replace the limits in the file of models. Null restores the limits of the file',
      body: Limits,
      responses: { 200: ONE_TIER },
      errors: ['not_found', 'validation_failed'],
      handler: async ({ body: { model, min_replicas: min, max_replicas: max } }) => {
        const tier = tierOf(model, operators);
        const limits = { min: min ?? tier.deployment.min_replicas, max: max ?? tier.deployment.max_replicas };
        if (limits.min > limits.max) failField('min_replicas', `must be at most max_replicas, which is ${limits.max}`);
        await operators.scale(tier.poolId, { min, max });
        return { status: 200, body: await shown(tier) };
      },
    }),
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/replicas/{id}/drain`,
      operationId: 'adminDrainReplica',
      summary: 'End a replica after it has answered its last requests',
      params: Id,
      responses: { 200: { description: 'The replica', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params: { id } }) => {
        await operators.drain(id);
        return { status: 200, body: { replica_id: id, state: 'draining' } };
      },
    }),
  ];
}

/** @throws ServiceError `not_found` */
function tierOf(name: string, operators: Operators): Tier {
  const found = operators.tiers().find(({ poolId }) => poolId === name);
  return found ?? fail('not_found', `${name} has no deployment. \`admin model list\` shows those that have one.`);
}

function tierFields({ poolId, deployment }: Tier, facts: TierFacts, wakeMs: number | undefined): Fields {
  const { pool, limits, live, load, obstacle } = facts;
  const count = (state: ReplicaState): number => live.filter((row) => row.state === state).length;
  return {
    model: poolId,
    ready: count('ready'),
    starting: count('starting'),
    draining: count('draining'),
    min_replicas: limits.min,
    max_replicas: limits.max,
    waiting_requests: load.waiting,
    open_requests: [...load.open.values()].reduce((sum, open) => sum + open, 0),
    wake_seconds: wakeMs === undefined ? null : Math.round(wakeMs / 1000),
    gpus: `${deployment.gpu_count} x ${deployment.gpu_type}`,
    placement: deployment.placement,
    image: deployment.image,
    failed_starts: pool?.failures ?? 0,
    last_failure: pool?.last_failure ?? null,
    cannot_run_because: obstacle ?? null,
  };
}

function replicaFields(row: ReplicaRow, open: number): Fields {
  return {
    replica_id: row.id,
    state: row.state,
    open_requests: open,
    instance_id: row.instance_id,
    machine_id: row.machine_id,
    created_at: isoTime(row.created_ms),
    ready_at: row.ready_ms === null ? null : isoTime(row.ready_ms),
    not_ready_because: row.state === 'starting' ? row.unready_because : null,
    ended_at: row.ended_ms === null ? null : isoTime(row.ended_ms),
    ended_because: row.ended_because,
  };
}

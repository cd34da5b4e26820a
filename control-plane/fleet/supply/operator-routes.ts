// The operator's routes for suppliers and their machines.
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { dollarsFromUcents } from '../../../shared/money.ts';
import type { Db } from '../../base/db/db.ts';
import { byCreation, type Cursors, type PageStart, type PageView } from '../../base/http/cursors.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import type { Payouts } from '../../money/payouts/payouts.ts';
import type { Standing } from '../../money/payouts/standing.ts';
import { pageOfMachines } from './machine-pages.ts';
import { type MachineRow, pageOfSuppliers, type SupplierRow } from './store.ts';
import type { Supply } from './supply.ts';
import { obstacleOf } from './checks.ts';
import { faultWords } from './verdict.ts';
import { type Route, route } from '../../base/http/route.ts';
import { AnyFields, type Fields, Id, ListQuery, operationOf, operator, SearchQuery } from '../../base/http/operator.ts';

/** The effect of each verb. Each verb is a POST without a body. */
export const SUPPLIER_VERBS = {
  suspend:
    'take all machines of the supplier off the market, accept no new machines, and make no payouts; running rentals continue, and earnings stay owed',
  resume: 'end a suspension',
} as const;

const BASE = '/admin/suppliers';

interface Deps {
  db: Db;
  clock: Pick<Clock, 'nextTurn'>;
  cursors: Cursors;
  supply: Supply;
  payouts: Payouts;
}

export function supplyOperatorRoutes(deps: Deps): Route[] {
  return [...supplierRoutes(deps), ...machineRoutes(deps)];
}

function supplierRoutes({ db, clock, cursors, supply, payouts }: Deps): Route[] {
  const show = async (row: SupplierRow): Promise<Fields> => ({
    supplier_id: row.id,
    org_id: row.org_id,
    status: row.status,
    ...standingFields(await payouts.standing(db.read, row.id)),
    created_at: isoTime(row.created_ms),
  });
  const moves = { suspend: supply.suspendSupplier, resume: supply.resumeSupplier };
  const list = route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListSuppliers',
    summary: 'List suppliers, newest first',
    query: ListQuery,
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => {
      const rows = async (start: PageStart) => {
        const shown: { row: SupplierRow; fields: Fields }[] = [];
        // What a supplier is owed takes a sum of its new entries. Other work of the process goes on in between.
        for (const row of await pageOfSuppliers(db.read, start)) {
          shown.push({ row, fields: await show(row) });
          await clock.nextTurn();
        }
        return shown;
      };
      const view: PageView<{ row: SupplierRow; fields: Fields }, Fields> = {
        at: ({ row }) => byCreation(row),
        show: ({ fields }) => fields,
      };
      return { status: 200, body: await cursors.page('admin/suppliers', query, rows, view) };
    },
  });
  const verbs = (Object.keys(SUPPLIER_VERBS) as (keyof typeof SUPPLIER_VERBS)[]).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/${verb}`,
      operationId: operationOf(verb, 'Supplier'),
      summary: SUPPLIER_VERBS[verb],
      params: Id,
      responses: { 200: { description: 'The supplier', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: await show(await moves[verb](params.id)) }),
    }),
  );
  return [list, ...verbs];
}

function machineRoutes({ db, cursors, supply }: Deps): Route[] {
  const list = route({
    ...operator,
    method: 'GET',
    path: '/admin/machines',
    operationId: 'adminListMachines',
    summary: 'List machines, newest first',
    query: SearchQuery,
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => {
      const rows = (start: PageStart) => pageOfMachines(db.read, start, query.search);
      const view = { at: byCreation, show: machineFields };
      return { status: 200, body: await cursors.page(`admin/machines/${query.search ?? ''}`, query, rows, view) };
    },
  });
  const verbs = {
    approve: 'List a machine for rent',
    suspend: 'Take a machine off the market',
    unify: 'Confirm that only one host has the identity of the machine now',
    trust: 'Place replicas of models and training on a machine',
    distrust: 'Stop placing replicas of models and training on a machine',
  } as const;
  const judge = {
    approve: supply.approve,
    suspend: supply.suspend,
    unify: (id: string) => supply.setCopied(id, false),
    trust: (id: string) => supply.setTrusted(id, true),
    distrust: (id: string) => supply.setTrusted(id, false),
  };
  const moves = (['approve', 'suspend', 'unify', 'trust', 'distrust'] as const).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `/admin/machines/{id}/${verb}`,
      operationId: operationOf(verb, 'Machine'),
      summary: verbs[verb],
      params: Id,
      responses: { 200: { description: 'The machine', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: machineFields(await judge[verb](params.id)) }),
    }),
  );
  return [list, ...moves];
}

function standingFields({ accruedCents, unpaidCents, payableCents }: Standing): Fields {
  return {
    accrued_cents: Number(accruedCents),
    unpaid_cents: Number(unpaidCents),
    payable_cents: Number(payableCents),
  };
}

/** A machine as a row of the operator's list. */
export function machineFields(row: MachineRow): Fields {
  return {
    machine_id: row.id,
    name: row.name,
    hostname: row.inventory?.hostname ?? null,
    supplier_id: row.supplier_id,
    status: row.status,
    approved: row.approved,
    trusted: row.trusted,
    off_market_because: obstacleOf(row) ?? null,
    verification_status: row.verification_status,
    verification_detail: row.verification_detail,
    online: row.online,
    gpus: row.inventory?.gpus.length ?? null,
    gpu_name: row.inventory?.gpus[0]?.name ?? null,
    gpu_error: row.inventory?.gpu_error ?? null,
    gpu_faults: faultWords(row.inventory?.gpu_faults ?? []),
    engine: row.inventory?.engine_version ?? null,
    network_fence: row.inventory?.network_fence ?? null,
    fence_error: row.inventory?.fence_error ?? null,
    region: row.region,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    unknown_workloads: row.unknown_workloads?.join(', ') ?? 'not reported yet',
    copied_since: row.copied_ms === null ? null : isoTime(row.copied_ms),
    last_heartbeat_at: row.last_heartbeat_ms === null ? null : isoTime(row.last_heartbeat_ms),
  };
}

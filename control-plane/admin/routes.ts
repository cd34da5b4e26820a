// What an operator can ask of the running control plane. Only for the unix socket: its file mode is the authentication.
import { z } from 'zod';
import { ApiKey, NewApiKey } from '../../shared/api/api-key.ts';
import { Org, OrgName } from '../../shared/api/org.ts';
import { isoTime } from '../../shared/clock.ts';
import type { LoopStatus } from '../../shared/loop.ts';
import { WorkloadId } from '../../shared/protocol/workload.ts';
import type { Accounts } from '../base/accounts/accounts.ts';
import type { Metrics } from '../base/http/metrics.ts';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, Cents, type Fields, Id, listOf, operationOf, operator } from './fields.ts';
import { creditAdminRoutes, type CreditCommands } from './credit-routes.ts';
import { disputeAdminRoutes, type DisputeCommands } from './dispute-routes.ts';
import { instanceAdminRoutes, type InstanceCommands } from './instance-routes.ts';
import { type ReloadCommand, reloadRoutes } from './reload-routes.ts';
import { reservationAdminRoutes, type ReservationCommands } from './reservation-routes.ts';
import { supplierAdminRoutes, type SupplierCommands } from './supplier-routes.ts';

export interface AdminDeps extends ReloadCommand {
  accounts: Pick<Accounts, 'createOrg' | 'listOrgs' | 'createKey' | 'listKeys' | 'revokeKey'>;
  balance: {
    /** Adding twice under one reference counts once. @throws ServiceError `not_found`, `conflict` where the amounts differ */
    add(orgId: string, cents: number, reference: string): Promise<Fields>;
    /** @throws ServiceError `not_found` */
    show(orgId: string): Promise<Fields>;
  };
  machines: {
    list(): Promise<Fields[]>;
    /** @throws ServiceError `not_found`, `conflict` */
    approve(id: string): Promise<Fields>;
    /** @throws ServiceError `not_found`, `conflict` */
    suspend(id: string): Promise<Fields>;
    /** One host alone has its identity again. @throws ServiceError `not_found`, `conflict` */
    unify(id: string): Promise<Fields>;
    /** A container that the host runs and this database does not know. @throws ServiceError `not_found`, `conflict` */
    removeWorkload(id: string, workloadId: string): Promise<Fields>;
  };
  suppliers: SupplierCommands;
  instances: InstanceCommands;
  disputes: DisputeCommands;
  credits: CreditCommands;
  reservations: ReservationCommands;
  ledger: {
    /** Broken invariants in words; none when the books agree. */
    verify(): Promise<string[]>;
  };
  loops(): LoopStatus[];
  metrics: Pick<Metrics, 'text' | 'contentType'>;
}

export function adminRoutes(deps: AdminDeps): Route[] {
  return [
    ...orgRoutes(deps),
    ...keyRoutes(deps),
    ...balanceRoutes(deps),
    ...machineRoutes(deps),
    ...supplierAdminRoutes(deps.suppliers),
    ...instanceAdminRoutes(deps.instances),
    ...disputeAdminRoutes(deps.disputes),
    ...creditAdminRoutes(deps.credits),
    ...reservationAdminRoutes(deps.reservations),
    ...reloadRoutes(deps),
    ...statusRoutes(deps),
  ];
}

function orgRoutes({ accounts }: AdminDeps): Route[] {
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/orgs',
      operationId: 'adminCreateOrg',
      summary: 'Create an organisation',
      body: z.strictObject({ name: OrgName }),
      responses: { 201: { description: 'The organisation', schema: Org } },
      errors: [],
      handler: async ({ body }) => ({ status: 201, body: await accounts.createOrg(body.name) }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/orgs',
      operationId: 'adminListOrgs',
      summary: 'List organisations',
      responses: { 200: { description: 'All of them', schema: listOf(Org) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: await accounts.listOrgs() } }),
    }),
  ];
}

function keyRoutes({ accounts }: AdminDeps): Route[] {
  const NewKey = z.strictObject({
    org_id: z.string(),
    name: OrgName,
    scopes: z.array(z.string()),
    expires_at: z.iso.datetime().optional(),
  });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/keys',
      operationId: 'adminCreateKey',
      summary: 'Create an API key',
      body: NewKey,
      responses: { 201: { description: 'The key, shown once', schema: NewApiKey } },
      errors: ['not_found'],
      handler: async ({ body }) => {
        const expiresMs = body.expires_at === undefined ? null : Date.parse(body.expires_at);
        const { org_id: orgId, name, scopes } = body;
        return { status: 201, body: await accounts.createKey({ orgId, name, scopes, expiresMs }) };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/keys',
      operationId: 'adminListKeys',
      summary: 'List API keys',
      query: z.strictObject({ org_id: z.string().optional() }),
      responses: { 200: { description: 'Keys without their secret', schema: listOf(ApiKey) } },
      errors: [],
      handler: async ({ query }) => ({ status: 200, body: { data: await accounts.listKeys(query.org_id ?? null) } }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/keys/{id}/revoke',
      operationId: 'adminRevokeKey',
      summary: 'Revoke an API key',
      params: Id,
      responses: { 200: { description: 'The key', schema: ApiKey } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await accounts.revokeKey(params.id) }),
    }),
  ];
}

function balanceRoutes({ balance }: AdminDeps): Route[] {
  const Credit = z.strictObject({ cents: Cents, reference: z.string().min(1).max(255) });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/balances/{id}/credits',
      operationId: 'adminAddBalance',
      summary: 'Add to the balance of an organisation; the same reference counts once',
      params: Id,
      body: Credit,
      responses: { 200: { description: 'The balance', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params, body }) => ({
        status: 200,
        body: await balance.add(params.id, body.cents, body.reference),
      }),
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/balances/{id}',
      operationId: 'adminShowBalance',
      summary: 'Show the balance of an organisation',
      params: Id,
      responses: { 200: { description: 'The balance', schema: AnyFields } },
      errors: ['not_found'],
      handler: async ({ params }) => ({ status: 200, body: await balance.show(params.id) }),
    }),
  ];
}

function machineRoutes({ machines }: AdminDeps): Route[] {
  const list = route({
    ...operator,
    method: 'GET',
    path: '/admin/machines',
    operationId: 'adminListMachines',
    summary: 'List machines',
    responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => ({ status: 200, body: { data: await machines.list() } }),
  });
  const verbs = {
    approve: 'List a machine for rent',
    suspend: 'Take a machine out of the market',
    unify: 'Say that one host alone has the identity of a machine again',
  } as const;
  const moves = (['approve', 'suspend', 'unify'] as const).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `/admin/machines/{id}/${verb}`,
      operationId: operationOf(verb, 'Machine'),
      summary: verbs[verb],
      params: Id,
      responses: { 200: { description: 'The machine', schema: AnyFields } },
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: await machines[verb](params.id) }),
    }),
  );
  const remove = route({
    ...operator,
    method: 'DELETE',
    path: '/admin/machines/{id}/unknown-workloads/{workload_id}',
    operationId: 'adminRemoveUnknownWorkload',
    summary: 'End a container that a machine runs and the database does not know',
    params: Id.extend({ workload_id: WorkloadId }),
    responses: { 200: { description: 'What is wanted of the machine', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params }) => ({
      status: 200,
      body: await machines.removeWorkload(params.id, params.workload_id),
    }),
  });
  return [list, ...moves, remove];
}

function statusRoutes({ ledger, loops, metrics }: AdminDeps): Route[] {
  const Verdict = z.strictObject({ ok: z.boolean(), faults: z.array(z.string()) });
  return [
    route({
      ...operator,
      method: 'POST',
      path: '/admin/ledger/verify',
      operationId: 'adminVerifyLedger',
      summary: 'Prove that the books agree',
      responses: { 200: { description: 'The verdict', schema: Verdict } },
      errors: [],
      handler: async () => {
        const faults = await ledger.verify();
        return { status: 200, body: { ok: faults.length === 0, faults } };
      },
    }),
    route({
      ...operator,
      method: 'GET',
      path: '/admin/loops',
      operationId: 'adminListLoops',
      summary: 'The background loops: name, last run, last result',
      responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: loops().map(loopFields) } }),
    }),
    metricsRoute(metrics, 'operator'),
  ];
}

function loopFields({ last_started_ms, last_success_ms, ...loop }: LoopStatus): Fields {
  const timeOf = (ms: number | null): string | null => (ms === null ? null : isoTime(ms));
  return { ...loop, last_started_at: timeOf(last_started_ms), last_success_at: timeOf(last_success_ms) };
}

/** `GET /metrics`: for the operator's socket, and with the scope `none` for a listener that only Prometheus reaches. */
export function metricsRoute(metrics: AdminDeps['metrics'], scope: 'operator' | 'none'): Route {
  return route({
    ...operator,
    scope,
    method: 'GET',
    path: '/metrics',
    operationId: 'metrics',
    summary: 'Prometheus metrics',
    responses: { 200: { description: 'Text exposition format' } },
    errors: [],
    handler: async () => ({
      status: 200,
      headers: { 'content-type': metrics.contentType },
      body: await metrics.text(),
    }),
  });
}

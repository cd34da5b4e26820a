// /v1/community and the enrolment of hosts (specification 2.17, 3.4).
import { z } from 'zod';
import {
  CommunityMachine,
  CommunityMachineRegistration,
  CommunitySupplier,
  RegisterMachine,
} from '../../../shared/api/community.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { dollarsFromUcents, ucentsFromDollars } from '../../../shared/money.ts';
import { EnrollRequest, EnrollResponse } from '../../../shared/protocol/inventory.ts';
import { ENROLL_PATH, LINK_PATH } from '../../../shared/protocol/link.ts';
import type { Db } from '../../base/db/db.ts';
import { type Cursors, olderThan } from '../../base/http/cursors.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import * as store from './store.ts';
import type { DeclaredMachine, Supply } from './supply.ts';

interface Deps {
  db: Db;
  cursors: Cursors;
  supply: Supply;
}

const MachineId = z.strictObject({ id: z.uuid().describe('The machine id') });
const tag = 'Community supply';

export function supplyRoutes(deps: Deps): Route[] {
  return [supplierRoute(deps), listMachinesRoute(deps), registerRoute(deps), tokenRoute(deps), enrollRoute(deps)];
}

function supplierRoute({ db, supply }: Deps): Route {
  return route({
    method: 'POST',
    path: '/v1/community/supplier',
    operationId: 'becomeSupplier',
    tag,
    summary: 'Become a supplier, or read what you are',
    description: 'The first call makes the organisation a supplier; further calls answer the same.',
    scope: 'supply:write',
    idempotency: 'optional',
    responses: { 200: { description: 'The supplier', schema: CommunitySupplier } },
    errors: [],
    handler: ({ caller, settle }) =>
      db.tx('supply.supplier', async (tx) => {
        const row = await supply.registerSupplier(tx, caller.orgId);
        const reply: Reply = { status: 200, body: supplierView(row) };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function listMachinesRoute({ db, cursors }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines',
    operationId: 'listMachines',
    tag,
    summary: 'Your machines, newest first',
    scope: 'supply:read',
    idempotency: 'none',
    query: PageQuery,
    responses: { 200: { description: 'A page of machines', schema: pageSchema(CommunityMachine) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const list = `machines/${caller.orgId}`;
      const after = olderThan(cursors.read(list, query.cursor));
      const supplier = await store.supplierOfOrg(db.read, caller.orgId);
      const rows =
        supplier === undefined ? [] : await store.machinesOfSupplier(db.read, supplier.id, after, query.limit + 1);
      const body = cursors.pageOf(list, rows, query.limit, {
        at: (row) => ({ createdMs: row.created_ms, id: row.id }),
        show: machineView,
      });
      return { status: 200, body };
    },
  });
}

function registerRoute({ db, supply }: Deps): Route {
  return route({
    method: 'POST',
    path: '/v1/community/machines',
    operationId: 'registerMachine',
    tag,
    summary: 'Register a machine and get its enrolment token',
    scope: 'supply:write',
    idempotency: 'optional',
    secretReply: true,
    body: RegisterMachine,
    responses: { 201: { description: 'The machine and its token', schema: CommunityMachineRegistration } },
    errors: ['not_found', 'conflict'],
    handler: ({ caller, body, settle }) =>
      db.tx('supply.register', async (tx) => {
        const reply = registered(await supply.registerMachine(tx, caller.orgId, declaredMachine(body)));
        await settle(tx, reply);
        return reply;
      }),
  });
}

function tokenRoute({ db, supply }: Deps): Route {
  return route({
    method: 'POST',
    path: '/v1/community/machines/{id}/token',
    operationId: 'reissueEnrollmentToken',
    tag,
    summary: 'A new enrolment token for a machine that has not enrolled',
    description: 'Ends the token before it.',
    scope: 'supply:write',
    idempotency: 'optional',
    secretReply: true,
    params: MachineId,
    responses: { 201: { description: 'The machine and its token', schema: CommunityMachineRegistration } },
    errors: ['not_found', 'conflict'],
    handler: ({ caller, params, settle }) =>
      db.tx('supply.token', async (tx) => {
        const reply = registered(await supply.reissueToken(tx, caller.orgId, params.id));
        await settle(tx, reply);
        return reply;
      }),
  });
}

function enrollRoute({ supply }: Deps): Route {
  return route({
    method: 'POST',
    path: ENROLL_PATH,
    operationId: 'enrollHost',
    tag,
    summary: 'A host binds its key to a machine',
    scope: 'none',
    idempotency: 'none',
    hidden: true,
    body: EnrollRequest,
    responses: { 200: { description: 'The machine', schema: EnrollResponse } },
    errors: ['enrollment_token_invalid', 'enrollment_token_expired', 'enrollment_token_used'],
    handler: async ({ body }) => {
      const { machineId } = await supply.enroll(body);
      return { status: 200, body: { machine_id: machineId, link_path: LINK_PATH } };
    },
  });
}

function registered({ machine, token }: { machine: store.MachineRow; token: string }): Reply {
  return { status: 201, body: { machine: machineView(machine), enrollment_token: token } };
}

function declaredMachine(body: RegisterMachine): DeclaredMachine {
  const price = ucentsFromDollars(body.price_per_hour) ?? failField('price_per_hour', 'must have at most 8 decimals');
  if (price <= 0n) failField('price_per_hour', 'must be at least 0.00000001');
  return {
    region: body.region,
    priceUcentsPerHour: price,
    gpuType: body.gpu_type ?? null,
    gpuCount: body.gpu_count ?? null,
    vramPerGpuGb: body.vram_per_gpu_gb ?? null,
    tier: body.tier,
  };
}

function supplierView(row: store.SupplierRow): CommunitySupplier {
  return {
    supplier_id: row.id,
    org_id: row.org_id,
    status: row.status,
    created_at: isoTime(row.created_ms),
    updated_at: isoTime(row.updated_ms),
  };
}

function machineView(row: store.MachineRow): CommunityMachine {
  return {
    machine_id: row.id,
    supplier_id: row.supplier_id,
    status: row.status,
    verification_status: row.verification_status,
    created_at: isoTime(row.created_ms),
    gpu_count: row.declared_gpu_count,
    gpu_type: row.declared_gpu_type,
    region: row.region,
    price_per_hour: dollarsFromUcents(row.price_ucents_per_hour),
    vram_per_gpu_gb: row.declared_vram_per_gpu_gb,
    tier: row.tier,
    last_heartbeat_at: row.last_heartbeat_ms === null ? null : isoTime(row.last_heartbeat_ms),
  };
}

// Becoming a supplier, registering machines, and enrolling hosts (specification 2.17).
import { CommunityMachineRegistration, CommunitySupplier, RegisterMachine } from '../../../shared/api/community.ts';
import { fail } from '../../../shared/errors.ts';
import { EnrollRequest, EnrollResponse } from '../../../shared/protocol/inventory.ts';
import { ENROLL_PATH, LINK_PATH } from '../../../shared/protocol/link.ts';
import type { Db, Tx } from '../../base/db/db.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import { ownMachine } from './listing.ts';
import { MachineId, priceUcents, tag, type ViewDeps, viewOf } from './machine-view.ts';
import { supplierView } from './owners.ts';
import * as store from './store.ts';
import { type DeclaredMachine, NO_SUPPLIER, type Supply } from './supply.ts';

interface Deps extends ViewDeps {
  db: Db;
  supply: Supply;
}

export function supplyRoutes(deps: Deps): Route[] {
  return [becomeRoute(deps), supplierRoute(deps), registerRoute(deps), tokenRoute(deps), enrollRoute(deps)];
}

function becomeRoute({ db, supply }: Deps): Route {
  return route({
    method: 'POST',
    path: '/v1/community/supplier',
    operationId: 'becomeSupplier',
    tag,
    summary: 'Become a supplier',
    description: 'The first call makes the organisation a supplier. Further calls return the same supplier.',
    scope: 'supply:write',
    idempotency: 'optional',
    responses: { 200: { description: 'The supplier', schema: CommunitySupplier } },
    errors: [],
    handler: ({ caller, settle }) =>
      db.tx('supply.supplier', async (tx) => {
        await tx.lock('org', caller.orgId);
        const row = await supply.registerSupplier(tx, caller.orgId);
        const reply: Reply = { status: 200, body: supplierView(row) };
        await settle(tx, reply);
        return reply;
      }),
  });
}

function supplierRoute({ db }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/community/supplier',
    operationId: 'getSupplier',
    tag,
    summary: 'Read your supplier account',
    scope: 'supply:read',
    idempotency: 'none',
    responses: { 200: { description: 'The supplier', schema: CommunitySupplier } },
    errors: ['not_found'],
    handler: async ({ caller }) => {
      const row = await store.supplierOfOrg(db.read, caller.orgId);
      return { status: 200, body: supplierView(row ?? fail('not_found', NO_SUPPLIER)) };
    },
  });
}

function registerRoute(deps: Deps): Route {
  const { db, supply } = deps;
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
        await tx.lock('org', caller.orgId);
        const reply = await registered(tx, await supply.registerMachine(tx, caller.orgId, declaredMachine(body)), deps);
        await settle(tx, reply);
        return reply;
      }),
  });
}

function tokenRoute(deps: Deps): Route {
  const { db, supply } = deps;
  return route({
    method: 'POST',
    path: '/v1/community/machines/{id}/token',
    operationId: 'reissueEnrollmentToken',
    tag,
    summary: 'Make a new enrolment token for a machine',
    description:
      'Use this for a machine that has not enrolled, or for a delisted machine that gets another host. The previous token ends.',
    scope: 'supply:write',
    idempotency: 'optional',
    secretReply: true,
    params: MachineId,
    responses: { 201: { description: 'The machine and its token', schema: CommunityMachineRegistration } },
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params, settle }) => {
      await ownMachine(db.read, caller.orgId, params.id);
      return db.tx('supply.token', async (tx) => {
        await tx.lock('machine', params.id);
        const reply = await registered(tx, await supply.reissueToken(tx, caller.orgId, params.id), deps);
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function enrollRoute({ supply }: Deps): Route {
  return route({
    method: 'POST',
    path: ENROLL_PATH,
    operationId: 'enrollHost',
    tag,
    summary: 'Bind the key of a host to a machine',
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

async function registered(
  tx: Tx,
  { machine, token }: { machine: store.MachineRow; token: string },
  deps: ViewDeps,
): Promise<Reply> {
  return { status: 201, body: { machine: await viewOf(tx, machine, deps), enrollment_token: token } };
}

function declaredMachine(body: RegisterMachine): DeclaredMachine {
  return {
    name: body.name,
    region: body.region,
    priceUcentsPerHour: priceUcents(body.price_per_hour),
    gpuType: body.gpu_type ?? null,
    gpuCount: body.gpu_count ?? null,
    vramPerGpuGb: body.vram_per_gpu_gb ?? null,
    tier: body.tier,
  };
}

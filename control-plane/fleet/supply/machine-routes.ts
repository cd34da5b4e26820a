// The machines of a supplier: list, read, change, delist and relist (specification 2.17, 3.4).
import { z } from 'zod';
import {
  ChangeMachine,
  CommunityMachine,
  CommunityMachineDelistResult,
  MachineChecklist,
  MachineName,
} from '../../../shared/api/community.ts';
import { pageParameters, pageSchema } from '../../../shared/api/page.ts';
import type { Db, Query } from '../../base/db/db.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { type Reply, type Route, route } from '../../base/http/route.ts';
import { type MachineChange, ownMachine } from './listing.ts';
import { machinesOfSupplier } from './machine-pages.ts';
import { machineChecklist, MachineId, machineViews, priceUcents, tag, type ViewDeps, viewOf } from './machine-view.ts';
import * as store from './store.ts';
import type { Supply } from './supply.ts';

interface Deps extends ViewDeps {
  db: Db;
  cursors: Cursors;
  supply: Supply;
  /** Provided by a room above: the evidence of each rental on the machine whose probes fail now. */
  failingProbes(query: Query, machineId: string): Promise<string[]>;
}

const ListQuery = z.strictObject({
  ...pageParameters,
  name: MachineName.optional().describe('Only machines with exactly this name, also delisted ones'),
  status: CommunityMachine.shape.status
    .optional()
    .describe('Only machines with this status. If left out: all, also delisted ones'),
});
const machine = { 200: { description: 'The machine', schema: CommunityMachine } };

export function machineRoutes(deps: Deps): Route[] {
  return [listRoute(deps), getRoute(deps), checksRoute(deps), changeRoute(deps), delistRoute(deps), relistRoute(deps)];
}

function listRoute(deps: Deps): Route {
  const { db, cursors } = deps;
  return route({
    method: 'GET',
    path: '/v1/community/machines',
    operationId: 'listMachines',
    tag,
    summary: 'List your machines, newest first',
    scope: 'supply:read',
    idempotency: 'none',
    query: ListQuery,
    responses: { 200: { description: 'A page of machines', schema: pageSchema(CommunityMachine) } },
    errors: [],
    handler: async ({ caller, query }) => {
      const { name, status } = query;
      const filters = `${name === undefined ? '' : `/${name}`}${status === undefined ? '' : `?${status}`}`;
      const rows = async (start: PageStart) => {
        const supplier = await store.supplierOfOrg(db.read, caller.orgId);
        const machines =
          supplier === undefined ? [] : await machinesOfSupplier(db.read, supplier.id, { ...start, name, status });
        const views = await machineViews(db.read, machines, deps);
        return machines.flatMap((row, i) => (views[i] === undefined ? [] : [{ row, view: views[i] }]));
      };
      const body = await cursors.page(`machines/${caller.orgId}${filters}`, query, rows, {
        at: ({ row }) => byCreation(row),
        show: ({ view }) => view,
      });
      return { status: 200, body };
    },
  });
}

function getRoute(deps: Deps): Route {
  const { db } = deps;
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}',
    operationId: 'getMachine',
    tag,
    summary: 'Read one of your machines',
    scope: 'supply:read',
    idempotency: 'none',
    params: MachineId,
    responses: machine,
    errors: ['not_found'],
    handler: async ({ caller, params }) => ({
      status: 200,
      body: await viewOf(db.read, await ownMachine(db.read, caller.orgId, params.id), deps),
    }),
  });
}

function checksRoute({ db, failingProbes }: Deps): Route {
  return route({
    method: 'GET',
    path: '/v1/community/machines/{id}/checks',
    operationId: 'listMachineChecks',
    tag,
    summary: 'List the checks that decide whether a machine is on offer',
    description:
      'Each check has its state, its evidence, and what to do. The machine is on offer if all required checks have passed. Otherwise its `status_reason` is the first required check that has not passed.',
    scope: 'supply:read',
    idempotency: 'none',
    params: MachineId,
    responses: { 200: { description: 'The checks, in the order in which they decide', schema: MachineChecklist } },
    errors: ['not_found'],
    handler: async ({ caller, params }) => {
      const row = await ownMachine(db.read, caller.orgId, params.id);
      return { status: 200, body: await machineChecklist(db.read, row, await failingProbes(db.read, row.id)) };
    },
  });
}

function changeRoute(deps: Deps): Route {
  const { db, supply } = deps;
  return route({
    method: 'PATCH',
    path: '/v1/community/machines/{id}',
    operationId: 'changeMachine',
    tag,
    summary: 'Change the name, price, tier, region, declared GPUs or last time on offer of a machine',
    description: 'Rentals that run keep their price.',
    scope: 'supply:write',
    idempotency: 'optional',
    params: MachineId,
    body: ChangeMachine,
    responses: machine,
    errors: ['not_found', 'conflict'],
    handler: async ({ caller, params, body, settle }) => {
      await ownMachine(db.read, caller.orgId, params.id);
      return db.tx('supply.change', async (tx) => {
        await tx.lock('machine', params.id);
        const reply: Reply = {
          status: 200,
          body: await viewOf(tx, await supply.change(tx, caller.orgId, params.id, changeOf(body)), deps),
        };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function delistRoute({ db, supply }: Deps): Route {
  return route({
    method: 'DELETE',
    path: '/v1/community/machines/{id}',
    operationId: 'delistMachine',
    tag,
    summary: 'Take a machine out of supply',
    description:
      'No new rental is placed on the machine from now on. Running rentals continue until they end. The machine stays enrolled and can be listed again. Repeat the request to see whether it is still `draining`.',
    scope: 'supply:write',
    idempotency: 'optional',
    params: MachineId,
    responses: {
      200: {
        description: 'Whether the machine is still draining or is delisted',
        schema: CommunityMachineDelistResult,
      },
    },
    errors: ['not_found'],
    handler: async ({ caller, params, settle }) => {
      await ownMachine(db.read, caller.orgId, params.id);
      return db.tx('supply.delist', async (tx) => {
        await tx.lock('machine', params.id);
        const status = await supply.delist(tx, caller.orgId, params.id);
        const reply: Reply = { status: 200, body: { machine_id: params.id, status } };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function relistRoute(deps: Deps): Route {
  const { db, supply } = deps;
  return route({
    method: 'POST',
    path: '/v1/community/machines/{id}/list',
    operationId: 'relistMachine',
    tag,
    summary: 'List a delisted machine again',
    description:
      'If the operator has approved the machine, it is listed again at once. Otherwise it waits for the approval. If the machine is not delisted, nothing happens.',
    scope: 'supply:write',
    idempotency: 'optional',
    params: MachineId,
    responses: machine,
    errors: ['not_found'],
    handler: async ({ caller, params, settle }) => {
      await ownMachine(db.read, caller.orgId, params.id);
      return db.tx('supply.relist', async (tx) => {
        await tx.lock('machine', params.id);
        const reply: Reply = {
          status: 200,
          body: await viewOf(tx, await supply.relist(tx, caller.orgId, params.id), deps),
        };
        await settle(tx, reply);
        return reply;
      });
    },
  });
}

function changeOf(body: ChangeMachine): MachineChange {
  const { name, price_per_hour: price, gpu_type: type, gpu_count: count, vram_per_gpu_gb: vramGb, region, tier } = body;
  const { rentable_until: until } = body;
  return {
    ...(name === undefined ? {} : { name }),
    ...(price === undefined ? {} : { price_ucents_per_hour: priceUcents(price) }),
    ...(region === undefined ? {} : { region }),
    ...(tier === undefined ? {} : { tier }),
    ...(until === undefined ? {} : { rentable_until_ms: until === null ? null : Date.parse(until) }),
    ...(type === undefined ? {} : { declared_gpu_type: type }),
    ...(count === undefined ? {} : { declared_gpu_count: count }),
    ...(vramGb === undefined ? {} : { declared_vram_per_gpu_gb: vramGb }),
  };
}

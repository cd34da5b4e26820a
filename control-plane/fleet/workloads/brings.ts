// What this room adds to the house: a route of suppliers, operator routes, and retention.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { WorkloadId } from '../../../shared/protocol/workload.ts';
import { type Db, sql } from '../../base/db/db.ts';
import { type Forgets, inPieces, type Piece } from '../../base/db/pieces.ts';
import { AnyFields, Id, operator } from '../../base/http/operator.ts';
import { type Route, route } from '../../base/http/route.ts';
import { machineFields } from '../supply/operator-routes.ts';
import { machineRentalsRoute, type RentalDeps } from './rental-route.ts';
import type { Workloads } from './workloads.ts';

interface Deps extends RentalDeps {
  clock: Clock;
  workloads: Workloads;
  /** Sends the desired state to a machine. */
  push(machineId: string): void;
  /** Workloads are deleted this long after nothing was left of them on their host. */
  keepMs: number;
}

export function workloadsBrings(deps: Deps) {
  const { db, clock, keepMs } = deps;
  const forgets: Forgets = {
    what: 'workloads',
    run: (signal) => inPieces(clock.now() - keepMs, (piece) => forgetWorkloads(db, piece), signal),
  };
  return {
    routes: [machineRentalsRoute(deps)],
    forgets: [forgets],
    operatorRoutes: [removeUnknownRoute(deps), loseHostRoute(deps)],
  };
}

function removeUnknownRoute({ workloads, push }: Deps): Route {
  return route({
    ...operator,
    method: 'DELETE',
    path: '/admin/machines/{id}/unknown-workloads/{workload_id}',
    operationId: 'adminRemoveUnknownWorkload',
    summary: 'Remove a container that runs on a machine but is not in the database',
    params: Id.extend({ workload_id: WorkloadId }),
    responses: { 200: { description: 'The desired state of the container', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params: { id, workload_id: workloadId } }) => {
      await workloads.removeUnknown(id, workloadId);
      push(id);
      return { status: 200, body: { machine_id: id, workload_id: workloadId, desired: 'removed' } };
    },
  });
}

function loseHostRoute({ workloads }: Deps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: '/admin/machines/{id}/lost',
    operationId: 'adminLoseMachine',
    summary: 'Declare that the host of a machine is lost for good, with what it ran',
    params: Id,
    body: z.strictObject({ reason: z.string().min(1).max(500) }),
    responses: { 200: { description: 'The machine', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ params, body }) => ({
      status: 200,
      body: machineFields(await workloads.loseHost(params.id, body.reason)),
    }),
  });
}

/** A tombstone that its host has not confirmed is kept, however old it is. */
function forgetWorkloads(db: Db, { untilMs, limit }: Piece): Promise<number> {
  return db.tx('workloads.forget', (tx) =>
    tx.run(
      sql`delete from workloads where id in (
            select id from workloads where state = 'gone' and changed_ms <= ${untilMs} order by changed_ms limit ${limit})`,
    ),
  );
}

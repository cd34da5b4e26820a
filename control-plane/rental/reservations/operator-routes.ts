// The operator's routes for reservation contracts.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { NewReservation } from '../../../shared/api/reservation.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import { byCreation, type Cursors } from '../../base/http/cursors.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { OperatorView, Reservations } from './reservations.ts';
import { AnyFields, type Fields, Id, ListQuery, operationOf, operator } from '../../base/http/operator.ts';

/** The verbs and their summaries. Each is a POST without a body. */
export const RESERVATION_VERBS = {
  suspend: 'refuse new launches; running instances continue, and the GPUs stay set aside',
  resume: 'end a suspension',
  cancel: 'end the contract permanently; running instances continue, and all other GPUs are on offer again',
  reassign: 'replace unused GPUs whose host is offline or delisted with free GPUs of the same type and region',
} as const;

const BASE = '/admin/reservations';
const contract = { 200: { description: 'The contract', schema: AnyFields } };

interface Deps {
  cursors: Cursors;
  reservations: Reservations;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
}

export function reservationOperatorRoutes(deps: Deps): Route[] {
  const { reservations } = deps;
  return [
    createRoute(deps),
    listRoute(deps),
    showRoute(reservations),
    extendRoute(reservations),
    ...verbRoutes(reservations),
  ];
}

function createRoute({ reservations, assertOrg }: Deps): Route {
  return route({
    ...operator,
    method: 'POST',
    path: BASE,
    operationId: 'adminCreateReservation',
    summary: 'Make a reservation contract. Its GPUs are set aside at its lead time',
    body: NewReservation,
    responses: { 201: { description: 'The contract', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ body }) => {
      await assertOrg(body.org_id);
      return { status: 201, body: reservationFields(await reservations.create(body)) };
    },
  });
}

function listRoute({ cursors, reservations }: Deps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListReservations',
    summary: 'List reservation contracts, newest first',
    query: ListQuery,
    responses: { 200: { description: 'A page', schema: pageSchema(AnyFields) } },
    errors: [],
    handler: async ({ query }) => ({
      status: 200,
      body: await cursors.page('admin/reservations', query, reservations.list, {
        at: ({ contract }) => byCreation(contract),
        show: reservationFields,
      }),
    }),
  });
}

function showRoute(reservations: Reservations): Route {
  return route({
    ...operator,
    method: 'GET',
    path: `${BASE}/{id}`,
    operationId: 'adminShowReservation',
    summary: 'Show a reservation contract',
    params: Id,
    responses: contract,
    errors: ['not_found'],
    handler: async ({ params }) => ({ status: 200, body: reservationFields(await reservations.show(params.id)) }),
  });
}

function extendRoute(reservations: Reservations): Route {
  return route({
    ...operator,
    method: 'POST',
    path: `${BASE}/{id}/extend`,
    operationId: 'adminExtendReservation',
    summary: 'Move the end of the term to a later time',
    params: Id,
    body: z.strictObject({ ends_at: z.iso.datetime({ offset: true }) }),
    responses: contract,
    errors: ['not_found', 'conflict'],
    handler: async ({ params, body }) => ({
      status: 200,
      body: reservationFields(await reservations.extend(params.id, Date.parse(body.ends_at))),
    }),
  });
}

function verbRoutes(reservations: Reservations): Route[] {
  return (Object.keys(RESERVATION_VERBS) as (keyof typeof RESERVATION_VERBS)[]).map((verb) =>
    route({
      ...operator,
      method: 'POST',
      path: `${BASE}/{id}/${verb}`,
      operationId: operationOf(verb, 'Reservation'),
      summary: RESERVATION_VERBS[verb],
      params: Id,
      responses: contract,
      errors: ['not_found', 'conflict'],
      handler: async ({ params }) => ({ status: 200, body: reservationFields(await reservations[verb](params.id)) }),
    }),
  );
}

function reservationFields({ contract, slots, awaited, claimMs, outlook }: OperatorView): Fields {
  const sum = (numberOf: (machine: OperatorView['slots'][number]) => number): number =>
    slots.reduce((total, machine) => total + numberOf(machine), 0);
  const entries = contract.commitment.map((entry) => `${entry.gpu_count} ${entry.gpu_type} in ${entry.region}`);
  return {
    reservation_id: contract.id,
    org_id: contract.org_id,
    title: contract.title,
    status: contract.status,
    starts_at: isoTime(contract.starts_ms),
    ends_at: isoTime(contract.ends_ms),
    renewal: contract.renewal,
    commitment: entries.join(', '),
    // From this time on, the GPUs of the contract are off the market: free ones at once, used ones when they come free.
    set_aside_at: isoTime(claimMs),
    set_aside: placesText(slots.map((machine) => ({ ...machine, count: machine.slots }))),
    missing: awaited,
    // The number of GPUs that the contract would find before `set_aside_at` if all used GPUs stayed in use.
    free_at_start:
      outlook === null
        ? null
        : placesText(
            outlook.free.map(({ machineId: machine_id, gpuType: gpu_type, count }) => ({
              machine_id,
              gpu_type,
              count,
            })),
          ),
    missing_at_start: outlook?.missing ?? null,
    machines: slots.length,
    slots: sum((machine) => machine.slots),
    in_use: sum((machine) => machine.in_use),
    free: sum((machine) => machine.free),
    // Slots on hosts that are offline, delisted or suspended. `reassign` replaces those that are not in use.
    on_unlisted_hosts: sum((machine) => (machine.listed ? 0 : machine.slots)),
  };
}

function placesText(places: readonly { machine_id: string; gpu_type: string; count: number }[]): string {
  return places.map((place) => `${place.count} ${place.gpu_type} on ${place.machine_id}`).join(', ') || 'none';
}

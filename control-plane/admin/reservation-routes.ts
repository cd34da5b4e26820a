// The operator's routes for reservation contracts.
import { z } from 'zod';
import { NewReservation } from '../../shared/api/reservation.ts';
import { type Route, route } from '../base/http/route.ts';
import { AnyFields, type Fields, Id, listOf, operationOf, operator } from './fields.ts';

/** Each answers the contract as it is afterwards. @throws ServiceError `not_found`, `conflict`, `validation_failed` */
export interface ReservationCommands {
  create(request: NewReservation): Promise<Fields>;
  list(): Promise<Fields[]>;
  show(id: string): Promise<Fields>;
  suspend(id: string): Promise<Fields>;
  resume(id: string): Promise<Fields>;
  cancel(id: string): Promise<Fields>;
  reassign(id: string): Promise<Fields>;
  extend(id: string, untilMs: number): Promise<Fields>;
}

/** Verb -> what it does; each is a POST without a body. */
export const RESERVATION_VERBS = {
  suspend: 'refuse new launches; what runs goes on, the GPUs stay set aside',
  resume: 'end a suspension',
  cancel: 'end the contract for good; what runs goes on, all other GPUs are on offer again',
  reassign: 'replace unused GPUs whose host is offline or delisted by free ones of the same type and region',
} as const;

const BASE = '/admin/reservations';
const contract = { 200: { description: 'The contract', schema: AnyFields } };

export function reservationAdminRoutes(reservations: ReservationCommands): Route[] {
  return [
    createRoute(reservations),
    listRoute(reservations),
    showRoute(reservations),
    extendRoute(reservations),
    ...verbRoutes(reservations),
  ];
}

function createRoute(reservations: ReservationCommands): Route {
  return route({
    ...operator,
    method: 'POST',
    path: BASE,
    operationId: 'adminCreateReservation',
    summary: 'Make a reservation contract, whose GPUs are set aside at its lead time',
    body: NewReservation,
    responses: { 201: { description: 'The contract', schema: AnyFields } },
    errors: ['not_found', 'conflict'],
    handler: async ({ body }) => ({ status: 201, body: await reservations.create(body) }),
  });
}

function listRoute(reservations: ReservationCommands): Route {
  return route({
    ...operator,
    method: 'GET',
    path: BASE,
    operationId: 'adminListReservations',
    summary: 'List reservation contracts, newest first',
    responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
    errors: [],
    handler: async () => ({ status: 200, body: { data: await reservations.list() } }),
  });
}

function showRoute(reservations: ReservationCommands): Route {
  return route({
    ...operator,
    method: 'GET',
    path: `${BASE}/{id}`,
    operationId: 'adminShowReservation',
    summary: 'Show a reservation contract',
    params: Id,
    responses: contract,
    errors: ['not_found'],
    handler: async ({ params }) => ({ status: 200, body: await reservations.show(params.id) }),
  });
}

function extendRoute(reservations: ReservationCommands): Route {
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
      body: await reservations.extend(params.id, Date.parse(body.ends_at)),
    }),
  });
}

function verbRoutes(reservations: ReservationCommands): Route[] {
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
      handler: async ({ params }) => ({ status: 200, body: await reservations[verb](params.id) }),
    }),
  );
}

// GET /v1/reservations (specification 4.4).
import { z } from 'zod';
import { Reservation } from '../../../shared/api/reservation.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Reservations } from './reservations.ts';

export function reservationRoutes({ reservations }: { reservations: Reservations }): Route[] {
  return [
    route({
      method: 'GET',
      path: '/v1/reservations',
      operationId: 'listReservations',
      tag: 'Reservations',
      summary: 'List the reservation contracts of the organisation, newest first',
      description:
        'The answer is a plain array, not a page. Only the operator makes contracts. To launch under a contract, use POST /v1/instances with tier reserved.',
      scope: 'instances:read',
      idempotency: 'none',
      responses: {
        200: { description: 'All contracts, including contracts that have ended', schema: z.array(Reservation) },
      },
      errors: [],
      handler: async ({ caller }) => ({ status: 200, body: await reservations.ofOrg(caller.orgId) }),
    }),
  ];
}

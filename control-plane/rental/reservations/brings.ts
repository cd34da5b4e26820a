// What this room brings to the house.
import { reservationOperatorRoutes } from './operator-routes.ts';
import type { Reservations } from './reservations.ts';
import { reservationRoutes } from './routes.ts';

interface Deps {
  reservations: Reservations;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
}

export function reservationsBrings({ reservations, assertOrg }: Deps) {
  return {
    routes: reservationRoutes({ reservations }),
    operatorRoutes: reservationOperatorRoutes({ reservations, assertOrg }),
    drivers: [reservations.driver],
  };
}

// What this room brings to the house.
import { reservationOperatorRoutes } from './operator-routes.ts';
import type { Feed } from '../../base/events/events.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Reservations } from './reservations.ts';
import { reservationRoutes } from './routes.ts';

interface Deps {
  cursors: Cursors;
  reservations: Reservations;
  /** @throws ServiceError `not_found` */
  assertOrg(orgId: string): Promise<void>;
}

export function reservationsBrings({ cursors, reservations, assertOrg }: Deps) {
  return {
    routes: reservationRoutes({ reservations }),
    operatorRoutes: reservationOperatorRoutes({ cursors, reservations, assertOrg }),
    drivers: [reservations.driver],
    feeds: [{ of: 'reservation', scope: 'instances:read', describe: reservations.describe } satisfies Feed],
  };
}

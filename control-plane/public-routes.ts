// Every route of the public listener, agents' too: what customers find in the OpenAPI document, and what tests walk through.
import type { Clock } from '../shared/clock.ts';
import type { Ids } from '../shared/ids.ts';
import { apiKeyRoutes } from './base/accounts/api-key-routes.ts';
import { sshKeyRoutes } from './base/accounts/routes.ts';
import { blobRoutes } from './base/blobs/routes.ts';
import type { Db } from './base/db/db.ts';
import type { Cursors } from './base/http/cursors.ts';
import type { Route } from './base/http/route.ts';
import { operationRoutes } from './base/operations/routes.ts';
import { catalogRoutes } from './fleet/supply/catalog-routes.ts';
import { machineRoutes } from './fleet/supply/machine-routes.ts';
import { supplyRoutes } from './fleet/supply/routes.ts';
import { supplierOfOrg } from './fleet/supply/store.ts';
import { modelRoutes } from './models/catalog/routes.ts';
import { fileRoutes } from './models/files/routes.ts';
import { receiptRoutes } from './models/gateway/receipt-routes.ts';
import { gatewayRoutes } from './models/gateway/routes.ts';
import { videoRoutes } from './models/videos/routes.ts';
import { billingRoutes } from './money/metering/routes.ts';
import { payoutRoutes } from './money/payouts/routes.ts';
import { edgeRoutes } from './rental/edge/routes.ts';
import { instanceRoutes } from './rental/instances/routes.ts';
import { machinesOf } from './rental/instances/store.ts';
import { menuRoutes } from './rental/launch/menu-routes.ts';
import { registryCredentialRoutes } from './rental/launch/routes.ts';
import { reservationRoutes } from './rental/reservations/routes.ts';
import { webhookRoutes } from './rental/webhooks/routes.ts';
import type { Rooms } from './rooms.ts';

export function publicRoutes(deps: Rooms & { db: Db; clock: Clock; ids: Ids; cursors: Cursors }): Route[] {
  return [
    ...catalogRoutes(deps),
    ...blobRoutes(deps),
    ...menuRoutes(deps),
    ...apiKeyRoutes(deps),
    ...sshKeyRoutes(deps),
    ...registryCredentialRoutes(deps),
    ...instanceRoutes(deps),
    ...reservationRoutes(deps),
    ...edgeRoutes(deps),
    ...operationRoutes(deps),
    ...webhookRoutes(deps),
    ...modelRoutes(deps),
    ...gatewayRoutes(deps),
    ...videoRoutes(deps),
    ...fileRoutes(deps),
    ...billingRoutes(deps),
    ...receiptRoutes(deps),
    ...supplyRoutes({ ...deps, machinesOf }),
    ...machineRoutes({ ...deps, machinesOf }),
    ...payoutRoutes({
      ...deps,
      machinesOf,
      supplierOf: async (query, orgId) => (await supplierOfOrg(query, orgId))?.id,
    }),
  ];
}

// What this room brings to the house.
import type { Query } from '../../base/db/db.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import { type Endpoints, FREE_COUNTED_MAX } from './endpoints.ts';

export function endpointsBrings({ db, endpoints }: { db: { read: Query }; endpoints: Endpoints }) {
  const free: Measure = {
    name: 'svc_public_ports_free',
    help: `Public ports that no instance has; at most ${FREE_COUNTED_MAX} are counted. Each instance needs one for SSH, and one for each TCP port`,
    kind: 'gauge',
    read: async () => one(await endpoints.countFree(db.read)),
  };
  return { measures: [free] };
}

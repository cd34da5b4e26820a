// What this room brings to the house.
import type { Db } from '../../base/db/db.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { LaunchRoom } from './launch.ts';
import { presetRoutes, registryCredentialRoutes } from './routes.ts';

export function launchBrings({ db, cursors, launch }: { db: Db; cursors: Cursors; launch: LaunchRoom }) {
  return { routes: [...presetRoutes({ launch, cursors }), ...registryCredentialRoutes({ db, launch, cursors })] };
}

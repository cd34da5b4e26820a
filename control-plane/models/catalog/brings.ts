// What this room brings to the house.
import { type CatalogRoutesDeps, modelRoutes } from './routes.ts';

export function catalogBrings(deps: CatalogRoutesDeps) {
  return { routes: modelRoutes(deps) };
}

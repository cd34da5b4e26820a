// What this room brings to the house.
import type { Catalog } from './catalog.ts';
import { modelRoutes } from './routes.ts';

export function catalogBrings({ catalog }: { catalog: Catalog }) {
  return { routes: modelRoutes({ catalog }) };
}

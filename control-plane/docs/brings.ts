// What this room adds to the house.
import type { Manual } from './manual.ts';
import { docsRoutes } from './routes.ts';

export function docsBrings({ manual }: { manual: Manual }) {
  return { routes: docsRoutes({ manual }) };
}

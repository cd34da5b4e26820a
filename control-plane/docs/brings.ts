// The routes that the manual adds to the control plane.
import type { Manual } from './manual.ts';
import { docsRoutes } from './routes.ts';

export function docsBrings({ manual }: { manual: Manual }) {
  return { routes: docsRoutes({ manual }) };
}

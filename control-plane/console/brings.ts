// The routes that the console adds to the control plane.
import type { Console } from './console.ts';
import { consoleRoutes } from './routes.ts';

export function consoleBrings({ console }: { console: Console }) {
  return { routes: consoleRoutes(console) };
}

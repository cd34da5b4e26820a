// What this room adds to the house.
import type { Console } from './console.ts';
import { consoleRoutes } from './routes.ts';

export function consoleBrings({ console }: { console: Console }) {
  return { routes: consoleRoutes(console) };
}

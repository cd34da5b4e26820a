// What this room brings to the house.
import type { Logs } from './logs.ts';
import { type JournalRouteDeps, journalRoutes } from './routes.ts';

export function journalBrings(deps: JournalRouteDeps & { logs: Logs }) {
  return { routes: journalRoutes(deps), leave: async () => deps.logs.close() };
}

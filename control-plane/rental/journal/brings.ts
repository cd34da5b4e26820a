// What this room brings to the house.
import type { Logs } from './logs.ts';
import type { Forgets } from '../../base/db/pieces.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Live } from './live.ts';
import { liveRoute, type LiveRouteDeps } from './live-routes.ts';
import { type JournalRouteDeps, journalRoutes } from './routes.ts';

/** How long an event may wait until the readers of the live stream get it. */
const TAIL_PERIOD_MS = 250;

export function journalBrings(deps: JournalRouteDeps & LiveRouteDeps & { logs: Logs }) {
  const { live, logs } = deps;
  const forgets: Forgets = { what: 'kept_logs', run: logs.forget };
  const loop = { name: 'live-events', periodMs: TAIL_PERIOD_MS, run: () => live.tick(), everywhere: true };
  return {
    routes: [...journalRoutes(deps), liveRoute(deps)],
    loops: [loop],
    forgets: [forgets],
    measures: measures(live),
    leave: async () => {
      live.close();
      logs.close();
    },
  };
}

function measures(live: Live): Measure[] {
  return [
    {
      name: 'svc_event_streams',
      help: 'Streams of events that are open',
      kind: 'gauge',
      everywhere: true,
      read: () => one(live.counts().open),
    },
    {
      name: 'svc_event_stream_resyncs_total',
      help: 'Times that a stream of events lost some, and its reader was told to read its lists again',
      kind: 'counter',
      everywhere: true,
      read: () => one(live.counts().resyncs),
    },
  ];
}

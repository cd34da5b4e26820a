// The process around the rooms of a small world, and the operator's server in it: every operator route, without a socket.
import { openAdmin } from '../../control-plane/admin/admin.ts';
import type { Audit } from '../../control-plane/admin/audit.ts';
import { brought, type Process } from '../../control-plane/brings.ts';
import { openCursors } from '../../control-plane/base/http/cursors.ts';
import { openMetrics } from '../../control-plane/base/http/metrics.ts';
import type { Route } from '../../control-plane/base/http/route.ts';
import type { Http, InjectedRequest } from '../../control-plane/base/http/server.ts';
import { createIds } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { seededRng } from '../../shared/rng.ts';
import type { World } from './world.ts';

export interface Operator {
  http: Http;
  routes: readonly Route[];
  /** The answer's body. @throws with the `code` and `detail` of a refusal */
  ask(method: InjectedRequest['method'], url: string, payload?: object): Promise<Record<string, unknown>>;
}

/** The process around the rooms: it has no loops and no files. */
export function processAround(audit: Audit): Process {
  return {
    cursors: openCursors(new Uint8Array(32).fill(3)),
    keep: { events_days: 400, operations_days: 90, workloads_days: 30, receipts_days: 90 },
    audit,
    metrics: openMetrics(),
    manual: { headers: {}, page: () => undefined, markdown: () => undefined, llms: () => '' },
    console: { page: undefined, asset: () => undefined },
    loops: () => [],
    driven: () => new Map(),
    startedMs: 0,
    epoch: () => 1,
    primacy: () => ({ sinceMs: 5_000, how: 'start' }),
    reload: async () => ({}),
  };
}

/** `change` may replace a route before it is served. */
export function openOperator(
  world: World,
  own: Partial<Process> = {},
  change: (route: Route) => Route = (route) => route,
): Operator {
  const { db, clock, audit } = world;
  const metrics = own.metrics ?? openMetrics();
  const routes = brought(world.brings({ metrics, ...own }), 'operatorRoutes').map(change);
  const ids = createIds(clock, seededRng(2));
  const log = createLog('test', 'silent');
  const http = openAdmin(routes, audit, { db, clock, ids, log, metrics, ready: async () => [], hasRoom: () => true });
  return {
    http,
    routes,
    ask: async (method, url, payload) => {
      const reply = await http.inject({ method, url, ...(payload === undefined ? {} : { payload }) });
      const body = JSON.parse(reply.body) as Record<string, unknown>;
      if (reply.status >= 400) throw Object.assign(new Error(String(body['detail'])), body);
      return body;
    },
  };
}

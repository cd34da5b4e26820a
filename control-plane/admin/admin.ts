// The operator's server: it has only the operator's routes and listens on a unix socket.
import { type Http, type HttpDeps, openHttp } from '../base/http/server.ts';
import type { Route } from '../base/http/route.ts';
import type { Audit } from './audit.ts';
import { audited } from './audit-routes.ts';

/** Use `listen` for a unix socket. `inject` needs no socket: commands use it while the daemon is stopped. */
export function openAdmin(routes: readonly Route[], audit: Audit, core: Omit<HttpDeps, 'authenticate'>): Http {
  const deps: HttpDeps = { ...core, authenticate: async () => undefined };
  // Without API keys there are no Idempotency-Keys, so the epoch is never used.
  const http = openHttp(deps, { epoch: 0, audience: 'operator', baseUrl: 'http://localhost/v1', trustProxy: [] });
  http.register(audited(routes, audit));
  return http;
}

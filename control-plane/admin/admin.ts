// The operator's server: it has nothing but the operator's routes, and listens on a unix socket.
import { type Http, type HttpDeps, openHttp } from '../base/http/server.ts';
import type { Route } from '../base/http/route.ts';
import type { Audit } from './audit.ts';
import { audited } from './audit-routes.ts';

/** `listen` it on a unix socket; `inject` asks it without one, which is how commands work while the daemon is stopped. */
export function openAdmin(routes: readonly Route[], audit: Audit, core: Omit<HttpDeps, 'authenticate'>): Http {
  const deps: HttpDeps = { ...core, authenticate: async () => undefined };
  // No API keys, so no Idempotency-Keys: the epoch is never looked at.
  const http = openHttp(deps, { epoch: 0, audience: 'operator', baseUrl: 'http://localhost/v1', trustProxy: [] });
  http.register(audited(routes, audit));
  return http;
}

// The operator's server: it has only the operator's routes and listens on a unix socket. Every route writes to the audit journal, and one reads it.
// People who have signed in use the same routes on the public listener: `/admin/orgs` of the socket is `/admin/v1/orgs` there. The socket stays for
// emergencies, when nobody can sign in.
import { z } from 'zod';
import { type Http, type HttpDeps, openHttp } from '../base/http/server.ts';
import { type Route, route, type Caller } from '../base/http/route.ts';
import type { Audit, AuditEntry } from './audit.ts';
import { isoTime } from '../../shared/clock.ts';
import type { Db } from '../base/db/db.ts';
import { listParameters, operator } from '../base/http/operator.ts';
import type { Cursors, PageStart } from '../base/http/cursors.ts';
import { pageSchema } from '../../shared/api/page.ts';
import { fail } from '../../shared/errors.ts';

/** Use `listen` for a unix socket. `inject` needs no socket: commands use it while the daemon is stopped. */
export function openAdmin(routes: readonly Route[], audit: Audit, core: Omit<HttpDeps, 'authenticate'>): Http {
  const deps: HttpDeps = { ...core, authenticate: async () => undefined };
  // Without API keys there are no Idempotency-Keys here, so the epoch is never used.
  const http = openHttp(deps, { epoch: () => 0, audience: 'operator', baseUrl: 'http://localhost/v1', trustProxy: [] });
  http.register(audited(routes, audit));
  return http;
}

const Parameters = z.record(z.string(), z.unknown()).optional();
const Subject = z.looseObject({ id: z.string().optional(), org_id: z.string().optional() });
const Made = z.looseObject({ id: z.string().optional(), reservation_id: z.string().optional() });

const Entry = z.strictObject({
  at: z.string(),
  actor: z.string(),
  operation: z.string(),
  subject: z.string().nullable(),
  parameters: z.record(z.string(), z.unknown()),
  /** `ok`, or the code of the error. */
  outcome: z.string(),
  request_id: z.string(),
});

interface AuditDeps {
  db: Db;
  cursors: Cursors;
  audit: Pick<Audit, 'list'>;
}

export function auditRoute({ db, cursors, audit }: AuditDeps): Route {
  return route({
    ...operator,
    method: 'GET',
    path: '/admin/audit',
    operationId: 'adminListAudit',
    summary: 'What operators did, newest first',
    query: z.strictObject({
      ...listParameters,
      since: z.iso.datetime({ offset: true }).optional(),
      actor: z.string().optional(),
      operation: z.string().optional(),
      subject: z.string().optional(),
    }),
    responses: { 200: { description: 'A page of entries', schema: pageSchema(Entry) } },
    errors: [],
    handler: async ({ query }) => {
      const { actor, operation, subject: subjectId } = query;
      const sinceMs = query.since === undefined ? 0 : Date.parse(query.since);
      const which = { sinceMs, actor, operation, subjectId };
      const rows = (start: PageStart) => audit.list(db.read, which, start);
      const at = ({ at_ms: createdMs, id }: AuditEntry) => ({ createdMs, id });
      return {
        status: 200,
        body: await cursors.page(`admin/audit/${JSON.stringify(which)}`, query, rows, { at, show: entryView }),
      };
    },
  });
}

const OF_SOCKET = /^\/(admin\/)?/;

/**
 * Each route needs the session of a person who operates this installation and has a second factor. A route that changes something also needs a
 * confirmation of the last ten minutes. Its entry in the audit journal has the person's e-mail address, which no header can change.
 */
export function operatorSessionRoutes(routes: readonly Route[], audit: Pick<Audit, 'run' | 'assertPresent'>): Route[] {
  return audited(routes, audit).map((each) => ({
    ...each,
    path: each.path.replace(OF_SOCKET, '/admin/v1/'),
    scope: 'session',
    // Many of them show or change the process that has the loops and the links.
    everywhere: false,
    stepUp: each.method !== 'GET',
    errors: [...each.errors, 'insufficient_scope', 'second_factor_required'],
    handler: async (call) => {
      const actor = operatorOf(call.caller);
      // A request is let in before its body comes. Whoever has stolen a session could hold bodies back until it has ended.
      if (each.method !== 'GET') await audit.assertPresent(call.caller);
      return each.handler({ ...call, actor });
    },
  }));
}

function entryView(entry: AuditEntry): z.infer<typeof Entry> {
  return {
    at: isoTime(entry.at_ms),
    actor: entry.actor,
    operation: entry.operation,
    subject: entry.subject_id,
    parameters: entry.parameters,
    outcome: entry.outcome,
    request_id: entry.request_id,
  };
}

/** The same routes with the audit journal: each route except a GET writes an entry to it once its request is well-formed. */
function audited(routes: readonly Route[], audit: Pick<Audit, 'run'>): Route[] {
  return routes.map((each) => {
    if (each.method === 'GET') return each;
    return {
      ...each,
      handler: (call) => {
        const parameters = { ...Parameters.parse(call.params), ...Parameters.parse(call.body) };
        const { id, org_id: orgId } = Subject.parse(parameters);
        const { requestId, actor } = call;
        return audit.run(
          { actor, operation: each.operationId, subjectId: id ?? null, parameters, requestId },
          () => each.handler(call),
          ({ body }) => idIn(body) ?? orgId ?? null,
        );
      },
    };
  });
}

function idIn(body: unknown): string | undefined {
  const made = Made.safeParse(body);
  return made.success ? (made.data.id ?? made.data.reservation_id) : undefined;
}

/** @throws ServiceError `insufficient_scope`, `second_factor_required` */
function operatorOf({ session }: Caller): string {
  const email =
    session?.operatorEmail ?? fail('insufficient_scope', 'Only people who operate this installation may do this.');
  if (session?.mustEnrol === true)
    fail('second_factor_required', 'Set up a second factor first, in the console or with POST /v1/auth/totp.');
  return email;
}

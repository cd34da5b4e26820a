// The operator's server: it has only the operator's routes and listens on a unix socket. Every route writes to the audit journal, and one reads it.
import { type Http, type HttpDeps, openHttp } from '../base/http/server.ts';
import { type Route, route } from '../base/http/route.ts';
import type { Audit, AuditEntry } from './audit.ts';
import { z } from 'zod';
import { isoTime } from '../../shared/clock.ts';
import type { Db } from '../base/db/db.ts';
import { listParameters, operator } from '../base/http/operator.ts';
import type { Cursors, PageStart } from '../base/http/cursors.ts';
import { pageSchema } from '../../shared/api/page.ts';

/** Use `listen` for a unix socket. `inject` needs no socket: commands use it while the daemon is stopped. */
export function openAdmin(routes: readonly Route[], audit: Audit, core: Omit<HttpDeps, 'authenticate'>): Http {
  const deps: HttpDeps = { ...core, authenticate: async () => undefined };
  // Without API keys there are no Idempotency-Keys here, so the epoch is never used.
  const http = openHttp(deps, { epoch: 0, audience: 'operator', baseUrl: 'http://localhost/v1', trustProxy: [] });
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
    query: z.strictObject({ ...listParameters, since: z.iso.datetime({ offset: true }).optional() }),
    responses: { 200: { description: 'A page of entries', schema: pageSchema(Entry) } },
    errors: [],
    handler: async ({ query }) => {
      const sinceMs = query.since === undefined ? 0 : Date.parse(query.since);
      const rows = (start: PageStart) => audit.list(db.read, sinceMs, start);
      const at = ({ at_ms: createdMs, id }: AuditEntry) => ({ createdMs, id });
      return { status: 200, body: await cursors.page(`admin/audit/${sinceMs}`, query, rows, { at, show: entryView }) };
    },
  });
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
export function audited(routes: readonly Route[], audit: Pick<Audit, 'run'>): Route[] {
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

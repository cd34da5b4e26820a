// GET /v1/instances/{id}/events and /logs: what happened to an instance, and what its container writes.
import { z } from 'zod';
import { InstanceEvent, InstanceLog, InstanceLogLine, LogQuery } from '../../../shared/api/instance-journal.ts';
import { PageQuery, pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import { LOG_LINES_MAX } from '../../../shared/limits.ts';
import type { LogLine } from '../../../shared/protocol/workload.ts';
import type { Db } from '../../base/db/db.ts';
import type { EventRow, Events } from '../../base/events/events.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { EVENT_STREAM_HEADERS, eventStream, type ServerSentEvent } from '../../base/http/event-stream.ts';
import { type Route, route } from '../../base/http/route.ts';
import type { Instances } from '../instances/instances.ts';
import type { LogRequest, Logs } from './logs.ts';

export interface JournalRouteDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  events: Events;
  instances: Instances;
  logs: Logs;
}

const InstanceId = z.strictObject({ id: z.string().describe('The instance id') });
const tag = 'Instances';

export function journalRoutes(deps: JournalRouteDeps): Route[] {
  return [eventsRoute(deps), logsRoute(deps)];
}

function eventsRoute({ db, cursors, events, instances }: JournalRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}/events',
    operationId: 'listInstanceEvents',
    tag,
    summary: 'What happened to an instance, newest first',
    scope: 'instances:read',
    idempotency: 'none',
    params: InstanceId,
    query: PageQuery,
    responses: { 200: { description: 'A page of events', schema: pageSchema(InstanceEvent) } },
    errors: ['not_found'],
    handler: async ({ caller, params, query }) => {
      await instances.get(caller.orgId, params.id);
      const list = `events/${params.id}`;
      const rows = (start: PageStart) => events.ofSubject(db.read, params.id, start);
      const body = await cursors.page(list, query, rows, { at: byCreation, show: eventView });
      return { status: 200, body };
    },
  });
}

function logsRoute({ clock, logs }: JournalRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/instances/{id}/logs',
    operationId: 'readInstanceLogs',
    tag,
    summary: 'Read or follow the log of the container',
    description:
      'The log is what the main process writes to its standard output and standard error. The host keeps the last 30 MB until the container is removed. After the end of an instance with `auto_terminate_on_exit`, the last lines can be read for some days more. An answer has at most 4 MiB of lines; the oldest ones are left out. With `follow=true` the answer is a stream of server-sent events. Each event has one line as its data. When the container has stopped, one last event `end` follows. If the stream breaks off without an `end`, send the request again with the header `Last-Event-ID`: the stream begins with the lines after that one, at most the last 1,000.',
    scope: 'instances:read',
    idempotency: 'none',
    params: InstanceId,
    query: LogQuery,
    responses: {
      200: { description: 'The last lines, oldest first', schema: InstanceLog, eventSchema: InstanceLogLine },
    },
    errors: ['not_found', 'logs_unavailable', 'unavailable'],
    handler: async ({ caller, params, query, lastEventId }) => {
      const { tail, since, follow } = query;
      if (follow === 'false')
        return { status: 200, body: { data: await logs.read(caller.orgId, params.id, { tail, since }) } };
      const { lines, stop } = await logs.follow(caller, params.id, { tail, since, ...continued(lastEventId) });
      const stream = eventStream(logEvents(lines), clock);
      stream.once('close', stop);
      return { status: 200, headers: EVENT_STREAM_HEADERS, stream };
    },
  });
}

/** What the reader of a stream that broke off wishes: all that came after its last line. @throws ServiceError `validation_failed` */
function continued(lastEventId: string | undefined): Partial<LogRequest> {
  if (lastEventId === undefined) return {};
  const { data: since } = LogQuery.shape.since.safeParse(lastEventId);
  return {
    tail: LOG_LINES_MAX,
    since: since ?? failField('Last-Event-ID', 'must be an id that a stream of this log sent'),
  };
}

async function* logEvents(lines: AsyncIterable<LogLine>): AsyncGenerator<ServerSentEvent> {
  for await (const line of lines) yield { id: line.at, data: line };
  yield { event: 'end', data: {} };
}

function eventView(row: EventRow): InstanceEvent {
  const { status, reason, since_ms: sinceMs } = row.data;
  return {
    id: row.id,
    type: row.type,
    created_at: isoTime(row.created_ms),
    status: typeof status === 'string' ? status : '',
    reason: typeof reason === 'string' ? reason : null,
    since: typeof sinceMs === 'number' ? isoTime(sinceMs) : null,
  };
}

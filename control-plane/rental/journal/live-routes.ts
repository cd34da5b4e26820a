// GET /v1/events: what happened to an organisation, as a page, or live as server-sent events.
import type { z } from 'zod';
import { AccountEvent, EventsQuery, LiveEvent } from '../../../shared/api/event.ts';
import { pageSchema } from '../../../shared/api/page.ts';
import { type Clock, isoTime } from '../../../shared/clock.ts';
import { failField } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import { type EventRow, type Events, familyOf, type Feed, type Sight, sightOf } from '../../base/events/events.ts';
import { byCreation, type Cursors, type PageStart } from '../../base/http/cursors.ts';
import { EVENT_STREAM_HEADERS, eventStream, type ServerSentEvent } from '../../base/http/event-stream.ts';
import { type Caller, type Reply, type Route, route } from '../../base/http/route.ts';
import type { Live, LiveNext } from './live.ts';

export interface LiveRouteDeps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  events: Events;
  live: Live;
  /** The feeds of all rooms: who may see their events, and how to show the resources that these are about. */
  feeds(): readonly Feed[];
}

export function liveRoute(deps: LiveRouteDeps): Route {
  return route({
    method: 'GET',
    path: '/v1/events',
    operationId: 'listEvents',
    tag: 'Events',
    summary: 'What happened to your organisation',
    description:
      'The answer is a page of events, newest first. With `Accept: text/event-stream` the answer is a stream of server-sent events. It begins with `ready`. Each change follows as it happens, with the changed resource. `resync` means that events are missing: read your lists again. To continue a stream that broke off, send the header `Last-Event-ID`. After a break, an event may come twice with the same id. An API key sees only the events of resources that its scopes let it read. Only the person who signed in and the owners see sign-ins (`session.*`). In these events `resource_id` is the person, and `resource` is null.',
    scope: 'events:read',
    idempotency: 'none',
    query: EventsQuery,
    responses: { 200: { description: 'The events', schema: pageSchema(AccountEvent), eventSchema: LiveEvent } },
    errors: ['stream_limit_exceeded'],
    handler: async ({ caller, query, accepts, lastEventId, clientIp: address }) => {
      const feeds = deps.feeds();
      const sight = sightOf(feeds, caller);
      if (!accepts.includes('text/event-stream')) return pageOf({ caller, sight, query }, deps);
      const after = lastEventId === undefined ? query.after : positionOf(lastEventId);
      const { next, stop } = deps.live.open({ caller, address, sight, after });
      const stream = eventStream(sentEvents(next, { caller, feeds }, deps), deps.clock);
      stream.once('close', stop);
      return { status: 200, headers: EVENT_STREAM_HEADERS, stream };
    },
  });
}

interface Reading {
  caller: Caller;
  feeds: readonly Feed[];
}

async function pageOf(
  { caller, sight, query }: { caller: Caller; sight: Sight; query: z.infer<typeof EventsQuery> },
  { db, cursors, events }: LiveRouteDeps,
): Promise<Reply> {
  const { families, ownFamilies, userId = '' } = sight;
  // Callers that see different events have different lists, so a cursor of one is refused by another.
  const own = ownFamilies.length === 0 ? '' : `/${ownFamilies.join()}/${userId}`;
  const list = `events/${caller.orgId}/${families.join()}${own}`;
  const rows = (start: PageStart): Promise<EventRow[]> => events.ofOrg(db.read, caller.orgId, sight, start);
  return { status: 200, body: await cursors.page(list, query, rows, { at: byCreation, show: eventView }) };
}

/** @throws ServiceError `validation_failed` */
function positionOf(lastEventId: string): string {
  const { data } = EventsQuery.shape.after.safeParse(lastEventId);
  return data ?? failField('Last-Event-ID', 'must be the id of an event, or an id that a stream sent');
}

async function* sentEvents(
  pieces: AsyncIterable<LiveNext>,
  reading: Reading,
  { db }: LiveRouteDeps,
): AsyncGenerator<ServerSentEvent> {
  for await (const piece of pieces) {
    if (piece.kind !== 'events') {
      yield { event: piece.kind, id: piece.position, data: {} };
      continue;
    }
    const described = await describe(piece.rows, reading, db);
    for (const row of piece.rows) {
      const resource = described.get(`${familyOf(row.type)}/${row.subject_id}`) ?? null;
      yield { event: row.type, id: row.id, data: { ...eventView(row), resource } satisfies LiveEvent };
    }
  }
}

/** The views of all resources of these events, by family and id. */
async function describe(rows: readonly EventRow[], { caller, feeds }: Reading, db: Db): Promise<Map<string, unknown>> {
  const described = new Map<string, unknown>();
  for (const [family, own] of Map.groupBy(rows, ({ type }) => familyOf(type))) {
    const feed = feeds.find(({ of }) => of === family);
    const ids = [...new Set(own.map(({ subject_id: id }) => id))];
    const views = (await feed?.describe(db.read, caller.orgId, ids)) ?? new Map<string, unknown>();
    for (const [id, view] of views) described.set(`${family}/${id}`, view);
  }
  return described;
}

function eventView(row: EventRow): AccountEvent {
  const { status, reason } = row.data;
  return {
    id: row.id,
    type: row.type,
    created_at: isoTime(row.created_ms),
    resource_type: familyOf(row.type),
    resource_id: row.subject_id,
    status: typeof status === 'string' ? status : null,
    reason: typeof reason === 'string' ? reason : null,
  };
}

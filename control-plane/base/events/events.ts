// Appends events to the journal and reads them. A room states as data who may see its events in the live stream, and how its resources look now.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { DepositState, FineTuningState, VideoState } from '../../../shared/states.ts';
import { int, json, text } from '../db/columns.ts';
import { join, type Query, type Tx, sql, type Sql } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import type { Caller } from '../http/route.ts';
import type { Scope } from '../http/scopes.ts';

/** All event types. The four `instance.*` lifecycle types are public (specification 6.1); the others are only for the journal. */
export type EventType =
  | 'instance.creating'
  | 'instance.running'
  | 'instance.terminated'
  | 'instance.failed'
  | 'instance.starting'
  | 'instance.placed'
  | 'instance.stopping'
  | 'instance.unreachable'
  | 'instance.recovered'
  | 'instance.gpu_broken'
  | 'instance.gpu_mended'
  | 'instance.host_leaving'
  | 'instance.credit_held'
  | 'instance.balance_low'
  | 'machine.registered'
  | 'machine.enrolled'
  | 'machine.pending'
  | 'machine.listed'
  | 'machine.draining'
  | 'machine.delisted'
  | 'machine.suspended'
  | 'machine.rentable_until'
  | 'machine.inventory_changed'
  | 'machine.inventory_approved'
  | 'supplier.destination_changed'
  | 'supplier.destination_cancelled'
  | 'reservation.pending'
  | 'reservation.active'
  | 'reservation.suspended'
  | 'reservation.expired'
  | 'reservation.cancelled'
  | 'reservation.extended'
  | 'reservation.reassigned'
  | 'reservation.short'
  | `fine_tuning_job.${FineTuningState}`
  | `video.${VideoState}`
  | 'video.deleted'
  | `deposit.${DepositState}`
  | 'session.created'
  | 'session.ended'
  | 'session.refused'
  | 'member.added'
  | 'member.changed'
  | 'member.removed'
  | 'invitation.created'
  | 'invitation.accepted'
  | 'invitation.revoked'
  | 'api_key.created'
  | 'api_key.revoked'
  | 'org.suspended'
  | 'org.resumed';

export type EventData = Record<string, string | number | boolean | null>;

export interface NewEvent {
  type: EventType;
  /** Id of the resource that the event is about. */
  subjectId: string;
  orgId: string | null;
  data: EventData;
}

const EventRow = z.object({
  id: text,
  type: text,
  subject_id: text,
  org_id: text.nullable(),
  data: json(z.record(z.string(), z.union([z.string(), z.number(), z.boolean(), z.null()]))),
  created_ms: int,
});
export type EventRow = z.infer<typeof EventRow>;

const EventTime = EventRow.pick({ id: true, created_ms: true });
type EventTime = z.infer<typeof EventTime>;

const COLUMNS = sql`id, type, subject_id, org_id, data, created_ms`;

export interface Events {
  /** Appends an event in the caller's transaction. */
  append(tx: Tx, event: NewEvent): Promise<void>;
  /** A page of the events of one subject, newest first. */
  ofSubject(query: Query, subjectId: string, start: PageStart): Promise<EventRow[]>;
  /** A page of the events of an organisation that the caller may see (`sight`), newest first. */
  ofOrg(query: Query, orgId: string, sight: Sight, start: PageStart): Promise<EventRow[]>;
  /** At most `limit` events of an organisation that were appended at `fromMs` or later, oldest first. */
  ofOrgSince(query: Query, orgId: string, from: { fromMs: number; limit: number }): Promise<EventRow[]>;
  /** The newest `limit` events of all organisations that were appended from `fromMs` to `untilMs`, newest first. */
  newestSince(query: Query, from: { fromMs: number; untilMs?: number; limit: number }): Promise<EventTime[]>;
  /** The events with these ids, oldest first. */
  byIds(query: Query, ids: readonly string[]): Promise<EventRow[]>;
  /** When the event of this organisation was appended; undefined if there is none, or it was forgotten. */
  timeOf(query: Query, orgId: string, id: string): Promise<number | undefined>;
}

interface Deps {
  clock: Clock;
  ids: Ids;
  /** Lets a room above react to an event in the same transaction, so that its writes and the event are committed together. */
  onAppend(tx: Tx, event: EventRow): Promise<void>;
}

export function openEvents({ clock, ids, onAppend }: Deps): Events {
  return {
    append: async (tx, { type, subjectId, orgId, data }) => {
      const row = {
        id: ids.prefixed('evt'),
        type,
        subject_id: subjectId,
        org_id: orgId,
        data,
        created_ms: clock.now(),
      };
      const inserted = tx.run(
        sql`insert into events (id, type, family, subject_id, org_id, data, created_ms)
            values (${row.id}, ${row.type}, ${familyOf(row.type)}, ${row.subject_id}, ${row.org_id}, ${JSON.stringify(row.data)}, ${row.created_ms})`,
      );
      await Promise.all([inserted, onAppend(tx, row)]);
    },
    ofSubject: (query, subjectId, start) =>
      query.all(
        EventRow,
        sql`select ${COLUMNS} from events
            where subject_id = ${subjectId} and ${pageFrom(start)}`,
      ),
    ofOrg: (query, orgId, sight, start) => {
      // The newest of each part, merged: other events of the organisation, which may be millions, are not read.
      const parts = partsOf(orgId, sight).map(
        (part) => sql`select * from (select id, created_ms from events where ${part} and ${pageFrom(start)}) as part`,
      );
      if (parts.length === 0) return Promise.resolve([]);
      const newest = sql`select id from (${join(parts, ' union all ')}) as parts order by created_ms desc, id desc limit ${start.count}`;
      return query.all(
        EventRow,
        sql`select ${COLUMNS} from events where id in (${newest}) order by created_ms desc, id desc`,
      );
    },
    ofOrgSince: (query, orgId, { fromMs, limit }) =>
      query.all(
        EventRow,
        sql`select ${COLUMNS} from events where org_id = ${orgId} and created_ms >= ${fromMs} order by created_ms, id limit ${limit}`,
      ),
    newestSince: (query, { fromMs, untilMs = Number.MAX_SAFE_INTEGER, limit }) =>
      query.all(
        EventTime,
        sql`select id, created_ms from events where created_ms >= ${fromMs} and created_ms <= ${untilMs} and org_id is not null
            order by created_ms desc, id desc limit ${limit}`,
      ),
    byIds: (query, ids) =>
      ids.length === 0
        ? Promise.resolve([])
        : query.all(
            EventRow,
            sql`select ${COLUMNS} from events where id in (${join([...ids])}) order by created_ms, id`,
          ),
    timeOf: async (query, orgId, id) => {
      const row = await query.one(
        EventTime,
        sql`select id, created_ms from events where id = ${id} and org_id = ${orgId}`,
      );
      return row?.created_ms;
    },
  };
}

/** One kind of resource. `of` is the first word of its event types: `instance` for `instance.running`. */
export interface Feed {
  of: string;
  /** Only a caller with this scope sees the events. */
  scope: Scope;
  /** True: the events are about a person. That person sees them without the scope. */
  isPersonal?: boolean;
  /** The present public view of each resource with one of these ids. Resources of other organisations are left out. */
  describe(query: Query, orgId: string, ids: readonly string[]): Promise<ReadonlyMap<string, unknown>>;
}

/** The events of an organisation that a caller sees. A family is the first word of an event type. */
export interface Sight {
  /** The families of which the caller sees all events. */
  families: readonly string[];
  /** The families of which the caller sees the events about its own person. */
  ownFamilies: readonly string[];
  /** Undefined for an API key. */
  userId: string | undefined;
}

/** What the caller may see of the events of these feeds. */
export function sightOf(feeds: readonly Feed[], { scopes, session }: Caller): Sight {
  const isAllowed = ({ scope }: Feed): boolean => scopes.includes(scope);
  const own = feeds.filter((feed) => feed.isPersonal === true && session !== undefined && !isAllowed(feed));
  return {
    families: feeds.filter(isAllowed).map(({ of }) => of),
    ownFamilies: own.map(({ of }) => of),
    userId: session?.userId,
  };
}

/** Whether the caller may see an event of its organisation. */
export function isInSight(
  { families, ownFamilies, userId }: Sight,
  { type, subject_id: subjectId }: { type: string; subject_id: string },
): boolean {
  const family = familyOf(type);
  return families.includes(family) || (ownFamilies.includes(family) && subjectId === userId);
}

/** The rule of `isInSight` as SQL: conditions that each have an index, and no event in common. */
function partsOf(orgId: string, { families, ownFamilies, userId }: Sight): Sql[] {
  const parts = families.map((family) => sql`org_id = ${orgId} and family = ${family}`);
  if (ownFamilies.length === 0) return parts;
  // `|| ''` keeps the index of the organisation from being used, because it would lead through the events of all its people.
  const own = sql`subject_id = ${userId ?? ''} and org_id || '' = ${orgId} and family in (${join([...ownFamilies])})`;
  return [...parts, own];
}

/** The first word of an event type. */
export function familyOf(type: string): string {
  return type.split('.', 1)[0] ?? '';
}

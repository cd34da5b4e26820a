// Appends events to the journal and reads them.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { DepositState, FineTuningState, VideoState } from '../../../shared/states.ts';
import { int, json, text } from '../db/columns.ts';
import { join, type Query, type Tx, sql } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';
import { type Sight, sightCondition } from './feeds.ts';

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
  | 'instance.credit_held'
  | 'instance.balance_low'
  | 'machine.registered'
  | 'machine.enrolled'
  | 'machine.pending'
  | 'machine.listed'
  | 'machine.draining'
  | 'machine.delisted'
  | 'machine.suspended'
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
  /** The newest `limit` events of all organisations that were appended at `fromMs` or later, newest first. */
  newestSince(query: Query, from: { fromMs: number; limit: number }): Promise<EventTime[]>;
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
        sql`insert into events (id, type, subject_id, org_id, data, created_ms)
            values (${row.id}, ${row.type}, ${row.subject_id}, ${row.org_id}, ${JSON.stringify(row.data)}, ${row.created_ms})`,
      );
      await Promise.all([inserted, onAppend(tx, row)]);
    },
    ofSubject: (query, subjectId, start) =>
      query.all(
        EventRow,
        sql`select ${COLUMNS} from events
            where subject_id = ${subjectId} and ${pageFrom(start)}`,
      ),
    ofOrg: (query, orgId, sight, start) =>
      query.all(
        EventRow,
        sql`select ${COLUMNS} from events where org_id = ${orgId} and ${sightCondition(sight)} and ${pageFrom(start)}`,
      ),
    ofOrgSince: (query, orgId, { fromMs, limit }) =>
      query.all(
        EventRow,
        sql`select ${COLUMNS} from events where org_id = ${orgId} and created_ms >= ${fromMs} order by created_ms, id limit ${limit}`,
      ),
    newestSince: (query, { fromMs, limit }) =>
      query.all(
        EventTime,
        sql`select id, created_ms from events where created_ms >= ${fromMs} and org_id is not null order by created_ms desc, id desc limit ${limit}`,
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

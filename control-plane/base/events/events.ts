// Appends events to the journal and reads them.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { int, json, text } from '../db/columns.ts';
import { type Query, type Tx, sql } from '../db/db.ts';
import { pageFrom, type PageStart } from '../http/cursors.ts';

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
  | 'reservation.pending'
  | 'reservation.active'
  | 'reservation.suspended'
  | 'reservation.expired'
  | 'reservation.cancelled'
  | 'reservation.extended'
  | 'reservation.reassigned'
  | 'reservation.short'
  | 'session.created'
  | 'session.refused'
  | 'member.added'
  | 'member.changed'
  | 'member.removed'
  | 'invitation.created'
  | 'invitation.revoked'
  | 'api_key.created'
  | 'api_key.revoked'
  | 'org.suspended'
  | 'org.resumed';

export type EventData = Record<string, string | number | boolean | null>;

export interface NewEvent {
  type: EventType;
  /** The instance, machine, reservation, person, key or organisation of the event. */
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

export interface Events {
  /** Appends an event in the caller's transaction. */
  append(tx: Tx, event: NewEvent): Promise<void>;
  /** A page of the events of one subject, newest first. */
  ofSubject(query: Query, subjectId: string, start: PageStart): Promise<EventRow[]>;
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
        sql`select id, type, subject_id, org_id, data, created_ms from events
            where subject_id = ${subjectId} and ${pageFrom(start)}`,
      ),
  };
}

// The SQL of deliveries and their attempts.
import { z } from 'zod';
import { WebhookEventType } from '../../../shared/api/webhook.ts';
import { WEBHOOK_ATTEMPTS_LISTED_MAX } from '../../../shared/limits.ts';
import { mayMove, WEBHOOK_DELIVERY_STATES, type WebhookDeliveryState } from '../../../shared/states.ts';
import { flag, int, json, text } from '../../base/db/columns.ts';
import { type Query, type Sql, type Tx, join, sql } from '../../base/db/db.ts';
import { pageFrom, type PageStart } from '../../base/http/cursors.ts';

const Trigger = z.enum(['schedule', 'manual', 'probe']);
export type Trigger = z.infer<typeof Trigger>;

const DeliveryRow = z.object({
  id: text,
  endpoint_id: text,
  event_id: text,
  event_type: WebhookEventType,
  instance_id: text,
  instance_version: int,
  body: text,
  status: z.enum(['pending', 'succeeded', 'retrying', 'dead_lettered']),
  attempts: int,
  max_attempts: int,
  next_trigger: Trigger,
  next_attempt_ms: int.nullable(),
  /** The delivery is tried from this time on, even if the circuit of its endpoint is open. */
  urgent_ms: int.nullable(),
  deadline_ms: int,
  created_ms: int,
  completed_ms: int.nullable(),
  is_test: flag,
});
export type DeliveryRow = z.infer<typeof DeliveryRow>;

const COLUMNS = sql`id, endpoint_id, event_id, event_type, instance_id, instance_version, body, status, attempts, max_attempts,
  next_trigger, next_attempt_ms, urgent_ms, deadline_ms, created_ms, completed_ms, is_test`;

export async function insertDelivery(tx: Tx, row: DeliveryRow): Promise<void> {
  await tx.run(
    sql`insert into webhook_deliveries (${COLUMNS})
        values (${row.id}, ${row.endpoint_id}, ${row.event_id}, ${row.event_type}, ${row.instance_id}, ${row.instance_version},
                ${row.body}, ${row.status}, ${row.attempts}, ${row.max_attempts}, ${row.next_trigger}, ${row.next_attempt_ms},
                ${row.urgent_ms}, ${row.deadline_ms}, ${row.created_ms}, ${row.completed_ms}, ${row.is_test})`,
  );
}

export function findDelivery(query: Query, id: string): Promise<DeliveryRow | undefined> {
  return query.one(DeliveryRow, sql`select ${COLUMNS} from webhook_deliveries where id = ${id}`);
}

/** A page, newest first. */
export function pageOfDeliveries(query: Query, endpointId: string, start: PageStart): Promise<DeliveryRow[]> {
  return query.all(
    DeliveryRow,
    sql`select ${COLUMNS} from webhook_deliveries where endpoint_id = ${endpointId} and ${pageFrom(start)}`,
  );
}

/**
 * Deliveries that may be tried now, longest waiting first. The first attempts of one instance's events start in order: a later event waits
 * while an earlier one is pending. It waits no longer if the earlier one has failed, so a failing delivery does not delay the others for hours.
 */
export function dueDeliveries(
  query: Query,
  endpointId: string,
  { nowMs, isUrgent, limit }: { nowMs: number; isUrgent: boolean; limit: number },
): Promise<DeliveryRow[]> {
  const which = isUrgent ? sql`urgent_ms <= ${nowMs}` : sql`1 = 1`;
  return query.all(
    DeliveryRow,
    sql`select ${COLUMNS} from webhook_deliveries d
        where endpoint_id = ${endpointId} and next_attempt_ms <= ${nowMs} and ${which} and not exists (
          select 1 from webhook_deliveries earlier
          where earlier.endpoint_id = d.endpoint_id and earlier.instance_id = d.instance_id
            and earlier.instance_version < d.instance_version and earlier.status = 'pending')
        order by next_attempt_ms, instance_version, id limit ${limit}`,
  );
}

export interface DeliveryMove {
  to: WebhookDeliveryState;
  /** Null if no attempt is planned: the delivery is completed. */
  nextMs: number | null;
  /** Null if `nextMs` is null. */
  urgentMs: number | null;
  nowMs: number;
  patch?: Partial<Pick<DeliveryRow, 'attempts' | 'max_attempts' | 'next_trigger' | 'deadline_ms'>>;
}

/**
 * Writes a delivery's `status` (`reviveDead` does so for many). False if the status has changed, or if another attempt was recorded meanwhile. The
 * caller has locked the endpoint.
 */
export async function moveDelivery(tx: Tx, row: DeliveryRow, step: DeliveryMove): Promise<boolean> {
  if (!mayMove(WEBHOOK_DELIVERY_STATES, row.status, step.to)) {
    throw new Error(`webhook delivery ${row.id} cannot go from ${row.status} to ${step.to}`);
  }
  const { attempts, max_attempts, next_trigger, deadline_ms } = { ...row, next_trigger: 'schedule', ...step.patch };
  const moved = await tx.run(
    sql`update webhook_deliveries set status = ${step.to}, attempts = ${attempts}, max_attempts = ${max_attempts},
          next_trigger = ${next_trigger}, next_attempt_ms = ${step.nextMs}, urgent_ms = ${step.urgentMs}, deadline_ms = ${deadline_ms},
          completed_ms = ${step.nextMs === null ? step.nowMs : null}
        where id = ${row.id} and status = ${row.status} and attempts = ${row.attempts}`,
  );
  const isAboutDead = step.to === 'dead_lettered' || row.status === 'dead_lettered';
  if (moved === 1 && isAboutDead) await refreshDead(tx, row.endpoint_id);
  return moved === 1;
}

/** Dead deliveries of an endpoint are counted up to this number. An operator does not need a larger exact number. */
const DEAD_COUNTED_MAX = 1_000;

/** Counts the dead deliveries of the endpoint after these have changed. */
async function refreshDead(tx: Tx, endpointId: string): Promise<void> {
  const dead = sql`from webhook_deliveries where ${IS_DEAD} and endpoint_id = ${endpointId}`;
  await tx.run(
    sql`update webhook_endpoints set
          dead = (select count(*) from (select 1 ${dead} limit ${DEAD_COUNTED_MAX}) as counted),
          dead_since_ms = (select completed_ms ${dead} order by created_ms, id limit 1)
        where id = ${endpointId}`,
  );
}

/** Makes the next attempt due now if it was planned for later. The status does not change. */
export async function hurryDelivery(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`update webhook_deliveries set next_trigger = 'manual',
          next_attempt_ms = case when next_attempt_ms > ${nowMs} then ${nowMs} else next_attempt_ms end
        where id = ${id} and next_attempt_ms is not null`,
  );
}

/** Deliveries whose deadline has passed. */
export function overdueDeliveries(query: Query, nowMs: number, limit: number): Promise<DeliveryRow[]> {
  return query.all(
    DeliveryRow,
    sql`select ${COLUMNS} from webhook_deliveries where deadline_ms <= ${nowMs} and next_attempt_ms is not null limit ${limit}`,
  );
}

interface Revival {
  /** How many more attempts each delivery gets. All its attempts together never exceed `ceiling`. */
  attempts: number;
  ceiling: number;
  nowMs: number;
  urgentMs: number;
  deadlineMs: number;
}

const RevivedRow = z.object({ created_ms: int });

/**
 * Moves deliveries of an endpoint from `dead_lettered` to `retrying`, oldest first: those that were made since `sinceMs` and given up by
 * `askedMs`. Returns how many, and when the last of them was made.
 */
export async function reviveDead(
  tx: Tx,
  { endpointId, sinceMs, askedMs, limit }: { endpointId: string; sinceMs: number; askedMs: number; limit: number },
  { attempts, ceiling, nowMs, urgentMs, deadlineMs }: Revival,
): Promise<{ count: number; lastCreatedMs: number }> {
  const rows = await tx.all(
    RevivedRow,
    sql`update webhook_deliveries set status = 'retrying', next_trigger = 'manual', next_attempt_ms = ${nowMs},
          urgent_ms = ${urgentMs}, deadline_ms = ${deadlineMs}, completed_ms = null,
          max_attempts = case when attempts + ${attempts} > ${ceiling} then ${ceiling} else attempts + ${attempts} end
        where id in (
          select id from webhook_deliveries
          where ${IS_DEAD} and endpoint_id = ${endpointId} and created_ms >= ${sinceMs} and completed_ms <= ${askedMs} and attempts < ${ceiling}
          order by created_ms, id limit ${limit})
        returning created_ms`,
  );
  if (rows.length > 0) await refreshDead(tx, endpointId);
  return { count: rows.length, lastCreatedMs: Math.max(sinceMs, ...rows.map((row) => row.created_ms)) };
}

/** A condition: the delivery was given up and is not a test. The text must equal the condition of the index `webhook_deliveries_dead`. */
const IS_DEAD = sql`status = 'dead_lettered' and is_test = 0`;

const AttemptRow = z.object({
  delivery_id: text,
  n: int,
  trigger_kind: Trigger,
  started_ms: int,
  duration_ms: int,
  response_status: int.nullable(),
  response_body_excerpt: text.nullable(),
  truncated: flag,
  error_code: z.enum(['timeout', 'dns', 'connect', 'tls', 'protocol', 'blocked_address', 'http_status']).nullable(),
  error_detail: text.nullable(),
  remote_ip: text.nullable(),
  /** Null for attempts from before these columns. */
  request_url: text.nullable(),
  request_headers: json(z.record(z.string(), z.string())).nullable(),
});
export type AttemptRow = z.infer<typeof AttemptRow>;

const ATTEMPT_COLUMNS = sql`delivery_id, n, trigger_kind, started_ms, duration_ms, response_status, response_body_excerpt, truncated,
  error_code, error_detail, remote_ip, request_url, request_headers`;

export async function insertAttempt(tx: Tx, row: AttemptRow): Promise<void> {
  await tx.run(
    sql`insert into webhook_attempts (${ATTEMPT_COLUMNS})
        values (${row.delivery_id}, ${row.n}, ${row.trigger_kind}, ${row.started_ms}, ${row.duration_ms}, ${row.response_status},
                ${row.response_body_excerpt}, ${row.truncated}, ${row.error_code}, ${row.error_detail}, ${row.remote_ip},
                ${row.request_url}, ${row.request_headers === null ? null : JSON.stringify(row.request_headers)})`,
  );
}

/** The attempts of these deliveries, oldest first. */
export async function attemptsOf(query: Query, deliveryIds: readonly string[]): Promise<AttemptRow[]> {
  if (deliveryIds.length === 0) return [];
  return query.all(
    AttemptRow,
    sql`select ${ATTEMPT_COLUMNS} from webhook_attempts where delivery_id in (${join(deliveryIds)}) order by n`,
  );
}

/** The last attempts of these deliveries, oldest first. A delivery that was retried by hand may have many, each with a long answer. */
export async function lastAttemptsOf(query: Query, deliveryIds: readonly string[]): Promise<AttemptRow[]> {
  if (deliveryIds.length === 0) return [];
  const attempts = sql`(select d.attempts from webhook_deliveries d where d.id = delivery_id)`;
  return query.all(
    AttemptRow,
    sql`select ${ATTEMPT_COLUMNS} from webhook_attempts
        where delivery_id in (${join(deliveryIds)}) and n > ${attempts} - ${WEBHOOK_ATTEMPTS_LISTED_MAX} order by n`,
  );
}

/** Deliveries that were completed before `untilMs`, or all deliveries of one endpoint. */
export type Forgettable = { completedUntilMs: number } | { endpointId: string };

const ForgettableRow = z.object({ id: text, endpoint_id: text });
export type ForgettableRow = z.infer<typeof ForgettableRow>;

export function forgettable(query: Query, which: Forgettable, limit: number): Promise<ForgettableRow[]> {
  return query.all(
    ForgettableRow,
    sql`select id, endpoint_id from webhook_deliveries where ${isAmong(which)} limit ${limit}`,
  );
}

const EndpointOfRow = z.object({ endpoint_id: text });

/**
 * Deletes these deliveries with their attempts, but for those that a retry has revived since they were read. The caller has locked their
 * endpoints.
 */
export async function forgetDeliveries(tx: Tx, which: Forgettable, ids: readonly string[]): Promise<void> {
  const forgotten = await tx.all(
    EndpointOfRow,
    sql`delete from webhook_deliveries where id in (${join(ids)}) and ${isAmong(which)} returning endpoint_id`,
  );
  await tx.run(
    sql`delete from webhook_attempts where delivery_id in (${join(ids)})
          and not exists (select 1 from webhook_deliveries where id = webhook_attempts.delivery_id)`,
  );
  for (const endpointId of new Set(forgotten.map((row) => row.endpoint_id))) await refreshDead(tx, endpointId);
}

function isAmong(which: Forgettable): Sql {
  return 'endpointId' in which
    ? sql`endpoint_id = ${which.endpointId}`
    : sql`completed_ms <= ${which.completedUntilMs}`;
}

const WaitingRow = z.object({ count: int, next_ms: int.nullable() });
const DeadRow = z.object({ count: int });

export interface DeliveryCounts {
  waiting: number;
  /** How long the oldest due delivery has waited; 0 if none is due. One to an endpoint that its owner has disabled is not due. */
  dueForMs: number;
  /** Number of deliveries that were given up since the given time. */
  dead: number;
}

export async function countDeliveries(query: Query, nowMs: number, sinceMs: number): Promise<DeliveryCounts> {
  const waiting = await query.one(
    WaitingRow,
    sql`select count(*) as count, (select min(due_ms) from webhook_endpoints where due_ms is not null and status <> 'disabled') as next_ms
        from webhook_deliveries where next_attempt_ms is not null`,
  );
  const dead = await query.one(
    DeadRow,
    sql`select count(*) as count from webhook_deliveries where completed_ms > ${sinceMs} and status = 'dead_lettered' and is_test = 0`,
  );
  const dueForMs = Math.max(0, nowMs - (waiting?.next_ms ?? nowMs));
  return { waiting: waiting?.count ?? 0, dueForMs, dead: dead?.count ?? 0 };
}

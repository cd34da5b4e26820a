// The SQL of webhook endpoints.
import { z } from 'zod';
import { WebhookEventType } from '../../../shared/api/webhook.ts';
import { mayMove, WEBHOOK_ENDPOINT_STATES } from '../../../shared/states.ts';
import { countRow, idRow, int, json, text } from '../../base/db/columns.ts';
import { type Query, type Sql, type Tx, join, sql } from '../../base/db/db.ts';
import { pageBy, pageFrom, type PageStart } from '../../base/http/cursors.ts';
import type { Health } from './schedule.ts';

const EndpointRow = z.object({
  id: text,
  org_id: text,
  url: text,
  event_types: json(z.array(WebhookEventType)),
  status: z.enum(['healthy', 'degraded', 'disabled']),
  status_reason: text.nullable(),
  secret_sealed: text,
  previous_secret_sealed: text.nullable(),
  previous_until_ms: int.nullable(),
  failures: int,
  failing_since_ms: int.nullable(),
  open_until_ms: int.nullable(),
  created_ms: int,
});
export type EndpointRow = z.infer<typeof EndpointRow>;

const COLUMNS = sql`id, org_id, url, event_types, status, status_reason, secret_sealed, previous_secret_sealed, previous_until_ms,
  failures, failing_since_ms, open_until_ms, created_ms`;

export async function insertEndpoint(tx: Tx, row: EndpointRow): Promise<void> {
  await tx.run(
    sql`insert into webhook_endpoints (id, org_id, url, event_types, status, secret_sealed, created_ms)
        values (${row.id}, ${row.org_id}, ${row.url}, ${JSON.stringify(row.event_types)}, ${row.status}, ${row.secret_sealed},
                ${row.created_ms})`,
  );
}

/** Undefined also for a deleted endpoint. */
export function findEndpoint(query: Query, id: string): Promise<EndpointRow | undefined> {
  return query.one(EndpointRow, sql`select ${COLUMNS} from webhook_endpoints where id = ${id} and deleted_ms is null`);
}

export async function countEndpoints(query: Query, orgId: string): Promise<number> {
  const row = await query.one(
    countRow,
    sql`select count(*) as count from webhook_endpoints where org_id = ${orgId} and deleted_ms is null`,
  );
  return row?.count ?? 0;
}

export function endpointsOfOrg(query: Query, orgId: string): Promise<EndpointRow[]> {
  return query.all(
    EndpointRow,
    sql`select ${COLUMNS} from webhook_endpoints where org_id = ${orgId} and deleted_ms is null`,
  );
}

/** A page, newest first. */
export function pageOfEndpoints(query: Query, orgId: string, start: PageStart): Promise<EndpointRow[]> {
  return query.all(
    EndpointRow,
    sql`select ${COLUMNS} from webhook_endpoints where org_id = ${orgId} and deleted_ms is null
        and ${pageFrom(start)}`,
  );
}

/**
 * The time since which an endpoint needs help: since its oldest delivery that was given up, or since one is due for more than a minute. It may
 * be null or in the future. The text must equal the expression of the index `webhook_endpoints_in_need`.
 */
const IN_NEED_SINCE = sql`case
    when due_ms is null or status = 'disabled' then dead_since_ms
    when dead_since_ms is null or due_ms + 60000 < dead_since_ms then due_ms + 60000
    else dead_since_ms end`;

const InNeedRow = EndpointRow.extend({
  due_ms: int.nullable(),
  dead: int,
  in_need_ms: int.nullable(),
});
export type InNeedRow = z.infer<typeof InNeedRow>;

const IN_NEED_COLUMNS = sql`${COLUMNS}, due_ms, dead, ${IN_NEED_SINCE} as in_need_ms`;

/** A page of the endpoints of all organisations that need help. The newest need comes first. */
export function pageInNeed(query: Query, nowMs: number, start: PageStart): Promise<InNeedRow[]> {
  // SQLite compares a pair with an expression in it row by row, so the first column has a limit of its own.
  const untilMs = start.from?.createdMs ?? nowMs;
  return query.all(
    InNeedRow,
    sql`select ${IN_NEED_COLUMNS} from webhook_endpoints
        where deleted_ms is null and ${IN_NEED_SINCE} <= ${untilMs} and ${pageBy(start, { time: IN_NEED_SINCE, id: sql`id` })}`,
  );
}

/** The endpoint, whether it needs help or not. Undefined also for a deleted endpoint. */
export function findWithNeed(query: Query, id: string): Promise<InNeedRow | undefined> {
  return query.one(
    InNeedRow,
    sql`select ${IN_NEED_COLUMNS} from webhook_endpoints where id = ${id} and deleted_ms is null`,
  );
}

/** Writes the columns that the owner can change. `setHealth` writes the health. */
export async function updateEndpoint(tx: Tx, row: EndpointRow): Promise<void> {
  await tx.run(
    sql`update webhook_endpoints set url = ${row.url}, event_types = ${JSON.stringify(row.event_types)},
          secret_sealed = ${row.secret_sealed}, previous_secret_sealed = ${row.previous_secret_sealed},
          previous_until_ms = ${row.previous_until_ms}
        where id = ${row.id}`,
  );
}

/** The one writer of an endpoint's `status`. */
export async function setHealth(tx: Tx, row: EndpointRow, health: Health): Promise<void> {
  if (!mayMove(WEBHOOK_ENDPOINT_STATES, row.status, health.status)) {
    throw new Error(`webhook endpoint ${row.id} cannot go from ${row.status} to ${health.status}`);
  }
  await tx.run(
    sql`update webhook_endpoints set status = ${health.status}, status_reason = ${health.status_reason}, failures = ${health.failures},
          failing_since_ms = ${health.failing_since_ms}, open_until_ms = ${health.open_until_ms}
        where id = ${row.id}`,
  );
}

/** Hides the endpoint and removes its secrets at once. Its history is removed in pieces (`purge`). */
export async function markDeleted(tx: Tx, id: string, nowMs: number): Promise<void> {
  await tx.run(
    sql`update webhook_endpoints set deleted_ms = ${nowMs}, due_ms = null, replay_since_ms = null, secret_sealed = '', previous_secret_sealed = null
        where id = ${id}`,
  );
}

/**
 * The time from which a delivery of the endpoint may be tried: one is due, and the circuit is closed or one is urgent. Null if that is not planned.
 * The text must equal the expression of the index `webhook_endpoints_ready`.
 */
export const READY_SINCE = sql`case
    when status = 'disabled' then null
    when open_until_ms is null or open_until_ms <= due_ms or urgent_ms <= due_ms then due_ms
    when urgent_ms < open_until_ms then urgent_ms
    else open_until_ms end`;

/** A condition: a delivery of the endpoint may be tried since this time or longer. */
export function isReady(ms: number): Sql {
  return sql`due_ms is not null and ${READY_SINCE} <= ${ms}`;
}

/** Endpoints with a delivery that may be tried now, longest waiting first. Endpoints of `withoutOrgs` are left out. */
export async function dueEndpoints(
  query: Query,
  { nowMs, limit, withoutOrgs }: { nowMs: number; limit: number; withoutOrgs: readonly string[] },
): Promise<string[]> {
  const others = withoutOrgs.length === 0 ? sql`1 = 1` : sql`org_id not in (${join(withoutOrgs)})`;
  const rows = await query.all(
    idRow,
    sql`select id from webhook_endpoints where ${isReady(nowMs)} and ${others}
        order by ${READY_SINCE} limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

/** Makes endpoints due, because they have new deliveries. */
export async function makeDue(
  tx: Tx,
  ids: readonly string[],
  { nowMs, urgentMs }: { nowMs: number; urgentMs: number },
): Promise<void> {
  await tx.run(
    sql`update webhook_endpoints set due_ms = case when due_ms < ${nowMs} then due_ms else ${nowMs} end,
          urgent_ms = case when urgent_ms < ${urgentMs} then urgent_ms else ${urgentMs} end
        where id in (${join(ids)})`,
  );
}

/** The owner requested an attempt, so a degraded endpoint does not wait for its next probe. */
export async function probeNow(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`update webhook_endpoints set open_until_ms = null where id = ${id}`);
}

/** Sets `due_ms` and `urgent_ms` of an endpoint to the earliest of its planned deliveries, after these have changed. */
export async function refreshDue(tx: Tx, id: string): Promise<void> {
  await tx.run(
    sql`update webhook_endpoints set due_ms = (
          select min(next_attempt_ms) from webhook_deliveries where endpoint_id = ${id} and next_attempt_ms is not null),
          urgent_ms = (
          select min(urgent_ms) from webhook_deliveries where endpoint_id = ${id} and next_attempt_ms is not null)
        where id = ${id} and deleted_ms is null`,
  );
}

/** A replay that is not over: deliveries from `sinceMs` on that were given up by `askedMs` are revived. */
export interface Replay {
  sinceMs: number;
  askedMs: number;
}

const ReplayRow = z.object({ replay_since_ms: int, replay_asked_ms: int });

/** The replay of the endpoint; undefined if there is none. */
export async function replayOf(query: Query, id: string): Promise<Replay | undefined> {
  const row = await query.one(
    ReplayRow,
    sql`select replay_since_ms, replay_asked_ms from webhook_endpoints
        where id = ${id} and replay_since_ms is not null and deleted_ms is null`,
  );
  return row && { sinceMs: row.replay_since_ms, askedMs: row.replay_asked_ms };
}

/** Stores how far the replay is; null if it is over. */
export async function setReplay(tx: Tx, id: string, replay: Replay | null): Promise<void> {
  await tx.run(
    sql`update webhook_endpoints set replay_since_ms = ${replay?.sinceMs ?? null}, replay_asked_ms = ${replay?.askedMs ?? null}
        where id = ${id}`,
  );
}

/** Endpoints with a replay that is not over, longest waiting first. */
export async function replaying(query: Query, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from webhook_endpoints where replay_since_ms is not null order by replay_asked_ms limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

export async function deletedEndpoints(query: Query, limit: number): Promise<string[]> {
  const rows = await query.all(
    idRow,
    sql`select id from webhook_endpoints where deleted_ms is not null order by deleted_ms limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

export async function forgetEndpoint(tx: Tx, id: string): Promise<void> {
  await tx.run(sql`delete from webhook_endpoints where id = ${id} and deleted_ms is not null`);
}

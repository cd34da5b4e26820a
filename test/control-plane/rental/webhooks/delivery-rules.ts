// What holds for webhook deliveries at any moment, whatever happens: the rows are true to each other and to their states.
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { sql } from '../../../../control-plane/base/db/db.ts';
import type { World } from '../../../kit/world.ts';

/** Rule -> rows that break it. */
const RULES = {
  'what is over has an end and no next attempt, and nothing else has': sql`
    select count(*) as rows from webhook_deliveries
    where (urgent_ms is null) <> (next_attempt_ms is null) or (status in ('succeeded', 'dead_lettered')) <> (completed_ms is not null) or (completed_ms is null) = (next_attempt_ms is null)`,
  'a pending delivery was never tried, one that succeeded was': sql`
    select count(*) as rows from webhook_deliveries
    where (status = 'pending' and attempts > 0) or (status = 'succeeded' and attempts = 0)`,
  'no delivery is tried more often than it may be': sql`
    select count(*) as rows from webhook_deliveries where attempts > max_attempts`,
  'every attempt is in the history': sql`
    select count(*) as rows from webhook_deliveries d
    where attempts <> (select count(*) from webhook_attempts a where a.delivery_id = d.id)
       or attempts <> (select coalesce(max(n), 0) from webhook_attempts a where a.delivery_id = d.id)`,
  'a success is the last attempt': sql`
    select count(*) as rows from webhook_attempts a join webhook_deliveries d on d.id = a.delivery_id
    where a.error_code is null and (d.status <> 'succeeded' or a.n <> d.attempts)`,
  'each event has one delivery to an endpoint': sql`
    select count(*) as rows from webhook_deliveries d join webhook_deliveries other
      on other.endpoint_id = d.endpoint_id and other.event_id = d.event_id and other.id > d.id`,
  'first attempts of one instance start in order': sql`
    select count(*) as rows from webhook_attempts a join webhook_deliveries d on d.id = a.delivery_id
      join webhook_deliveries later on later.endpoint_id = d.endpoint_id and later.instance_id = d.instance_id
        and later.instance_version > d.instance_version
      join webhook_attempts b on b.delivery_id = later.id
    where a.n = 1 and b.n = 1 and a.started_ms > b.started_ms and d.next_trigger = 'schedule' and later.next_trigger = 'schedule'`,
  'an endpoint is due when the first of its deliveries is': sql`
    select count(*) as rows from webhook_endpoints e
    where deleted_ms is null and coalesce(due_ms, -1)
      <> coalesce((select min(next_attempt_ms) from webhook_deliveries d where d.endpoint_id = e.id), -1)`,
  'an endpoint is urgent when the first of its deliveries is': sql`
    select count(*) as rows from webhook_endpoints e
    where deleted_ms is null and coalesce(urgent_ms, -1)
      <> coalesce((select min(urgent_ms) from webhook_deliveries d where d.endpoint_id = e.id), -1)`,
  'an endpoint knows how many of its deliveries were given up, and when the oldest of them was': sql`
    select count(*) as rows from webhook_endpoints e
    where deleted_ms is null and (
      dead <> (select count(*) from webhook_deliveries d where d.endpoint_id = e.id and d.status = 'dead_lettered' and d.is_test = 0)
      or coalesce(dead_since_ms, -1) <> coalesce((
        select completed_ms from webhook_deliveries d where d.endpoint_id = e.id and d.status = 'dead_lettered' and d.is_test = 0
        order by created_ms, id limit 1), -1))`,
  'only a degraded endpoint rests': sql`
    select count(*) as rows from webhook_endpoints where open_until_ms is not null and status <> 'degraded'`,
};

const CountRow = z.object({ rows: int });

/** A sentence for each rule that is broken now. */
export async function brokenDeliveries({ db }: World): Promise<string[]> {
  const broken: string[] = [];
  for (const [rule, statement] of Object.entries(RULES)) {
    const row = await db.read.one(CountRow, statement);
    if (row?.rows !== 0) broken.push(`${rule}: ${row?.rows}`);
  }
  return broken;
}

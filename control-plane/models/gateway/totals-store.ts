// The SQL of the totals: closed receipts, summed for each hour, day and month.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';

export type Span = 'hour' | 'day' | 'month';

/** A place in the order of closing. */
const PositionRow = z.object({ closed_ms: int, receipt_id: text });
export type Position = z.infer<typeof PositionRow>;

/** All receipts up to this place are in the sums, and no others. */
export async function totalsPosition(query: Query): Promise<Position> {
  const row = await query.one(PositionRow, sql`select closed_ms, receipt_id from receipt_totals_position where id = 1`);
  return row ?? { closed_ms: 0, receipt_id: '' };
}

/** Moves the position and locks it until the end of the transaction. False if it is not at `from` any more. Must begin the transaction. */
export async function moveTotalsPosition(tx: Tx, from: Position, to: Position): Promise<boolean> {
  const moved = await tx.run(
    sql`insert into receipt_totals_position (id, closed_ms, receipt_id) values (1, ${to.closed_ms}, ${to.receipt_id})
        on conflict (id) do update set closed_ms = excluded.closed_ms, receipt_id = excluded.receipt_id
          where receipt_totals_position.closed_ms = ${from.closed_ms} and receipt_totals_position.receipt_id = ${from.receipt_id}`,
  );
  return moved === 1;
}

/** The receipts after the position that were closed before `untilMs`, in the order of closing. */
export function closedBehind(
  query: Query,
  position: Position,
  { untilMs, limit }: { untilMs: number; limit: number },
): Promise<Position[]> {
  return query.all(
    PositionRow,
    sql`select closed_ms, id as receipt_id from request_receipts where ${isBehind(position)} and closed_ms < ${untilMs}
        order by closed_ms, id limit ${limit}`,
  );
}

/** Adds the receipts after the position up to `last`, all of one month, to their sums. The caller has moved the position to `last`. */
export async function addTotals(
  tx: Tx,
  position: Position,
  { last, monthMs }: { last: Position; monthMs: number },
): Promise<void> {
  const counted = sql`org_id, model_id, api_key_id, prompt_tokens, completion_tokens, images, charged_ucents`;
  const hour = sql`select 'hour' as span, closed_ms - closed_ms % 3600000 as start_ms, ${counted} from piece`;
  const day = sql`select 'day' as span, closed_ms - closed_ms % 86400000 as start_ms, ${counted} from piece`;
  const month = sql`select 'month' as span, cast(${monthMs} as bigint) as start_ms, ${counted} from piece`;
  await tx.run(
    sql`insert into receipt_totals (${KEY}, ${SUMS})
        with piece as materialized (
          select ${counted}, closed_ms from request_receipts
          where ${isBehind(position)} and (closed_ms, id) <= (${last.closed_ms}, ${last.receipt_id}))
        select ${KEY}, count(*), cast(coalesce(sum(prompt_tokens), 0) as bigint), cast(coalesce(sum(completion_tokens), 0) as bigint),
          cast(coalesce(sum(images), 0) as bigint), cast(sum(charged_ucents) as bigint)
        from (${hour} union all ${day} union all ${month}) as spans where 1 = 1 group by ${KEY}
        on conflict (${KEY}) do update set requests = receipt_totals.requests + excluded.requests,
          prompt_tokens = receipt_totals.prompt_tokens + excluded.prompt_tokens,
          completion_tokens = receipt_totals.completion_tokens + excluded.completion_tokens,
          images = receipt_totals.images + excluded.images, cost_ucents = receipt_totals.cost_ucents + excluded.cost_ucents`,
  );
}

const TotalRow = z.object({
  start_ms: int,
  model_id: text,
  api_key_id: text,
  /** All requests that were closed, also those that were free. */
  requests: int,
  prompt_tokens: int,
  completion_tokens: int,
  images: int,
  cost_ucents: ucents,
});
export type TotalRow = z.infer<typeof TotalRow>;

/** The place of a sum in the order in which `pageOfTotals` reads. */
export type TotalKey = Pick<TotalRow, 'start_ms' | 'model_id' | 'api_key_id'>;

/** Sums of the organisation after `after` that begin before `untilMs`, in the order of time, model and key. */
export function pageOfTotals(
  query: Query,
  { orgId, span, untilMs }: { orgId: string; span: Span; untilMs: number },
  after: TotalKey,
  limit: number,
): Promise<TotalRow[]> {
  return query.all(
    TotalRow,
    sql`select start_ms, model_id, api_key_id, ${SUMS} from receipt_totals where org_id = ${orgId} and span = ${span}
          and (start_ms, model_id, api_key_id) > (${after.start_ms}, ${after.model_id}, ${after.api_key_id}) and start_ms < ${untilMs}
        order by start_ms, model_id, api_key_id limit ${limit}`,
  );
}

const KEY = sql`org_id, span, start_ms, model_id, api_key_id`;
const SUMS = sql`requests, prompt_tokens, completion_tokens, images, cost_ucents`;

/** The first two conditions let SQLite use the index of closed receipts. */
function isBehind({ closed_ms: closedMs, receipt_id: id }: Position): Sql {
  return sql`closed_ms is not null and closed_ms >= ${closedMs} and (closed_ms, id) > (${closedMs}, ${id})`;
}

// The SQL of the totals: closed receipts, summed for each hour, day and month.
import { z } from 'zod';
import { int, text, ucents } from '../../base/db/columns.ts';
import { type Query, type Tx, sql } from '../../base/db/db.ts';
import { openFolding, type Place } from '../../base/db/folding.ts';

export type Span = 'hour' | 'day' | 'month';

/** The sums of all receipts that were closed, and the last receipt in them. */
export const receiptTotals = openFolding({
  rows: sql`request_receipts`,
  rowMs: sql`closed_ms`,
  position: sql`receipt_totals_position`,
  positionMs: sql`closed_ms`,
  positionId: sql`receipt_id`,
});
const { isBehind, isUpTo } = receiptTotals;

/** Adds the receipts after the position up to `last`, all of one month, to their sums. The caller has moved the position to `last`. */
export async function addTotals(
  tx: Tx,
  { position, last }: { position: Place; last: Place },
  monthMs: number,
): Promise<void> {
  const counted = sql`org_id, model_id, api_key_id, prompt_tokens, completion_tokens, images, charged_ucents`;
  const hour = sql`select 'hour' as span, closed_ms - closed_ms % 3600000 as start_ms, ${counted} from piece`;
  const day = sql`select 'day' as span, closed_ms - closed_ms % 86400000 as start_ms, ${counted} from piece`;
  const month = sql`select 'month' as span, cast(${monthMs} as bigint) as start_ms, ${counted} from piece`;
  await tx.run(
    sql`insert into receipt_totals (${KEY}, ${SUMS})
        with piece as materialized (
          select ${counted}, closed_ms from request_receipts
          where ${isBehind(position)} and ${isUpTo(last)})
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

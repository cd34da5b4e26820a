// The SQL of receipts.
import { z } from 'zod';
import { int, json, text, ucents } from '../../base/db/columns.ts';
import { join, type NowTx, type Query, type Sql, type Tx, sql } from '../../base/db/db.ts';
import type { Place } from '../../base/db/folding.ts';
import type { Piece } from '../../base/db/pieces.ts';
import type { Cursor } from '../../base/http/cursors.ts';
import { Charge } from '../../money/ledger/charges.ts';
import { Metadata } from '../../../shared/api/receipt.ts';
import type { ReceiptState } from '../../../shared/states.ts';
import { Attempt } from './attempts.ts';
import { receiptTotals } from './totals-store.ts';

/** How a request ended. The README of the room says who pays for each. */
const Ending = z.enum(['completed', 'client_left', 'too_long', 'upstream_failed', 'refused', 'process_ended']);
export type Ending = z.infer<typeof Ending>;

const ReceiptRow = z.object({
  id: text,
  org_id: text,
  api_key_id: text,
  request_id: text,
  model_id: text,
  tier: z.enum(['serverless', 'economy']),
  /** The end user whom the caller has named in the request; null if there is none. */
  end_user: text.nullable(),
  metadata: json(Metadata).nullable(),
  /** The id of the control plane that serves the request or has served it. */
  member: text,
  state: z.enum(['open', 'settled', 'released']),
  held_ucents: ucents,
  charged_ucents: ucents,
  ending: Ending.nullable(),
  prompt_tokens: int.nullable(),
  completion_tokens: int.nullable(),
  images: int.nullable(),
  /** How the tokens were counted: by the server at the end, by the server during the stream, by its tokenizer, or by us from the text. */
  counted_by: z.enum(['upstream', 'running', 'tokenizer', 'estimate']).nullable(),
  /** Address of the server that answered. */
  upstream: text.nullable(),
  /** The servers that were asked. */
  attempts: json(z.array(Attempt)).nullable(),
  opened_ms: int,
  closed_ms: int.nullable(),
});
export type Receipt = z.infer<typeof ReceiptRow>;

const COLUMNS = sql`id, org_id, api_key_id, request_id, model_id, tier, end_user, metadata, member, state, held_ucents, charged_ucents, ending,
  prompt_tokens, completion_tokens, images, counted_by, upstream, attempts, opened_ms, closed_ms`;

export type NewReceipt = Pick<
  Receipt,
  | 'id'
  | 'org_id'
  | 'api_key_id'
  | 'request_id'
  | 'model_id'
  | 'tier'
  | 'end_user'
  | 'metadata'
  | 'member'
  | 'held_ucents'
  | 'opened_ms'
>;

export function insertReceipt(tx: NowTx, receipt: NewReceipt): void {
  tx.run(
    sql`insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, end_user, metadata, member, state, held_ucents,
          opened_ms)
        values (${receipt.id}, ${receipt.org_id}, ${receipt.api_key_id}, ${receipt.request_id}, ${receipt.model_id}, ${receipt.tier},
                ${receipt.end_user}, ${metadataText(receipt)}, ${receipt.member}, 'open', ${receipt.held_ucents}, ${receipt.opened_ms})`,
  );
}

/** The part of a `HotBody` statement that inserts a receipt, as `insertReceipt` does. It inserts nothing if the part `held` has no row. */
export function receiptPart(receipt: NewReceipt): Sql {
  return sql`receipt as (
      insert into request_receipts (id, org_id, api_key_id, request_id, model_id, tier, end_user, metadata, member, state, held_ucents,
        opened_ms)
      select ${receipt.id}, ${receipt.org_id}, ${receipt.api_key_id}, ${receipt.request_id}, ${receipt.model_id}, ${receipt.tier},
        ${receipt.end_user}, ${metadataText(receipt)}, ${receipt.member}, 'open', cast(${receipt.held_ucents} as bigint),
        cast(${receipt.opened_ms} as bigint)
      from held)`;
}

export function findReceipt(query: Query, id: string): Promise<Receipt | undefined> {
  return query.one(ReceiptRow, sql`select ${COLUMNS} from request_receipts where id = ${id}`);
}

/** Receipts of the organisation, newest first, at most `count`: those of one end user, or all. */
export function pageOfReceipts(
  query: Query,
  { orgId, user }: { orgId: string; user?: string | undefined },
  from: Cursor | undefined,
  count: number,
): Promise<Receipt[]> {
  const whose = user === undefined ? sql`1 = 1` : sql`end_user = ${user}`;
  const older = from === undefined ? sql`1 = 1` : sql`(opened_ms, id) < (${from.createdMs}, ${from.id})`;
  return query.all(
    ReceiptRow,
    sql`select ${COLUMNS} from request_receipts where org_id = ${orgId} and ${whose} and ${older}
        order by opened_ms desc, id desc limit ${count}`,
  );
}

const OpenRow = ReceiptRow.pick({ id: true, org_id: true, model_id: true, member: true, held_ucents: true });
export type OpenRow = z.infer<typeof OpenRow>;

/** Open receipts after `afterId`, in order of their ids. */
export function openReceipts(query: Query, afterId: string, limit: number): Promise<OpenRow[]> {
  return query.all(
    OpenRow,
    sql`select id, org_id, model_id, member, held_ucents from request_receipts where state = 'open' and id > ${afterId}
        order by id limit ${limit}`,
  );
}

export type Closing = Pick<
  Receipt,
  | 'charged_ucents'
  | 'ending'
  | 'prompt_tokens'
  | 'completion_tokens'
  | 'images'
  | 'counted_by'
  | 'upstream'
  | 'closed_ms'
> & { attempts: readonly Attempt[] };

/** The statement that closes a receipt. It changes no row if the receipt is not in `from` any more. */
export function closing(id: string, { from, to }: { from: ReceiptState; to: ReceiptState }, closed: Closing): Sql {
  return sql`update request_receipts set state = ${to}, charged_ucents = ${closed.charged_ucents}, ending = ${closed.ending},
          prompt_tokens = ${closed.prompt_tokens}, completion_tokens = ${closed.completion_tokens},
          images = ${closed.images}, counted_by = ${closed.counted_by}, upstream = ${closed.upstream},
          attempts = ${JSON.stringify(closed.attempts)}, closed_ms = ${closed.closed_ms}
        where id = ${id} and state = ${from}`;
}

/** The charges of these receipts, for the proof that receipts and ledger agree. */
export function chargesOf(query: Query, ids: readonly string[]): Promise<Charge[]> {
  if (ids.length === 0) return Promise.resolve([]);
  return query.all(Charge, sql`select id, charged_ucents from request_receipts where id in (${join([...ids])})`);
}

/** Ids of charged receipts after `afterId`, in order. */
export async function chargedAfter(query: Query, afterId: string, limit: number): Promise<string[]> {
  const rows = await query.all(
    Charge,
    sql`select id, charged_ucents from request_receipts where charged_ucents > 0 and id > ${afterId} order by id limit ${limit}`,
  );
  return rows.map((row) => row.id);
}

const HeldRow = z.object({ id: text, held_ucents: ucents });

export function holdsOfOpen(query: Query): Promise<z.infer<typeof HeldRow>[]> {
  return query.all(HeldRow, sql`select id, held_ucents from request_receipts where state = 'open'`);
}

/** Removes the receipts that were closed first, and none after the position of the totals. Returns their charges. */
export function removeClosed(tx: Tx, totals: Place, { untilMs, limit }: Piece): Promise<Charge[]> {
  return tx.all(
    Charge,
    sql`delete from request_receipts where id in (
          select id from request_receipts where closed_ms <= ${untilMs} and ${receiptTotals.isUpTo(totals)}
          order by closed_ms limit ${limit})
        returning id, charged_ucents`,
  );
}

export async function rememberForgotten(
  tx: Tx,
  { receipts, ucents: charged }: { receipts: number; ucents: bigint },
): Promise<void> {
  await tx.run(
    sql`insert into forgotten_receipts (id, receipts, charged_ucents) values (1, ${receipts}, ${charged})
        on conflict (id) do update set receipts = forgotten_receipts.receipts + excluded.receipts,
          charged_ucents = forgotten_receipts.charged_ucents + excluded.charged_ucents`,
  );
}

const ChargedRow = z.object({ charged_ucents: ucents });

/** The sum of the charges of all removed receipts. */
export async function forgottenUcents(query: Query): Promise<bigint> {
  const row = await query.one(ChargedRow, sql`select charged_ucents from forgotten_receipts where id = 1`);
  return row?.charged_ucents ?? 0n;
}

function metadataText({ metadata }: NewReceipt): string | null {
  return metadata === null ? null : JSON.stringify(metadata);
}

// The states of a receipt, the only function that changes them, and the outcomes that it writes. State, hold and charge change together or
// not at all.
import { z } from 'zod';
import { mayMove, RECEIPT_STATES } from '../../../shared/states.ts';
import { int } from '../../base/db/columns.ts';
import { isLivingPrincipal } from '../../base/users/sessions.ts';
import { type HotBody, sql } from '../../base/db/db.ts';
import { accountId, revenue, wallet } from '../../money/ledger/accounts.ts';
import { holdNow, holdParts, settleNow, settleParts } from '../../money/ledger/statements.ts';
import type { Attempt } from './attempts.ts';
import * as store from './store.ts';
import type { TokenUsage } from '../../../shared/api/chat.ts';
import { ERRORS, ServiceError } from '../../../shared/errors.ts';
import type { Ending, Receipt } from './store.ts';

export type Outcome = Omit<store.Closing, 'closed_ms' | 'ending' | 'attempts'> & { ending: store.Ending };

/** The kind of the transfers that charge requests. */
export const CHARGE_KIND = 'inference.charge';

/** The ledger's id of the hold for a request. */
export function holdId(receiptId: string): string {
  return `inference:${receiptId}`;
}

/** What a receipt is opened with, and what its end needs. */
export type OpenReceipt = Pick<store.Receipt, 'id' | 'org_id' | 'model_id' | 'held_ucents'>;

/** `not_covered`: the balance is too small. `key_ended`: the API key was revoked or has expired. Then nothing has changed. */
export type Opened = 'open' | 'not_covered' | 'key_ended';

const OpenedRow = z.object({ living: int, held: int }).transform(({ living, held }): Opened => {
  if (living === 0) return 'key_ended';
  return held === 0 ? 'not_covered' : 'open';
});

/** Confirms the key, holds the money and writes the receipt. */
export function openReceipt(receipt: store.NewReceipt): HotBody<Opened> {
  const { id, org_id: orgId, api_key_id: keyId, held_ucents: amountUcents, opened_ms: nowMs } = receipt;
  const account = wallet(orgId);
  const hold = { id: holdId(id), account, amountUcents, nowMs };
  return {
    name: 'inference.open',
    locks: accountId(account),
    // If a crash takes the receipt back, the request has died with it, and nothing was charged.
    mayBeLost: () => true,
    row: OpenedRow,
    statement: () => {
      // A free model holds nothing, and its caller may have no wallet yet.
      const isFree = amountUcents === 0n;
      const held = isFree
        ? sql`held as (select 1 as id from living)`
        : holdParts(hold, sql`exists (select 1 from living)`);
      return sql`with living as (select 1 where ${isLivingPrincipal(keyId, nowMs)}), ${held}, ${store.receiptPart(receipt)}
        select (select count(*) from living) as living, (select count(*) from held) as held`;
    },
    runNow: (tx) => {
      // The key needs no check: SQLite has one process, which has just authenticated it.
      if (amountUcents > 0n && !holdNow(tx, hold)) return 'not_covered';
      store.insertReceipt(tx, receipt);
      return 'open';
    },
  };
}

const Closed = z.object({ closed: int }).transform(({ closed }) => closed === 1);

/**
 * Releases the hold and posts the charge, never more than was held. The result is false if the receipt was closed before, for example by another
 * process that took this one for dead.
 */
export function closeReceipt(
  { id, org_id: orgId, model_id: modelId, held_ucents: heldUcents }: OpenReceipt,
  outcome: Outcome,
  { nowMs, attempts }: { nowMs: number; attempts: readonly Attempt[] },
): HotBody<boolean> {
  const charged = outcome.charged_ucents < heldUcents ? outcome.charged_ucents : heldUcents;
  const [from, to] = ['open', charged > 0n ? 'settled' : 'released'] as const;
  if (!mayMove(RECEIPT_STATES, from, to)) throw new Error(`a receipt cannot go from ${from} to ${to}`);
  const closing = { ...outcome, charged_ucents: charged, attempts, closed_ms: nowMs };
  const account = wallet(orgId);
  const charge = {
    id: `${holdId(id)}:charge`,
    debit: account,
    credit: revenue,
    amountUcents: charged,
    kind: CHARGE_KIND,
    subjectId: id,
    // The bill sums up the charges of each model, and keeps them longer than the receipts are kept.
    evidence: modelId,
    effectiveMs: nowMs,
  };
  const settle = { id: holdId(id), account, charge: charged === 0n ? undefined : charge, nowMs };
  const ended = store.closing(id, { from, to }, closing);
  return {
    name: 'inference.close',
    locks: accountId(account),
    row: Closed,
    statement: () =>
      sql`with ended as (${ended} returning id), ${settleParts(settle)} select count(*) as closed from ended`,
    runNow: (tx) => {
      if (tx.run(ended) === 0) return false;
      settleNow(tx, settle);
      return true;
    },
  };
}

export interface Used {
  /** The cost of the request. The charge is never more than was held. */
  ucents: bigint;
  /** Set if tokens are charged. */
  usage?: Pick<TokenUsage, 'prompt_tokens' | 'completion_tokens'>;
  /** Set if images are charged. */
  images?: number;
  countedBy: Receipt['counted_by'];
  /** Address of the server. */
  upstream: string;
}

/** An outcome with a charge. */
export function usedOutcome(ending: Ending, { ucents, usage, images, countedBy, upstream }: Used): Outcome {
  return {
    charged_ucents: ucents,
    ending,
    prompt_tokens: usage?.prompt_tokens ?? null,
    completion_tokens: usage?.completion_tokens ?? null,
    images: images ?? null,
    counted_by: countedBy,
    upstream,
  };
}

/** An outcome without a charge. */
export function freeOutcome(ending: Ending, upstream: string | null = null): Outcome {
  return {
    charged_ucents: 0n,
    ending,
    prompt_tokens: null,
    completion_tokens: null,
    images: null,
    counted_by: null,
    upstream,
  };
}

/** The outcome of a request that failed before its answer began. */
export function failedOutcome(error: unknown, signal: AbortSignal): Outcome {
  if (signal.aborted) return freeOutcome(signal.reason instanceof ServiceError ? 'process_ended' : 'client_left');
  const isRefusal = error instanceof ServiceError && ERRORS[error.code].status < 500;
  return freeOutcome(isRefusal ? 'refused' : 'upstream_failed');
}

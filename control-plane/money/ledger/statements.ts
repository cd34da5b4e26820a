// The ledger's part of statements that are a whole transaction on PostgreSQL (`HotBody` in base/db).
//
// A room puts these parts before its own, in one `with`. Each part is a row change that depends on the rows that an earlier part has
// changed, so either all of them happen or none. Example, the beginning of a paid request (models/gateway):
//
//   with held    as (update the wallet, if it covers the amount, returning its id),     <- parts of this file
//        hold    as (insert the hold, for each row of `held`),
//        receipt as (insert the receipt, for each row of `held`)                        <- the part of the room
//   select count(*) as done from held
//
// The parts see the tables as they were before the statement. So no part reads a row that an earlier part has written: it reads what that
// part returns.
import { type Sql, sql } from '../../base/db/db.ts';
import { type AccountRef, accountId } from './accounts.ts';
import type { NewTransfer } from './store.ts';

/** The same as `Ledger.hold`. The part `held` has one row if the account covers the amount, and none otherwise. */
export function holdParts(hold: { id: string; account: AccountRef; amountUcents: bigint; nowMs: number }): Sql {
  const { id, account, amountUcents, nowMs } = hold;
  return sql`held as (
      update ledger_accounts set held_ucents = held_ucents + ${amountUcents}
      where id = ${accountId(account)} and credits_ucents - debits_ucents - held_ucents >= ${amountUcents} returning id),
    hold as (
      insert into holds (id, account_id, amount_ucents, updated_ms)
      select ${id}, id, cast(${amountUcents} as bigint), cast(${nowMs} as bigint) from held)`;
}

/** The same as `Ledger.settle`, if the part `ended` of the room has a row. */
export function settleParts(settle: {
  id: string;
  account: AccountRef;
  charge: NewTransfer | undefined;
  nowMs: number;
}): Sql {
  const { id, account, charge } = settle;
  const charged = charge?.amountUcents ?? 0n;
  const released = sql`released as (
      delete from holds where id = ${id} and exists (select 1 from ended) returning amount_ucents),
    settled as (
      update ledger_accounts set held_ucents = held_ucents - released.amount_ucents, debits_ucents = debits_ucents + ${charged}
      from released where id = ${accountId(account)})`;
  return charge === undefined ? released : sql`${released}, ${chargePart(id, charge, settle.nowMs)}`;
}

function chargePart(batchId: string, charge: NewTransfer, nowMs: number): Sql {
  return sql`charge as (
      insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, evidence, effective_ms, posted_ms)
      select ${charge.id}, ${batchId}, ${accountId(charge.debit)}, ${accountId(charge.credit)}, cast(${charge.amountUcents} as bigint),
        ${charge.kind}, ${charge.subjectId}, ${charge.evidence ?? null}, cast(${charge.effectiveMs} as bigint), cast(${nowMs} as bigint)
      from ended)`;
}

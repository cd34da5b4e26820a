// The ledger's part of transactions that are one statement on PostgreSQL (`HotBody` in base/db). `holdNow` and `settleNow` are the same for
// SQLite.
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
import { z } from 'zod';
import { ucents } from '../../base/db/columns.ts';
import { type NowTx, type Sql, sql } from '../../base/db/db.ts';
import { type AccountRef, accountId } from './accounts.ts';
import type { NewTransfer } from './store.ts';

interface NewHold {
  /** Id of the hold. No hold has this id yet. */
  id: string;
  account: AccountRef;
  /** Amount of the hold. It must be more than 0. */
  amountUcents: bigint;
  nowMs: number;
}

/** The part `held` has one row if `condition` is true and the account covers the amount, and none otherwise. */
export function holdParts({ id, account, amountUcents, nowMs }: NewHold, condition: Sql): Sql {
  return sql`held as (
      update ledger_accounts set held_ucents = held_ucents + ${amountUcents}
      where id = ${accountId(account)} and credits_ucents - debits_ucents - held_ucents >= ${amountUcents} and ${condition} returning id),
    hold as (
      insert into holds (id, account_id, amount_ucents, updated_ms)
      select ${id}, id, cast(${amountUcents} as bigint), cast(${nowMs} as bigint) from held)`;
}

/** False if the account does not cover the amount. */
export function holdNow(tx: NowTx, { id, account, amountUcents, nowMs }: NewHold): boolean {
  const covered = tx.run(
    sql`update ledger_accounts set held_ucents = held_ucents + ${amountUcents}
        where id = ${accountId(account)} and credits_ucents - debits_ucents - held_ucents >= ${amountUcents}`,
  );
  if (covered === 0) return false;
  tx.run(
    sql`insert into holds (id, account_id, amount_ucents, updated_ms) values (${id}, ${accountId(account)}, ${amountUcents}, ${nowMs})`,
  );
  return true;
}

interface Settlement {
  /** Id of the hold. */
  id: string;
  account: AccountRef;
  /** A transfer to an account of the platform. It is not larger than the hold. */
  charge: NewTransfer | undefined;
  nowMs: number;
}

/** The parts of a `HotBody` statement that release the hold and post its charge. They do nothing if the part `ended` has no row. */
export function settleParts({ id, account, charge, nowMs }: Settlement): Sql {
  const charged = charge?.amountUcents ?? 0n;
  const released = sql`released as (
      delete from holds where id = ${id} and exists (select 1 from ended) returning amount_ucents),
    settled as (
      update ledger_accounts set held_ucents = held_ucents - released.amount_ucents, debits_ucents = debits_ucents + ${charged}
      from released where id = ${accountId(account)})`;
  return charge === undefined ? released : sql`${released}, ${chargePart(id, charge, nowMs)}`;
}

/** Releases the hold and posts its charge. */
export function settleNow(tx: NowTx, { id, account, charge, nowMs }: Settlement): void {
  const released = tx.one(Released, sql`delete from holds where id = ${id} returning amount_ucents`);
  const releasedUcents = released?.amount_ucents ?? 0n;
  const chargedUcents = charge?.amountUcents ?? 0n;
  if (chargedUcents > releasedUcents) throw new Error(`${id} held ${releasedUcents}, ${chargedUcents} is charged`);
  if (charge !== undefined) insertCharge(tx, id, charge, nowMs);
  if (releasedUcents === 0n) return;
  tx.run(
    sql`update ledger_accounts set held_ucents = held_ucents - ${releasedUcents}, debits_ucents = debits_ucents + ${chargedUcents}
        where id = ${accountId(account)}`,
  );
}

const Released = z.object({ amount_ucents: ucents });

function chargePart(batchId: string, charge: NewTransfer, nowMs: number): Sql {
  return sql`charge as (
      insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, evidence, effective_ms, posted_ms)
      select ${charge.id}, ${batchId}, ${accountId(charge.debit)}, ${accountId(charge.credit)}, cast(${charge.amountUcents} as bigint),
        ${charge.kind}, ${charge.subjectId}, ${charge.evidence ?? null}, cast(${charge.effectiveMs} as bigint), cast(${nowMs} as bigint)
      from ended)`;
}

function insertCharge(tx: NowTx, batchId: string, charge: NewTransfer, nowMs: number): void {
  tx.run(
    sql`insert into transfers (id, batch_id, debit_account_id, credit_account_id, amount_ucents, kind, subject_id, evidence, effective_ms, posted_ms)
        values (${charge.id}, ${batchId}, ${accountId(charge.debit)}, ${accountId(charge.credit)}, ${charge.amountUcents}, ${charge.kind},
          ${charge.subjectId}, ${charge.evidence ?? null}, ${charge.effectiveMs}, ${nowMs})`,
  );
}

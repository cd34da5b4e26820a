// The SQL of chains: how far each was read.
import { z } from 'zod';
import type { DepositChain } from '../../../shared/api/deposit.ts';
import { int, text } from '../../base/db/columns.ts';
import { type Query, sql, type Tx } from '../../base/db/db.ts';
import type { Block } from './reader.ts';

const ChainRow = z.object({
  id: text,
  head_number: int.nullable(),
  head_ms: int.nullable(),
  final_number: int.nullable(),
  final_hash: text.nullable(),
  final_ms: int.nullable(),
  pass_number: int.nullable(),
  pass_ms: int.nullable(),
  pass_after: text.nullable(),
  paused_reason: text.nullable(),
  updated_ms: int,
});
export type ChainRow = z.infer<typeof ChainRow>;

const COLUMNS = sql`id, head_number, head_ms, final_number, final_hash, final_ms, pass_number, pass_ms, pass_after, paused_reason, updated_ms`;

export function findChain(query: Query, chain: DepositChain): Promise<ChainRow | undefined> {
  return query.one(ChainRow, sql`select ${COLUMNS} from deposit_chains where id = ${chain}`);
}

export function allChains(query: Query): Promise<ChainRow[]> {
  return query.all(ChainRow, sql`select ${COLUMNS} from deposit_chains order by id`);
}

/** Makes the row of a chain if it has none yet. */
export async function addChain(tx: Tx, chain: DepositChain, nowMs: number): Promise<void> {
  await tx.run(
    sql`insert into deposit_chains (id, updated_ms) values (${chain}, ${nowMs}) on conflict (id) do nothing`,
  );
}

export async function pause(tx: Tx, chain: DepositChain, reason: string | null, nowMs: number): Promise<void> {
  await tx.run(sql`update deposit_chains set paused_reason = ${reason}, updated_ms = ${nowMs} where id = ${chain}`);
}

/** Sets how far the chain was read. */
export async function setRead(
  tx: Tx,
  chain: DepositChain,
  { head, final }: { head: Omit<Block, 'hash'>; final: Block },
  nowMs: number,
): Promise<void> {
  await tx.run(
    sql`update deposit_chains set head_number = ${head.number}, head_ms = ${head.ms}, final_number = ${final.number}, final_hash = ${final.hash},
          final_ms = ${final.ms}, paused_reason = null, updated_ms = ${nowMs}
        where id = ${chain}`,
  );
}

/** Sets back how far the chain was read, so that the watcher reads it again from the block after this one. */
export async function rewind(tx: Tx, chain: DepositChain, { number, hash, ms }: Block, nowMs: number): Promise<void> {
  await tx.run(sql`delete from deposit_checkpoints where chain = ${chain} and number > ${number}`);
  await tx.run(
    sql`update deposit_chains set final_number = ${number}, final_hash = ${hash}, final_ms = ${ms}, pass_number = null, pass_ms = null,
          pass_after = null, paused_reason = null, updated_ms = ${nowMs}
        where id = ${chain}`,
  );
}

/** The place at which a pass over token accounts goes on, and the block up to which it reads. */
export interface Pass {
  number: number;
  ms: number;
  /** The id of the last deposit that was read; empty before the first one. */
  after: string;
}

/** Null: the pass has ended. */
export async function setPass(tx: Tx, chain: DepositChain, pass: Pass | null): Promise<void> {
  const { number, ms, after } = pass ?? { number: null, ms: null, after: null };
  await tx.run(
    sql`update deposit_chains set pass_number = ${number}, pass_ms = ${ms}, pass_after = ${after} where id = ${chain}`,
  );
}

const CheckpointRow = z.object({ number: int, hash: text });
export type Checkpoint = z.infer<typeof CheckpointRow>;

/** The checkpoints of the chain, newest first. */
export function checkpoints(query: Query, chain: DepositChain): Promise<Checkpoint[]> {
  return query.all(
    CheckpointRow,
    sql`select number, hash from deposit_checkpoints where chain = ${chain} order by number desc`,
  );
}

/** Removes the checkpoints above `above`, whose branch is gone, and those that are final now. Adds `added`. */
export async function setCheckpoints(
  tx: Tx,
  chain: DepositChain,
  { above, finalNumber, added }: { above: number; finalNumber: number; added: Checkpoint | null },
): Promise<void> {
  await tx.run(
    sql`delete from deposit_checkpoints where chain = ${chain} and (number > ${above} or number <= ${finalNumber})`,
  );
  if (added === null || added.number <= finalNumber) return;
  await tx.run(
    sql`insert into deposit_checkpoints (chain, number, hash) values (${chain}, ${added.number}, ${added.hash})
        on conflict (chain, number) do update set hash = excluded.hash`,
  );
}

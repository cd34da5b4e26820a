// The proof that a room's rows and the ledger agree on what each was charged.
import { z } from 'zod';
import { text, ucents } from '../../base/db/columns.ts';
import type { Query } from '../../base/db/db.ts';

/** What the ledger has posted about each subject, by kind. */
export type Posted = ReadonlyMap<string, ReadonlyMap<string, bigint>>;

/** How a room proves its rows against the ledger. */
export interface RoomProof {
  /** Ids after `afterId` of the subjects that the room has rows about, in order. */
  subjectsAfter(query: Query, afterId: string, limit: number): Promise<string[]>;
  /** What is wrong with these subjects; there may be subjects of other rooms among them. */
  prove(query: Query, posted: Posted): Promise<ChargesProof>;
  /** What was charged for rows that are gone for good reason. Left out: no row of the room ever goes. */
  forgottenUcents?(query: Query): Promise<bigint>;
}

/** What a row of a room says that it was charged. */
export const Charge = z.object({ id: text, charged_ucents: ucents });
export type Charge = z.infer<typeof Charge>;

export interface ChargesProof {
  /** In words. */
  faults: string[];
  /** What the ledger has charged for what has no row. */
  rowless: Rowless;
}

interface Rowless {
  ucents: bigint;
  ids: string[];
}

/** `kind` is that of the room's transfers, `rows` are its rows about the subjects. */
export function proveCharges(posted: Posted, kind: string, rows: readonly Charge[]): ChargesProof {
  const charged = new Map(rows.map((row) => [row.id, row.charged_ucents]));
  const proof: ChargesProof = { faults: [], rowless: { ucents: 0n, ids: [] } };
  for (const [id, kinds] of posted) {
    const [says, is] = [charged.get(id), kinds.get(kind) ?? 0n];
    if (says !== undefined && says !== is) proof.faults.push(`${id}: charged ${says}, the ledger says ${is}`);
    if (says !== undefined || is === 0n) continue;
    proof.rowless.ucents += is;
    proof.rowless.ids.push(id);
  }
  return proof;
}

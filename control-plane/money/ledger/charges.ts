// The proof that the rows of a room and the ledger agree on each charge.
import { z } from 'zod';
import { text, ucents } from '../../base/db/columns.ts';
import type { Query } from '../../base/db/db.ts';

/** What the ledger has posted for each subject, by kind. */
export type Posted = ReadonlyMap<string, ReadonlyMap<string, bigint>>;

/** How a room proves its rows against the ledger. */
export interface RoomProof {
  /** Ids after `afterId` of the subjects of the room's rows, in order. */
  subjectsAfter(query: Query, afterId: string, limit: number): Promise<string[]>;
  /** The faults of the subjects in `posted`. Some of these subjects may belong to other rooms. */
  prove(query: Query, posted: Posted): Promise<ChargesProof>;
  /** The total charge of rows that retention has deleted. Leave it out if the room never deletes rows. */
  forgottenUcents?(query: Query): Promise<bigint>;
}

/** A proof that reads all rows about a subject. Only the full proof runs it. */
export interface SubjectProof {
  /** Ids of the subjects after `afterId`, in order. */
  subjectsAfter(query: Query, afterId: string, limit: number): Promise<string[]>;
  /** Returns broken invariants in words; empty if all hold. */
  prove(query: Query, subjectId: string): Promise<string[]>;
}

/** What a proof has found in one page of rows. */
export interface ProofPage {
  /** The faults in words. */
  faults: string[];
  /** The last row of the page; undefined after the last page. */
  lastId: string | undefined;
}

/** Proves a page of rows after `afterId`, in the order of their ids. All statements of a page see the same moment. The first `afterId` is empty. */
export type PagedProof = (query: Query, afterId: string, limit: number) => Promise<ProofPage>;

/** The end of a page. A page that is not full is the last one. Rows that come later are newer than the proof. */
export function lastOf(ids: readonly string[], limit: number): string | undefined {
  return ids.length < limit ? undefined : ids.at(-1);
}

/** The id and the stored charge of a row of the room. */
export const Charge = z.object({ id: text, charged_ucents: ucents });
export type Charge = z.infer<typeof Charge>;

export interface ChargesProof {
  /** The faults in words. */
  faults: string[];
  /** What the ledger has charged for subjects without a row. */
  rowless: Rowless;
}

export interface Rowless {
  ucents: bigint;
  ids: string[];
}

/** `kind` is the kind of the room's transfers, `rows` are the room's rows of the subjects. */
export function proveCharges(posted: Posted, kind: string, rows: readonly Charge[]): ChargesProof {
  const charged = new Map(rows.map((row) => [row.id, row.charged_ucents]));
  const proof: ChargesProof = { faults: [], rowless: { ucents: 0n, ids: [] } };
  for (const [id, kinds] of posted) {
    const inRow = charged.get(id);
    const inLedger = kinds.get(kind) ?? 0n;
    if (inRow !== undefined && inRow !== inLedger)
      proof.faults.push(`${id}: charged ${inRow}, the ledger says ${inLedger}`);
    if (inRow !== undefined || inLedger === 0n) continue;
    proof.rowless.ucents += inLedger;
    proof.rowless.ids.push(id);
  }
  return proof;
}

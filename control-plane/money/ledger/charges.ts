// The proof that a room's rows and the ledger agree on what each was charged: both are read side by side, in pieces, however many there are.
import { z } from 'zod';
import { text, ucents } from '../../base/db/columns.ts';
import { type Query, sql } from '../../base/db/db.ts';

/** A row of a room, or what the ledger has charged for it. */
export const Charge = z.object({ id: text, charged_ucents: ucents });
export type Charge = z.infer<typeof Charge>;

/** Charges with an id above `afterId`, `limit` at most, in the order of their ids. */
type Piece = (afterId: string, limit: number) => Promise<Charge[]>;

export interface ChargesProof {
  /** In words. */
  faults: string[];
  /** What the ledger has charged for what has no row. */
  rowless: { ucents: bigint; someIds: string[] };
}

const PIECE = 1_000;
/** Of what may be tens of thousands. */
const NAMED = 20;

/** `kind` is that of the room's transfers, `rows` are those of its rows that were charged. */
export async function proveCharges(query: Query, kind: string, rows: Piece): Promise<ChargesProof> {
  const proof: ChargesProof = { faults: [], rowless: { ucents: 0n, someIds: [] } };
  const posted = inOrder((afterId, limit) => postedCharges(query, kind, { afterId, limit }));
  const charged = inOrder(rows);
  let [inLedger, row] = [await nextOf(posted), await nextOf(charged)];
  while (inLedger !== undefined || row !== undefined) {
    if (inLedger !== undefined && (row === undefined || inLedger.id < row.id)) {
      noteRowless(proof, inLedger);
      inLedger = await nextOf(posted);
    } else if (row !== undefined) {
      const isPosted = row.id === inLedger?.id;
      noteDifference(proof, row, isPosted ? inLedger?.charged_ucents : 0n);
      if (isPosted) inLedger = await nextOf(posted);
      row = await nextOf(charged);
    }
  }
  return proof;
}

async function nextOf(charges: AsyncGenerator<Charge>): Promise<Charge | undefined> {
  const { done, value } = await charges.next();
  return done === true ? undefined : value;
}

async function* inOrder(piece: Piece): AsyncGenerator<Charge> {
  let afterId: string | undefined = '';
  while (afterId !== undefined) {
    const some: Charge[] = await piece(afterId, PIECE);
    yield* some;
    afterId = some.length < PIECE ? undefined : some.at(-1)?.id;
  }
}

function postedCharges(
  query: Query,
  kind: string,
  { afterId, limit }: { afterId: string; limit: number },
): Promise<Charge[]> {
  return query.all(
    Charge,
    sql`select subject_id as id, cast(sum(amount_ucents) as bigint) as charged_ucents from transfers
        where kind = ${kind} and subject_id > ${afterId} group by subject_id order by subject_id limit ${limit}`,
  );
}

function noteDifference(
  { faults }: ChargesProof,
  { id, charged_ucents: charged }: Charge,
  posted: bigint | undefined,
): void {
  if (posted !== charged) faults.push(`${id}: charged ${charged}, the ledger says ${posted}`);
}

function noteRowless({ rowless }: ChargesProof, { id, charged_ucents: charged }: Charge): void {
  rowless.ucents += charged;
  if (rowless.someIds.length < NAMED) rowless.someIds.push(id);
}

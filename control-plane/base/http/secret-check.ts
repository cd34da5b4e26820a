// Checks that the database belongs to the server's secret: values that were sealed with one secret do not open with another.
import { z } from 'zod';
import { text } from '../db/columns.ts';
import { type Db, sql } from '../db/db.ts';
import type { Sealing } from './sealing.ts';

const PLACE = 'secret check';
const WORD = 'the secret fits';
const CheckRow = z.object({ sealed: text });

/** Called at every start. The first start stores the check value. @throws Error if the database was written with another secret */
export async function assertSecretFits(db: Db, sealing: Sealing): Promise<void> {
  const known = await db.tx('secret.check', async (tx) => {
    const row = await tx.one(CheckRow, sql`select sealed from secret_checks where id = 1`);
    if (row === undefined)
      await tx.run(sql`insert into secret_checks (id, sealed) values (1, ${sealing.seal(PLACE, WORD)})`);
    return row;
  });
  if (known === undefined) return;
  try {
    sealing.open(PLACE, known.sealed);
  } catch (error) {
    throw new Error(
      'secret_file does not hold the secret that this database was written under: put that file back (each backup needs it beside it)',
      { cause: error },
    );
  }
}

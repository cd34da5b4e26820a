// Encrypts text that must not be readable in the database: AES-256-GCM with a key from the server's secret. Also checks that the database belongs
// to that secret.
import { createCipheriv, createDecipheriv, createSecretKey, hkdfSync } from 'node:crypto';
import type { Ids } from '../../../shared/ids.ts';
import { z } from 'zod';
import { text } from '../db/columns.ts';
import { type Db, type Query, sql } from '../db/db.ts';

export interface Sealing {
  /** `place` names the kind and the owner of the text. It is not a secret. A sealed text opens only with the place that it was sealed for. */
  seal(place: string, text: string): string;
  /** @throws Error if the text was sealed for another place or with another secret, or was changed */
  open(place: string, sealed: string): string;
}

const ALGORITHM = 'aes-256-gcm';
const KEY_BYTES = 32;
/** Random nonces allow at most 2^32 texts under one secret. That is more than one a second for a century. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** `secret` has at least 32 random bytes and stays the same over restarts. */
export function openSealing(secret: Uint8Array, ids: Ids): Sealing {
  // A key object is prepared once. Bytes would be prepared again for each text, which takes longer than the encryption.
  const key = createSecretKey(new Uint8Array(hkdfSync('sha256', secret, Buffer.alloc(0), 'sealing', KEY_BYTES)));
  return {
    seal: (place, text) => {
      const nonce = Buffer.from(ids.secret(NONCE_BYTES), 'base64url');
      const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(place));
      const hidden = Buffer.concat([cipher.update(text, 'utf8'), cipher.final()]);
      return Buffer.concat([nonce, cipher.getAuthTag(), hidden]).toString('base64url');
    },
    open: (place, sealed) => {
      const bytes = Buffer.from(sealed, 'base64url');
      const nonce = bytes.subarray(0, NONCE_BYTES);
      const tag = bytes.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES);
      const decipher = createDecipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES })
        .setAAD(Buffer.from(place))
        .setAuthTag(tag);
      const hidden = bytes.subarray(NONCE_BYTES + TAG_BYTES);
      return Buffer.concat([decipher.update(hidden), decipher.final()]).toString('utf8');
    },
  };
}

const PLACE = 'secret check';
const WORD = 'the secret fits';
const CheckRow = z.object({ sealed: text });
const STORED = sql`select sealed from secret_checks where id = 1`;

/** Called at every start. The first start stores the check value. @throws Error if the database was written with another secret */
export async function assertSecretFits(db: Db, sealing: Sealing): Promise<void> {
  const known = await db.tx('secret.check', async (tx) => {
    const row = await tx.one(CheckRow, STORED);
    if (row === undefined)
      await tx.run(sql`insert into secret_checks (id, sealed) values (1, ${sealing.seal(PLACE, WORD)})`);
    return row;
  });
  if (known !== undefined) assertOpens(known, sealing);
}

/** Whether the database was written under a secret. */
export async function isSealed(query: Query): Promise<boolean> {
  return (await query.one(CheckRow, STORED)) !== undefined;
}

/** The same for a process that may not write yet. @throws Error if the database was written with another secret */
export async function assertSecretKnown(query: Query, sealing: Sealing): Promise<void> {
  const known = await query.one(CheckRow, STORED);
  if (known !== undefined) assertOpens(known, sealing);
}

function assertOpens({ sealed }: z.infer<typeof CheckRow>, sealing: Sealing): void {
  try {
    sealing.open(PLACE, sealed);
  } catch (error) {
    throw new Error(
      'secret_file does not hold the secret that this database was written under: put that file back (each backup needs it beside it)',
      { cause: error },
    );
  }
}

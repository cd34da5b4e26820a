// Encrypts text that must not be readable in the database: AES-256-GCM with a key from the server's secret.
import { createCipheriv, createDecipheriv, hkdfSync } from 'node:crypto';
import type { Ids } from '../../../shared/ids.ts';

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
  const key = Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'sealing', KEY_BYTES));
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

// Presigned URLs of the local disk: anyone who has one may read or write one blob until it expires. No API key is needed.
import { createHmac, createSecretKey, hkdfSync, type KeyObject, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Permission } from './blobs.ts';
import type { UrlKeys } from './url-keys.ts';

export interface PresignedUrls {
  /** A function that makes the URL for a permission. It takes the key that signs now, so use it at once. */
  signer(): Promise<(permission: Permission) => string>;
  /**
   * The permission in a request, even if it has expired. Undefined if the URL was changed, if the signature is not ours, or if its key was
   * revoked.
   */
  read(method: Permission['method'], key: string, query: PresignedQuery): Promise<Permission | undefined>;
}

export const PresignedQuery = z.strictObject({
  exp: z.coerce.number().int().min(0),
  bytes: z.coerce.number().int().min(0).optional(),
  name: z.string().max(1024).optional(),
  kid: z.string().max(64),
  sig: z.string().max(64),
});
export type PresignedQuery = z.infer<typeof PresignedQuery>;

interface Deps {
  /** At least 32 random bytes, the same over restarts and in all control planes. */
  secret: Uint8Array;
  /** The address of the API with `/v1`. */
  baseUrl: string;
  keys: Pick<UrlKeys, 'current' | 'find'>;
}

export function openPresignedUrls({ secret, baseUrl, keys }: Deps): PresignedUrls {
  const signingKeyOf = (kid: string): KeyObject =>
    createSecretKey(Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), `blob urls ${kid}`, 32)));
  return {
    signer: async () => {
      const { id: kid } = await keys.current();
      const signingKey = signingKeyOf(kid);
      return (permission) => {
        const { key, expiresS, bytes, filename } = permission;
        const query = new URLSearchParams({ exp: String(expiresS) });
        if (bytes !== undefined) query.set('bytes', String(bytes));
        if (filename !== undefined) query.set('name', filename);
        query.set('kid', kid);
        query.set('sig', signatureOf(signingKey, permission).toString('base64url'));
        return `${baseUrl}/blobs/${key}?${query.toString()}`;
      };
    },
    read: async (method, key, { exp, bytes, name, kid, sig }) => {
      const permission: Permission = {
        method,
        key,
        expiresS: exp,
        ...(bytes === undefined ? {} : { bytes }),
        ...(name === undefined ? {} : { filename: name }),
      };
      const given = Buffer.from(sig, 'base64url');
      const right = signatureOf(signingKeyOf(kid), permission);
      // The check comes before the database is read, so that a stranger's guess costs no query.
      if (given.length !== right.length || !timingSafeEqual(given, right)) return undefined;
      const signer = await keys.find(kid);
      if (signer === undefined || (signer.untilMs !== null && exp * 1000 > signer.untilMs)) return undefined;
      return permission;
    },
  };
}

function signatureOf(signingKey: KeyObject, { method, key, expiresS, bytes, filename }: Permission): Buffer {
  // JSON separates the fields, so two different URLs never have the same signed text.
  const text = JSON.stringify([method, key, expiresS, bytes ?? null, filename ?? null]);
  return createHmac('sha256', signingKey).update(text).digest();
}

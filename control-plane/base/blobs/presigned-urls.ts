// Presigned URLs of the local disk: anyone who has one may read or write one blob until it expires. No API key is needed.
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import type { Permission } from './blobs.ts';
import type { UrlKeys } from './url-keys.ts';

export interface PresignedUrls {
  /** The URL for this permission. */
  urlOf(permission: Permission): Promise<string>;
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
  const sign = (kid: string, { method, key, expiresS, bytes, filename }: Permission): Buffer => {
    const signingKey = Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), `blob urls ${kid}`, 32));
    // JSON separates the fields, so two different URLs never have the same signed text.
    const text = JSON.stringify([method, key, expiresS, bytes ?? null, filename ?? null]);
    return createHmac('sha256', signingKey).update(text).digest();
  };
  return {
    urlOf: async (permission) => {
      const { key, expiresS, bytes, filename } = permission;
      const { id: kid } = await keys.current();
      const query = new URLSearchParams({ exp: String(expiresS) });
      if (bytes !== undefined) query.set('bytes', String(bytes));
      if (filename !== undefined) query.set('name', filename);
      query.set('kid', kid);
      query.set('sig', sign(kid, permission).toString('base64url'));
      return `${baseUrl}/blobs/${key}?${query.toString()}`;
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
      const right = sign(kid, permission);
      // The check comes before the database is read, so that a stranger's guess costs no query.
      if (given.length !== right.length || !timingSafeEqual(given, right)) return undefined;
      const signer = await keys.find(kid);
      if (signer === undefined || (signer.untilMs !== null && exp * 1000 > signer.untilMs)) return undefined;
      return permission;
    },
  };
}

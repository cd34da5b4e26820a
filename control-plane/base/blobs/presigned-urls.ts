// Presigned URLs: whoever has one may read one blob, or write one, until a time. No API key is asked for.
import { createHmac, createSecretKey, hkdfSync, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';

/** What a URL allows. */
export interface PresignedUrl {
  method: 'GET' | 'PUT';
  key: string;
  /** Epoch seconds; at this time it is over. */
  expiresS: number;
  /** Of what may be written. */
  bytesMax?: number;
  /** Of the answer, so that browsers save the blob under a name. */
  contentDisposition?: string;
}

export interface PresignedUrls {
  /** The URL to hand out. */
  urlOf(grant: PresignedUrl): string;
  /** The grant that a request shows, expired ones too; undefined where it was not signed here, or was changed. */
  read(method: PresignedUrl['method'], key: string, query: PresignedQuery): PresignedUrl | undefined;
}

export const PresignedQuery = z.strictObject({
  exp: z.coerce.number().int().min(0),
  max: z.coerce.number().int().min(0).optional(),
  cd: z.string().max(1024).optional(),
  sig: z.string().max(64),
});
export type PresignedQuery = z.infer<typeof PresignedQuery>;

/** `secret` is at least 32 random bytes and stays the same over restarts. `baseUrl` is the API's address with `/v1`. */
export function openPresignedUrls(secret: Uint8Array, baseUrl: string): PresignedUrls {
  const key = createSecretKey(Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'blob urls', 32)));
  const sign = (grant: PresignedUrl): Buffer => {
    const { method, key: blob, expiresS, bytesMax, contentDisposition } = grant;
    // JSON, so that no two presigned URLs are one text.
    const text = JSON.stringify([method, blob, expiresS, bytesMax ?? null, contentDisposition ?? null]);
    return createHmac('sha256', key).update(text).digest();
  };
  return {
    urlOf: (grant) => {
      const query = new URLSearchParams({ exp: String(grant.expiresS) });
      if (grant.bytesMax !== undefined) query.set('max', String(grant.bytesMax));
      if (grant.contentDisposition !== undefined) query.set('cd', grant.contentDisposition);
      query.set('sig', sign(grant).toString('base64url'));
      return `${baseUrl}/blobs/${grant.key}?${query.toString()}`;
    },
    read: (method, blob, { exp, max, cd, sig }) => {
      const grant: PresignedUrl = {
        method,
        key: blob,
        expiresS: exp,
        ...(max === undefined ? {} : { bytesMax: max }),
        ...(cd === undefined ? {} : { contentDisposition: cd }),
      };
      const given = Buffer.from(sig, 'base64url');
      const right = sign(grant);
      return given.length === right.length && timingSafeEqual(given, right) ? grant : undefined;
    },
  };
}

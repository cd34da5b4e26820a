// Presigned URLs: anyone who has one may read or write one blob until it expires. No API key is needed.
import { createHmac, createSecretKey, hkdfSync, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';

/** The permission that a URL carries. */
export interface PresignedUrl {
  method: 'GET' | 'PUT';
  key: string;
  /** Epoch seconds. The URL is invalid from this time on. */
  expiresS: number;
  /** Size limit for a write. */
  bytesMax?: number;
  /** Header of the response, so that a browser saves the blob under a name. */
  contentDisposition?: string;
}

export interface PresignedUrls {
  /** The URL for this permission. */
  urlOf(grant: PresignedUrl): string;
  /** The permission in a request, even if it has expired; undefined if the signature is not ours or the URL was changed. */
  read(method: PresignedUrl['method'], key: string, query: PresignedQuery): PresignedUrl | undefined;
}

export const PresignedQuery = z.strictObject({
  exp: z.coerce.number().int().min(0),
  max: z.coerce.number().int().min(0).optional(),
  cd: z.string().max(1024).optional(),
  sig: z.string().max(64),
});
export type PresignedQuery = z.infer<typeof PresignedQuery>;

/** `secret` has at least 32 random bytes and stays the same over restarts. `baseUrl` is the address of the API with `/v1`. */
export function openPresignedUrls(secret: Uint8Array, baseUrl: string): PresignedUrls {
  const key = createSecretKey(Buffer.from(hkdfSync('sha256', secret, Buffer.alloc(0), 'blob urls', 32)));
  const sign = (grant: PresignedUrl): Buffer => {
    const { method, key: blob, expiresS, bytesMax, contentDisposition } = grant;
    // JSON separates the fields, so two different URLs never have the same signed text.
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

// GET and PUT /v1/blobs/{key}: the targets of presigned URLs. The signature is the authentication.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { type Route, route, uploadRoute } from '../http/route.ts';
import type { Blobs } from './blobs.ts';
import { blobReply } from './content.ts';
import { type PresignedUrl, PresignedQuery, type PresignedUrls } from './presigned-urls.ts';

const params = z.strictObject({ key: z.string() });
const Stored = z.strictObject({ bytes: z.int(), sha256: z.string() });

export function blobRoutes(deps: { blobs: Blobs; presignedUrls: PresignedUrls; clock: Clock }): Route[] {
  const { blobs, presignedUrls, clock } = deps;
  const common = { path: '/v1/blobs/{key}', tag: 'blobs', scope: 'none', idempotency: 'none', hidden: true } as const;
  const allowed = (method: PresignedUrl['method'], key: string, query: PresignedQuery): PresignedUrl => {
    const grant = presignedUrls.read(method, key, query);
    if (grant === undefined)
      return fail('url_invalid', 'This URL was not made here for this, or was changed. Ask for a new one.');
    if (grant.expiresS * 1000 <= clock.now()) fail('url_invalid', 'This URL has expired. Ask for a new one.');
    return grant;
  };
  return [
    route({
      ...common,
      method: 'GET',
      operationId: 'readBlob',
      summary: 'Read what a presigned URL stands for',
      params,
      query: PresignedQuery,
      responses: {
        200: { description: 'All of it', mediaType: 'application/octet-stream' },
        206: { description: 'The range of bytes that was asked for', mediaType: 'application/octet-stream' },
      },
      errors: ['url_invalid', 'not_found', 'range_not_satisfiable'],
      handler: async ({ params: { key }, query, range }) => {
        const { contentDisposition } = allowed('GET', key, query);
        const blob = await blobs.open(key);
        if (blob === undefined) return fail('not_found', 'What this URL stands for is gone.');
        return blobReply(blob, range, {
          'content-type': 'application/octet-stream',
          'cache-control': 'private, no-store',
          ...(contentDisposition === undefined ? {} : { 'content-disposition': contentDisposition }),
        });
      },
    }),
    uploadRoute({
      ...common,
      method: 'PUT',
      operationId: 'writeBlob',
      summary: 'Write what a presigned URL stands for, once',
      params,
      query: PresignedQuery,
      upload: {},
      responses: { 201: { description: 'It is stored', schema: Stored } },
      errors: ['url_invalid', 'conflict', 'storage_full'],
      handler: async ({ params: { key }, query, body, gone }) => {
        const { bytesMax = 0 } = allowed('PUT', key, query);
        if (body.bytes !== undefined && body.bytes > bytesMax) {
          fail('body_too_large', `What is stored may have at most ${bytesMax} bytes.`);
        }
        // The connection must survive an aborted body, because the response needs it.
        const source = body.stream.iterator({ destroyOnReturn: false });
        const { bytes, sha256 } = await blobs.write(key, source, { bytesMax, signal: gone });
        return { status: 201, body: { bytes, sha256 } };
      },
    }),
  ];
}

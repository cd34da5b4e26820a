// GET and PUT /v1/blobs/{key}: the targets of presigned URLs. The signature is the authentication.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { type Route, route, uploadRoute } from '../http/route.ts';
import { type Blobs, failTooLarge, type Permission, writeForCaller } from './blobs.ts';
import { attachment, blobReply } from './content.ts';
import { PresignedQuery, type PresignedUrls } from './presigned-urls.ts';

const params = z.strictObject({ key: z.string() });
const Stored = z.strictObject({ bytes: z.int(), sha256: z.string() });

export function blobRoutes(deps: { blobs: Blobs; presignedUrls: PresignedUrls; clock: Clock }): Route[] {
  const { blobs, presignedUrls, clock } = deps;
  const common = { path: '/v1/blobs/{key}', tag: 'blobs', scope: 'none', idempotency: 'none', hidden: true } as const;
  const allowed = async (method: Permission['method'], key: string, query: PresignedQuery): Promise<Permission> => {
    const permission = await presignedUrls.read(method, key, query);
    if (permission === undefined)
      return fail(
        'url_invalid',
        'This URL was not made here for this, was changed, or was revoked. Ask for a new one.',
      );
    if (permission.expiresS * 1000 <= clock.now()) fail('url_invalid', 'This URL has expired. Ask for a new one.');
    return permission;
  };
  return [
    route({
      ...common,
      method: 'GET',
      // The object may be on the disk of the primary.
      everywhere: false,
      operationId: 'readBlob',
      summary: 'Read the object of a presigned URL',
      params,
      query: PresignedQuery,
      responses: {
        200: { description: 'The whole object', mediaType: 'application/octet-stream' },
        206: { description: 'The range of bytes that was asked for', mediaType: 'application/octet-stream' },
      },
      errors: ['url_invalid', 'not_found', 'range_not_satisfiable'],
      handler: async ({ params: { key }, query, range }) => {
        const { filename } = await allowed('GET', key, query);
        const blob = await blobs.open(key);
        if (blob === undefined) return fail('not_found', 'What this URL stands for is gone.');
        return blobReply(blob, range, {
          'content-type': 'application/octet-stream',
          'cache-control': 'private, no-store',
          ...(filename === undefined ? {} : { 'content-disposition': attachment(filename) }),
        });
      },
    }),
    uploadRoute({
      ...common,
      method: 'PUT',
      operationId: 'writeBlob',
      summary: 'Write the object of a presigned URL, once',
      params,
      query: PresignedQuery,
      upload: {},
      responses: { 201: { description: 'It is stored', schema: Stored } },
      errors: ['url_invalid', 'conflict', 'storage_full'],
      handler: async ({ params: { key }, query, body, gone }) => {
        const { bytes: expected = 0 } = await allowed('PUT', key, query);
        if (body.bytes !== undefined && body.bytes > expected) failTooLarge(expected);
        // The connection must survive an aborted body, because the response needs it.
        const source = wholly(body.stream.iterator({ destroyOnReturn: false }), expected);
        const { bytes, sha256 } = await writeForCaller(blobs, key, source, { bytesMax: expected, gone });
        return { status: 201, body: { bytes, sha256 } };
      },
    }),
  ];
}

/** Passes `source` on. @throws ServiceError `invalid_request` if it ends before `bytes` were read */
async function* wholly(source: AsyncIterable<Uint8Array>, bytes: number): AsyncGenerator<Uint8Array> {
  let read = 0;
  for await (const piece of source) {
    read += piece.length;
    yield piece;
  }
  if (read < bytes) fail('invalid_request', `The body must have exactly ${bytes} bytes, and has ${read}.`);
}

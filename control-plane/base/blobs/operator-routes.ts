// The operator's routes for the keys that sign presigned URLs of the local disk.
import { z } from 'zod';
import { isoTime } from '../../../shared/clock.ts';
import { AnyFields, type Fields, listOf, operator } from '../http/operator.ts';
import { type Route, route } from '../http/route.ts';
import type { UrlKey, UrlKeys } from './url-keys.ts';

export function urlKeyRoutes(keys: Pick<UrlKeys, 'list' | 'rotate'>): Route[] {
  return [
    route({
      ...operator,
      method: 'GET',
      path: '/admin/url-keys',
      operationId: 'adminListUrlKeys',
      summary: 'List the keys that sign presigned URLs, newest first',
      responses: { 200: { description: 'All of them', schema: listOf(AnyFields) } },
      errors: [],
      handler: async () => ({ status: 200, body: { data: (await keys.list()).map(keyFields) } }),
    }),
    route({
      ...operator,
      method: 'POST',
      path: '/admin/url-keys/rotate',
      operationId: 'adminRotateUrlKey',
      summary: 'Sign presigned URLs with a new key from now on',
      body: z.strictObject({ revoke: z.boolean().default(false) }),
      responses: { 200: { description: 'The new key', schema: AnyFields } },
      errors: [],
      handler: async ({ body }) => ({ status: 200, body: keyFields(await keys.rotate(body)) }),
    }),
  ];
}

function keyFields({ id, createdMs, untilMs }: UrlKey): Fields {
  return {
    id,
    created_at: isoTime(createdMs),
    signs: untilMs === null,
    urls_end_at: untilMs === null ? null : isoTime(untilMs),
  };
}

// The routes of every listener: liveness, readiness and the OpenAPI document.
import { z } from 'zod';
import { ServiceError } from '../../../shared/errors.ts';
import type { Documents } from './documents.ts';
import { type Route, route } from './route.ts';

export interface SystemDeps {
  /** Reasons, for people, why requests should go elsewhere for now; empty if this process is ready. */
  ready(): Promise<string[]>;
  documents(): Documents;
}

const Status = z.strictObject({ status: z.literal('ok') });
const common = { method: 'GET', tag: 'system', scope: 'none', idempotency: 'none', hidden: true } as const;

export function systemRoutes({ ready, documents }: SystemDeps): Route[] {
  return [
    route({
      ...common,
      unlimited: true,
      path: '/healthz',
      operationId: 'health',
      summary: 'Check that the process answers',
      responses: { 200: { description: 'It answers', schema: Status } },
      errors: [],
      handler: async () => ({ status: 200, body: { status: 'ok' } }),
    }),
    route({
      ...common,
      unlimited: true,
      path: '/readyz',
      operationId: 'ready',
      summary: 'Check that the process and its dependencies answer',
      responses: { 200: { description: 'It answers', schema: Status } },
      errors: ['unavailable'],
      handler: async () => {
        const reasons = await ready();
        if (reasons.length === 0) return { status: 200, body: { status: 'ok' } };
        throw new ServiceError('unavailable', { detail: reasons.join('; '), retryAfterSeconds: 1 });
      },
    }),
    route({
      ...common,
      path: '/v1/openapi.json',
      operationId: 'openapi',
      summary: 'The OpenAPI 3.1 document of this API',
      responses: { 200: { description: 'The document' } },
      errors: [],
      handler: async () => documents().json(),
    }),
    route({
      ...common,
      path: '/docs/api',
      operationId: 'apiReference',
      summary: 'The API reference as a web page',
      responses: { 200: { description: 'A page' } },
      errors: [],
      handler: async () => documents().page(),
    }),
  ];
}

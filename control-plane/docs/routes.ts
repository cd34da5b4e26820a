// GET /docs and its pages: the manual for people.
import { z } from 'zod';
import { fail } from '../../shared/errors.ts';
import { type Reply, type Route, route } from '../base/http/route.ts';
import type { Manual } from './manual.ts';

const common = { method: 'GET', tag: 'system', scope: 'none', idempotency: 'none', hidden: true } as const;

export function docsRoutes({ manual }: { manual: Manual }): Route[] {
  const reply = (name: string): Reply => {
    const body = manual.page(name) ?? fail('not_found', { detail: `the manual has no page ${name}` });
    return { status: 200, headers: manual.headers, body };
  };
  return [
    route({
      ...common,
      path: '/',
      operationId: 'home',
      summary: 'Leads people to the manual',
      responses: { 302: { description: 'It is there', headers: { Location: 'Where' } } },
      errors: [],
      handler: async () => ({ status: 302, headers: { location: '/docs' } }),
    }),
    route({
      ...common,
      path: '/docs',
      operationId: 'manual',
      summary: 'The first page of the manual',
      responses: { 200: { description: 'A page' } },
      errors: [],
      handler: async () => reply('index'),
    }),
    route({
      ...common,
      path: '/docs/{page}',
      operationId: 'manualPage',
      summary: 'A page of the manual',
      params: z.strictObject({ page: z.string() }),
      responses: { 200: { description: 'A page' } },
      errors: ['not_found'],
      handler: async ({ params }) => reply(params.page),
    }),
  ];
}

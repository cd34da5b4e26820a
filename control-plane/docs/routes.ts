// GET /docs and its pages: the manual for people.
import { z } from 'zod';
import { fail } from '../../shared/errors.ts';
import { type Reply, type Route, route } from '../base/http/route.ts';
import type { Manual } from './manual.ts';

const common = { method: 'GET', tag: 'system', scope: 'none', idempotency: 'none', hidden: true } as const;

const MARKDOWN = { 'content-type': 'text/markdown; charset=utf-8', 'x-content-type-options': 'nosniff' };

export function docsRoutes({ manual }: { manual: Manual }): Route[] {
  const reply = (name: string): Reply => {
    const isSource = name.endsWith('.md');
    const found = isSource ? manual.markdown(name.slice(0, -'.md'.length)) : manual.page(name);
    const body = found ?? fail('not_found', { detail: `the manual has no page ${name}` });
    return { status: 200, headers: isSource ? MARKDOWN : manual.headers, body };
  };
  return [
    route({
      ...common,
      path: '/',
      operationId: 'home',
      summary: 'Redirect people to the manual',
      responses: {
        302: { description: 'A redirect to the manual', headers: { Location: 'The address of the manual' } },
      },
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
      path: '/llms.txt',
      operationId: 'llms',
      summary: 'Describe the service and list its documents, for programs',
      responses: { 200: { description: 'Markdown' } },
      errors: [],
      handler: async () => ({ status: 200, headers: MARKDOWN, body: manual.llms() }),
    }),
    route({
      ...common,
      path: '/docs/{page}',
      operationId: 'manualPage',
      summary: 'A page of the manual. With `.md`, its Markdown',
      params: z.strictObject({ page: z.string() }),
      responses: { 200: { description: 'A page' } },
      errors: ['not_found'],
      handler: async ({ params }) => reply(params.page),
    }),
  ];
}

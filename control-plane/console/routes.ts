// The console and its assets. Every address of the console answers with the same page, whose script shows the screen of the address.
import { Readable } from 'node:stream';
import { z } from 'zod';
import { fail } from '../../shared/errors.ts';
import { type Reply, type Route, route } from '../base/http/route.ts';
import type { BuiltFile, Console } from './console.ts';

/** Addresses outside of `/console` that also answer with the page. Links in mails, and other programs, open them. */
const ENTRANCES = ['device', 'welcome', 'invitation', 'oidc'] as const;

const common = { method: 'GET', tag: 'system', scope: 'none', idempotency: 'none', hidden: true } as const;
const AnyQuery = z.looseObject({});

export function consoleRoutes({ page, asset }: Console): Route[] {
  const shown = (encodings: string): Reply =>
    page === undefined
      ? fail(
          'not_found',
          'The console was not built here. Build it with npm run build, and start the control plane again.',
        )
      : replyOf(page, encodings);
  const entrance = (path: string, operationId: string): Route =>
    route({
      ...common,
      path,
      operationId,
      summary: 'The console',
      query: AnyQuery,
      responses: { 200: { description: 'The page', mediaType: 'text/html' } },
      errors: ['not_found'],
      handler: async ({ encodings }) => shown(encodings),
    });
  return [
    entrance('/console', 'console'),
    ...ENTRANCES.map((name) => entrance(`/${name}`, `console_${name}`)),
    route({
      ...common,
      path: '/console/{id}',
      idHasSlashes: true,
      operationId: 'consoleScreen',
      summary: 'A screen of the console',
      params: z.strictObject({ id: z.string() }),
      query: AnyQuery,
      responses: { 200: { description: 'The page', mediaType: 'text/html' } },
      errors: ['not_found'],
      handler: async ({ encodings }) => shown(encodings),
    }),
    route({
      ...common,
      path: '/console/assets/{name}',
      operationId: 'consoleAsset',
      summary: 'A file of the console',
      unlimited: true,
      params: z.strictObject({ name: z.string() }),
      responses: { 200: { description: 'The file', mediaType: '*/*' } },
      errors: ['not_found'],
      handler: async ({ params, encodings }) =>
        replyOf(
          asset(params.name) ?? fail('not_found', `The console has no file ${params.name}. Load the page again.`),
          encodings,
        ),
    }),
  ];
}

function replyOf({ headers, bytes, gzipped }: BuiltFile, encodings: string): Reply {
  if (!/\bgzip\b/.test(encodings)) return { status: 200, headers, stream: Readable.from([bytes]) };
  return { status: 200, headers: { ...headers, 'content-encoding': 'gzip' }, stream: Readable.from([gzipped]) };
}

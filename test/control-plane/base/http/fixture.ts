// An HTTP server with a few test routes on a real database, for the tests of base/http.
import { z } from 'zod';
import { int } from '../../../../control-plane/base/db/columns.ts';
import { type Db, sql } from '../../../../control-plane/base/db/db.ts';
import { type Metrics, openMetrics } from '../../../../control-plane/base/http/metrics.ts';
import { type Caller, type Route, route, type WireReply } from '../../../../control-plane/base/http/route.ts';
import { type Http, type HttpOptions, openHttp } from '../../../../control-plane/base/http/server.ts';
import { type Clock, systemClock } from '../../../../shared/clock.ts';
import { fail } from '../../../../shared/errors.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog, type Log } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { openTestDb } from '../../../kit/databases.ts';

const HTTP_ROOMS = [
  { room: 'base/http', directory: new URL('../../../../control-plane/base/http/migrations/', import.meta.url) },
];

/** Tokens `all`, `reader` (no write scope), `other` (another key of the same rights as `all`) and `stranger` (of another organisation). */
const CALLERS: Record<string, Caller> = {
  all: { orgId: 'org_a', principalId: 'apk_all', scopes: ['instances:read', 'instances:write', 'serverless:write'] },
  other: {
    orgId: 'org_a',
    principalId: 'apk_other',
    scopes: ['instances:read', 'instances:write', 'serverless:write'],
  },
  stranger: { orgId: 'org_b', principalId: 'apk_stranger', scopes: ['serverless:write'] },
  reader: { orgId: 'org_a', principalId: 'apk_reader', scopes: ['instances:read'] },
};

export const callerWith = async (token: string): Promise<Caller | undefined> => CALLERS[token];

export interface Bench {
  db: Db;
  http: Http;
  effects(): Promise<number>;
  close(): Promise<void>;
}

export interface BenchOptions {
  clock?: Clock;
  log?: Log;
  db?: Db;
  metrics?: Metrics;
  routes?: (db: Db) => Route[];
  http?: Partial<HttpOptions>;
  ready?: () => Promise<string[]>;
  authenticate?: (token: string) => Promise<Caller | undefined>;
}

/** Opens a server. `effects` counts the rows that the test route `POST /v1/things` has written. */
export async function openBench(options: BenchOptions = {}): Promise<Bench> {
  const clock = options.clock ?? systemClock();
  const db = options.db ?? (await openEffectsDb(clock));
  const http = openServer(db, options, clock);
  http.register(options.routes?.(db) ?? [...thingRoutes(db), touchRoute, inferenceRoute, followRoute]);
  return {
    db,
    http,
    effects: async () =>
      (await db.read.one(z.object({ count: int }), sql`select count(*) as count from effects`))?.count ?? 0,
    close: async () => {
      await http.close();
      if (options.db === undefined) await db.close();
    },
  };
}

export async function openEffectsDb(clock: Clock = systemClock()): Promise<Db> {
  const db = await openTestDb(HTTP_ROOMS, clock);
  await db.tx('effects', (tx) => tx.run(sql`create table effects (id text not null primary key)`));
  return db;
}

function openServer(db: Db, options: BenchOptions, clock: Clock): Http {
  return openHttp(
    {
      clock,
      db,
      ids: createIds(clock, systemRng()),
      log: options.log ?? createLog('test', 'silent'),
      metrics: options.metrics ?? openMetrics(),
      authenticate: options.authenticate ?? callerWith,
      ready: options.ready ?? (async () => []),
      hasRoom: () => true,
    },
    {
      epoch: () => 1,
      audience: 'public',
      baseUrl: 'https://api.example.com/v1',
      trustProxy: [],
      strictResponses: true,
      ...options.http,
    },
  );
}

const Thing = z.strictObject({ id: z.string(), size: z.int() }).meta({ id: 'Thing' });
const common = { tag: 'things', operationId: 'thing', summary: 'A thing' };

const inferenceRoute = route({
  ...common,
  method: 'POST',
  path: '/v1/chat/thing',
  operationId: 'askThing',
  scope: 'serverless:write',
  idempotency: 'none',
  responses: { 200: { description: 'Its answer' } },
  errors: [],
  handler: async () => ({ status: 200, body: {} }),
});

const followRoute = route({
  ...common,
  method: 'GET',
  path: '/v1/chat/thing',
  operationId: 'followThing',
  scope: 'serverless:write',
  idempotency: 'none',
  responses: { 200: { description: 'How it stands' } },
  errors: [],
  handler: async () => ({ status: 200, body: {} }),
});

const touchRoute = route({
  ...common,
  method: 'POST',
  path: '/v1/things/{id}/touch',
  operationId: 'touchThing',
  scope: 'instances:write',
  idempotency: 'none',
  params: z.strictObject({ id: z.string().max(36) }),
  responses: { 204: { description: 'Touched' } },
  errors: [],
  handler: async () => ({ status: 204 }),
});

function thingRoutes(db: Db): Route[] {
  const ids = createIds(systemClock(), systemRng());
  return [
    route({
      ...common,
      method: 'POST',
      path: '/v1/things',
      operationId: 'createThing',
      scope: 'instances:write',
      idempotency: 'required',
      body: z.strictObject({
        name: z.string().min(1).max(8),
        size: z.int().min(1).max(8).default(1).describe('How large'),
        parts: z.array(z.strictObject({ port: z.int() })).optional(),
        refuse: z
          .enum(['insufficient_balance', 'conflict', 'validation_failed', 'rate_limit_exceeded', 'bug'])
          .optional(),
      }),
      responses: { 202: { description: 'Accepted', schema: Thing, headers: { 'Operation-Id': 'The operation' } } },
      errors: ['insufficient_balance', 'conflict', 'rate_limit_exceeded'],
      handler: ({ body, settle }) =>
        db.tx('thing', async (tx) => {
          const id = ids.uuid();
          await tx.run(sql`insert into effects (id) values (${id})`);
          if (body.refuse === 'bug') throw new Error('a planted bug');
          if (body.refuse !== undefined) fail(body.refuse, { detail: 'a planted refusal', retryAfterSeconds: 0.2 });
          const reply = {
            status: 202,
            headers: { 'Operation-Id': id, 'X-Volatile': 'x' },
            body: { id, size: body.size },
          };
          await settle(tx, reply);
          return reply;
        }),
    }),
    route({
      ...common,
      method: 'GET',
      path: '/v1/things/{id}',
      scope: 'instances:read',
      idempotency: 'none',
      params: z.strictObject({ id: z.string().max(36) }),
      query: z.strictObject({ include: z.enum(['all']).optional() }),
      responses: { 200: { description: 'It', schema: Thing } },
      errors: ['not_found'],
      handler: async ({ params }) => {
        if (params.id === 'wrong') return { status: 200, body: { id: 5 } };
        if (params.id === 'undeclared') fail('price_changed', 'not declared');
        if (params.id === 'gone') fail('not_found', 'There is no such thing.');
        return { status: 200, body: { id: params.id, size: 1 } };
      },
    }),
    route({
      ...common,
      method: 'GET',
      path: '/v1/ip',
      operationId: 'ip',
      scope: 'none',
      idempotency: 'none',
      responses: { 200: { description: 'The address' } },
      errors: [],
      handler: async ({ clientIp }) => ({ status: 200, body: { clientIp } }),
    }),
  ];
}

export const as = (token: string, more: Record<string, string> = {}): Record<string, string> => ({
  authorization: `Bearer ${token}`,
  ...more,
});

/** The fields of a problem document that the tests check. */
export function problemOf(reply: WireReply): {
  code: string;
  detail: string;
  errors: { field: string; rule: string }[];
  [key: string]: unknown;
} {
  if (reply.headers['content-type'] !== 'application/problem+json')
    throw new Error(`not a problem document: ${reply.body}`);
  return JSON.parse(reply.body) as ReturnType<typeof problemOf>;
}

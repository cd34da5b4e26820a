// The whole public API without a network: every route over a small world. Each answer is checked against the schema of its route.
import { brought } from '../../control-plane/brings.ts';
import { openMetrics } from '../../control-plane/base/http/metrics.ts';
import type { Route, WireReply } from '../../control-plane/base/http/route.ts';
import { SCOPES } from '../../control-plane/base/http/scopes.ts';
import { countRow } from '../../control-plane/base/db/columns.ts';
import { sql } from '../../control-plane/base/db/db.ts';
import { openSealing } from '../../control-plane/base/http/sealing.ts';
import { type Http, type HttpOptions, type InjectedRequest, openHttp } from '../../control-plane/base/http/server.ts';
import { createIds, type Ids } from '../../shared/ids.ts';
import { createLog } from '../../shared/log.ts';
import { seededRng } from '../../shared/rng.ts';
import { type Reading, readingOver } from '../kit/long-history.ts';
import { cookieOf, type Person } from '../kit/people.ts';
import { openWorld, type World, type WorldOutside } from '../kit/world.ts';

export interface Api {
  world: World;
  http: Http;
  ids: Ids;
  routes: readonly Route[];
  /** A new organisation with a prepaid balance and a key of these scopes, all scopes unless named. */
  account(scopes?: readonly string[]): Promise<ApiAccount>;
  /** Calls with a key, and with an Idempotency-Key of its own if none is given. */
  call(method: InjectedRequest['method'], url: string, options?: CallOptions): Promise<Answer>;
  /** The API of the next process; see `World.restart`. */
  restart(): Promise<Api>;
  /** The API of another process beside this one, on the same database. */
  beside(): Promise<Api>;
  close(): Promise<void>;
}

export interface ApiAccount {
  orgId: string;
  principalId: string;
  key: string;
}

export interface CallOptions {
  key?: string;
  body?: unknown;
  /** A person who has signed in, in place of a key. The request comes from our own page. */
  as?: Person;
  /** A form in place of the body. */
  form?: { type: string; text: string };
  headers?: Record<string, string>;
}

export interface Answer extends WireReply {
  /** The body as JSON, null if there is none. */
  json: JsonObject;
}

/** Answers as tests read them, with `toMatchObject`. */
export type JsonObject = {
  [name: string]: unknown;
  data?: Record<string, unknown>[];
  entries?: Record<string, unknown>[];
  next_cursor?: string | null;
  errors?: { field: string; rule: string }[];
};

/** POST /v1/instances with exactly this body, later than every launch before it. */
export async function postLaunch(api: Api, { key }: ApiAccount, body: object): Promise<Answer> {
  // The newest must be the last one.
  await api.world.clock.advance(1);
  return api.call('POST', '/v1/instances', { key, body });
}

/** The instance that was launched last, as the list shows it; empty if there is none. */
export async function newestInstance(api: Api, { key }: ApiAccount): Promise<Record<string, unknown>> {
  const { json } = await api.call('GET', '/v1/instances', { key });
  return json.data?.[0] ?? {};
}

/** Everything that a launch makes, as counts, and the money that it sets aside: a refused one leaves all of it as it was. */
export async function made(api: Api, { key }: ApiAccount): Promise<Record<string, unknown>> {
  const counts = {
    instances: sql`instances`,
    operations: sql`operations`,
    workloads: sql`workloads`,
    endpoints: sql`endpoints`,
    deliveries: sql`webhook_deliveries`,
    events: sql`events where type like 'instance.%'`,
    charges: sql`transfers where kind <> 'funding.manual'`,
  };
  const found: Record<string, unknown> = {};
  for (const [what, rows] of Object.entries(counts)) {
    found[what] = (await api.world.db.read.one(countRow, sql`select count(*) as count from ${rows}`))?.count;
  }
  const { json } = await api.call('GET', '/v1/balance', { key });
  return { ...found, held_cents: json['held_cents'] };
}

const BALANCE_CENTS = 1_000_000;
const SECRET = new Uint8Array(32).fill(3);

/** `webhookOutbound` carries webhooks; without it no name has an address. */
export async function openApi(outside: WorldOutside = {}, options: Partial<HttpOptions> = {}): Promise<Api> {
  return openOn(await openWorld(1, outside), 1, { outside, options });
}

interface Around {
  outside: WorldOutside;
  options: Partial<HttpOptions>;
}

/** `epoch` counts the processes. */
function openOn(world: World, epoch: number, around: Around): Api {
  const { outside, options } = around;
  const { db, clock, rooms } = world;
  const ids = createIds(clock, seededRng(1_000 + epoch));
  const routes = brought(world.brings(), 'routes');
  const http = openHttp(
    {
      db,
      clock,
      ids,
      log: outside.log ?? createLog('test', 'error'),
      metrics: openMetrics(),
      authenticate: rooms.accounts.authenticate,
      authenticateSession: rooms.users.sessions.authenticate,
      ready: async () => [],
      hasRoom: () => true,
    },
    {
      epoch: () => epoch,
      audience: 'public',
      baseUrl: 'https://api.example.com/v1',
      trustProxy: [],
      sealing: openSealing(SECRET, ids),
      strictResponses: true,
      ...options,
    },
  );
  http.register(routes);
  return {
    world,
    http,
    ids,
    routes,
    account: (scopes = Object.keys(SCOPES)) => world.customer(BALANCE_CENTS, scopes),
    call: async (method, url, { key, as, body, form, headers } = {}) => {
      const reply = await http.inject({
        method,
        url,
        headers: {
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
          ...(as === undefined ? {} : cookieOf(as)),
          ...(method === 'GET' ? {} : { 'idempotency-key': ids.secret(16) }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(form === undefined ? {} : { 'content-type': form.type }),
          ...headers,
        },
        ...(body === undefined ? {} : { payload: JSON.stringify(body) }),
        ...(form === undefined ? {} : { payload: form.text }),
      });
      const isJson = reply.body !== '' && /json/.test(reply.headers['content-type'] ?? '');
      return { ...reply, json: isJson ? (JSON.parse(reply.body) as JsonObject) : {} };
    },
    restart: async () => {
      await http.close();
      return openOn(await world.restart(), epoch + 1, around);
    },
    beside: async () => openOn(await world.restart(), epoch + 1, around),
    close: async () => {
      await http.close();
      await world.close();
    },
  };
}

/**
 * The API over a database that counts the rows which its statements read. Rows that tests copy or invent are no true books, so `close` proves
 * nothing.
 */
export async function openReadingApi(): Promise<{ api: Api; reading: Reading; close(): Promise<void> }> {
  const { processOn, reading } = readingOver();
  const api = await openApi({ processOn });
  const close = async (): Promise<void> => {
    await api.http.close();
    await api.world.db.close();
  };
  return { api, reading, close };
}

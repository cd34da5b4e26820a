// Two control planes on one database: a secondary that passes requests on, and the primary behind it. Tests script what a few routes do.
import { once } from 'node:events';
import { type IncomingMessage, request as sendRequest } from 'node:http';
import { connect, type Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { z } from 'zod';
import { type Metrics, openMetrics } from '../../../../control-plane/base/http/metrics.ts';
import type { Primary } from '../../../../control-plane/base/http/pass-on.ts';
import { openPeers, type Peer, type Peers } from '../../../../control-plane/base/http/peers.ts';
import {
  type OpenCall,
  type Reply,
  type Route,
  route,
  uploadRoute,
} from '../../../../control-plane/base/http/route.ts';
import { createLog } from '../../../../shared/log.ts';
import { openSealing, type Sealing } from '../../../../control-plane/base/http/sealing.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { type Bench, type BenchOptions, openBench, openEffectsDb } from './fixture.ts';

type Answer = (call: Pick<OpenCall<unknown, unknown, unknown>, 'gone' | 'clientIp' | 'requestId'>) => Promise<Reply>;

export interface Planes {
  primary: Bench;
  secondary: Bench;
  primaryPort: number;
  /** The port of the secondary. */
  port: number;
  /** Whom the secondary takes for the primary; tests may set it. */
  believed: Primary;
  /** What `GET /v1/scripted` does on the primary. */
  onGet: Answer;
  /** What `POST /v1/scripted` does with its body on the primary. */
  onBody: (body: Readable) => Promise<Reply>;
  /** The metrics of the secondary. */
  metrics: Metrics;
  /** The lines of the secondary's log, from `warn` on. */
  lines: string[];
  close(): Promise<void>;
}

/** `of.http` is for the secondary alone. `GET /v1/who` and `GET /v1/here`, which is everywhere as a GET is, name the control plane that answers. */
export async function openPlanes(of: Pick<BenchOptions, 'http' | 'clock'> = {}): Promise<Planes> {
  const db = await openEffectsDb();
  const lines: string[] = [];
  const log = createLog('test', 'warn', { write: (line) => void lines.push(line) });
  // The primary believes what the secondary says about its clients.
  const primary = await openBench({ db, http: { trustProxy: ['127.0.0.1'], member: PRIMARY, sealing } });
  const metrics = openMetrics();
  const secondary = await openBench({
    ...of,
    db,
    log,
    metrics,
    http: { ...of.http, member: 'b', sealing, primary: () => planes.believed },
  });
  const planes: Planes = {
    primary,
    secondary,
    primaryPort: 0,
    port: 0,
    believed: 'unknown',
    onGet: async () => ({ status: 200, body: {} }),
    onBody: async (body) => ({ status: 200, body: { bytes: (await buffer(body)).length } }),
    metrics,
    lines,
    close: async () => {
      await secondary.close();
      await primary.close();
      await db.close();
    },
  };
  primary.http.register(routesOf('primary', planes));
  secondary.http.register(routesOf('secondary', planes));
  ({ port: planes.primaryPort } = await primary.http.listen({ host: '127.0.0.1', port: 0 }));
  ({ port: planes.port } = await secondary.http.listen({ host: '127.0.0.1', port: 0 }));
  planes.believed = at(planes.primaryPort);
  return planes;
}

/** The id of the primary. */
export const PRIMARY = 'a';
const ids = createIds(systemClock(), systemRng());
const sealingOf = (byte: number): Sealing => openSealing(new Uint8Array(32).fill(byte), ids);
export const sealing = sealingOf(1);
/** The control plane with this id. Those whose secrets have the same byte share their database. */
export const peersOf = (id: string, byte = 1): Peers => openPeers({ id, sealing: sealingOf(byte), ids });
export const at = (port: number): Peer => ({ id: PRIMARY, url: `http://127.0.0.1:${port}` });

const common = { tag: 'x', summary: 'x', scope: 'none', idempotency: 'none', errors: [] } as const;

function routesOf(by: string, planes: Planes): Route[] {
  const responses = { 200: { description: 'It', mediaType: 'text/event-stream' } };
  return [
    route({
      ...common,
      method: 'GET',
      path: '/v1/here',
      operationId: 'here',
      responses,
      handler: async () => ({ status: 200, body: { by } }),
    }),
    route({
      ...common,
      method: 'GET',
      path: '/v1/who',
      everywhere: false,
      operationId: 'who',
      responses,
      handler: async ({ clientIp, requestId }) => ({ status: 200, body: { by, clientIp, requestId } }),
    }),
    route({
      ...common,
      method: 'POST',
      path: '/v1/echo',
      operationId: 'echo',
      body: z.strictObject({ text: z.string(), list: z.array(z.int()) }),
      responses,
      handler: async ({ body }) => ({ status: 200, body, headers: { 'X-By': by } }),
    }),
    route({
      ...common,
      method: 'GET',
      path: '/v1/scripted',
      everywhere: false,
      operationId: 'scripted',
      responses,
      handler: (call) => planes.onGet(call),
    }),
    uploadRoute({
      ...common,
      method: 'POST',
      path: '/v1/scripted',
      operationId: 'scriptedUpload',
      upload: {},
      responses,
      handler: ({ body }) => planes.onBody(body.stream),
    }),
  ];
}

export interface Sent {
  method?: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
}

/** Resolves with the answer's head. */
export async function open(port: number, { method = 'GET', path, headers = {}, body }: Sent): Promise<IncomingMessage> {
  const outgoing = sendRequest({ port, host: '127.0.0.1', method, path, headers, agent: false });
  outgoing.end(body);
  const [answer] = (await once(outgoing, 'response')) as [IncomingMessage];
  return answer;
}

export async function ask(
  port: number,
  sent: Sent,
): Promise<{ status: number | undefined; headers: IncomingMessage['headers']; rawHeaders: string[]; body: string }> {
  const answer = await open(port, sent);
  const { statusCode: status, headers, rawHeaders } = answer;
  return { status, headers, rawHeaders, body: (await buffer(answer)).toString('latin1') };
}

/** Sends the text, and may send more. `answer` is all that comes until the connection closes. */
export function begin(port: number, text: string): { socket: Socket; answer: Promise<string> } {
  const socket = connect(port, '127.0.0.1', () => socket.write(text));
  const pieces: Buffer[] = [];
  socket.on('data', (piece) => pieces.push(piece));
  // Tests look at the close alone.
  socket.on('error', () => undefined);
  const answer = new Promise<string>((resolve) => {
    socket.once('close', () => resolve(Buffer.concat(pieces).toString('latin1')));
  });
  return { socket, answer };
}

export const exchange = (port: number, text: string): Promise<string> => begin(port, text).answer;

// A webhook load as its parent sees it: receivers that answer, hang or refuse, what has arrived where, and the sending process.
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Certificate, makeCertificate } from '../certificate.ts';
import { eventually, type Program, startProgram } from '../processes.ts';
import { type Received, verify } from '../webhook-receiver.ts';
import { EVENT_TYPES, type LoadPlan, openLoadRooms, orgOf } from './rooms.ts';

export interface Arrival {
  event: Received;
  /** Time from the event to its arrival. */
  delayMs: number;
  answer: 204 | 400;
}

export interface WebhookLoad {
  plan: LoadPlan;
  /** Places of the endpoints that answer. */
  healthy: readonly number[];
  /** The arrivals at each endpoint, in their order. The index is the place of the endpoint. */
  arrivals: readonly Arrival[][];
  start(mode: 'service' | 'plain'): Program;
  /** Resolves when healthy endpoints have received this number of different events. */
  received(count: number, timeoutMs: number): Promise<void>;
  /** Different events that go to healthy endpoints. */
  expected: number;
  /** Forgets what has arrived. */
  reset(): void;
  close(): Promise<void>;
}

interface LoadSize {
  endpoints: number;
  /** Never answer. */
  hanging: number;
  /** Nobody listens there. */
  refusing: number;
  events: number;
  perSecond: number;
}

const NOBODY = 'https://127.0.0.1:1/';

export async function openWebhookLoad(size: LoadSize): Promise<WebhookLoad> {
  const dir = mkdtempSync(join(tmpdir(), 'webhook-load-'));
  const certificate = makeCertificate(['IP:127.0.0.1']);
  const caFile = join(dir, 'ca.pem');
  writeFileSync(caFile, certificate.cert);
  const receivers = await openReceivers(size, certificate);
  const places = Array.from({ length: size.endpoints }, (_, place) => place);
  const healthy = places.filter((place) => place >= size.hanging + size.refusing);
  const { events, perSecond } = size;
  const plan: LoadPlan = {
    databaseFile: join(dir, 'load.db'),
    caFile,
    urls: places.map((place) =>
      place >= size.hanging && !healthy.includes(place) ? NOBODY : `https://127.0.0.1:${receivers.port}/${place}`,
    ),
    events,
    perSecond,
  };
  receivers.secrets.push(...(await makeEndpoints(plan)));
  const programs: Program[] = [];
  return {
    plan,
    healthy,
    arrivals: receivers.arrivals,
    expected: Array.from({ length: events }, (_, k) => placeOf(k, size)).filter((place) => healthy.includes(place))
      .length,
    start: (mode) => {
      const args = [join(import.meta.dirname, 'program.ts'), mode, JSON.stringify(plan)];
      const program = startProgram({ command: process.execPath, args });
      programs.push(program);
      return program;
    },
    received: async (count, timeoutMs) => {
      const done = async (): Promise<true | undefined> => (receivers.seen.size >= count ? true : undefined);
      await eventually(`arrival of ${count} events`, timeoutMs, done);
    },
    reset: () => {
      receivers.seen.clear();
      for (const list of receivers.arrivals) list.length = 0;
    },
    close: async () => {
      await Promise.all(programs.map((program) => program.stop('SIGKILL')));
      await receivers.close();
      rmSync(dir, { recursive: true });
    },
  };
}

function placeOf(event: number, { endpoints }: LoadSize): number {
  return Math.floor(event / EVENT_TYPES.length) % endpoints;
}

interface Receivers {
  port: number;
  /** The secret of each place. If there is none, nothing that is signed is genuine. */
  secrets: string[];
  arrivals: Arrival[][];
  /** Ids of events. */
  seen: Set<string>;
  close(): Promise<void>;
}

/** One server for all; `/<place>` says whose it is. The first places never get an answer. What is not signed is taken as it is. */
async function openReceivers({ endpoints, hanging }: LoadSize, certificate: Certificate): Promise<Receivers> {
  const arrivals: Arrival[][] = Array.from({ length: endpoints }, () => []);
  const secrets: string[] = [];
  const seen = new Set<string>();
  const take = (place: number, { headers }: IncomingMessage, body: Buffer): 204 | 400 => {
    const nowMs = Date.now();
    const isSigned = headers['svc-signature'] !== undefined;
    const answer = isSigned ? verify(secrets[place] ?? '', { headers, body }, nowMs / 1000) : 204;
    const event = JSON.parse(body.toString()) as Received;
    arrivals[place]?.push({ event, delayMs: nowMs - Date.parse(event.created_at), answer });
    seen.add(event.id);
    return answer;
  };
  const server = createServer(certificate, (request, reply) => {
    const place = Number(request.url?.slice(1));
    if (place < hanging) return;
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => reply.writeHead(take(place, request, Buffer.concat(chunks))).end());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    port: (server.address() as AddressInfo).port,
    secrets,
    arrivals,
    seen,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

/** The secrets, by place. */
async function makeEndpoints(plan: LoadPlan): Promise<string[]> {
  const { db, webhooks } = await openLoadRooms(plan);
  const secrets: string[] = [];
  for (const [place, url] of plan.urls.entries()) {
    const request = { url, event_types: [...EVENT_TYPES] };
    secrets.push((await db.tx('load.endpoint', (tx) => webhooks.create(tx, orgOf(place), request))).secret);
  }
  await webhooks.courier.stop();
  await db.close();
  return secrets;
}

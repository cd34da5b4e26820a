// Requests to a daemon that is killed while it answers. Returns the bytes that it sent, and the moment of its death.
import Database from 'better-sqlite3';
import { once } from 'node:events';
import { type ClientRequest, type IncomingMessage, request as httpRequest } from 'node:http';
import { constants, getPriority, setPriority } from 'node:os';
import type { ControlPlane } from './control-plane.ts';

export interface KeyedRequest {
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** The path below /v1. */
  path: string;
  body?: object;
  apiKey: string;
  idempotencyKey: string;
}

export interface WireAnswer {
  status: number;
  /** Those that a replay repeats. */
  headers: Record<string, string>;
  body: string;
  isReplay: boolean;
}

const REPEATED_HEADERS = ['content-type', 'location', 'operation-id'];
const COMMITS_WITHIN_MS = 5_000;

/** Sends it on a connection of its own. */
export async function sendKeyed({ baseUrl }: ControlPlane, request: KeyedRequest): Promise<WireAnswer> {
  const sent = start(baseUrl, request);
  const [reply] = (await once(sent, 'response')) as [IncomingMessage];
  return read(reply);
}

/** SIGKILL with the first bytes of the reply. The daemon is down afterwards. */
export async function sendAndKillAtReply(controlPlane: ControlPlane, request: KeyedRequest): Promise<WireAnswer> {
  const sent = start(controlPlane.baseUrl, request);
  const [reply] = (await once(sent, 'response')) as [IncomingMessage];
  process.kill(controlPlane.daemon.pid(), 'SIGKILL');
  const [answer] = await Promise.all([read(reply), controlPlane.daemon.stop('SIGKILL')]);
  return answer;
}

/** The moment of a daemon's death: `afterMs` after the query has found a row for `value`. */
export interface Death {
  query: string;
  value: string;
  afterMs: number;
}

/**
 * SIGKILL at that moment, on SQLite. Undefined if no whole reply left the daemon, which is down afterwards. This process stands
 * still until then: nothing else is as close to the commit. Needs root.
 */
export async function sendAndKillAtCommit(
  { baseUrl, daemon, databaseFile }: ControlPlane,
  request: KeyedRequest,
  death: Death,
): Promise<WireAnswer | undefined> {
  const database = new Database(databaseFile, { readonly: true });
  const priority = getPriority();
  try {
    // Whatever else runs on this machine must not come between the commit and the signal.
    setPriority(constants.priority.PRIORITY_HIGHEST);
    const sent = start(baseUrl, request);
    const answered = once(sent, 'response').then(([reply]) => read(reply as IncomingMessage));
    const reply = answered.catch(() => undefined);
    await once(sent, 'finish');
    waitForRow(database, death);
    const killMs = performance.now() + death.afterMs;
    while (performance.now() < killMs);
    process.kill(daemon.pid(), 'SIGKILL');
    const [answer] = await Promise.all([reply, daemon.stop('SIGKILL')]);
    return answer;
  } finally {
    setPriority(priority);
    database.close();
  }
}

function start(baseUrl: string, { method, path, body, apiKey, idempotencyKey }: KeyedRequest): ClientRequest {
  const payload = body === undefined ? undefined : JSON.stringify(body);
  const headers = {
    authorization: `Bearer ${apiKey}`,
    'idempotency-key': idempotencyKey,
    ...(payload === undefined
      ? {}
      : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(payload) }),
  };
  const sent = httpRequest(baseUrl + path, { method, headers, agent: false });
  sent.end(payload);
  return sent;
}

async function read(reply: IncomingMessage): Promise<WireAnswer> {
  const chunks: Buffer[] = [];
  for await (const chunk of reply) chunks.push(chunk as Buffer);
  const repeated = REPEATED_HEADERS.flatMap((name) => {
    const value = reply.headers[name];
    return typeof value === 'string' ? [[name, value]] : [];
  });
  return {
    status: reply.statusCode ?? 0,
    headers: Object.fromEntries(repeated) as Record<string, string>,
    body: Buffer.concat(chunks).toString(),
    isReplay: reply.headers['idempotent-replayed'] === 'true',
  };
}

function waitForRow(database: Database.Database, { query, value }: Death): void {
  const find = database.prepare(query);
  const deadlineMs = performance.now() + COMMITS_WITHIN_MS;
  while (find.get(value) === undefined) {
    if (performance.now() > deadlineMs) throw new Error(`nothing after ${COMMITS_WITHIN_MS} ms: ${query}`);
  }
}

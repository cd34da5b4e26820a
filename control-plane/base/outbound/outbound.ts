// Requests to addresses that strangers name: guarded, bounded in time and bytes, never redirected.
import type { Socket } from 'node:net';
import { callbackify } from 'node:util';
import { Client, errors } from 'undici';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import { type ConnectionDeps, openConnection, type Resolve } from './connection.ts';
import { OutboundError } from './outbound-error.ts';
import { openPolicy, type OutboundPolicy, type Target } from './policy.ts';

export interface OutboundRequest {
  method: 'GET' | 'HEAD' | 'POST';
  url: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  /** From the request being sent until the status line. */
  statusMs: number;
  /** The whole attempt: DNS, TCP, TLS, request, capped body. */
  totalMs: number;
  bodyBytesMax: number;
}

export interface OutboundResponse {
  status: number;
  /** Names in lower case; repeated ones are joined with a comma. */
  headers: Record<string, string>;
  /** At most `bodyBytesMax` bytes, as they came: nothing is decompressed. */
  body: Buffer;
  truncated: boolean;
  remoteAddress: string;
}

export interface Outbound {
  /** @throws OutboundError blocked_address for a URL that no attempt would be allowed to: scheme, port, userinfo, literal address, localhost */
  assertAllowed(url: string): void;
  /** Never follows a redirect; reads at most bodyBytesMax and then destroys the stream. @throws OutboundError */
  request(request: OutboundRequest): Promise<OutboundResponse>;
  /** Ends every connection; attempts under way fail with `connect`. */
  close(): Promise<void>;
}

/** Idle connections over all hosts; the oldest makes room. */
const IDLE_LINES_MAX = 256;

/** `resolve` and `ca` take the place of DNS and of the system's certificates, for tests. */
export function openOutbound(policy: OutboundPolicy, deps: { clock: Clock; resolve?: Resolve; ca?: string }): Outbound {
  const rules = openPolicy(policy);
  const lines = openLines({ policy: rules, resolve: deps.resolve, ca: deps.ca });
  return {
    assertAllowed: (url) => void rules.target(url),
    request: async (request) => {
      const target = rules.target(request.url);
      const line = lines.take(target);
      try {
        return await attempt(line, target, { request, clock: deps.clock });
      } finally {
        lines.giveBack(line);
      }
    },
    close: () => lines.close(),
  };
}

/** One connection at most, opened when a request needs it. It serves one request at a time, so we know whom each one reached. */
interface Line {
  origin: string;
  client: Client;
  isOpen: boolean;
  /** Whom the newest connection reached. */
  remoteAddress: string | null;
  /** Why it was ended by us. */
  endedBy: OutboundError | null;
  /** Set while a request runs: told once there is a connection to send it on. */
  onConnected: () => void;
  /** Ends the line wherever it is in its life. */
  end(reason: OutboundError): void;
}

async function attempt(
  line: Line,
  target: Target,
  { request, clock }: { request: OutboundRequest; clock: Clock },
): Promise<OutboundResponse> {
  const { statusMs, totalMs } = request;
  const endAfter = (ms: number, what: string): (() => void) =>
    clock.after(ms, () => line.end(new OutboundError('timeout', `${what} within ${ms} ms`, line)));
  const cancelTotal = endAfter(totalMs, 'no whole answer');
  let cancelStatus = (): void => undefined;
  line.onConnected = () => {
    cancelStatus();
    cancelStatus = endAfter(statusMs, 'no status line');
  };
  if (line.isOpen) line.onConnected();
  try {
    const answer = await line.client.request({
      method: request.method,
      path: target.path,
      headers: request.headers ?? {},
      body: request.body ?? null,
      // The clock that was handed in measures.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    cancelStatus();
    const { body, truncated } = await readCapped(answer.body, request.bodyBytesMax);
    if (truncated) line.end(new OutboundError('protocol', 'the body is longer than what is read'));
    return {
      status: answer.statusCode,
      headers: joined(answer.headers),
      body,
      truncated,
      remoteAddress: line.remoteAddress ?? '',
    };
  } catch (error) {
    const told = line.endedBy ?? outboundError(error, line);
    line.end(told);
    throw told;
  } finally {
    cancelStatus();
    cancelTotal();
    line.onConnected = () => undefined;
  }
}

async function readCapped(
  stream: AsyncIterable<Buffer>,
  bytesMax: number,
): Promise<{ body: Buffer; truncated: boolean }> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    chunks.push(chunk);
    bytes += chunk.length;
    if (bytes > bytesMax) break;
  }
  return { body: Buffer.concat(chunks).subarray(0, bytesMax), truncated: bytes > bytesMax };
}

function joined(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : (value ?? '')]),
  );
}

/** What the guard did not name happened on an open connection: it broke, or what came was not HTTP. */
function outboundError(error: unknown, line: Line): OutboundError {
  if (error instanceof OutboundError) return error;
  const broke = error instanceof errors.SocketError || (error instanceof Error && 'syscall' in error);
  const what = broke ? 'the connection ended before the answer was whole' : 'the answer is not valid HTTP';
  return new OutboundError('protocol', `${what}: ${messageOf(error)}`, {
    remoteAddress: line.remoteAddress,
    cause: error,
  });
}

interface Lines {
  take(target: Target): Line;
  /** Keeps the line for the next request to its origin, where it still has a connection. */
  giveBack(line: Line): void;
  close(): Promise<void>;
}

function openLines(deps: ConnectionDeps): Lines {
  const busy = new Set<Line>();
  const idle = new Set<Line>();
  return {
    take: (target) => {
      const kept = [...idle].findLast(({ origin }) => origin === target.origin);
      const line = kept ?? newLine(target, deps, (gone) => void idle.delete(gone));
      idle.delete(line);
      busy.add(line);
      return line;
    },
    giveBack: (line) => {
      busy.delete(line);
      if (!line.isOpen || line.endedBy !== null) return;
      idle.add(line);
      const [oldest] = idle;
      if (idle.size > IDLE_LINES_MAX) oldest?.end(closing());
    },
    close: async () => {
      const all = [...busy, ...idle];
      for (const line of all) line.end(closing());
      await Promise.all(all.map(({ client }) => client.destroy()));
    },
  };
}

function newLine(target: Target, deps: ConnectionDeps, onGone: (line: Line) => void): Line {
  const ending = new AbortController();
  const connectThen = callbackify(async (): Promise<Socket> => {
    const socket = await openConnection(target, deps, ending.signal);
    line.remoteAddress = socket.remoteAddress ?? null;
    line.isOpen = true;
    line.onConnected();
    return socket;
  });
  const client = new Client(target.origin, {
    connect: (_options, callback) =>
      connectThen((error, socket) => (error ? callback(error, null) : callback(null, socket))),
  });
  const line: Line = {
    origin: target.origin,
    client,
    isOpen: false,
    remoteAddress: null,
    endedBy: null,
    onConnected: () => undefined,
    end: (reason) => {
      line.endedBy ??= reason;
      onGone(line);
      ending.abort();
      void client.destroy(reason);
    },
  };
  // A request that was not yet sent by then goes over a new connection, for which the name is judged anew.
  client.on('disconnect', () => {
    line.isOpen = false;
    onGone(line);
  });
  return line;
}

function closing(): OutboundError {
  return new OutboundError('connect', 'the connection was closed');
}

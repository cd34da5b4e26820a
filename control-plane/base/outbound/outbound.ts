// Requests to addresses that customers name: checked, limited in time and bytes, never redirected.
import type { Clock } from '../../../shared/clock.ts';
import { parseJson } from '../../../shared/json.ts';
import { openPieces } from '../../../shared/pieces.ts';
import type { Resolve } from './connection.ts';
import { type Line, openLines, joined, outboundError, whenConnected } from './lines.ts';
import { OutboundError, openPolicy, type OutboundPolicy, type Target } from './policy.ts';

export interface OutboundRequest {
  method: 'GET' | 'HEAD' | 'POST';
  url: string;
  headers?: Record<string, string>;
  body?: string | Buffer;
  /** Limit from sending the request to the status line. */
  statusMs: number;
  /** Limit of the whole attempt: DNS, TCP, TLS, request, body. */
  totalMs: number;
  bodyBytesMax: number;
}

export interface OutboundResponse {
  status: number;
  /** Header names are in lower case. Repeated headers are joined with a comma. */
  headers: Record<string, string>;
  /** At most `bodyBytesMax` bytes as received: nothing is decompressed. */
  body: Buffer;
  truncated: boolean;
  remoteAddress: string;
}

export interface Outbound {
  /**
   * @throws OutboundError blocked_address for a URL that is never allowed, because of its scheme, port, userinfo, literal address or
   * localhost
   */
  assertAllowed(url: string): void;
  /** Never follows a redirect. Reads at most bodyBytesMax, then destroys the stream. @throws OutboundError */
  request(request: OutboundRequest): Promise<OutboundResponse>;
  /** Ends every connection. Attempts in progress fail with `connect`. */
  close(): Promise<void>;
}

/** Tests use `resolve` and `ca` to replace DNS and the certificates of the system. */
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

/** Reads at most `bytesMax` bytes and leaves the rest unread. Throws what the body throws. */
export async function readBytes(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<Buffer<ArrayBuffer>> {
  const pieces = openPieces();
  for await (const piece of body) {
    pieces.add(piece);
    if (pieces.bytes >= bytesMax) break;
  }
  return Buffer.concat(pieces.list()).subarray(0, bytesMax);
}

/** The text that `readBytes` reads. Throws what the body throws. */
export async function readText(body: AsyncIterable<Uint8Array>, bytesMax: number): Promise<string> {
  return (await readBytes(body, bytesMax)).toString();
}

/** Undefined if the text is not JSON, or has more than `valuesMax` names and values. */
export function jsonOf(text: string, valuesMax: number): unknown {
  try {
    return parseJson(text, valuesMax);
  } catch {
    return undefined;
  }
}

async function attempt(
  line: Line,
  target: Target,
  { request, clock }: { request: OutboundRequest; clock: Clock },
): Promise<OutboundResponse> {
  const { statusMs, totalMs } = request;
  const endAfter = (ms: number, what: string): (() => void) =>
    clock.after(ms, () => {
      const { remoteAddress } = line;
      line.end(new OutboundError('timeout', `${what} within ${ms} ms`, { remoteAddress }));
    });
  const cancelTotal = endAfter(totalMs, 'no whole answer');
  let cancelStatus = (): void => undefined;
  whenConnected(line, () => {
    cancelStatus();
    cancelStatus = endAfter(statusMs, 'no status line');
  });
  let status: number | null = null;
  try {
    const answer = await line.client.request({
      method: request.method,
      path: target.path,
      headers: request.headers ?? {},
      body: request.body ?? null,
      // Undici's own timers are off: the injected clock measures the limits.
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    cancelStatus();
    status = answer.statusCode;
    const read = await readBytes(answer.body, request.bodyBytesMax + 1);
    const truncated = read.length > request.bodyBytesMax;
    if (truncated) line.end(new OutboundError('protocol', 'the body is longer than what is read'));
    return {
      status: answer.statusCode,
      headers: joined(answer.headers),
      body: read.subarray(0, request.bodyBytesMax),
      truncated,
      remoteAddress: line.remoteAddress ?? '',
    };
  } catch (error) {
    const failure = line.endedBy ?? outboundError(error, line);
    line.end(failure);
    const { code, message, remoteAddress, cause } = failure;
    throw status === null ? failure : new OutboundError(code, message, { remoteAddress, status, cause });
  } finally {
    cancelStatus();
    cancelTotal();
  }
}

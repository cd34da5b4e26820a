// Requests whose responses are streamed. Each step has a time limit, and a signal can end the request.
import type { Clock } from '../../../shared/clock.ts';
import { type Line, type Lines, openLines, joined, outboundError } from './lines.ts';
import { OutboundError, type OutboundErrorCode } from './outbound-error.ts';
import { openPolicy, type OutboundPolicy, type Target } from './policy.ts';

export interface ExchangeRequest {
  method: 'GET' | 'POST' | 'DELETE';
  url: string;
  headers: Record<string, string>;
  body: string;
  /** Limit for DNS, TCP and TLS. After it the attempt fails with `connect`, and nothing was sent. */
  connectMs: number;
  /** Limit from the connection to the status line; after it the attempt fails with `timeout`. */
  statusMs: number;
  /** Limit between two chunks of the body; after it, reading fails with `timeout`. */
  idleMs: number;
  /** Ends the connection in any state, so that the other side notices. Pending calls fail with `protocol`. */
  signal: AbortSignal;
}

export interface Exchange {
  status: number;
  /** Header names are in lower case. Repeated headers are joined with a comma. */
  headers: Record<string, string>;
  /** Can be read once. Leaving the loop early ends the connection. Throws OutboundError. */
  body: AsyncIterable<Buffer>;
  /** Ends a response that is not needed any more. Does nothing if it was read completely. */
  end(): void;
}

export interface Exchanges {
  /** Resolves when the status line has arrived. Never follows a redirect. @throws OutboundError */
  open(request: ExchangeRequest): Promise<Exchange>;
  /** Ends every connection. Exchanges in progress fail with `connect`. */
  close(): Promise<void>;
}

export function openExchanges(policy: OutboundPolicy, deps: { clock: Clock }): Exchanges {
  const rules = openPolicy(policy);
  const lines = openLines({ policy: rules });
  return {
    open: (request) => {
      const target = rules.target(request.url);
      return begin(target, { request, lines, line: lines.take(target), clock: deps.clock });
    },
    close: () => lines.close(),
  };
}

interface Conversation {
  request: ExchangeRequest;
  lines: Lines;
  line: Line;
  clock: Clock;
}

async function begin(target: Target, conversation: Conversation): Promise<Exchange> {
  const { request, lines, line } = conversation;
  const leave = (): void => line.end(new OutboundError('protocol', 'it was given up'));
  let isOver = false;
  const over = (): void => {
    if (isOver) return;
    isOver = true;
    line.onConnected = () => undefined;
    request.signal.removeEventListener('abort', leave);
    lines.giveBack(line);
  };
  request.signal.addEventListener('abort', leave);
  let cancel = endAfter(conversation, { ms: request.connectMs, code: 'connect', what: 'no connection' });
  line.onConnected = () => {
    cancel();
    cancel = endAfter(conversation, { ms: request.statusMs, code: 'timeout', what: 'no status line' });
  };
  if (line.isOpen) line.onConnected();
  if (request.signal.aborted) leave();
  try {
    const { method, headers, body } = request;
    // Undici's own timers are off: the injected clock measures the limits.
    const options = { method, path: target.path, headers, body, headersTimeout: 0, bodyTimeout: 0 };
    const answer = await line.client.request(options);
    return {
      status: answer.statusCode,
      headers: joined(answer.headers),
      body: pieces(answer.body, conversation, over),
      end: () => {
        // The connection may already serve another request.
        if (isOver) return;
        leave();
        over();
      },
    };
  } catch (error) {
    const told = line.endedBy ?? outboundError(error, line);
    line.end(told);
    over();
    throw told;
  } finally {
    cancel();
  }
}

async function* pieces(
  stream: AsyncIterable<Buffer>,
  conversation: Conversation,
  over: () => void,
): AsyncGenerator<Buffer> {
  const { line, request } = conversation;
  const iterator = stream[Symbol.asyncIterator]();
  let isWhole = false;
  try {
    for (;;) {
      const cancel = endAfter(conversation, { ms: request.idleMs, code: 'timeout', what: 'nothing more came' });
      const next = await iterator.next().finally(cancel);
      if (next.done === true) {
        isWhole = true;
        return;
      }
      yield next.value;
    }
  } catch (error) {
    throw line.endedBy ?? outboundError(error, line);
  } finally {
    if (!isWhole) line.end(new OutboundError('protocol', 'it was given up'));
    over();
  }
}

function endAfter(
  { line, clock }: Conversation,
  { ms, code, what }: { ms: number; code: OutboundErrorCode; what: string },
): () => void {
  return clock.after(ms, () => {
    const { remoteAddress } = line;
    line.end(new OutboundError(code, `${what} within ${ms} ms`, { remoteAddress }));
  });
}

// Requests whose responses are streamed. Each step has a time limit, and a signal can end the request.
//
// The pieces of a body wait here, and the reader takes all of them at once. A server that streams sends many small pieces in one packet. A
// reader that got them one by one would also send them on one by one. The connection is paused while many bytes wait. undici's own streams
// would cost several times as much.
import type { Dispatcher } from 'undici';
import type { Clock } from '../../../shared/clock.ts';
import { type Dial, type Line, type Lines, openLines, joined, outboundError, whenConnected } from './lines.ts';
import {
  OutboundError,
  type OutboundErrorCode,
  dialledTarget,
  openPolicy,
  type OutboundPolicy,
  type Policy,
  type Target,
} from './policy.ts';

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
  /**
   * Limit from the start to the last byte of the body; after it, the attempt or the reading fails with `timeout`. A server that sends byte after
   * byte is stopped by nothing else. Undefined if the body may take as long as it goes on.
   */
  totalMs: number | undefined;
  /** Ends the connection in any state, so that the other side notices. Pending calls fail with `protocol`. */
  signal: AbortSignal;
  /** Opens the connection in place of DNS and TCP. The policy is not asked then, and the host of the URL is only a name. */
  dial?: Dial | undefined;
}

export interface Exchange {
  status: number;
  /** Header names are in lower case. Repeated headers are joined with a comma. */
  headers: Record<string, string>;
  /** Can be read once. Leaving the loop early ends the connection. Throws OutboundError. */
  body: AsyncIterable<Buffer>;
  /** Takes `totalMs` away, for a stream that has begun as it should. */
  unlimited(): void;
  /** Ends a response that is not needed any more. Does nothing if it was read completely. */
  end(): void;
}

export interface Exchanges {
  /** Resolves when the status line has arrived. Never follows a redirect. @throws OutboundError */
  open(request: ExchangeRequest): Promise<Exchange>;
  /** Ends every connection. Exchanges in progress fail with `connect`. */
  close(): Promise<void>;
}

/** Targets that are kept: some hundred kB. */
const TARGETS_MAX = 1_000;

export function openExchanges(policy: OutboundPolicy, deps: { clock: Clock }): Exchanges {
  const rules = openPolicy(policy);
  const lines = openLines({ policy: rules });
  const targets = openTargets(rules);
  return {
    open: async (request) => {
      const target = request.dial === undefined ? targets(request.url) : dialledTarget(request.url);
      return begin(target, { request, lines, line: lines.take(target, request.dial), clock: deps.clock });
    },
    close: () => lines.close(),
  };
}

/** Few URLs are asked again and again. The checks of a URL take longer than all other work before a request is sent. */
function openTargets(rules: Policy): (url: string) => Target {
  const known = new Map<string, Target>();
  return (url) => {
    const found = known.get(url);
    if (found !== undefined) return found;
    if (known.size >= TARGETS_MAX) known.clear();
    const target = rules.target(url);
    known.set(url, target);
    return target;
  };
}

interface Conversation {
  request: ExchangeRequest;
  lines: Lines;
  line: Line;
  clock: Clock;
}

function begin(target: Target, conversation: Conversation): Promise<Exchange> {
  const { request, lines, line } = conversation;
  const opened = Promise.withResolvers<Exchange>();
  const giveUp = (): void => line.end(new OutboundError('protocol', 'it was given up'));
  let isOver = false;
  const release = (): void => {
    if (isOver) return;
    isOver = true;
    cancelStep();
    cancelTotal();
    request.signal.removeEventListener('abort', giveUp);
    lines.giveBack(line);
  };
  const end = (): void => {
    // The connection may already serve another request.
    if (isOver) return;
    giveUp();
    release();
  };
  const streamed = openStreamedBody(conversation, end);
  request.signal.addEventListener('abort', giveUp);
  let cancelStep = endAfter(conversation, { ms: request.connectMs, code: 'connect', what: 'no connection' });
  whenConnected(line, () => {
    cancelStep();
    cancelStep = endAfter(conversation, { ms: request.statusMs, code: 'timeout', what: 'no status line' });
  });
  const cancelTotal =
    request.totalMs === undefined
      ? (): void => undefined
      : endAfter(conversation, { ms: request.totalMs, code: 'timeout', what: 'no whole answer' });
  if (request.signal.aborted) giveUp();
  const { method, headers, body } = request;
  // Undici's own timers are off: the injected clock measures the limits.
  line.client.dispatch(
    { method, path: target.path, headers, body, headersTimeout: 0, bodyTimeout: 0 },
    {
      onRequestStart: () => undefined,
      onResponseStart: (_controller, status, answered) => {
        if (status < 200) return;
        cancelStep();
        cancelStep = streamed.watch();
        opened.resolve({ status, headers: joined(answered), body: streamed.body, unlimited: cancelTotal, end });
      },
      onResponseData: (controller, piece) => streamed.push(piece, controller),
      onResponseEnd: () => {
        release();
        streamed.end();
      },
      onResponseError: (_controller, error) => {
        const failure = line.endedBy ?? outboundError(error, line);
        line.end(failure);
        release();
        // Only one of the two calls has an effect: `reject` before the answer has begun, and `fail` afterwards.
        opened.reject(failure);
        streamed.fail(failure);
      },
    },
  );
  return opened.promise;
}

interface StreamedBody {
  body: AsyncIterable<Buffer>;
  push(piece: Buffer, controller: Dispatcher.DispatchController): void;
  end(): void;
  fail(error: OutboundError): void;
  /** Ends the connection if the reader waits for the next piece longer than the limit. The returned function stops that. */
  watch(): () => void;
}

/** Number of waiting bytes above which the connection is paused. Further bytes wait in the socket. */
const WAITING_BYTES_MAX = 64 * 1024;

function openStreamedBody({ request, line, clock }: Conversation, endEarly: () => void): StreamedBody {
  const waiting: Buffer[] = [];
  let waitingBytes = 0;
  let paused: Dispatcher.DispatchController | undefined;
  let ended: { error?: OutboundError } | undefined;
  let reader: PromiseWithResolvers<IteratorResult<Buffer>> | undefined;
  let readingSinceMs = 0;
  const takeAll = (): Buffer => {
    const taken = waiting.length === 1 && waiting[0] !== undefined ? waiting[0] : Buffer.concat(waiting);
    waiting.length = 0;
    waitingBytes = 0;
    // The next pieces may come at once, inside this call, and pause again.
    const resumed = paused;
    paused = undefined;
    resumed?.resume();
    return taken;
  };
  /** Runs after the pieces of one packet have been pushed. */
  const deliver = (): void => {
    if (reader === undefined || waiting.length === 0) return;
    reader.resolve({ done: false, value: takeAll() });
    reader = undefined;
  };
  const settle = (outcome: { error?: OutboundError }): void => {
    ended ??= outcome;
    deliver();
    if (reader === undefined) return;
    if (outcome.error === undefined) reader.resolve({ done: true, value: undefined });
    else reader.reject(outcome.error);
    reader = undefined;
  };
  const next = (): Promise<IteratorResult<Buffer>> => {
    if (waiting.length > 0) return Promise.resolve({ done: false, value: takeAll() });
    if (ended?.error !== undefined) return Promise.reject(ended.error);
    if (ended !== undefined) return Promise.resolve({ done: true, value: undefined });
    readingSinceMs = clock.monotonicMs();
    reader = Promise.withResolvers();
    return reader.promise;
  };
  const leaveLoop = async (): Promise<IteratorResult<Buffer>> => {
    endEarly();
    return { done: true, value: undefined };
  };
  // One timer for all pieces. It looks at the time of the last one, because a new timer for each piece would cost more than the piece.
  let cancelWatch = (): void => undefined;
  const watchFor = (ms: number): void => {
    cancelWatch = clock.after(ms, () => {
      const leftMs = reader === undefined ? request.idleMs : readingSinceMs + request.idleMs - clock.monotonicMs();
      if (leftMs > 0) watchFor(leftMs);
      else line.end(lateError(line, { ms: request.idleMs, code: 'timeout', what: 'nothing more came' }));
    });
  };
  return {
    body: { [Symbol.asyncIterator]: () => ({ next, return: leaveLoop }) },
    push: (piece, controller) => {
      if (reader !== undefined && waiting.length === 0) queueMicrotask(deliver);
      waiting.push(piece);
      waitingBytes += piece.length;
      if (waitingBytes < WAITING_BYTES_MAX) return;
      paused = controller;
      controller.pause();
    },
    end: () => settle({}),
    fail: (error) => settle({ error }),
    watch: () => {
      watchFor(request.idleMs);
      return () => cancelWatch();
    },
  };
}

interface Limit {
  ms: number;
  code: OutboundErrorCode;
  what: string;
}

function endAfter({ line, clock }: Conversation, limit: Limit): () => void {
  return clock.after(limit.ms, () => line.end(lateError(line, limit)));
}

function lateError({ remoteAddress }: Line, { ms, code, what }: Limit): OutboundError {
  return new OutboundError(code, `${what} within ${ms} ms`, { remoteAddress });
}

// Sends a request to the servers of a model, one after another, until one answers. Nothing was sent to the caller before that.
import type { Clock } from '../../../shared/clock.ts';
import { ERRORS, fail, ServiceError } from '../../../shared/errors.ts';
import { UPSTREAM_ATTEMPTS_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Exchange, Exchanges } from '../../base/outbound/exchange.ts';
import { isUnsent, OutboundError } from '../../base/outbound/policy.ts';
import type { Callable } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Wait } from '../replicas/demand.ts';
import type { Replicas } from '../replicas/replicas.ts';
import type { Attempt, Attempts } from './attempts.ts';
import { headersFor } from '../catalog/model-servers.ts';
import { isLoading, refusalOf } from './upstream-refusals.ts';
import type { Upstreams } from './upstreams.ts';

export interface UpstreamRequest {
  callable: Callable;
  /** Appended to the server's base_url. */
  path: string;
  /** The body without the model's name, because each server has its own name for it. */
  body(upstream: Upstream): object | Promise<object>;
  attempts: Attempts;
  /** The caller's organisation. Failures of one organisation alone do not make a server rest. */
  orgId: string;
  /** The start on the monotonic clock. */
  startedMs: number;
  /** Time limit from `startedMs` for all attempts together, to the end of the answer or until a stream has begun (`unlimited` of its exchange). */
  answerMs(upstream: Upstream): number;
  idleMs(upstream: Upstream): number;
  /** Requests with the same affinity go to the same server, unless it is too busy. */
  affinity?: string | undefined;
  /** Ends the wait for a server and, unless there is a `cancel`, the exchange with it. */
  signal: AbortSignal;
  /** Ends the exchange with a server. A server that does not notice that a caller has left is not left by us either. */
  cancel?: AbortSignal;
  /** Called when there is no server and the request waits for one. The time limits begin after the wait. */
  onWait?: (() => void) | undefined;
}

/** The answer of a server with status 200. */
export interface Answering {
  upstream: Upstream;
  exchange: Exchange;
  /** When its time limits began. That is later than the request if it had to wait for a server. */
  startedMs: number;
  /** Reports that the answer has begun correctly. */
  answered(): void;
  /** Reports that the answer is unusable. Does nothing if the caller has left, because that is no failure of the server. */
  failed(): void;
  /** Ends the exchange without reading the rest, and frees the server for its next request. */
  end(): void;
}

export interface AskDeps {
  exchanges: Exchanges;
  upstreams: Upstreams;
  replicas: Pick<Replicas, 'serversOf' | 'wait'>;
  clock: Clock;
  log: Log;
}

/**
 * Asks one server after another until one answers.
 * @throws ServiceError `upstream_unavailable`, `upstream_timeout`, `upstream_error`, `context_length_exceeded`, `invalid_request`
 */
export async function ask(upstreamRequest: UpstreamRequest, deps: AskDeps): Promise<Answering> {
  const { callable, affinity, signal } = upstreamRequest;
  const { upstreams, replicas, clock, log } = deps;
  const asked: Upstream[] = [];
  let { startedMs } = upstreamRequest;
  let retryAfterSeconds: number | undefined;
  let waiting: Pick<Wait, 'orgId' | 'sinceMs' | 'signal'> | undefined;
  for (;;) {
    const mayAskMore = asked.length < UPSTREAM_ATTEMPTS_MAX;
    const upstream = mayAskMore ? upstreams.next(replicas.serversOf(callable), { affinity, asked }) : undefined;
    if (upstream === undefined) {
      if (callable.deployment === undefined) break;
      // A replica may start, or may have room soon. After the wait, all servers may be asked again.
      waiting ??= { orgId: upstreamRequest.orgId, sinceMs: clock.monotonicMs(), signal };
      upstreamRequest.onWait?.();
      await replicas.wait(callable, { ...waiting, wasRefused: asked.length > 0 });
      assertWaitedFor(signal);
      startedMs = clock.monotonicMs();
      asked.length = 0;
      continue;
    }
    asked.push(upstream);
    assertWaitedFor(signal);
    const attempt = await askOne(upstreamRequest, { upstream, startedMs }, deps);
    if ('answering' in attempt) return attempt.answering;
    assertWaitedFor(signal);
    log.warn({ upstream: upstream.base_url, reason: attempt.passedOver }, 'a model server is skipped');
    retryAfterSeconds = attempt.retryAfterSeconds;
  }
  return fail('upstream_unavailable', {
    detail: `No server for ${callable.model.id} takes the request right now. Send it again after a short while.`,
    retryAfterSeconds: retryAfterSeconds ?? upstreams.backInMs(callable.upstreams) / 1000,
  });
}

/** @throws ServiceError if the caller has left (nobody reads that error) or if this process stops */
function assertWaitedFor(signal: AbortSignal): void {
  if (!signal.aborted) return;
  if (signal.reason instanceof ServiceError) throw signal.reason;
  fail('invalid_request', 'The connection ended before the answer was there.');
}

/** Turns an error during an answer into one for the caller. @throws any error that is not the server's fault */
export function brokenAnswer(error: unknown, signal: AbortSignal): ServiceError {
  assertWaitedFor(signal);
  if (!(error instanceof OutboundError)) throw error;
  if (error.code === 'timeout') return timedOut(error);
  return new ServiceError('upstream_error', {
    detail: 'The model broke off its answer. Send the request again.',
    cause: error,
  });
}

type ServerAnswer = { answering: Answering } | { passedOver: string; retryAfterSeconds: number };

const BUSY = 429;
const REFUSING: readonly number[] = [BUSY, 502, 503];

async function askOne(
  upstreamRequest: UpstreamRequest,
  { upstream, startedMs }: Pick<Answering, 'upstream' | 'startedMs'>,
  deps: AskDeps,
): Promise<ServerAnswer> {
  const { cancel: signal = upstreamRequest.signal } = upstreamRequest;
  const leftMs = startedMs + upstreamRequest.answerMs(upstream) - deps.clock.monotonicMs();
  if (leftMs <= 0) throw timedOut(undefined);
  const slot = deps.upstreams.begin(upstream, upstreamRequest.orgId);
  const note = upstreamRequest.attempts.begin(upstream, upstreamRequest.callable);
  const failed = (outcome: Attempt['outcome'] = 'failed'): void => {
    if (signal.aborted) return;
    slot.failed();
    note(outcome);
  };
  try {
    const exchange = await deps.exchanges.open({
      method: 'POST',
      url: `${upstream.base_url}${upstreamRequest.path}`,
      headers: headersFor(upstream),
      body: JSON.stringify({ ...(await upstreamRequest.body(upstream)), model: upstream.model }),
      connectMs: Math.min(upstream.connect_ms, leftMs),
      statusMs: leftMs,
      idleMs: upstreamRequest.idleMs(upstream),
      totalMs: leftMs,
      signal,
      dial: upstream.replica?.dial,
    });
    const end = (): void => {
      exchange.end();
      slot.over();
    };
    if (exchange.status === 200) {
      note('answered');
      return { answering: { upstream, exchange, startedMs, answered: slot.answered, failed, end } };
    }
    if (REFUSING.includes(exchange.status)) {
      if (exchange.status === BUSY || (await isLoading(exchange))) {
        slot.busy();
        note('busy');
      } else failed('unavailable');
      end();
      return { passedOver: `it answers ${exchange.status}`, retryAfterSeconds: retryAfterOf(exchange) };
    }
    throw await refusalOf(exchange, { upstream, model: upstreamRequest.callable.model, log: deps.log });
  } catch (error) {
    slot.over();
    if (signal.aborted) note('cancelled');
    if (isUnsent(error)) {
      failed('unreachable');
      return { passedOver: error.message, retryAfterSeconds: 1 };
    }
    const broken = error instanceof ServiceError ? error : brokenAnswer(error, signal);
    if (ERRORS[broken.code].status < 500) {
      slot.refused();
      note('refused');
    } else failed(broken.code === 'upstream_timeout' ? 'timed_out' : 'failed');
    throw broken;
  }
}

/** The server's Retry-After, within the range that official clients accept. */
function retryAfterOf({ headers }: Exchange): number {
  const seconds = Number(headers['retry-after']);
  return Number.isFinite(seconds) ? Math.min(Math.max(1, seconds), 60) : 1;
}

/** The error for a server that has used up its time. */
function timedOut(cause: unknown): ServiceError {
  return new ServiceError('upstream_timeout', {
    detail: 'The model did not answer in time. Ask for less at once, or stream the answer.',
    cause,
  });
}

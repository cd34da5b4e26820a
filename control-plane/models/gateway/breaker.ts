// Keeps requests from a server that fails again and again; a look at it, and then a single request, bring it back.
import type { Clock } from '../../../shared/clock.ts';

/** What a look at a server finds. */
export type Health = 'well' | 'loading' | 'dead';

export interface Breaker {
  /** Whether it may be sent a request now. */
  takes(): boolean;
  /** It is sent one of this API key; the returned functions say what came of that, `answered` perhaps before `failed`. */
  send(apiKeyId: string): { answered(): void; failed(): void };
  isOut(): boolean;
  /** Until it may be back, in milliseconds; 0 where it is not out, or a look at it is due. */
  backInMs(): number;
  /** While it is out and `backInMs` is 0, and once it has failed again and again for one key alone. */
  isLookDue(): boolean;
  /** What a look at it has found. */
  found(health: Health): void;
}

/**
 * A server is out after so many failures within the time, where no more requests than that were answered between them: what makes
 * it fail may be one caller's requests, and must not shut it to all others. If they all are of one key, its own health decides.
 */
const FAILURES = 5;
const WINDOW_MS = 10_000;
/** So long it is left alone then, and again after a look or a request that fails. */
const REST_MS = 5_000;
/** One that loads its model is about to be back: it is looked at in each round. */
const LOADING_REST_MS = 500;

interface Failure {
  atMs: number;
  /** Requests that were answered before. */
  answers: number;
  apiKeyId: string;
}

interface Out {
  untilMs: number;
  isAlive: boolean;
}

export function openBreaker(clock: Clock): Breaker {
  let failures: Failure[] = [];
  let answers = 0;
  let out: Out | undefined;
  /** It fails for one key, and nobody has looked yet whether it is well. */
  let isSuspect = false;
  const rest = (): void => void (out = { untilMs: clock.monotonicMs() + REST_MS, isAlive: false });
  const backInMs = (): number => Math.max(0, (out?.untilMs ?? 0) - clock.monotonicMs());
  const noteFailure = (apiKeyId: string): void => {
    const nowMs = clock.monotonicMs();
    failures = [...failures, { atMs: nowMs, answers, apiKeyId }].slice(-FAILURES);
    const [first] = failures;
    if (first === undefined || failures.length < FAILURES) return;
    if (nowMs - first.atMs >= WINDOW_MS || answers - first.answers > FAILURES) return;
    if (failures.some((failure) => failure.apiKeyId !== apiKeyId)) rest();
    else isSuspect = true;
  };
  return {
    takes: () => out === undefined || out.isAlive,
    isOut: () => out !== undefined,
    backInMs,
    isLookDue: () => (out === undefined ? isSuspect : backInMs() === 0),
    found: (health) => {
      const isTrusted = out === undefined && !isSuspect;
      if (isTrusted) return;
      isSuspect = false;
      const restMs = health === 'loading' ? LOADING_REST_MS : REST_MS;
      if (out === undefined && health === 'well') failures = [];
      else out = { untilMs: clock.monotonicMs() + restMs, isAlive: health === 'well' };
    },
    send: (apiKeyId) => {
      // Where nothing comes of it within the rest, the next look lets another one through.
      const isTrial = out !== undefined;
      if (isTrial) rest();
      return {
        answered: () => {
          answers += 1;
          // Requests that were sent before it was out say nothing of how it does now.
          if (!isTrial) return;
          out = undefined;
          failures = [];
        },
        failed: () => {
          if (out === undefined) noteFailure(apiKeyId);
          else if (isTrial) rest();
        },
      };
    },
  };
}

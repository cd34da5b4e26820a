// A circuit breaker for one model server. A server that fails again and again rests. A health check, then a single trial request, bring it back.
import type { Clock } from '../../../shared/clock.ts';

/** The result of a health check. */
export type Health = 'well' | 'loading' | 'dead';

export interface Breaker {
  /** True if the server may be sent a request now. */
  takes(): boolean;
  /** Notes a request of this organisation. The returned functions report its result. `failed` may be called after `answered`. */
  send(orgId: string): { answered(): void; failed(): void };
  isOut(): boolean;
  /** Milliseconds until the server may be back; 0 if it does not rest, or if a health check is due. */
  backInMs(): number;
  /**
   * True if a health check is due. It is due if the rest of the server is over; if the server has failed again and again for one organisation
   * alone; if it has failed a health check; or if nothing has shown for a while that it works.
   */
  isCheckDue(): boolean;
  /** Reports the result of a health check. */
  found(health: Health): void;
}

/**
 * A server rests after this number of failures within WINDOW_MS, unless it has answered more requests than that between them. The requests of one
 * caller may be the cause, and must not take the server from all others. So if all failures are of one organisation, a health check decides.
 */
const FAILURES = 5;
const WINDOW_MS = 10_000;
/** How long a server rests. It rests again as long after a health check or a trial request that fails. */
const REST_MS = 5_000;
/** A server that has answered nothing for longer gets a health check, so that no caller finds out that it is gone. */
const PROOF_MS = 10_000;
/** A server that loads its model is back soon, so it is checked more often. */
const LOADING_REST_MS = 500;

interface Failure {
  atMs: number;
  /** Number of requests that the server had answered before the failure. */
  answers: number;
  orgId: string;
}

interface Out {
  untilMs: number;
  isAlive: boolean;
}

export function openBreaker(clock: Clock): Breaker {
  let failures: Failure[] = [];
  let answers = 0;
  let out: Out | undefined;
  /** True if the server fails for one organisation or has failed a health check. The next health check decides. */
  let isSuspect = false;
  let provenMs = -Infinity;
  const rest = (): void => {
    out = { untilMs: clock.monotonicMs() + REST_MS, isAlive: false };
  };
  const backInMs = (): number => Math.max(0, (out?.untilMs ?? 0) - clock.monotonicMs());
  const noteFailure = (orgId: string): void => {
    const nowMs = clock.monotonicMs();
    failures = [...failures, { atMs: nowMs, answers, orgId }].slice(-FAILURES);
    const [first] = failures;
    if (first === undefined || failures.length < FAILURES) return;
    if (nowMs - first.atMs >= WINDOW_MS || answers - first.answers > FAILURES) return;
    if (failures.some((failure) => failure.orgId !== orgId)) rest();
    else isSuspect = true;
  };
  return {
    takes: () => out === undefined || out.isAlive,
    isOut: () => out?.isAlive === false,
    backInMs,
    isCheckDue: () => {
      if (out !== undefined) return backInMs() === 0;
      return isSuspect || clock.monotonicMs() - provenMs >= PROOF_MS;
    },
    found: (health) => {
      if (health === 'well') provenMs = clock.monotonicMs();
      if (out === undefined && health === 'well') {
        if (isSuspect) failures = [];
        isSuspect = false;
        return;
      }
      // One health check may fail by chance. So it only makes the server suspect, and the next health check decides.
      if (out === undefined && health === 'dead' && !isSuspect) {
        isSuspect = true;
        return;
      }
      isSuspect = false;
      const restMs = health === 'loading' ? LOADING_REST_MS : REST_MS;
      out = { untilMs: clock.monotonicMs() + restMs, isAlive: health === 'well' };
    },
    send: (orgId) => {
      // If this trial has no result within the rest, the next health check allows another one.
      const isTrial = out !== undefined;
      if (isTrial) rest();
      return {
        answered: () => {
          answers += 1;
          provenMs = clock.monotonicMs();
          // A request from before the rest does not show whether the server works now.
          if (!isTrial) return;
          out = undefined;
          failures = [];
        },
        failed: () => {
          if (out === undefined) noteFailure(orgId);
          else if (isTrial) rest();
        },
      };
    },
  };
}

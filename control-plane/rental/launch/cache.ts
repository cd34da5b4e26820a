// A cache of answers: equal requests at the same time share one call, and the answers that were not used for longest are dropped first.
import type { Clock } from '../../../shared/clock.ts';
import { ServiceError } from '../../../shared/errors.ts';

export interface Cache<T> {
  /**
   * Returns the cached answer, or calls `ask`. While an equal call is running, its result is shared. Refusals are cached
   * too, except those of a caller that asks too much: another caller may ask, also one that has shared the call.
   */
  get(key: string, ask: () => Promise<T>): Promise<T>;
  /** False if `get` would call `ask`. */
  has(key: string): boolean;
}

export interface CacheRules {
  keepMs: number;
  refusalKeepMs: number;
  entriesMax: number;
}

export function openCache<T>(clock: Clock, rules: CacheRules): Cache<T> {
  const entries = new Map<string, { answer: Promise<T>; untilMs: number }>();
  const fresh = (key: string): { answer: Promise<T>; untilMs: number } | undefined => {
    const kept = entries.get(key);
    return kept !== undefined && clock.monotonicMs() < kept.untilMs ? kept : undefined;
  };
  const cache: Cache<T> = {
    has: (key) => fresh(key) !== undefined,
    get: (key, ask) => {
      const kept = fresh(key);
      entries.delete(key);
      if (kept !== undefined) {
        entries.set(key, kept);
        // The refused entry is over by now, so this asks, or shares the call of another caller who does.
        return kept.answer.catch((error: unknown) => (isOfCaller(error) ? cache.get(key, ask) : Promise.reject(error)));
      }
      const answer = ask();
      const entry = { answer, untilMs: Number.POSITIVE_INFINITY };
      entries.set(key, entry);
      answer.then(
        () => {
          entry.untilMs = clock.monotonicMs() + rules.keepMs;
        },
        (error: unknown) => {
          entry.untilMs = isOfCaller(error) ? 0 : clock.monotonicMs() + rules.refusalKeepMs;
        },
      );
      for (const oldest of entries.keys()) {
        if (entries.size <= rules.entriesMax) break;
        entries.delete(oldest);
      }
      return answer;
    },
  };
  return cache;
}

function isOfCaller(error: unknown): boolean {
  return error instanceof ServiceError && error.code === 'rate_limit_exceeded';
}

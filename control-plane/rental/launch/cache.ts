// A cache of answers: equal requests at the same time share one call, and the oldest answers are dropped first.
import type { Clock } from '../../../shared/clock.ts';

export interface Cache<T> {
  /** Returns the cached answer, or calls `ask`. While an equal call is running, its result is shared. Refusals are cached too. */
  get(key: string, ask: () => Promise<T>): Promise<T>;
}

export interface CacheRules {
  keepMs: number;
  refusalKeepMs: number;
  entriesMax: number;
}

export function openCache<T>(clock: Clock, rules: CacheRules): Cache<T> {
  const entries = new Map<string, { answer: Promise<T>; untilMs: number }>();
  return {
    get: (key, ask) => {
      const kept = entries.get(key);
      if (kept !== undefined && clock.monotonicMs() < kept.untilMs) return kept.answer;
      entries.delete(key);
      const answer = ask();
      const entry = { answer, untilMs: Number.POSITIVE_INFINITY };
      entries.set(key, entry);
      answer.then(
        () => (entry.untilMs = clock.monotonicMs() + rules.keepMs),
        () => (entry.untilMs = clock.monotonicMs() + rules.refusalKeepMs),
      );
      for (const oldest of entries.keys()) {
        if (entries.size <= rules.entriesMax) break;
        entries.delete(oldest);
      }
      return answer;
    },
  };
}

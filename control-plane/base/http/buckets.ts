// Token buckets by name. They limit how much each caller may take at once after a pause, and how fast it gets more.
import type { Clock } from '../../../shared/clock.ts';

export interface Taken {
  /** 0 if the tokens were taken, else the time until they can be taken. */
  waitMs: number;
  /** The number of whole tokens that are left. */
  left: number;
  fullInMs: number;
}

export interface Buckets {
  /** `tokens` is 1 by default. More tokens than the burst can never be taken. */
  take(name: string, tokens?: number): Taken;
  /** Takes the tokens in any case, even those that do not exist yet. Returns how long the caller must wait for them, or 0. */
  owe(name: string, tokens: number): number;
  giveBack(name: string, tokens: number): void;
  /** Changes rate and burst. Tokens that callers have taken stay taken. */
  change(rate: Rate): void;
}

export interface Rate {
  perSecond: number;
  burst: number;
}

/** A full bucket is the default state and needs no memory. Above this number, full buckets are removed. */
const BUCKETS_MAX = 20_000;
/** Rounding errors of fractions of a millisecond must not cost a token. */
export const EPSILON_MS = 1e-6;

export function openBuckets(rate: Rate, clock: Clock): Buckets {
  let tokenMs = 1000 / rate.perSecond;
  let { burst } = rate;
  /** For each bucket, the moment at which it is full again. A missing bucket is full. */
  const fullAtMs = new Map<string, number>();
  const set = (name: string, ms: number, nowMs: number): void => {
    // Delete and set keeps the map in the order of use, so an active caller is not forgotten.
    fullAtMs.delete(name);
    fullAtMs.set(name, ms);
    if (fullAtMs.size > BUCKETS_MAX) shrink(fullAtMs, nowMs);
  };
  return {
    take: (name, tokens = 1) => {
      const nowMs = clock.monotonicMs();
      const beforeMs = Math.max(fullAtMs.get(name) ?? 0, nowMs);
      const costMs = tokens * tokenMs;
      const waitMs = beforeMs + costMs - nowMs - burst * tokenMs;
      const refused = waitMs > EPSILON_MS;
      const afterMs = refused ? beforeMs : beforeMs + costMs;
      set(name, afterMs, nowMs);
      const fullInMs = afterMs - nowMs;
      const left = Math.floor(burst - (fullInMs - EPSILON_MS) / tokenMs);
      return { waitMs: refused ? waitMs : 0, left, fullInMs };
    },
    owe: (name, tokens) => {
      const nowMs = clock.monotonicMs();
      const afterMs = Math.max(fullAtMs.get(name) ?? 0, nowMs) + tokens * tokenMs;
      set(name, afterMs, nowMs);
      return Math.max(0, afterMs - nowMs - burst * tokenMs);
    },
    giveBack: (name, tokens) => {
      const beforeMs = fullAtMs.get(name);
      if (beforeMs !== undefined) fullAtMs.set(name, beforeMs - tokens * tokenMs);
    },
    change: (next) => {
      const nowMs = clock.monotonicMs();
      const nextTokenMs = 1000 / next.perSecond;
      for (const [name, ms] of fullAtMs) {
        const taken = Math.min(Math.max(0, ms - nowMs) / tokenMs, next.burst);
        fullAtMs.set(name, nowMs + taken * nextTokenMs);
      }
      [tokenMs, burst] = [nextTokenMs, next.burst];
    },
  };
}

/** Removes full buckets. If callers have filled the map with other buckets, removes the least recently used ones. */
function shrink(fullAtMs: Map<string, number>, nowMs: number): void {
  for (const [name, ms] of fullAtMs) if (ms <= nowMs) fullAtMs.delete(name);
  for (const name of fullAtMs.keys()) {
    if (fullAtMs.size <= BUCKETS_MAX / 2) return;
    fullAtMs.delete(name);
  }
}

// How often one API key and one address may ask: a token bucket for each, and a refusal that says when to come back.
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';

export interface RateLimitOptions {
  perKeyPerSecond: number;
  perIpPerSecond: number;
  /** Requests that may come at once after a pause. */
  burst: number;
}

export interface RateLimits {
  /** @throws ServiceError `rate_limit_exceeded` */
  takeForKey(apiKeyId: string): void;
  /** Neighbours in one IPv6 /64 count as one. @throws ServiceError `rate_limit_exceeded` */
  takeForIp(ip: string): void;
}

/** A bucket that is full again needs no memory; with this many, it is looked for those. */
const BUCKETS_MAX = 20_000;
/** Sums of fractions of a millisecond must not cost a token. */
const EPSILON_MS = 1e-6;

export function openRateLimits(options: RateLimitOptions, clock: Clock): RateLimits {
  const { perKeyPerSecond, perIpPerSecond, burst } = options;
  const keys = openBuckets({ perSecond: perKeyPerSecond, burst }, clock);
  const addresses = openBuckets({ perSecond: perIpPerSecond, burst }, clock);
  const take = (buckets: Buckets, name: string, words: string): void => {
    const waitMs = buckets.take(name);
    if (waitMs > 0) {
      fail('rate_limit_exceeded', {
        detail: `${words}; send it again after the seconds that Retry-After says.`,
        retryAfterSeconds: waitMs / 1000,
      });
    }
  };
  return {
    takeForKey: (apiKeyId) =>
      take(keys, apiKeyId, `This API key may send ${perKeyPerSecond} requests a second, and ${burst} at once`),
    takeForIp: (ip) =>
      take(addresses, networkOf(ip), `Your address may send ${perIpPerSecond} requests a second, and ${burst} at once`),
  };
}

interface Buckets {
  /** Takes a token, or takes none and returns the milliseconds until there is one. */
  take(name: string): number;
}

function openBuckets({ perSecond, burst }: { perSecond: number; burst: number }, clock: Clock): Buckets {
  const tokenMs = 1000 / perSecond;
  /** A bucket is the moment at which it is full again; one that is not here is full. */
  const fullAtMs = new Map<string, number>();
  return {
    take: (name) => {
      const nowMs = clock.monotonicMs();
      const beforeMs = Math.max(fullAtMs.get(name) ?? 0, nowMs);
      const waitMs = beforeMs + tokenMs - nowMs - burst * tokenMs;
      const refused = waitMs > EPSILON_MS;
      // Set anew at the end: the map stays in the order of use, so whoever keeps asking is not forgotten.
      fullAtMs.delete(name);
      fullAtMs.set(name, refused ? beforeMs : beforeMs + tokenMs);
      if (fullAtMs.size > BUCKETS_MAX) shrink(fullAtMs, nowMs);
      return refused ? waitMs : 0;
    },
  };
}

/** Forgets full buckets; where strangers have filled it with others, those that were not used for longest. */
function shrink(fullAtMs: Map<string, number>, nowMs: number): void {
  for (const [name, ms] of fullAtMs) if (ms <= nowMs) fullAtMs.delete(name);
  for (const name of fullAtMs.keys()) {
    if (fullAtMs.size <= BUCKETS_MAX / 2) return;
    fullAtMs.delete(name);
  }
}

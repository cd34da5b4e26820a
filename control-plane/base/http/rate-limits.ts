// Limits the request rate of each API key, organisation and address with token buckets. Each process has its own buckets. A refusal names
// the time after which to retry. The buckets are for other limits too: they limit how much each caller may take at once after a pause, and
// how fast it gets more.
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Caller } from './route.ts';

export interface RateLimitOptions {
  perKeyPerSecond: number;
  perIpPerSecond: number;
  /** The number of requests that may arrive at once after a pause. */
  burst: number;
  /** The limits for inference, of one key and of all keys of an organisation. Inference has its own buckets, because it costs far more. */
  inference: { perKeyPerSecond: number; burst: number; perOrgPerSecond: number; orgBurst: number };
}

export interface RateLimits {
  /** @throws ServiceError `rate_limit_exceeded` */
  takeForKey(principalId: string): void;
  /**
   * Passes the headers with the remaining requests to `tell`, also if the request is refused. @throws ServiceError `rate_limit_exceeded`
   */
  takeForInference(
    caller: Pick<Caller, 'principalId' | 'orgId'>,
    tell: (headers: Record<string, string>) => void,
  ): void;
  /** All addresses of an IPv6 /64 count as one. @throws ServiceError `rate_limit_exceeded` */
  takeForIp(ip: string): void;
  /** Refunds one `takeForIp` because the caller has authenticated. */
  giveBackForIp(ip: string): void;
  /** Applies from the next request on. */
  change(next: RateLimitOptions): void;
}

/**
 * Rate headers of an inference response, with the names that clients of the chat-completion format know. They are about the API key, or about
 * its organisation if that may send fewer now.
 */
export const RATE_HEADERS = {
  'X-Ratelimit-Limit-Requests':
    'Number of inference requests that this API key may send at once after a pause. If the organisation of the key has fewer requests left, the headers are about the organisation',
  'X-Ratelimit-Remaining-Requests': 'Number of these requests that may still be sent now',
  'X-Ratelimit-Reset-Requests': 'Time until all of these requests may be sent again, like `12ms` or `1m30.5s`',
};

export function openRateLimits(first: RateLimitOptions, clock: Clock): RateLimits {
  let options = first;
  const keys = openBuckets(ratesOf(first).keys, clock);
  const addresses = openBuckets(ratesOf(first).addresses, clock);
  const inferenceKeys = openBuckets(ratesOf(first).inferenceKeys, clock);
  const inferenceOrgs = openBuckets(ratesOf(first).inferenceOrgs, clock);
  return {
    takeForKey: (principalId) =>
      assertTaken(
        keys.take(principalId),
        `This API key may send ${options.perKeyPerSecond} requests a second, and ${options.burst} at once`,
      ),
    takeForInference: ({ principalId, orgId }, tell) => {
      const { perKeyPerSecond, burst, perOrgPerSecond, orgBurst } = options.inference;
      const ofKey = inferenceKeys.take(principalId);
      if (ofKey.waitMs > 0) tell(rateHeaders(ofKey, burst));
      assertTaken(ofKey, `This API key may send ${perKeyPerSecond} inference requests a second, and ${burst} at once`);
      const ofOrg = inferenceOrgs.take(orgId);
      // A request that the limit of the organisation refuses does not count for the key.
      if (ofOrg.waitMs > 0) inferenceKeys.giveBack(principalId, 1);
      tell(ofOrg.waitMs > 0 || ofOrg.left < ofKey.left ? rateHeaders(ofOrg, orgBurst) : rateHeaders(ofKey, burst));
      assertTaken(
        ofOrg,
        `This organisation may send ${perOrgPerSecond} inference requests a second with all its API keys, and ${orgBurst} at once`,
      );
    },
    takeForIp: (ip) =>
      assertTaken(
        addresses.take(networkOf(ip)),
        `Your address may send ${options.perIpPerSecond} requests a second, and ${options.burst} at once`,
      ),
    giveBackForIp: (ip) => addresses.giveBack(networkOf(ip), 1),
    change: (next) => {
      options = next;
      const rates = ratesOf(next);
      keys.change(rates.keys);
      addresses.change(rates.addresses);
      inferenceKeys.change(rates.inferenceKeys);
      inferenceOrgs.change(rates.inferenceOrgs);
    },
  };
}

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
const EPSILON_MS = 1e-6;

export function openBuckets(rate: Rate, clock: Clock): Buckets {
  let tokenMs = 1000 / rate.perSecond;
  let { burst } = rate;
  /** The moment at which each bucket is full again. A missing bucket is full. */
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

function ratesOf({
  perKeyPerSecond,
  perIpPerSecond,
  burst,
  inference,
}: RateLimitOptions): Record<'keys' | 'addresses' | 'inferenceKeys' | 'inferenceOrgs', Rate> {
  return {
    keys: { perSecond: perKeyPerSecond, burst },
    addresses: { perSecond: perIpPerSecond, burst },
    inferenceKeys: { perSecond: inference.perKeyPerSecond, burst: inference.burst },
    inferenceOrgs: { perSecond: inference.perOrgPerSecond, burst: inference.orgBurst },
  };
}

/** @throws ServiceError `rate_limit_exceeded` */
function assertTaken({ waitMs }: Taken, words: string): void {
  if (waitMs === 0) return;
  fail('rate_limit_exceeded', {
    detail: `${words}; send it again after the seconds that Retry-After says.`,
    retryAfterSeconds: waitMs / 1000,
  });
}

function rateHeaders({ left, fullInMs }: Taken, burst: number): Record<string, string> {
  return {
    'x-ratelimit-limit-requests': String(burst),
    'x-ratelimit-remaining-requests': String(left),
    'x-ratelimit-reset-requests': durationText(fullInMs),
  };
}

/** Rounded up to a whole millisecond. */
function durationText(ms: number): string {
  const whole = Math.ceil(ms - EPSILON_MS);
  if (whole < 1000) return `${whole}ms`;
  const minutes = Math.floor(whole / 60_000);
  return `${minutes === 0 ? '' : `${minutes}m`}${(whole % 60_000) / 1000}s`;
}

/** Removes full buckets. If callers have filled the map with other buckets, removes the least recently used ones. */
function shrink(fullAtMs: Map<string, number>, nowMs: number): void {
  for (const [name, ms] of fullAtMs) if (ms <= nowMs) fullAtMs.delete(name);
  for (const name of fullAtMs.keys()) {
    if (fullAtMs.size <= BUCKETS_MAX / 2) return;
    fullAtMs.delete(name);
  }
}

// Limits the request rate of each API key and address with token buckets. A refusal names the time after which to retry.
import { networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { EPSILON_MS, openBuckets, type Rate, type Taken } from './buckets.ts';

export interface RateLimitOptions {
  perKeyPerSecond: number;
  perIpPerSecond: number;
  /** The number of requests that may arrive at once after a pause. */
  burst: number;
  /** The limits of one key for inference. It has its own buckets, because an inference request costs far more than others. */
  inference: { perKeyPerSecond: number; burst: number };
}

export interface RateLimits {
  /** @throws ServiceError `rate_limit_exceeded` */
  takeForKey(apiKeyId: string): void;
  /**
   * Passes the headers with the remaining requests to `tell`, also if the request is refused. @throws ServiceError `rate_limit_exceeded`
   */
  takeForInference(apiKeyId: string, tell: (headers: Record<string, string>) => void): void;
  /** All addresses of an IPv6 /64 count as one. @throws ServiceError `rate_limit_exceeded` */
  takeForIp(ip: string): void;
  /** Refunds one `takeForIp` because the caller has authenticated. */
  giveBackForIp(ip: string): void;
  /** Applies from the next request on. */
  change(next: RateLimitOptions): void;
}

/** Rate headers of an inference response, with the names that clients of the chat-completion format know. */
export const RATE_HEADERS = {
  'X-Ratelimit-Limit-Requests': 'Inference requests that this API key may send at once after a pause',
  'X-Ratelimit-Remaining-Requests': 'How many of them it may still send now',
  'X-Ratelimit-Reset-Requests': 'How long until it may send all of them again, like `12ms` or `1m30.5s`',
};

export function openRateLimits(first: RateLimitOptions, clock: Clock): RateLimits {
  let options = first;
  const keys = openBuckets(ratesOf(first).keys, clock);
  const addresses = openBuckets(ratesOf(first).addresses, clock);
  const inferenceKeys = openBuckets(ratesOf(first).inferenceKeys, clock);
  return {
    takeForKey: (apiKeyId) =>
      assertTaken(
        keys.take(apiKeyId),
        `This API key may send ${options.perKeyPerSecond} requests a second, and ${options.burst} at once`,
      ),
    takeForInference: (apiKeyId, tell) => {
      const { inference } = options;
      const taken = inferenceKeys.take(apiKeyId);
      tell(rateHeaders(taken, inference.burst));
      assertTaken(
        taken,
        `This API key may send ${inference.perKeyPerSecond} inference requests a second, and ${inference.burst} at once`,
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
    },
  };
}

function ratesOf({
  perKeyPerSecond,
  perIpPerSecond,
  burst,
  inference,
}: RateLimitOptions): Record<'keys' | 'addresses' | 'inferenceKeys', Rate> {
  return {
    keys: { perSecond: perKeyPerSecond, burst },
    addresses: { perSecond: perIpPerSecond, burst },
    inferenceKeys: { perSecond: inference.perKeyPerSecond, burst: inference.burst },
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

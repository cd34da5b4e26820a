// Request rates of API keys, organisations and addresses: what is let through, and what a refusal says.
import { afterEach, describe, expect, test } from 'vitest';
import { openRateLimits, type RateLimitOptions } from '../../../../control-plane/base/http/rate-limits.ts';
import type { WireReply } from '../../../../control-plane/base/http/route.ts';
import { InferenceError } from '../../../../shared/api/inference.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { virtualClock } from '../../../kit/virtual-clock.ts';
import { as, type Bench, openBench, problemOf } from './fixture.ts';

const open: Bench[] = [];
afterEach(async () => {
  for (const bench of open.splice(0)) await bench.close();
});
/** The limits of inference in tests about other requests. */
const inference = { perKeyPerSecond: 1, burst: 1, perOrgPerSecond: 1_000, orgBurst: 1_000 };
const CALLER = { orgId: 'org_a', principalId: 'apk_a' };
async function openLimited(limits: Omit<RateLimitOptions, 'inference'> & Partial<RateLimitOptions>) {
  const clock = virtualClock();
  const rateLimits = { inference, ...limits };
  const bench = await openBench({ clock, http: { rateLimits, trustProxy: ['127.0.0.1'] } });
  open.push(bench);
  const ask = (token: string, from = '192.0.2.1') =>
    bench.http.inject({ method: 'POST', url: '/v1/chat/thing', headers: as(token, { 'x-forwarded-for': from }) });
  const get = (url: string, token?: string, from = '192.0.2.1') =>
    bench.http.inject({
      method: 'GET',
      url,
      headers: { 'x-forwarded-for': from, ...(token === undefined ? {} : as(token)) },
    });
  return { clock, get, ask };
}

function isRefused(take: () => void): boolean {
  try {
    take();
    return false;
  } catch (error) {
    return error instanceof ServiceError && error.code === 'rate_limit_exceeded';
  }
}

describe('rates', () => {
  // Specification 7.1: 429 carries Retry-After in whole seconds.
  test('a key may send its burst, then gets 429 with the seconds to wait, then may send what has refilled since', async () => {
    const { clock, get: getFrom } = await openLimited({ perKeyPerSecond: 0.5, perIpPerSecond: 1000, burst: 3 });
    let address = 0;
    const get = (url: string, token: string) => getFrom(url, token, `198.51.100.${(address += 1)}`);
    const statuses = async (count: number, token: string) => {
      const replies = await Promise.all(Array.from({ length: count }, () => get('/v1/things/x', token)));
      return replies.map((reply) => reply.status);
    };
    expect(await statuses(4, 'all')).toEqual([200, 200, 200, 429]);
    const refused = await get('/v1/things/x', 'all');
    expect(problemOf(refused)).toMatchObject({ code: 'rate_limit_exceeded', status: 429 });
    expect(refused.headers['retry-after']).toBe('2');
    expect(await statuses(1, 'other')).toEqual([200]);
    await clock.advance(1_999);
    expect((await get('/v1/things/x', 'all')).headers['retry-after']).toBe('1');
    await clock.advance(1);
    expect(await statuses(2, 'all')).toEqual([200, 429]);
    await clock.advance(60_000);
    expect(await statuses(4, 'all')).toEqual([200, 200, 200, 429]);
  });

  test('a changed rate applies from the next request on, and tokens that were taken before stay taken', async () => {
    const clock = virtualClock();
    const rates = { perKeyPerSecond: 1, perIpPerSecond: 1, burst: 4, inference };
    const limits = openRateLimits(rates, clock);
    for (let i = 0; i < 3; i += 1) limits.takeForIp('192.0.2.1');
    limits.change({ ...rates, perIpPerSecond: 0.1, burst: 5 });
    const taken = (ip: string): number => {
      for (let count = 0; ; count += 1) if (isRefused(() => limits.takeForIp(ip))) return count;
    };
    expect([taken('192.0.2.1'), taken('192.0.2.2')]).toEqual([2, 5]);
    await clock.advance(10_000);
    expect(taken('192.0.2.1')).toBe(1);
    // A smaller burst does not make the remaining tokens negative.
    limits.change({ ...rates, perIpPerSecond: 1, burst: 1 });
    await clock.advance(1_000);
    expect(taken('192.0.2.1')).toBe(1);
  });

  // Specification 7.3: rate_limit_exceeded is the per-second rate limit, per address too.
  test('an address is limited with and without a key, also on unknown paths', async () => {
    const { get } = await openLimited({ perKeyPerSecond: 1000, perIpPerSecond: 0.1, burst: 4 });
    const urls = ['/v1/ip', '/v1/things/x', '/v1/nowhere', '/v1/things/x'];
    const replies = await Promise.all(urls.map((url, i) => get(url, i === 3 ? 'all' : undefined)));
    expect(replies.map((reply) => reply.status)).toEqual([200, 401, 404, 200]);
    for (const url of urls) expect((await get(url, 'all')).status).toBe(429);
    expect((await get('/v1/nowhere')).headers['retry-after']).toBe('10');
  });

  test('a load balancer that checks health is never refused', async () => {
    const { get } = await openLimited({ perKeyPerSecond: 1, perIpPerSecond: 1, burst: 1 });
    for (let i = 0; i < 5; i += 1) expect((await get(i % 2 === 0 ? '/healthz' : '/readyz')).status).toBe(200);
  });

  test.each([
    ['2001:db8:1:2::1', '2001:db8:1:2:ffff::9', true],
    ['2001:db8:1:2::1', '2001:0DB8:0001:0002:3:4:5:6', true],
    ['2001:db8::1', '2001:db8:0:0:1::', true],
    ['2001:db8:1:2::1', '2001:db8:1:3::1', false],
    ['::1', '::2', true],
    ['::ffff:192.0.2.1', '192.0.2.1', true],
    ['::ffff:192.0.2.1', '::ffff:192.0.2.2', false],
    ['192.0.2.1', '192.0.2.2', false],
  ])('%s and %s count as one address: %s', (a, b, one) => {
    const limits = openRateLimits({ perKeyPerSecond: 1, perIpPerSecond: 1, burst: 1, inference }, virtualClock());
    limits.takeForIp(a);
    expect(isRefused(() => limits.takeForIp(b))).toBe(one);
  });

  test('many other addresses do not reset the bucket of an address that keeps sending', () => {
    const limits = openRateLimits({ perKeyPerSecond: 1, perIpPerSecond: 1, burst: 2, inference }, virtualClock());
    const addressOf = (i: number): string => `10.${i >> 16}.${(i >> 8) & 255}.${i & 255}`;
    limits.takeForIp('192.0.2.1');
    limits.takeForIp('192.0.2.1');
    const refusals: boolean[] = [];
    for (let i = 0; i < 25_000; i += 1) {
      limits.takeForIp(addressOf(i));
      if (i % 5000 === 0) refusals.push(isRefused(() => limits.takeForIp('192.0.2.1')));
    }
    expect(refusals).toEqual([true, true, true, true, true]);
  });
});

describe('the rate of inference', () => {
  const SLOW = { perKeyPerSecond: 1000, perIpPerSecond: 1000, burst: 1000 };
  const toldOf = ({ status, headers }: WireReply) => [
    status,
    ...['limit', 'remaining', 'reset'].map((what) => headers[`x-ratelimit-${what}-requests`]),
    headers['retry-after'],
  ];

  // Specification 7.3: rate_limit_exceeded is the per-second rate limit of the API key: 429. A lack on our side is 503.
  test('a key may send its burst, then gets 429 with the time to wait, and may send one request as soon as that is over', async () => {
    const { clock, ask } = await openLimited({ ...SLOW, inference: { ...inference, perKeyPerSecond: 0.8, burst: 2 } });
    expect(toldOf(await ask('all'))).toEqual([200, '2', '1', '1.25s', undefined]);
    expect(toldOf(await ask('all'))).toEqual([200, '2', '0', '2.5s', undefined]);
    const refused = await ask('all');
    expect(toldOf(refused)).toEqual([429, '2', '0', '2.5s', '2']);
    expect(JSON.parse(refused.body)).toMatchObject({
      error: {
        type: 'rate_limit_error',
        code: 'rate_limit_exceeded',
        message: expect.stringContaining('0.8 inference'),
      },
    });
    expect(toldOf(await ask('other'))).toEqual([200, '2', '1', '1.25s', undefined]);
    await clock.advance(1_249);
    expect(toldOf(await ask('all'))).toEqual([429, '2', '0', '1.251s', '1']);
    await clock.advance(1);
    expect(toldOf(await ask('all'))).toEqual([200, '2', '0', '2.5s', undefined]);
    await clock.advance(2_499);
    // One millisecond before the refill of a second request, only one is allowed.
    expect(toldOf(await ask('all'))).toEqual([200, '2', '0', '1.251s', undefined]);
    expect(toldOf(await ask('all'))).toEqual([429, '2', '0', '1.251s', '1']);
    await clock.advance(600_000);
    expect(toldOf(await ask('all'))).toEqual([200, '2', '1', '1.25s', undefined]);
  });

  test('is separate: neither rate takes from the other, and only inference responses have rate headers', async () => {
    const { get, ask } = await openLimited({ ...SLOW, perKeyPerSecond: 1, burst: 2 });
    expect((await ask('all')).status).toBe(200);
    expect((await ask('all')).status).toBe(429);
    const other = await get('/v1/things/x', 'all', '192.0.2.2');
    expect([other.status, (await get('/v1/things/x', 'all', '192.0.2.2')).status]).toEqual([200, 200]);
    expect(Object.keys(other.headers).filter((name) => name.startsWith('x-ratelimit'))).toEqual([]);
    expect((await get('/v1/things/x', 'all', '192.0.2.3')).status).toBe(429);
    expect((await ask('other', '192.0.2.4')).status).toBe(200);
  });

  test('of an organisation holds for all its keys together, and its refusals do not count for the key', async () => {
    const rates = { perKeyPerSecond: 1, burst: 3, perOrgPerSecond: 2, orgBurst: 4 };
    const { clock, ask } = await openLimited({ ...SLOW, inference: rates });
    expect(toldOf(await ask('all'))).toEqual([200, '3', '2', '1s', undefined]);
    expect(toldOf(await ask('other'))).toEqual([200, '3', '2', '1s', undefined]);
    expect(toldOf(await ask('all'))).toEqual([200, '3', '1', '2s', undefined]);
    // The organisation has fewer left than the key.
    expect(toldOf(await ask('other'))).toEqual([200, '4', '0', '2s', undefined]);
    const refused = await ask('other');
    expect(toldOf(refused)).toEqual([429, '4', '0', '2s', '1']);
    expect(InferenceError.parse(JSON.parse(refused.body)).error).toMatchObject({
      code: 'rate_limit_exceeded',
      message: expect.stringContaining('This organisation may send 2 inference requests a second') as string,
    });
    expect((await ask('stranger')).status).toBe(200);
    await clock.advance(499);
    expect((await ask('other')).status).toBe(429);
    await clock.advance(1);
    // 1 left and half a second, less this one: the two refusals before have cost the key nothing.
    expect((await ask('other')).status).toBe(200);
    await clock.advance(2_000);
    expect(toldOf(await ask('other'))).toEqual([200, '3', '1', '1.5s', undefined]);
  });

  test('of an organisation can change while the process runs', () => {
    const limits = openRateLimits({ ...SLOW, inference }, virtualClock());
    const none = (): void => undefined;
    limits.takeForInference(CALLER, none);
    limits.change({ ...SLOW, inference: { perKeyPerSecond: 9, burst: 9, perOrgPerSecond: 9, orgBurst: 1 } });
    expect(isRefused(() => limits.takeForInference({ ...CALLER, principalId: 'apk_b' }, none))).toBe(true);
    expect(isRefused(() => limits.takeForInference({ ...CALLER, orgId: 'org_b' }, none))).toBe(false);
  });

  test('does not limit the polling of a job', async () => {
    const { get, ask } = await openLimited(SLOW);
    expect((await ask('all')).status).toBe(200);
    const followed = await get('/v1/chat/thing', 'all');
    expect(toldOf(followed)).toEqual([200, undefined, undefined, undefined, undefined]);
    expect((await ask('all')).status).toBe(429);
  });

  test.each([
    [1_000, 1, '1ms'],
    [1_000, 999, '999ms'],
    [1_000, 1_000, '1s'],
    [1, 59, '59s'],
    [1, 60, '1m0s'],
    [0.5, 45, '1m30s'],
    [3, 1, '334ms'],
  ])('at %d a second, %d requests are back after %s', (perKeyPerSecond, burst, reset) => {
    const limits = openRateLimits({ ...SLOW, inference: { ...inference, perKeyPerSecond, burst } }, virtualClock());
    let sent: Record<string, string> = {};
    for (let i = 0; i < burst; i += 1) limits.takeForInference(CALLER, (headers) => (sent = headers));
    expect(sent).toMatchObject({
      'x-ratelimit-remaining-requests': '0',
      'x-ratelimit-reset-requests': reset,
    });
  });
});

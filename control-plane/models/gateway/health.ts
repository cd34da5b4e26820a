// The health check of a resting server, so that no caller's request has to test whether it is back.
import { type Exchanges } from '../../base/outbound/exchange.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Health } from './breaker.ts';
import { besideV1, headersFor } from '../catalog/server-request.ts';
import { isLoading } from './upstream-refusals.ts';

/** Limit for connecting, and again for the answer. */
const CHECK_MS = 2_000;

/** Uses `GET /health`, which vLLM, SGLang, llama.cpp and TEI have. For other servers, a 404 is a sign of life too. */
export async function healthOf(upstream: Upstream, exchanges: Exchanges, signal: AbortSignal): Promise<Health> {
  try {
    const exchange = await exchanges.open({
      method: 'GET',
      url: besideV1(upstream, '/health'),
      headers: headersFor(upstream),
      body: '',
      connectMs: Math.min(upstream.connect_ms, CHECK_MS),
      statusMs: CHECK_MS,
      idleMs: CHECK_MS,
      signal,
      dial: upstream.replica?.dial,
    });
    const loads = await isLoading(exchange);
    exchange.end();
    if (loads) return 'loading';
    return exchange.status < 500 ? 'well' : 'dead';
  } catch (error) {
    if (error instanceof OutboundError) return 'dead';
    throw error;
  }
}

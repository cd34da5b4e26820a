// Computes waiting times before another try: full jitter, so that a thousand clients do not return in the same second.
import type { Rng } from './rng.ts';

/** A delay between `minMs` and min(`maxMs`, `minMs` * 2^attempt); `attempt` counts from 0. */
export function fullJitterMs(attempt: number, minMs: number, maxMs: number, rng: Rng): number {
  const ceilingMs = Math.min(maxMs, minMs * 2 ** Math.min(attempt, 30));
  return Math.round(minMs + rng.float() * (ceilingMs - minMs));
}

/** `ms` changed by up to ±20 %, so that periodic work of many peers does not coincide. */
export function spreadMs(ms: number, rng: Rng): number {
  return Math.round(ms * (0.8 + 0.4 * rng.float()));
}

// The attempts of a request: which servers were asked, what came of it, and after how long. Its receipt keeps them.
import { z } from 'zod';
import { ReceiptAttempt } from '../../../shared/api/receipt.ts';
import type { Clock } from '../../../shared/clock.ts';
import type { Callable } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';

/** The stored form has the address of the server, which customers do not see. */
export const Attempt = z.strictObject({ ...ReceiptAttempt.shape, upstream: z.string() });
export type Attempt = z.infer<typeof Attempt>;

export interface Attempts {
  /** Notes that a server is asked. The returned function notes what came of it; a later note replaces an earlier one. */
  begin(upstream: Upstream, callable: Callable): (outcome: Attempt['outcome']) => void;
  /** The servers in the order in which they were asked. If there are many, the last ones. */
  list(): Attempt[];
}

/** Texts to embed may go to servers in thousands of batches. */
const KEPT_MAX = 64;

export function openAttempts(clock: Clock): Attempts {
  const attempts: Attempt[] = [];
  return {
    begin: (upstream, { upstreams }) => {
      const beganMs = clock.monotonicMs();
      // All replicas together are the last server of the list.
      const server = upstream.replica === undefined ? upstreams.indexOf(upstream) + 1 : upstreams.length + 1;
      const attempt: Attempt = { server, upstream: upstream.base_url, outcome: 'cancelled', ms: 0 };
      attempts.push(attempt);
      if (attempts.length > KEPT_MAX) attempts.shift();
      return (outcome) => Object.assign(attempt, { outcome, ms: Math.round(clock.monotonicMs() - beganMs) });
    },
    list: () => attempts,
  };
}

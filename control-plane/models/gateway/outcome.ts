// Outcomes of a request for its receipt: with a charge, or free.
import type { TokenUsage } from '../../../shared/api/chat.ts';
import { ERRORS, ServiceError } from '../../../shared/errors.ts';
import type { Outcome } from './states.ts';
import type { Ending, Receipt } from './store.ts';

export interface Used {
  /** The cost of the request. The charge is never more than was held. */
  ucents: bigint;
  /** Set if tokens are charged. */
  usage?: Pick<TokenUsage, 'prompt_tokens' | 'completion_tokens'>;
  /** Set if images are charged. */
  images?: number;
  countedBy: Receipt['counted_by'];
  /** Address of the server. */
  upstream: string;
}

/** An outcome with a charge. */
export function usedOutcome(ending: Ending, { ucents, usage, images, countedBy, upstream }: Used): Outcome {
  return {
    charged_ucents: ucents,
    ending,
    prompt_tokens: usage?.prompt_tokens ?? null,
    completion_tokens: usage?.completion_tokens ?? null,
    images: images ?? null,
    counted_by: countedBy,
    upstream,
  };
}

/** An outcome without a charge. */
export function freeOutcome(ending: Ending, upstream: string | null = null): Outcome {
  return {
    charged_ucents: 0n,
    ending,
    prompt_tokens: null,
    completion_tokens: null,
    images: null,
    counted_by: null,
    upstream,
  };
}

/** The outcome of a request that failed before its answer began. */
export function failedOutcome(error: unknown, signal: AbortSignal): Outcome {
  if (signal.aborted) return freeOutcome(signal.reason instanceof ServiceError ? 'process_ended' : 'client_left');
  const isRefusal = error instanceof ServiceError && ERRORS[error.code].status < 500;
  return freeOutcome(isRefusal ? 'refused' : 'upstream_failed');
}

// How a request ends, as its receipt keeps it: what was used, or that nothing is owed.
import type { TokenUsage } from '../../../shared/api/chat.ts';
import { ERRORS, ServiceError } from '../../../shared/errors.ts';
import type { Pricing } from '../catalog/models.ts';
import { chatUcents } from './price.ts';
import type { Outcome } from './states.ts';
import type { Ending, Receipt } from './store.ts';

export interface Used {
  usage: TokenUsage;
  countedBy: Receipt['counted_by'];
  pricing: Pricing;
  /** Address of the server. */
  upstream: string;
}

/** Its tokens are charged. */
export function usedOutcome(ending: Ending, { usage, countedBy, pricing, upstream }: Used): Outcome {
  const { prompt_tokens, completion_tokens } = usage;
  return {
    charged_ucents: chatUcents({ prompt: prompt_tokens, completion: completion_tokens }, pricing),
    ending,
    prompt_tokens,
    completion_tokens,
    counted_by: countedBy,
    upstream,
  };
}

/** Nothing is charged. */
export function freeOutcome(ending: Ending, upstream: string | null = null): Outcome {
  return { charged_ucents: 0n, ending, prompt_tokens: null, completion_tokens: null, counted_by: null, upstream };
}

/** Of a request that failed before its answer began. */
export function failedOutcome(error: unknown, signal: AbortSignal): Outcome {
  if (signal.aborted) return freeOutcome('client_left');
  const isRefusal = error instanceof ServiceError && ERRORS[error.code].status < 500;
  return freeOutcome(isRefusal ? 'refused' : 'upstream_failed');
}

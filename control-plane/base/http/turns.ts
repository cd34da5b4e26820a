// Limits how many requests of one kind an organisation has at work at once, for requests that take much memory or much of the processor.
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { openSemaphore } from '../../../shared/semaphore.ts';

/** @throws ServiceError `rate_limit_exceeded` if the organisation has too many of these requests at work for too long */
export type InTurn = <T extends object>(orgId: string, work: () => Promise<T>) => Promise<T>;

/** Such a request takes about a second, so some of them come to their turn within this time. */
const WAIT_MS = 5_000;
const TRY_AGAIN_SECONDS = 10;

export function openTurns(clock: Clock, atOnceMax: number): InTurn {
  const turns = openSemaphore(clock, atOnceMax);
  return async (orgId, work) => {
    const answer = await turns.run(orgId, WAIT_MS, work);
    if (answer !== undefined) return answer;
    return fail('rate_limit_exceeded', {
      detail: `This organisation has ${atOnceMax} of these requests at work already. Send the request again when one of them is answered.`,
      retryAfterSeconds: TRY_AGAIN_SECONDS,
    });
  };
}

// How many uploads of one organisation may be under way in this process: each may fill the disk up to its limit before it is refused.
import { fail } from '../../../shared/errors.ts';

export interface AtOnce {
  /** @throws ServiceError `rate_limit_exceeded`, and the errors of the work */
  run<T>(orgId: string, work: () => Promise<T>): Promise<T>;
}

const RETRY_S = 5;

/** `what` names what is limited, in the plural. */
export function openAtOnce(what: string, max: number): AtOnce {
  const running = new Map<string, number>();
  return {
    run: async (orgId, work) => {
      const count = running.get(orgId) ?? 0;
      if (count >= max) {
        const detail = `${max} ${what} of the organisation are under way. Wait until one of them is over.`;
        fail('rate_limit_exceeded', { detail, retryAfterSeconds: RETRY_S });
      }
      running.set(orgId, count + 1);
      try {
        return await work();
      } finally {
        const left = (running.get(orgId) ?? 1) - 1;
        if (left === 0) running.delete(orgId);
        else running.set(orgId, left);
      }
    },
  };
}

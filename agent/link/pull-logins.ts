// Requests logins for private images from the control plane right before each pull. They are never written to disk.
import type { Clock } from '../../shared/clock.ts';
import type { PullAnswer, PullLoginMessage } from '../../shared/protocol/link.ts';

export interface PullLogins {
  /** @throws Error if no answer comes in time: there is no link, or the registry does not answer the control plane */
  ask(workloadId: string): Promise<PullAnswer | null>;
  take(message: PullLoginMessage): void;
}

/** This is longer than the control plane waits for a registry. */
const ANSWER_MS_MAX = 20_000;

/** `send` sends the request over the link; without a link it does nothing. */
export function openPullLogins(clock: Clock, send: (workloadId: string) => void): PullLogins {
  const waiting = new Map<string, (login: PullAnswer | null) => void>();
  return {
    ask: async (workloadId) => {
      const answer = Promise.withResolvers<PullAnswer | null>();
      waiting.set(workloadId, answer.resolve);
      const cancel = clock.after(ANSWER_MS_MAX, () =>
        answer.reject(new Error('the control plane has sent no login for the registry of this private image')),
      );
      send(workloadId);
      return answer.promise.finally(() => {
        cancel();
        waiting.delete(workloadId);
      });
    },
    take: ({ workload_id, login }) => waiting.get(workload_id)?.(login),
  };
}

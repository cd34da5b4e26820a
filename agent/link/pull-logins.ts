// Logins for private images: asked of the control plane right before each pull, and never written down.
import type { Clock } from '../../shared/clock.ts';
import type { PullAnswer, PullLoginMessage } from '../../shared/protocol/link.ts';

export interface PullLogins {
  /** @throws Error where no answer comes in time: no link, or the registry does not answer the control plane */
  ask(workloadId: string): Promise<PullAnswer | null>;
  take(message: PullLoginMessage): void;
}

/** Longer than the control plane waits for a registry. */
const ANSWER_MS_MAX = 20_000;

/** `send` puts the question on the link, where there is one. */
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

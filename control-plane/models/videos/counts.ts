// Counters of videos for the operator's metrics: endings of jobs and failures of servers, since this process started.
import type { VideoState } from '../../../shared/states.ts';

export interface Counts {
  ended(model: string, status: VideoState): void;
  /** Counts a server that has not accepted a job, or has not answered about one. */
  failed(upstream: string): void;
  /** Unordered. */
  endings(): { model: string; status: VideoState; count: number }[];
  failures(): { upstream: string; count: number }[];
}

export function openCounts(): Counts {
  const endings = new Map<string, { model: string; status: VideoState; count: number }>();
  const failures = new Map<string, number>();
  return {
    ended: (model, status) => {
      const key = `${status} ${model}`;
      endings.set(key, { model, status, count: (endings.get(key)?.count ?? 0) + 1 });
    },
    failed: (upstream) => void failures.set(upstream, (failures.get(upstream) ?? 0) + 1),
    endings: () => [...endings.values()],
    failures: () => [...failures].map(([upstream, count]) => ({ upstream, count })),
  };
}

// What operators watch of videos: how jobs end, and which servers fail. Counts since this process began.
import type { VideoState } from '../../../shared/states.ts';

export interface Counts {
  ended(model: string, status: VideoState): void;
  /** A server has not taken a job, or has not answered about one. */
  failed(upstream: string): void;
  /** In no order. */
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

// Which server is asked first: the one with the least to do for its weight; one that has just failed only after all others.
import type { Clock } from '../../../shared/clock.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Counts } from './counts.ts';

export interface Upstreams {
  /** Those that take one more request, best first. */
  inOrder(all: readonly Upstream[]): Upstream[];
  /** Counts a request until the returned function is called. */
  begin(upstream: Upstream): () => void;
  /** It has just refused or failed. */
  failed(upstream: Upstream): void;
}

/** So long a server that has failed is asked last. */
const REST_MS = 5_000;

interface Load {
  openRequests: number;
  restsUntilMs: number;
}

export function openUpstreams({ clock, counts }: { clock: Clock; counts: Counts }): Upstreams {
  const loads = new Map<Upstream, Load>();
  const loadOf = (upstream: Upstream): Load => {
    const load = loads.get(upstream) ?? { openRequests: 0, restsUntilMs: 0 };
    loads.set(upstream, load);
    return load;
  };
  return {
    inOrder: (all) => {
      const nowMs = clock.monotonicMs();
      const rank = (upstream: Upstream): [number, number] => {
        const { openRequests, restsUntilMs } = loadOf(upstream);
        return [restsUntilMs > nowMs ? 1 : 0, (openRequests + 1) / upstream.weight];
      };
      return all
        .filter((upstream) => loadOf(upstream).openRequests < upstream.max_open_requests)
        .map((upstream) => ({ upstream, rank: rank(upstream) }))
        .toSorted((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1])
        .map(({ upstream }) => upstream);
    },
    begin: (upstream) => {
      const load = loadOf(upstream);
      load.openRequests += 1;
      let isOver = false;
      return () => {
        if (!isOver) load.openRequests -= 1;
        isOver = true;
      };
    },
    failed: (upstream) => {
      loadOf(upstream).restsUntilMs = clock.monotonicMs() + REST_MS;
      counts.failed(upstream.base_url);
    },
  };
}

// Which server is asked: the one with the least to do for its weight, or that knows the conversation, among those that do not fail.
import type { Clock } from '../../../shared/clock.ts';
import type { Upstream } from '../catalog/models.ts';
import { byAffinity } from './affinity.ts';
import { type Breaker, type Health, openBreaker } from './breaker.ts';
import type { Counts } from './counts.ts';

export interface Upstreams {
  /** Of `all` the one to ask now, none of `asked`; undefined where none takes a request. */
  next(
    all: readonly Upstream[],
    how: { affinity: string | undefined; asked: readonly Upstream[] },
  ): Upstream | undefined;
  /** A request of this API key is sent to it. */
  begin(upstream: Upstream, apiKeyId: string): Slot;
  /** Until the first of them that is out may be back, in milliseconds. */
  backInMs(all: readonly Upstream[]): number;
  /** Looks at those that have been out for long enough, and at those that fail for one caller alone. */
  look(healthOf: (upstream: Upstream) => Promise<Health>): Promise<void>;
  /** Of each that was asked yet. */
  states(): { upstream: string; model: string; isOut: boolean }[];
}

/** One request to one server. */
export interface Slot {
  /** It has begun to answer as it should, or refuses the request for a reason of the caller's. */
  answered(): void;
  /** It has refused for a reason of its own, or its answer cannot be used. */
  failed(): void;
  /** It takes no more requests for now, which is no failure of it. */
  busy(): void;
  /** It has nothing more to do for this. */
  over(): void;
}

interface Server {
  upstream: Upstream;
  openRequests: number;
  breaker: Breaker;
}

export function openUpstreams({ clock, counts }: { clock: Clock; counts: Counts }): Upstreams {
  const servers = new Map<string, Server>();
  const serverOf = (upstream: Upstream): Server => {
    // What several models or tiers name is one server.
    const key = `${upstream.base_url} ${upstream.model}`;
    const server = servers.get(key) ?? { upstream, openRequests: 0, breaker: openBreaker(clock) };
    servers.set(key, server);
    return server;
  };
  return {
    next: (all, { affinity, asked }) => {
      const able = all
        .filter((upstream) => !asked.includes(upstream))
        .map((upstream) => ({ ...serverOf(upstream), upstream }))
        .filter(({ upstream, openRequests, breaker }) => openRequests < upstream.max_open_requests && breaker.takes());
      return affinity === undefined ? leastLoaded(able) : byAffinity(able, affinity);
    },
    begin: (upstream, apiKeyId) => {
      const server = serverOf(upstream);
      server.openRequests += 1;
      const sent = server.breaker.send(apiKeyId);
      let isOver = false;
      return {
        answered: sent.answered,
        failed: () => {
          sent.failed();
          counts.failed(upstream.base_url);
        },
        busy: () => counts.failed(upstream.base_url),
        over: () => {
          if (!isOver) server.openRequests -= 1;
          isOver = true;
        },
      };
    },
    backInMs: (all) => Math.min(...all.map((upstream) => serverOf(upstream).breaker.backInMs())),
    look: async (healthOf) => {
      const due = [...servers.values()].filter(({ breaker }) => breaker.isLookDue());
      await Promise.all(due.map(async ({ upstream, breaker }) => breaker.found(await healthOf(upstream))));
    },
    states: () =>
      [...servers.values()].map(({ upstream, breaker }) => ({
        upstream: upstream.base_url,
        model: upstream.model,
        isOut: breaker.isOut(),
      })),
  };
}

function leastLoaded(servers: readonly Server[]): Upstream | undefined {
  const loadOf = ({ upstream, openRequests }: Server): number => (openRequests + 1) / upstream.weight;
  return servers.toSorted((a, b) => loadOf(a) - loadOf(b))[0]?.upstream;
}

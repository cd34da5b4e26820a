// Chooses the server for a request: the least busy one for its weight, or the one that has the conversation in its cache. Resting ones are skipped.
import type { Clock } from '../../../shared/clock.ts';
import type { Upstream } from '../catalog/models.ts';
import { byAffinity } from './affinity.ts';
import { type Breaker, type Health, openBreaker } from './breaker.ts';
import type { Counts } from './counts.ts';

export interface Upstreams {
  /** The server of `all` to ask now, but none of `asked`; undefined if no server takes a request. */
  next(
    all: readonly Upstream[],
    how: { affinity: string | undefined; asked: readonly Upstream[] },
  ): Upstream | undefined;
  /** Notes a request of this organisation to a server. */
  begin(upstream: Upstream, orgId: string): Slot;
  /** Milliseconds until the first resting server may be back. */
  backInMs(all: readonly Upstream[]): number;
  /** Makes the health checks that are due of these servers (see breaker.ts). Others that serve no request are forgotten. */
  check(all: readonly Upstream[], healthOf: (upstream: Upstream) => Promise<Health>): Promise<void>;
  /** The state of each server that was asked or checked since the start. */
  states(): { upstream: string; model: string; isOut: boolean }[];
}

/** One request to one server. */
export interface Slot {
  /** The server has begun to answer correctly, or has refused because of the caller's mistake. */
  answered(): void;
  /** The server has failed, or its answer is unusable. */
  failed(): void;
  /** The server takes no more requests now. That is no failure. */
  busy(): void;
  /** The request has ended. */
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
    // Several models or tiers may name the same server.
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
    begin: (upstream, orgId) => {
      const server = serverOf(upstream);
      server.openRequests += 1;
      const sent = server.breaker.send(orgId);
      const leave = upstream.replica?.enter();
      let isOver = false;
      return {
        answered: sent.answered,
        failed: () => {
          sent.failed();
          counts.failed(upstream.base_url);
        },
        busy: () => counts.failed(upstream.base_url),
        over: () => {
          if (isOver) return;
          isOver = true;
          server.openRequests -= 1;
          leave?.();
        },
      };
    },
    backInMs: (all) => Math.min(...all.map((upstream) => serverOf(upstream).breaker.backInMs())),
    check: async (all, healthOf) => {
      const wanted = new Set(all.map(serverOf));
      for (const [key, server] of servers) if (!wanted.has(server) && server.openRequests === 0) servers.delete(key);
      const due = [...wanted].filter(({ breaker }) => breaker.isLookDue());
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

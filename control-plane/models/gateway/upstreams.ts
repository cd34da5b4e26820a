// The model servers as this process sees them. It chooses the server for a request: the least busy one for its weight, or the one that has the
// conversation in its cache. Servers that rest are skipped, and their health is checked.
import { hash } from 'node:crypto';
import type { Clock } from '../../../shared/clock.ts';
import type { Upstream } from '../catalog/models.ts';
import { type Breaker, type Health, openBreaker } from './breaker.ts';
import type { Counts } from './counts.ts';
import type { ChatMessage } from '../../../shared/api/chat.ts';
import type { Exchanges } from '../../base/outbound/exchange.ts';
import { OutboundError } from '../../base/outbound/policy.ts';
import { besideV1, headersFor } from '../catalog/model-servers.ts';
import { isLoading } from './upstream-refusals.ts';

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
  /** The server has begun to answer correctly. */
  answered(): void;
  /** The server has refused the request as the caller's mistake. */
  refused(): void;
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
      let isWell = false;
      return {
        answered: () => {
          sent.answered();
          isWell = true;
        },
        refused: () => {
          sent.answered();
          upstream.replica?.note('refused');
        },
        failed: () => {
          sent.failed();
          isWell = false;
          upstream.replica?.note('failed');
          counts.failed(nameOf(upstream));
        },
        busy: () => counts.failed(nameOf(upstream)),
        over: () => {
          if (isOver) return;
          isOver = true;
          if (isWell) upstream.replica?.note('answered');
          server.openRequests -= 1;
          leave?.();
        },
      };
    },
    backInMs: (all) => Math.min(...all.map((upstream) => serverOf(upstream).breaker.backInMs())),
    check: async (all, ask) => {
      // The operator may have changed the key of a server since it was asked first.
      const wanted = new Map(all.map((upstream) => [serverOf(upstream), upstream] as const));
      for (const [key, server] of servers) if (!wanted.has(server) && server.openRequests === 0) servers.delete(key);
      const due = [...wanted].filter(([{ breaker }]) => breaker.isCheckDue());
      await Promise.all(due.map(async ([{ breaker }, upstream]) => breaker.found(await ask(upstream))));
    },
    states: () =>
      [...servers.values()].map(({ upstream, breaker }) => ({
        upstream: upstream.base_url,
        model: upstream.model,
        isOut: breaker.isOut(),
      })),
  };
}

/** If a conversation is shorter, the cache saves less time than the wait for a busy server costs. */
const PREFIX_CHARS = 1_024;
/** How many times its share of the open requests a server gets at most. */
const LOAD_BOUND = 1.25;
const HASH_HEX_DIGITS = 12;

export interface Loaded {
  upstream: Upstream;
  openRequests: number;
}

/** A key for the beginning of a conversation, separate for each organisation; undefined if the conversation is too short to matter. */
export function affinityOf(orgId: string, modelId: string, messages: readonly ChatMessage[]): string | undefined {
  let prefix = '';
  for (const { role, content } of messages) {
    prefix += `${role}\n${content.slice(0, PREFIX_CHARS)}\n`;
    if (prefix.length > PREFIX_CHARS) return hash('sha256', `${orgId}\n${modelId}\n${prefix.slice(0, PREFIX_CHARS)}`);
  }
  return undefined;
}

/**
 * The key gives the servers an order (weighted rendezvous hashing). The first server that is below its load bound is chosen. If a server comes or
 * goes, the order of the others stays. Undefined if there is none.
 */
export function byAffinity(servers: readonly Loaded[], key: string): Upstream | undefined {
  const weights = sum(servers.map(({ upstream }) => upstream.weight));
  const open = sum(servers.map(({ openRequests }) => openRequests)) + 1;
  const mayHave = ({ weight }: Upstream): number => Math.ceil((LOAD_BOUND * open * weight) / weights);
  return servers
    .map((server) => ({ ...server, score: score(key, server.upstream) }))
    .toSorted((a, b) => b.score - a.score)
    .find(({ upstream, openRequests }) => openRequests < mayHave(upstream))?.upstream;
}

/** Limit for connecting, and again for the answer. */
const CHECK_MS = 2_000;

/** Uses `GET /health`, which vLLM, SGLang, llama.cpp and TEI have. For other servers, a 404 is a sign of life too. */
export async function healthOf(upstream: Upstream, exchanges: Exchanges, signal: AbortSignal): Promise<Health> {
  try {
    const exchange = await exchanges.open({
      method: 'GET',
      url: besideV1(upstream, '/health'),
      headers: headersFor(upstream),
      body: '',
      connectMs: Math.min(upstream.connect_ms, CHECK_MS),
      statusMs: CHECK_MS,
      idleMs: CHECK_MS,
      totalMs: 2 * CHECK_MS,
      signal,
      dial: upstream.replica?.dial,
    });
    const loads = await isLoading(exchange);
    exchange.end();
    if (loads) return 'loading';
    return exchange.status < 500 ? 'well' : 'dead';
  } catch (error) {
    if (error instanceof OutboundError) return 'dead';
    throw error;
  }
}

/** The name of a server in the metrics. All replicas of a model have one, because each would otherwise leave a series behind. */
function nameOf({ base_url: url, model, replica }: Upstream): string {
  return replica === undefined ? url : `replicas of ${model}`;
}

function leastLoaded(servers: readonly Server[]): Upstream | undefined {
  const loadOf = ({ upstream, openRequests }: Server): number => (openRequests + 1) / upstream.weight;
  return servers.toSorted((a, b) => loadOf(a) - loadOf(b))[0]?.upstream;
}

/** A server with twice the weight has the highest score for twice as many keys. */
function score(key: string, { base_url: url, model, weight }: Upstream): number {
  const digits = hash('sha256', `${key} ${url} ${model}`).slice(0, HASH_HEX_DIGITS);
  const uniform = (Number.parseInt(digits, 16) + 0.5) / 16 ** HASH_HEX_DIGITS;
  return -weight / Math.log(uniform);
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0);
}

// Decides which control plane serves a request. The primary serves all routes. A secondary serves only some itself (`everywhere`, most GETs for
// example), and passes the other requests on to the primary.
//
// Example: a client launches an instance, and its connection leads to a secondary.
//
//   client                         secondary                                   primary
//     | --- POST /v1/instances ------> | 1. The route is not `everywhere`.         |
//     |                                | 2. Counts the request for the client's address.
//     |                                | 3. Waits until earlier requests of the connection are answered.
//     |                                | 4. Asks again who the primary is, because that may have changed.
//     |                                | --- the same request, Svc-Passed-On -----> | 5. Authenticates, limits and serves it.
//     | <--- 202 --------------------- | <-- 202, Svc-Opened ---------------------- |
//
// All this happens before the body is read. Steps 2 and 3 limit only what a stranger could use up at the secondary: its connections to the primary,
// and their ports. `passed-requests.ts` and `passed-upgrades.ts` say what happens on the way to the primary, and `peers.ts` explains the two headers.
import type { IncomingMessage } from 'node:http';
import proxyAddress from '@fastify/proxy-addr';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { openClockDifference } from './clock-difference.ts';
import { openOneByOne } from './one-by-one.ts';
import { openPassedRequests } from './passed-requests.ts';
import { openPassedUpgrades, type PassedUpgrades } from './passed-upgrades.ts';
import { OPENED, openPeers, PASSED_ON, type Peer } from './peers.ts';
import { openPrimaryRequests } from './primary-requests.ts';
import type { RateLimits } from './rate-limits.ts';
import { isRepeatable } from './relaying.ts';
import type { Sealing } from './sealing.ts';
import { finish } from './serve-route.ts';
import { openRefusalAfter, unserved } from './unserved.ts';

/** Who serves what only the primary serves: this process, nobody at the moment, or another one. */
export type Primary = 'self' | 'unknown' | Peer;

declare module 'fastify' {
  interface FastifyContextConfig {
    everywhere?: boolean;
  }
}

interface PassOnDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** The id of this process, and the secret that it shares with those that pass requests on to it. */
  member: string | undefined;
  sealing: Sealing | undefined;
  /** Addresses or networks of proxies whose X-Forwarded-For is trusted. */
  trustProxy: readonly string[];
  /** Undefined: no limits. */
  limits: Pick<RateLimits, 'takeForIp'> | undefined;
  /** Asked at each request and upgrade. */
  primary(): Primary;
}

export interface PassOn {
  /**
   * Who serves this request. A request that was passed on to us is never passed on again. `word`: what an answer of this process must show, if the
   * request was passed on to it.
   */
  primaryFor(request: IncomingMessage): { primary: Primary; word?: string | undefined };
  upgrade: PassedUpgrades['pass'];
  /** Breaks what is still passed on. */
  close(): void;
}

const UNTRUSTED =
  'a control plane that passes requests on to this one is not in trust_proxy: all its clients are limited as one, with its address';

/** Adds its hooks to `app`. Hooks that were added before run for all requests, and those that are added after run for what this process serves. */
export function openPassOn(app: FastifyInstance, deps: PassOnDeps): PassOn {
  const { clock, limits } = deps;
  // Anyone can send requests, so the log lines of a client are limited.
  const log = throttledLog(deps.log, clock);
  const peers = openPeers({ id: deps.member, sealing: deps.sealing, ids: deps.ids });
  const requests = openPrimaryRequests(clock, peers);
  const refusalAfter = openRefusalAfter(log);
  const upgrades = openPassedUpgrades({ clock, requests, refusalAfter });
  let isClosing = false;
  const passToPrimary = openPassedRequests({
    clock,
    requests,
    refusalAfter,
    clocks: openClockDifference({ clock, log: deps.log }),
    isPrimary: (peer) => isSame(deps.primary(), peer),
    isClosing: () => isClosing,
  });
  const isTrusted = proxyAddress.compile([...deps.trustProxy]);
  const inTurn = openOneByOne();

  const primaryFor: PassOn['primaryFor'] = ({ headers }) => {
    const primary = deps.primary();
    if (headers[PASSED_ON] === undefined) return { primary };
    const word = peers.wordIn(headers);
    const isMeantForUs = primary === 'self' && word !== undefined;
    return { primary: isMeantForUs ? 'self' : 'unknown', word };
  };
  const warnIfUntrusted = (secondary = ''): void => {
    if (!isTrusted(secondary, 0)) log.warn({ client_ip: secondary }, UNTRUSTED);
  };
  // A request that cannot be repeated takes a connection of its own to the primary. After one over TLS, the port stays taken for a minute.
  const count = (request: FastifyRequest): void => {
    if (!isRepeatable(request.raw)) limits?.takeForIp(request.ip);
  };
  /** Calls `done` without an error if this process serves the request after all. */
  const passOn = (request: FastifyRequest, reply: FastifyReply, done: (refusal?: Error) => void): void => {
    const { primary } = primaryFor(request.raw);
    if (primary === 'self') return done();
    if (primary === 'unknown') return done(unserved());
    passToPrimary(primary, { request, reply, refuse: done });
  };

  app.addHook('onRequest', (request, reply, done) => {
    const { raw } = request;
    const { primary, word } = primaryFor(raw);
    if (word !== undefined) {
      reply.header(OPENED, word);
      warnIfUntrusted(raw.socket.remoteAddress);
    }
    if (primary === 'self' || request.routeOptions.config.everywhere === true) return done();
    finish(
      () => count(request),
      (refusal) => {
        if (refusal !== undefined) return done(refusal);
        inTurn({ request: raw, response: reply.raw, begin: () => passOn(request, reply, done) });
      },
    );
  });
  app.addHook('preClose', async () => {
    isClosing = true;
    upgrades.cut();
  });
  return { primaryFor, upgrade: upgrades.pass, close: requests.close };
}

function isSame(primary: Primary, peer: Peer): boolean {
  return typeof primary !== 'string' && primary.id === peer.id && primary.url === peer.url;
}

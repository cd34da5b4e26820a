// Requests that only the primary control plane serves. A secondary passes them on to it, and gives its answers back unread.
//
// A request is passed on before its body is read: the primary authenticates and limits. The secondary limits only what a stranger could use up here:
// its connections to the primary, and their ports.
import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream';
import proxyAddress from '@fastify/proxy-addr';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { type ClockDifference, openClockDifference } from './clock-difference.ts';
import { endToEnd, type RawHeaders } from './hop-headers.ts';
import { openOneByOne } from './one-by-one.ts';
import { type Fails, openPassedUpgrades, type PassedUpgrades } from './passed-upgrades.ts';
import { breakIfReplaced, isOpened, OPENED, openPeers, PASSED_ON, type Peer } from './peers.ts';
import { openPrimaryRequests, type PrimaryRequests } from './primary-requests.ts';
import type { RateLimits } from './rate-limits.ts';
import { isRepeatable, sendBody } from './relaying.ts';
import type { Sealing } from './sealing.ts';
import { finish } from './serve-route.ts';
import { afterRest } from './uploads.ts';

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

/** How often a request is sent, if it can be repeated. */
const TRIES_MAX = 3;

const NOT_PRIMARY =
  'what answers at the peer_url of the primary is not the primary, so its answers are refused: let peer_url of that control plane lead to its API';
const UNTRUSTED =
  'a control plane that passes requests on to this one is not in trust_proxy: all its clients are limited as one, with its address';

/** Adds its hooks to `app`. Hooks that were added before run for all requests, and those that are added after run for what this process serves. */
export function openPassOn(
  app: FastifyInstance,
  { primary, limits, trustProxy, member: id, ...deps }: PassOnDeps,
): PassOn {
  const { clock } = deps;
  // Anyone can send requests, so the log lines of a client are limited.
  const log = throttledLog(deps.log, clock);
  const peers = openPeers({ ...deps, id });
  const requests = openPrimaryRequests(clock, peers);
  const fails: Fails = (error, { clientIp, to }) => {
    const of = { client_ip: clientIp, primary: to.url };
    if (error === undefined) log.warn(of, NOT_PRIMARY);
    else log.warn({ ...of, detail: messageOf(error) }, 'the primary does not answer');
    return unserved(error);
  };
  const upgrades = openPassedUpgrades({ clock, requests, fails });
  const inTurn = openOneByOne();
  const isTrusted = proxyAddress.compile([...trustProxy]);
  let isClosing = false;

  const clocks = openClockDifference({ clock, log: deps.log });
  const pass = openPasses({ clock, requests, clocks, fails, primary, isClosing: () => isClosing });
  const primaryFor: PassOn['primaryFor'] = ({ headers }) => {
    const now = primary();
    if (headers[PASSED_ON] === undefined) return { primary: now };
    const word = peers.wordIn(headers);
    return { primary: now === 'self' && word !== undefined ? now : 'unknown', word };
  };

  /** Asks again who the primary is, because the request may have waited. */
  const serve = (handled: Handled): void => {
    const { primary: now } = primaryFor(handled.request.raw);
    if (now === 'self') return handled.done();
    if (now === 'unknown') return handled.done(unserved());
    pass(now, handled);
  };

  app.addHook('onRequest', (request, reply, done) => {
    const { primary: now, word } = primaryFor(request.raw);
    if (word !== undefined) {
      reply.header(OPENED, word);
      const unknownPeer = untrustedPeer(request.raw, isTrusted);
      if (unknownPeer !== undefined) log.warn({ client_ip: unknownPeer }, UNTRUSTED);
    }
    if (now === 'self' || request.routeOptions.config.everywhere === true) return done();
    const begin = (): void => serve({ request, reply, done });
    // Each of them takes a connection of its own to the primary. After one over TLS, the port stays taken for a minute.
    const count = (): void => void (isRepeatable(request.raw) || limits?.takeForIp(request.ip));
    finish(count, (refusal) => {
      if (refusal === undefined) inTurn({ request: request.raw, response: reply.raw, begin });
      else done(refusal);
    });
  });
  app.addHook('preClose', async () => {
    isClosing = true;
    upgrades.cut();
  });
  return { primaryFor, upgrade: upgrades.pass, close: requests.close };
}

interface PassesDeps extends Pick<PassOnDeps, 'clock' | 'primary'> {
  requests: PrimaryRequests;
  clocks: ClockDifference;
  fails: Fails;
  /** True once the listener closes: its connections end with their answers. */
  isClosing(): boolean;
}

/** The returned function passes a request on to the primary, and gives its answer back. */
function openPasses({
  clock,
  requests,
  clocks,
  fails,
  primary,
  isClosing,
}: PassesDeps): (to: Peer, handled: Handled) => void {
  const pass = (to: Peer, handled: Handled, tries: number): void => {
    const { request, reply, done } = handled;
    const { raw, ip: clientIp, id: requestId } = request;
    const response = reply.raw;
    if (response.destroyed) return;
    const { outgoing, question } = requests.send({ request: raw, to, clientIp, requestId });
    let isAnswered = false;
    outgoing.once('response', (answer) => {
      if (!isSpoken(answer)) return void outgoing.destroy(new Error('its answer is not HTTP'));
      isAnswered = true;
      if (!isOpened(answer.headers, question)) {
        outgoing.destroy();
        return done(fails(undefined, { clientIp, to }));
      }
      clocks.look(answer.headers, to);
      reply.hijack();
      // Node sends no more of a body, once its answer is complete, than the connection takes at once. `afterRest` reads the rest then.
      if (!response.shouldKeepAlive) raw.unpipe(outgoing);
      afterRest({ request: raw, response }, clock, () => giveBack(answer, reply, isClosing()));
    });
    // Node reports no error of a server that agrees to an upgrade that nobody asked for.
    outgoing.once('upgrade', (_answer, stream) => {
      isAnswered = true;
      stream.destroy();
      done(fails(new Error('its answer is not HTTP'), { clientIp, to }));
    });
    outgoing.on('error', (error) => {
      if (isAnswered || response.destroyed) return;
      // The primary closed an idle connection just as we used it.
      if (outgoing.reusedSocket && tries < TRIES_MAX && isStill(primary(), to)) return pass(to, handled, tries + 1);
      done(fails(error, { clientIp, to }));
    });
    if (isRepeatable(raw)) outgoing.end();
    else sendBody(raw, outgoing);
    breakIfReplaced(outgoing, () => isStill(primary(), to), clock);
    response.once('close', () => outgoing.destroy());
  };
  return (to, handled) => pass(to, handled, 1);
}

/** The address of the secondary that has passed the request on, if it is no trusted proxy. */
function untrustedPeer(
  { socket: { remoteAddress: address = '' } }: IncomingMessage,
  isTrusted: (address: string, hop: number) => boolean,
): string | undefined {
  return isTrusted(address, 0) ? undefined : address;
}

interface Handled {
  request: FastifyRequest;
  reply: FastifyReply;
  /** Called only if there is no answer of the primary: with the refusal, or without one if this process serves the request. */
  done(refusal?: Error): void;
}

/** The refusal of what nobody serves. A request may have had its effect if its connection broke. */
export function unserved(cause?: Error): ServiceError {
  return new ServiceError('unavailable', {
    detail:
      'No control plane serves this at the moment. Send the same request again in a second, with the same Idempotency-Key if it has one.',
    retryAfterSeconds: 1,
    cause,
  });
}

function isStill(primary: Primary, { id, url }: Peer): boolean {
  return typeof primary !== 'string' && primary.id === id && primary.url === url;
}

/** True if Node can write the status. Something else than a control plane may listen at the address, and Node would throw. */
function isSpoken({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200;
}

function giveBack(answer: IncomingMessage, reply: FastifyReply, isLast: boolean): void {
  const { raw: response } = reply;
  const headers = endToEnd(answer.rawHeaders, [OPENED]);
  const strict = reply.getHeader(STRICT);
  const own: RawHeaders = typeof strict === 'string' && answer.headers[STRICT] === undefined ? [STRICT, strict] : [];
  response.writeHead(answer.statusCode ?? 502, [...headers, ...own, ...(isLast ? ['Connection', 'close'] : [])]);
  // Sends the head now, in latin1: Node reads heads in latin1, and `flushHeaders` would write UTF-8.
  response.write('', 'latin1');
  // If the primary breaks off, the client's connection breaks too, because half an answer must not look complete.
  pipeline(answer, response, (error) => void (error && response.destroy()));
}

const STRICT = 'strict-transport-security';

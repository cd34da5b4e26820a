// Requests that a secondary passes on to the primary, and the answers that it gives back.
//
// Example: a client launches an instance through a secondary.
//
//   1. The head of the request goes to the primary (`primary-requests.ts` says which headers). The body follows as it arrives, unread.
//   2. The head of the answer comes. It must show the word that only the primary can open (`peers.ts`).
//   3. The head goes to the client, without that word. The body of the answer follows as it arrives, unread.
//
// What ends this earlier, and what the client then gets:
//
//   no answer comes, or another server answers   503 `unavailable`
//   the answer breaks off                        its connection breaks off too, because half an answer must not look complete
//   another control plane becomes the primary    one of the two above (`breakIfReplaced`)
//   the client leaves                            nothing, and the request to the primary is broken off
//
// No request is sent twice, except one that only reads: the primary may have closed an idle connection just as we used it.
import type { IncomingMessage } from 'node:http';
import { pipeline } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import type { ServiceError } from '../../../shared/errors.ts';
import type { ClockDifference } from './clock-difference.ts';
import { endToEnd, type RawHeaders } from './hop-headers.ts';
import { breakIfReplaced, isOpened, OPENED, type Peer } from './peers.ts';
import type { PrimaryRequests } from './primary-requests.ts';
import { isRepeatable, sendBody } from './relaying.ts';
import type { Failure, RefusalAfter } from './unserved.ts';
import { afterRest } from './uploads.ts';

export interface PassedRequest {
  request: FastifyRequest;
  reply: FastifyReply;
  /** Called instead of an answer of the primary. */
  refuse(refusal: ServiceError): void;
}

interface Deps {
  clock: Clock;
  requests: Pick<PrimaryRequests, 'send'>;
  refusalAfter: RefusalAfter;
  clocks: ClockDifference;
  /** Whether this control plane is the primary now. */
  isPrimary(peer: Peer): boolean;
  /** True once our listener closes: its connections end with their answers. */
  isClosing(): boolean;
}

/** How often a request that only reads is sent. */
const TRIES_MAX = 3;

const NOT_HTTP = 'its answer is not HTTP';
const STRICT = 'strict-transport-security';

/** The returned function passes a request on to the primary `to`. The client gets the answer, or `refuse` is called, unless the client leaves. */
export function openPassedRequests(deps: Deps): (to: Peer, passed: PassedRequest) => void {
  return (to, passed) => send(to, passed, 1, deps);
}

function send(to: Peer, passed: PassedRequest, tries: number, deps: Deps): void {
  const { request, reply } = passed;
  const { raw: incoming, ip: clientIp, id: requestId } = request;
  const client = reply.raw;
  if (client.destroyed) return;
  const { outgoing, question } = deps.requests.send({ request: incoming, to, clientIp, requestId });
  const isStillPrimary = (): boolean => deps.isPrimary(to);
  const refuse = (failure: Failure): void => passed.refuse(deps.refusalAfter(failure, { clientIp, to }));
  let isAnswered = false;

  outgoing.once('response', (answer) => {
    if (!hasFinalStatus(answer)) return void outgoing.destroy(new Error(NOT_HTTP));
    isAnswered = true;
    if (!isOpened(answer.headers, question)) {
      outgoing.destroy();
      return refuse('not_the_primary');
    }
    deps.clocks.look(answer.headers, to);
    reply.hijack();
    // `afterRest` reads the rest of the body before the connection of the client closes. A pipe to a request that is answered would hold it up.
    if (!client.shouldKeepAlive) incoming.unpipe(outgoing);
    afterRest({ request: incoming, response: client }, deps.clock, () => giveBack(answer, reply, deps.isClosing()));
  });
  // A server may agree to an upgrade that nobody asked for. Node reports no error then.
  outgoing.once('upgrade', (_answer, stream) => {
    isAnswered = true;
    stream.destroy();
    refuse(new Error(NOT_HTTP));
  });
  outgoing.on('error', (error) => {
    if (isAnswered || client.destroyed) return;
    // Only requests that can be repeated reuse a connection. The primary closed this one while it was idle, just as we used it.
    if (outgoing.reusedSocket && tries < TRIES_MAX && isStillPrimary()) return send(to, passed, tries + 1, deps);
    refuse(error);
  });

  if (isRepeatable(incoming)) outgoing.end();
  else sendBody(incoming, outgoing);
  breakIfReplaced(outgoing, isStillPrimary, deps.clock);
  client.once('close', () => outgoing.destroy());
}

/** Something else than a control plane may listen at the address. Node would throw if we gave back a status below 200. */
function hasFinalStatus({ statusCode = 0 }: IncomingMessage): boolean {
  return statusCode >= 200;
}

/** Sends the answer of the primary to the client. `isLast`: the connection of the client ends with it. */
function giveBack(answer: IncomingMessage, reply: FastifyReply, isLast: boolean): void {
  const client = reply.raw;
  const headers = [...endToEnd(answer.rawHeaders, [OPENED]), ...ownStrict(answer, reply)];
  if (isLast) headers.push('Connection', 'close');
  client.writeHead(answer.statusCode ?? 502, headers);
  // Sends the head now, in latin1: Node reads heads in latin1, and `flushHeaders` would write UTF-8.
  client.write('', 'latin1');
  pipeline(answer, client, (error) => {
    if (error) client.destroy();
  });
}

/** Our own Strict-Transport-Security, if the primary sends none: it may listen without TLS. */
function ownStrict(answer: IncomingMessage, reply: FastifyReply): RawHeaders {
  const own = reply.getHeader(STRICT);
  return typeof own === 'string' && answer.headers[STRICT] === undefined ? [STRICT, own] : [];
}

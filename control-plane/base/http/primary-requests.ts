// The requests that a secondary sends to the primary: their heads, and the connections that carry them.
import { Agent, type ClientRequest, type IncomingMessage, request as sendPlain } from 'node:http';
import { Agent as TlsAgent, request as sendOverTls } from 'node:https';
import { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Clock } from '../../../shared/clock.ts';
import { TCP_KEEP_ALIVE_MS } from '../../../shared/limits.ts';
import { endToEnd, FORWARDED, type RawHeaders } from './hop-headers.ts';
import { OPENED, PASSED_ON, type Peer, type Peers, type Question } from './peers.ts';
import { isRepeatable } from './relaying.ts';
import { hasBody } from './uploads.ts';

export interface PassedOn {
  request: IncomingMessage;
  /** The primary. */
  to: Peer;
  /** The client's address as this control plane believes it. */
  clientIp: string;
  /** Undefined for an upgrade: the primary gives it an id if it needs one. */
  requestId?: string;
}

/** A request that goes to the primary, and what its answer must show. */
interface SentOn {
  outgoing: ClientRequest;
  question: Question;
}

export interface PrimaryRequests {
  /** Sends the head of a request. The caller sends the body, and handles the events. */
  send(passed: PassedOn): SentOn;
  /** The same for an upgrade. */
  sendUpgrade(passed: PassedOn): SentOn;
  /** Breaks all connections but those that were upgraded. */
  close(): void;
}

/** A connection that takes longer goes to a machine that is not there. */
const CONNECT_MS_MAX = 5_000;

export function openPrimaryRequests(clock: Clock, peers: Pick<Peers, 'questionTo'>): PrimaryRequests {
  const options = { keepAlive: true, keepAliveMsecs: TCP_KEEP_ALIVE_MS };
  const kept = { plain: new Agent(options), tls: new TlsAgent(options) };
  const single = { plain: singleUse(new Agent(options)), tls: singleUse(new TlsAgent(options)) };

  const send = (passed: PassedOn, framing: RawHeaders, agents: typeof kept): SentOn => {
    const { method, url: path } = passed.request;
    const { id, url } = passed.to;
    const question = peers.questionTo(id);
    const headers = [...framing, ...headersOf(passed, question)];
    const isTls = url.startsWith('https:');
    const how = { agent: isTls ? agents.tls : agents.plain, method, path, headers, setHost: false };
    const outgoing = isTls ? sendOverTls(url, how) : sendPlain(url, how);
    limitConnect(outgoing, isTls ? 'secureConnect' : 'connect', clock);
    return { outgoing, question };
  };
  return {
    send: (passed) => send(passed, bodyOf(passed.request), isRepeatable(passed.request) ? kept : single),
    sendUpgrade: (passed) => send(passed, upgradeOf(passed.request), single),
    close: () => {
      for (const agent of [kept.plain, kept.tls, single.plain, single.tls]) agent.destroy();
    },
  };
}

/**
 * Each connection of the agent carries one request. The primary may just be closing one that is idle, and a request that was sent on it could not be
 * repeated. The agent still says `keep-alive`: otherwise, the primary would close the connection after an early answer although the body still
 * arrives, and the network would discard the answer.
 */
function singleUse<A extends Agent>(agent: A): A {
  agent.keepSocketAlive = (stream) => {
    // The answer is there. After an ordinary close, the port would stay taken for a minute, and a stranger's requests could take all 28,000.
    if (stream instanceof Socket && !(stream instanceof TLSSocket)) stream.resetAndDestroy();
    return false;
  };
  return agent;
}

function limitConnect(outgoing: ClientRequest, event: 'connect' | 'secureConnect', clock: Clock): void {
  outgoing.once('socket', (socket) => {
    if (outgoing.reusedSocket) return;
    const cancel = clock.after(CONNECT_MS_MAX, () => {
      outgoing.destroy(new Error(`it takes no connection within ${CONNECT_MS_MAX} ms`));
    });
    // The listeners go, because an upgraded connection would keep its request in memory.
    const stop = (): void => {
      cancel();
      socket.off(event, stop).off('close', stop);
    };
    socket.once(event, stop).once('close', stop);
  });
}

/** The primary would believe these, because they come from us. Node has answered `Expect` already. */
const NOT_KEPT = ['expect', ...FORWARDED, PASSED_ON, OPENED];

/** Ours come first: Node's parser drops headers beyond the 2,000th without a word, and a client could send as many. */
function headersOf({ request, to, clientIp, requestId }: PassedOn, { sealed }: Question): RawHeaders {
  // HTTP/1.0 needs no Host.
  const host = request.headers.host === undefined ? ['Host', new URL(to.url).host] : [];
  const ours = [...host, 'X-Forwarded-For', clientIp, 'Svc-Passed-On', sealed];
  if (requestId === undefined) return [...ours, ...endToEnd(request.rawHeaders, [...NOT_KEPT, 'content-length'])];
  return [...ours, 'X-Request-Id', requestId, ...endToEnd(request.rawHeaders, [...NOT_KEPT, 'x-request-id'])];
}

function bodyOf(request: IncomingMessage): RawHeaders {
  if (request.headers['transfer-encoding'] !== undefined) return ['Transfer-Encoding', 'chunked'];
  return hasBody(request) ? [] : emptyBody(request);
}

/** A body of an upgrade is not framed: it is the first that the client sends on the connection. */
function upgradeOf(request: IncomingMessage): RawHeaders {
  return ['Connection', 'Upgrade', 'Upgrade', request.headers.upgrade ?? '', ...emptyBody(request)];
}

/** Node would announce a body for all other methods. */
const WITHOUT_BODY = ['GET', 'HEAD', 'OPTIONS', 'DELETE', 'TRACE'];

function emptyBody({ method = '' }: IncomingMessage): RawHeaders {
  return WITHOUT_BODY.includes(method) ? [] : ['Content-Length', '0'];
}

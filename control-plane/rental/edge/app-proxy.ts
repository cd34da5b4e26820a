// The proxy for applications: checks the instance's login on each request and relays it over a data stream into the container.
import { type IncomingMessage, request as sendRequest, type ServerResponse, STATUS_CODES } from 'node:http';
import { type Duplex, finished, pipeline } from 'node:stream';
import proxyAddress from '@fastify/proxy-addr';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf, messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import type { RawHeaders } from '../../base/http/hop-headers.ts';
import { isRepeatable, sendBody, writeHead } from '../../base/http/relaying.ts';
import { dropRest } from '../../base/http/uploads.ts';
import { splice, StreamError } from '../../fleet/link/streams.ts';
import { type AppAddress, readAppHost } from '../endpoints/app-address.ts';
import { type AppConnections, openAppConnections } from './app-connections.ts';
import { requestHeaders, responseHeaders } from './app-headers.ts';
import { type AppAccess, enter, isFromOwnPage, LOGIN_COOKIE, loginCookie, loginHeaders } from './access.ts';

/** An application, or the console, that is served now. */
export interface App extends Pick<AppAccess, 'login' | 'target'> {
  dial(): Promise<Duplex>;
}

export interface AppProxy {
  onRequest(request: IncomingMessage, response: ServerResponse): void;
  onUpgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void;
  close(): void;
}

interface AppProxyDeps {
  clock: Clock;
  log: Log;
  domain: string;
  /** Addresses or networks of proxies whose `X-Forwarded-For` is believed. */
  trustProxy: readonly string[];
  /** Undefined if nothing is served at the address now: there is no such instance or port, or it does not run. */
  findApp(address: AppAddress): Promise<App | undefined>;
}

/** An answer of the proxy in place of the application's. */
interface Refusal {
  status: number;
  text: string;
  headers?: Record<string, string>;
}

/** How often a request is sent, if it can be repeated. */
const TRIES_MAX = 3;
/** The status of an answer that agrees to an upgrade. */
const SWITCHED = 101;

/** The connection is closed, because a proxy in front of us may see other requests on it than we do. */
const MALFORMED: Refusal = { status: 400, text: 'A request names one host, once.', headers: { Connection: 'close' } };
const NOT_FOUND: Refusal = { status: 404, text: 'There is no application at this address.' };
const FOREIGN: Refusal = { status: 403, text: 'The console is opened by its own page only.' };
const CHALLENGE: Refusal = {
  status: 401,
  text: 'This address asks for the login of its instance: connection.app_user and app_password.',
  headers: { 'WWW-Authenticate': 'Basic realm="instance", charset="UTF-8"' },
};
const OUR_FAULT: Refusal = { status: 500, text: 'This failed on our side.' };

/** The application sent an answer that Node cannot write, or an upgrade that was not requested. */
class NotHttp extends Error {
  readonly code = 'HPE_ANSWER';
}

export function openAppProxy({ trustProxy, ...given }: AppProxyDeps): AppProxy {
  const isTrusted = proxyAddress.compile([...trustProxy]);
  const clientIpOf: EnterDeps['clientIpOf'] = (request) => proxyAddress(request, isTrusted) ?? '';
  // Anyone can send requests, so the log lines of a client are limited.
  const deps: EnterDeps = { ...given, log: throttledLog(given.log, given.clock), clientIpOf };
  const connections = openAppConnections(deps.clock);

  const forward = (request: IncomingMessage, response: ServerResponse, entered: Entered, tries = 1): void => {
    // The client may have left while its application was looked up. Its `close` does not come again.
    if (response.destroyed) return;
    const { app, key, headers } = entered;
    const { method, url: path } = request;
    const repeatable = isRepeatable(request);
    const { agent, release } = repeatable
      ? connections.lend(key, app.dial)
      : { agent: connections.once(app.dial), release: () => undefined };
    const outgoing = sendRequest({ agent, method, path, headers, setHost: false });
    outgoing.once('close', release);
    outgoing.once('response', (answer) => {
      if (!isSpoken(answer)) return void outgoing.destroy(new NotHttp());
      if (!repeatable) dropRest({ request, response }, deps.clock);
      giveBack(answer, response, { cookie: entered.cookie, isHead: method === 'HEAD' });
    });
    outgoing.once('upgrade', (_answer, stream) => {
      stream.destroy();
      refuse(response, unanswered(new NotHttp(), app), deps);
    });
    outgoing.on('error', (error) => {
      if (response.headersSent || response.destroyed) {
        if (method !== 'HEAD') response.destroy();
        return;
      }
      // The application closed an idle connection just as we used it.
      if (outgoing.reusedSocket && tries < TRIES_MAX) return forward(request, response, entered, tries + 1);
      deps.log.debug({ key, detail: messageOf(error) }, 'an application did not answer');
      refuse(response, unanswered(error, app), deps);
    });
    if (repeatable) outgoing.end();
    else sendBody(request, outgoing);
    response.once('close', () => outgoing.destroy());
  };

  return {
    onRequest: (request, response) => {
      enterApp(request, deps)
        .then((entered) =>
          'status' in entered ? refuse(response, entered, deps) : forward(request, response, entered),
        )
        .catch((error: unknown) => {
          const fields = { client_ip: clientIpOf(request), err: error };
          deps.log.error(fields, 'a request to an application failed on our side');
          refuse(response, OUR_FAULT, deps);
        });
    },
    onUpgrade: (request, socket, head) => {
      socket.on('error', () => socket.destroy());
      upgrade(request, socket, { ...deps, head, connections }).catch((error: unknown) => {
        const fields = { client_ip: clientIpOf(request), err: error };
        deps.log.error(fields, 'an upgrade to an application failed on our side');
        refuseRaw(socket, OUR_FAULT);
      });
    },
    close: () => connections.close(),
  };
}

/** True if Node can write the status line. An application may send any bytes as its status, and Node would throw. */
function isSpoken({ statusCode = 0, statusMessage = '' }: IncomingMessage): boolean {
  return (statusCode >= 200 || statusCode === SWITCHED) && /^[\t\x20-\x7e\x80-\xff]*$/.test(statusMessage);
}

/** Sends the answer of an application to the client. `cookie`: our own headers to add. */
function giveBack(
  answer: IncomingMessage,
  response: ServerResponse,
  { cookie, isHead }: { cookie: RawHeaders; isHead: boolean },
): void {
  const headers = [...responseHeaders(answer.rawHeaders), ...cookie];
  response.writeHead(answer.statusCode ?? 502, answer.statusMessage, headers);
  // Sends the head now, in latin1: Node reads heads in latin1, and `flushHeaders` would write UTF-8.
  response.write('', 'latin1');
  // The head is the whole answer. Some applications send a body after it, which breaks their connection.
  if (isHead) return void finished(answer.resume(), () => response.end());
  // If the application breaks off, the client's connection breaks too, because half an answer must not look complete.
  pipeline(answer, response, (error) => {
    if (error) response.destroy();
  });
}

interface Entered {
  app: App;
  /** The key of the pool of connections. It names the instance and the port. */
  key: string;
  headers: RawHeaders;
  /** The login cookie to send with the answer. */
  cookie: RawHeaders;
}

interface EnterDeps extends Omit<AppProxyDeps, 'trustProxy'> {
  /** The client's address. Behind a trusted proxy, the address that the proxy reports. */
  clientIpOf(request: IncomingMessage): string;
}

async function enterApp(request: IncomingMessage, deps: EnterDeps, isUpgrade = false): Promise<Entered | Refusal> {
  const [host = '', ...more] = request.headersDistinct.host ?? [];
  if (more.length > 0) return MALFORMED;
  const address = readAppHost(host, deps.domain);
  const app = address === undefined ? undefined : await deps.findApp(address);
  if (address === undefined || app === undefined) return NOT_FOUND;
  const entry = enter(request.headers, app.login, host);
  if (!entry.ok) return CHALLENGE;
  // Browsers send a known login with the WebSockets of any page, and a shell does not check where it is opened from.
  if (isUpgrade && app.target.kind === 'terminal' && !isFromOwnPage(request.headers, host)) return FOREIGN;
  const facts = { clientIp: deps.clientIpOf(request), host, isUpgrade };
  const without = loginHeaders(request.headers, app.login);
  const headers = requestHeaders(request.rawHeaders, { ...facts, without, withoutCookie: LOGIN_COOKIE });
  const cookie = entry.through === LOGIN_COOKIE ? [] : loginCookie(request.headers, app.login, host);
  return { app, key: `${address.instanceId} ${address.at}`, headers, cookie };
}

/**
 * Relays an upgrade, for example to a WebSocket. If the application does not agree to the upgrade, the connection ends after its answer. Otherwise
 * a proxy in front of us could send requests of other clients over it, past the login.
 */
async function upgrade(
  request: IncomingMessage,
  socket: Duplex,
  { head, connections, ...deps }: EnterDeps & { head: Buffer; connections: AppConnections },
): Promise<void> {
  const entered = await enterApp(request, deps, true);
  if (socket.destroyed) return;
  if ('status' in entered) return refuseRaw(socket, entered);
  const { app, headers } = entered;
  const { method, url: path } = request;
  const outgoing = sendRequest({ agent: connections.once(app.dial), method, path, headers, setHost: false });
  let answered = false;
  const begin = (answer: IncomingMessage, connection: RawHeaders): void => {
    answered = true;
    const first = `HTTP/1.1 ${answer.statusCode} ${answer.statusMessage}`;
    writeHead(socket, first, [...responseHeaders(answer.rawHeaders), ...connection]);
  };
  const giveUp = (): void => void outgoing.destroy();
  socket.once('close', giveUp);
  outgoing.once('response', (answer) => {
    if (!isSpoken(answer)) return void outgoing.destroy(new NotHttp());
    begin(answer, ['Connection', 'close']);
    pipeline(answer, socket, () => socket.destroy());
  });
  outgoing.once('upgrade', (answer, stream, rest) => {
    socket.off('close', giveUp);
    if (!isSpoken(answer)) {
      stream.destroy();
      return refuseRaw(socket, unanswered(new NotHttp(), app));
    }
    begin(answer, ['Connection', 'Upgrade', 'Upgrade', answer.headers.upgrade ?? '']);
    socket.write(rest);
    stream.write(head);
    // It carries no requests any more, so its directions may end one after the other.
    stream.allowHalfOpen = true;
    splice(socket, stream);
  });
  outgoing.on('error', (error) => {
    if (answered) return void socket.destroy();
    refuseRaw(socket, unanswered(error, app));
  });
  outgoing.end();
}

function unanswered(error: unknown, { target }: App): Refusal {
  const again = { 'Retry-After': '5' };
  if (error instanceof StreamError && error.leg !== 'refused') {
    return { status: 503, text: 'The host of this instance does not answer at the moment.', headers: again };
  }
  const what = target.kind === 'tcp' ? `The application on port ${target.port}` : 'The console';
  if (codeOf(error)?.startsWith('HPE_') === true) {
    return { status: 502, text: `${what} answers, but not in HTTP.` };
  }
  return { status: 502, text: `${what} does not answer. It may still be starting.`, headers: again };
}

/** The client reads the refusal only if the rest of its body is read: Node would close at once, and the network would discard the refusal. */
function refuse(response: ServerResponse, refusal: Refusal, { clock }: Pick<AppProxyDeps, 'clock'>): void {
  if (response.headersSent) return void response.destroy();
  dropRest({ request: response.req, response }, clock);
  response.writeHead(refusal.status, STATUS_CODES[refusal.status], refusalHeaders(refusal));
  response.end(`${refusal.text}\n`);
}

function refuseRaw(socket: Duplex, refusal: Refusal): void {
  const headers = Object.entries({ ...refusalHeaders(refusal), Connection: 'close' }).flat();
  writeHead(socket, `HTTP/1.1 ${refusal.status} ${STATUS_CODES[refusal.status]}`, headers);
  // The socket is destroyed, because no timer of the server ends an upgraded connection whose client keeps its side open.
  socket.end(`${refusal.text}\n`, () => socket.destroy());
}

function refusalHeaders({ headers = {} }: Refusal): Record<string, string> {
  return { ...headers, 'Content-Type': 'text/plain; charset=utf-8' };
}

// Applications at their own host names: each request passes the instance's login and goes on over a data stream into the container.
import { type IncomingMessage, request as sendRequest, type ServerResponse } from 'node:http';
import { type Duplex, pipeline } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Log } from '../../../shared/log.ts';
import { StreamError } from '../../fleet/link/streams.ts';
import { type AppAddress, readAppHost } from '../doors/app-address.ts';
import { openAppConnections } from './app-connections.ts';
import { requestHeaders, responseHeaders } from './app-headers.ts';
import { type AppLogin, enter } from './app-login.ts';

/** An application that can be reached now. */
export interface App {
  login: AppLogin;
  port: number;
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
  /** Undefined where nothing is served there now: no such instance or port, or it does not run. */
  findApp(address: AppAddress): Promise<App | undefined>;
}

/** What a client is told instead of the application's answer. */
interface Refusal {
  status: number;
  text: string;
  headers?: Record<string, string>;
}

/** Of a request that can be sent again. */
const TRIES_MAX = 3;

const NOT_FOUND: Refusal = { status: 404, text: 'There is no application at this address.' };
const CHALLENGE: Refusal = {
  status: 401,
  text: 'This application asks for the login of its instance: connection.app_user and app_password.',
  headers: { 'WWW-Authenticate': 'Basic realm="instance", charset="UTF-8"' },
};

export function openAppProxy(deps: AppProxyDeps): AppProxy {
  const connections = openAppConnections(deps.clock);

  const forward = (request: IncomingMessage, response: ServerResponse, entered: Entered, tries = 1): void => {
    const { app, key, headers } = entered;
    const { method, url: path } = request;
    const repeatable = isRepeatable(request);
    const { agent, release } = repeatable
      ? connections.lend(key, app.dial)
      : { agent: connections.once(app.dial), release: () => undefined };
    const outgoing = sendRequest({ agent, method, path, headers, setHost: false });
    outgoing.once('close', release);
    outgoing.once('response', (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.statusMessage, responseHeaders(answer.rawHeaders));
      response.flushHeaders();
      // What breaks on one side breaks on the other: half an answer must not look whole.
      pipeline(answer, response, (error) => void (error && response.destroy()));
    });
    outgoing.once('error', (error) => {
      if (response.headersSent || response.destroyed) return void response.destroy();
      // The other end has closed an idle connection just as we used it.
      if (outgoing.reusedSocket && tries < TRIES_MAX) return forward(request, response, entered, tries + 1);
      deps.log.debug({ key, detail: messageOf(error) }, 'an application did not answer');
      refuse(response, unanswered(error, app.port));
    });
    if (repeatable) outgoing.end();
    else pipeline(request, outgoing, () => undefined);
    response.once('close', () => outgoing.destroy());
  };

  return {
    onRequest: (request, response) => {
      enterApp(request, deps).then(
        (entered) => ('status' in entered ? refuse(response, entered) : forward(request, response, entered)),
        (error: unknown) => {
          deps.log.error({ err: error }, 'a request to an application failed on our side');
          refuse(response, { status: 500, text: 'This failed on our side.' });
        },
      );
    },
    onUpgrade: (request, socket, head) => {
      socket.on('error', () => socket.destroy());
      upgrade(request, socket, { ...deps, head }).catch((error: unknown) => {
        deps.log.debug({ detail: messageOf(error) }, 'an upgrade to an application failed');
        refuseRaw(socket, unanswered(error, null));
      });
    },
    close: () => connections.close(),
  };
}

/** Has no body and may be done twice (RFC 9110, section 9.2.2). */
function isRepeatable({ method = '', headers }: IncomingMessage): boolean {
  const hasBody = headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
  return !hasBody && ['GET', 'HEAD', 'OPTIONS'].includes(method);
}

interface Entered {
  app: App;
  /** Names instance and port. */
  key: string;
  headers: string[];
}

async function enterApp(request: IncomingMessage, deps: AppProxyDeps, isUpgrade = false): Promise<Entered | Refusal> {
  const host = request.headers.host ?? '';
  const address = readAppHost(host, deps.domain);
  const app = address === undefined ? undefined : await deps.findApp(address);
  if (address === undefined || app === undefined) return NOT_FOUND;
  const entry = enter(request.headers, app.login);
  if (!entry.ok) return CHALLENGE;
  const clientIp = request.socket.remoteAddress ?? '';
  const headers = requestHeaders(request.rawHeaders, { clientIp, host, without: entry.through, isUpgrade });
  return { app, key: `${address.instanceId}:${app.port}`, headers };
}

/** From here on the bytes are the application's and the client's: WebSockets and whatever else they agree on. */
async function upgrade(
  request: IncomingMessage,
  socket: Duplex,
  { head, ...deps }: AppProxyDeps & { head: Buffer },
): Promise<void> {
  const entered = await enterApp(request, deps, true);
  if ('status' in entered) return refuseRaw(socket, entered);
  const stream = await entered.app.dial();
  const lines = [`${request.method} ${request.url} HTTP/1.1`];
  for (let at = 0; at < entered.headers.length; at += 2) {
    lines.push(`${entered.headers[at]}: ${entered.headers[at + 1]}`);
  }
  // Node has read the headers as latin1.
  stream.write(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  stream.write(head);
  const onEnd = (error: unknown): void => {
    if (!error) return;
    socket.destroy();
    stream.destroy();
  };
  pipeline(socket, stream, onEnd);
  pipeline(stream, socket, onEnd);
}

function unanswered(error: unknown, port: number | null): Refusal {
  const again = { 'Retry-After': '5' };
  if (error instanceof StreamError && error.leg !== 'refused') {
    return { status: 503, text: 'The host of this application does not answer at the moment.', headers: again };
  }
  if (error instanceof Error && 'code' in error && String(error.code).startsWith('HPE_')) {
    return { status: 502, text: `The application answers on port ${port}, but not in HTTP.` };
  }
  const where = port === null ? 'on its port' : `on port ${port}`;
  return { status: 502, text: `The application does not answer ${where}. It may still be starting.`, headers: again };
}

function refuse(response: ServerResponse, { status, text, headers = {} }: Refusal): void {
  // The rest of the request is not read: the connection cannot be used again.
  response.writeHead(status, { ...headers, 'Content-Type': 'text/plain; charset=utf-8', Connection: 'close' });
  response.end(`${text}\n`);
}

function refuseRaw(socket: Duplex, { status, text, headers = {} }: Refusal): void {
  const lines = Object.entries({ ...headers, 'Content-Type': 'text/plain; charset=utf-8', Connection: 'close' });
  const head = [`HTTP/1.1 ${status} Refused`, ...lines.map(([name, value]) => `${name}: ${value}`)].join('\r\n');
  socket.end(`${head}\r\n\r\n${text}\n`);
}

// An application behind the app proxy: a scripted server inside, the proxy's port in front of it.
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { openAddressLimit } from '../../../control-plane/base/http/address-limit.ts';
import { openAppProxy } from '../../../control-plane/rental/edge/app-proxy.ts';
import { openAppServer } from '../../../control-plane/rental/edge/app-server.ts';
import { systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';

export const HOST = 'i-abcdefghij234567abcd.apps.test';
const LOGIN = { user: 'svc', password: 'secret' };
/** The connections that one address may have. */
export const CONNECTIONS_MAX = 40;
export const AUTHORIZATION = `Basic ${Buffer.from('svc:secret').toString('base64')}`;
export const NOT_HTTP = { status: 502, body: 'The application on port 8080 answers, but not in HTTP.\n' };

export interface ProxiedApp {
  app: Server;
  /** The port to which clients connect. */
  port: number;
  /** The application's ends of all connections so far. */
  sockets: Socket[];
  /** The lines of the log. */
  lines: string[];
  /** How often the application was dialled. */
  dials: number;
  /** What the application does; tests set both. */
  onRequest: (request: IncomingMessage, response: ServerResponse) => unknown;
  dial: () => Promise<Duplex>;
  /** Called while an application is looked up. */
  onLookup: () => Promise<void>;
  /** The listener is closed as by a stop of the daemon. */
  stop(graceMs: number): Promise<void>;
  close(): Promise<void>;
}

export async function openProxiedApp(trustProxy: readonly string[] = []): Promise<ProxiedApp> {
  const app = createServer((request, response) => void proxied.onRequest(request, response));
  app.on('connection', (socket) => proxied.sockets.push(socket));
  app.listen(0, '127.0.0.1');
  await once(app, 'listening');
  const lines: string[] = [];
  const log = createLog('test', 'info', { write: (line) => void lines.push(line) });
  const proxy = openAppProxy({
    clock: systemClock(),
    log,
    domain: 'apps.test',
    trustProxy,
    findApp: async ({ at }) => {
      await proxied.onLookup();
      if (typeof at === 'number') return undefined;
      const target = at === 'primary' ? { kind: 'tcp' as const, port: 8080 } : { kind: 'terminal' as const };
      return { login: LOGIN, target, dial: () => proxied.dial() };
    },
  });
  const limit = openAddressLimit(
    { max: CONNECTIONS_MAX, trusted: [] },
    {
      log: createLog('test', 'silent'),
      clock: systemClock(),
    },
  );
  const front = openAppServer({ proxy, tls: undefined, limit, clock: systemClock(), log });
  const proxied: ProxiedApp = {
    app,
    ...(await front.listen({ host: '127.0.0.1', port: 0 })),
    sockets: [],
    lines,
    dials: 0,
    onRequest: () => undefined,
    onLookup: async () => undefined,
    dial: async () => {
      proxied.dials += 1;
      const socket = connect({ port: (app.address() as AddressInfo).port, host: '127.0.0.1', allowHalfOpen: true });
      await once(socket, 'connect');
      return socket;
    },
    stop: (graceMs) => front.close(graceMs),
    close: async () => {
      await front.close(0);
      app.closeAllConnections();
      app.close();
    },
  };
  return proxied;
}

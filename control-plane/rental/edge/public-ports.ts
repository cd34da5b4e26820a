// Public TCP ports: one for SSH per open endpoint, and one for each TCP port of the application. Each connection becomes a stream to the host.
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { firstOfLargestNetwork, networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import {
  PORT_CONNECTIONS_PER_ADDRESS_MAX,
  SSH_CONNECTIONS_MAX,
  SSH_LOGIN_MS_MAX,
  TCP_KEEP_ALIVE_MS,
} from '../../../shared/limits.ts';
import { openAddressLimit } from '../../base/http/address-limit.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import { closeSignal } from '../../base/http/relaying.ts';
import type { Db } from '../../base/db/db.ts';
import { splice } from '../../fleet/link/streams.ts';
import type { EndpointPorts, Endpoints } from '../endpoints/endpoints.ts';
import { logAcceptErrors } from '../../../shared/accept-errors.ts';
import type { Asked, PortStreams, PortTarget } from './port-streams.ts';

export interface PublicPorts {
  /** Opens a listener for every open endpoint. Closes all other listeners with their connections. Calls run one after another. */
  sync(): Promise<void>;
  /** False if the SSH port of the instance is not open, for example because another program has it. */
  listens(instanceId: string): boolean;
  /** Number of ports that the last `sync` could not open. */
  unopened(): number;
  /** Refuses new connections. Open ones may go on for `graceMs`. Must not run at the same time as `sync`. */
  close(graceMs: number): Promise<void>;
}

interface PublicPort extends PortTarget {
  publicPort: number;
}

interface Listener {
  server: Server;
  port: PublicPort;
  /** Open connections, the oldest first. */
  connections: Set<Connection>;
}

interface Connection {
  socket: Socket;
  network: string;
  openedMs: number;
}

interface PublicPortsDeps {
  db: Pick<Db, 'read'>;
  clock: Pick<Clock, 'monotonicMs' | 'after'>;
  log: Log;
  endpoints: Pick<Endpoints, 'openEndpoints'>;
  host: string;
  /** Addresses of proxies. Each of them connects for many clients. */
  trustProxy: readonly string[];
  streams: PortStreams;
}

export function openPublicPorts({ log: plain, ...given }: PublicPortsDeps): PublicPorts {
  // Anyone can connect, so the log lines of an address are limited.
  const log = throttledLog(plain, given.clock);
  const deps = { ...given, log };
  const { db } = deps;
  /** The key is the public port. */
  const listeners = new Map<number, Listener>();
  /** The server of each instance's SSH port. */
  const sshServers = new Map<string, Server>();
  /** The public ports that the last `sync` could not open. */
  let unopened: ReadonlySet<number> = new Set();
  let syncing: Promise<void> = Promise.resolve();

  const listen = async (port: PublicPort): Promise<void> => {
    const connections: Listener['connections'] = new Set();
    const server = serverOf(port, connections, deps);
    server.listen(port.publicPort, deps.host);
    await once(server, 'listening');
    logAcceptErrors(server, { instance_id: port.instanceId, port: port.publicPort }, deps);
    listeners.set(port.publicPort, { server, port, connections });
    if (port.appPort === null) sshServers.set(port.instanceId, server);
  };

  const shut = async (listener: Listener, graceMs: number): Promise<void> => {
    const { publicPort, instanceId } = listener.port;
    listeners.delete(publicPort);
    if (sshServers.get(instanceId) === listener.server) sshServers.delete(instanceId);
    await endListener(listener, graceMs, deps.clock);
  };

  const sync = async (): Promise<void> => {
    const open = new Map<number, PublicPort>();
    // If a port has passed to another instance during the read, that instance comes later in the list.
    for (const endpoint of await deps.endpoints.openEndpoints(db.read))
      for (const port of portsOf(endpoint)) open.set(port.publicPort, port);
    // A listener whose socket has failed is opened again, and a port that leads elsewhere gets a new listener.
    for (const listener of listeners.values()) {
      const isRight = leadsTo(listener.port, open.get(listener.port.publicPort));
      if (!isRight || !listener.server.listening) await shut(listener, 0);
    }
    const failed = new Set<number>();
    for (const port of open.values()) {
      if (listeners.has(port.publicPort)) continue;
      await listen(port).catch((error: unknown) => {
        failed.add(port.publicPort);
        // Logged once, although the port is tried every few seconds for as long as another program has it.
        if (unopened.has(port.publicPort)) return;
        log.error(
          { instance_id: port.instanceId, port: port.publicPort, err: error },
          'a public port could not be opened; it is tried again',
        );
      });
    }
    unopened = failed;
  };

  return {
    sync: () => {
      syncing = syncing.then(sync, sync);
      return syncing;
    },
    unopened: () => unopened.size,
    listens: (instanceId) => sshServers.get(instanceId)?.listening === true,
    close: async (graceMs) => {
      await Promise.all([...listeners.values()].map((listener) => shut(listener, graceMs)));
    },
  };
}

/** Refuses new connections. Those that are open may go on for `graceMs`. Resolves when all have ended. */
async function endListener(
  { server, connections }: Listener,
  graceMs: number,
  clock: Pick<Clock, 'after'>,
): Promise<void> {
  const ended = new Promise<void>((resolve) => server.close(() => resolve()));
  const cut = (): void => connections.forEach(({ socket }) => socket.destroy());
  let cancel = (): void => undefined;
  if (graceMs === 0) cut();
  else cancel = clock.after(graceMs, cut);
  await ended;
  cancel();
}

export function portMeasures({ unopened }: Pick<PublicPorts, 'unopened'>): Measure[] {
  return [
    {
      name: 'svc_public_ports_unopened',
      help: 'Public ports of instances that could not be opened, most often because another program has them',
      kind: 'gauge',
      everywhere: true,
      read: () => one(unopened()),
    },
  ];
}

function serverOf(port: PublicPort, connections: Listener['connections'], deps: PublicPortsDeps): Server {
  const { clock, log, trustProxy: trusted } = deps;
  const limit = openAddressLimit({ max: PORT_CONNECTIONS_PER_ADDRESS_MAX, trusted }, deps);
  const alive = { keepAlive: true, keepAliveInitialDelay: TCP_KEEP_ALIVE_MS };
  return createServer({ allowHalfOpen: true, noDelay: true, ...alive }, (socket) => {
    // A client that resets its connection is normal.
    socket.on('error', () => undefined);
    if (!limit.admit(socket)) return;
    const openedMs = clock.monotonicMs();
    const clientIp = socket.remoteAddress ?? '';
    if (connections.size >= SSH_CONNECTIONS_MAX) {
      const stranger = port.appPort === null ? strangerOf(connections, openedMs) : undefined;
      if (stranger === undefined) return void socket.destroy();
      connections.delete(stranger);
      stranger.socket.destroy();
    }
    const connection = { socket, network: networkOf(clientIp), openedMs };
    connections.add(connection);
    socket.on('close', () => connections.delete(connection));
    relay(socket, deps.streams.ask(port, { ip: clientIp, gone: closeSignal(socket) })).catch((error: unknown) => {
      if (socket.destroyed) return;
      const fields = { instance_id: port.instanceId, client_ip: clientIp, reason: messageOf(error) };
      log.info(fields, 'a connection could not be relayed');
      socket.destroy();
    });
  });
}

/**
 * The connection to close if the port is full: one that may not have logged in. SSH is encrypted, so only the age can show that. A holder ends
 * a connection that has not logged in by a certain age, so older ones have logged in.
 */
function strangerOf(connections: Listener['connections'], nowMs: number): Connection | undefined {
  return firstOfLargestNetwork([...connections].filter(({ openedMs }) => nowMs - openedMs < SSH_LOGIN_MS_MAX));
}

function portsOf({ instance_id: instanceId, ssh_port: sshPort, tcp_ports: tcpPorts }: EndpointPorts): PublicPort[] {
  const app = tcpPorts.map(({ port, public_port: publicPort }) => ({ publicPort, instanceId, appPort: port }));
  return [{ publicPort: sshPort, instanceId, appPort: null }, ...app];
}

function leadsTo({ instanceId, appPort }: PublicPort, target: PublicPort | undefined): boolean {
  return target?.instanceId === instanceId && target.appPort === appPort;
}

/** Resolves when bytes flow. */
async function relay(socket: Socket, asking: Promise<Asked | undefined>): Promise<void> {
  const asked = await asking;
  if (asked === undefined) return void socket.destroy();
  splice(socket, await asked.stream);
}

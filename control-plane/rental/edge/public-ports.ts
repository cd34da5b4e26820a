// Public TCP ports: one for SSH per open endpoint, and one for each TCP port of the application. Each connection becomes a stream to the host.
import { createServer, type Server, type Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import { messageOf } from '../../../shared/errors.ts';
import { type Log, throttledLog } from '../../../shared/log.ts';
import { firstOfLargestNetwork, networkOf } from '../../../shared/client-network.ts';
import type { Clock } from '../../../shared/clock.ts';
import {
  PORT_CONNECTIONS_PER_ADDRESS_MAX,
  SSH_CONNECTIONS_MAX,
  SSH_LOGIN_MS_MAX,
  STREAM_DIAL_MS_MAX,
  TCP_KEEP_ALIVE_MS,
} from '../../../shared/limits.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import { openAddressLimit } from '../../base/http/address-limit.ts';
import { type Measure, one } from '../../base/http/metrics.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { EndpointPorts, Endpoints } from '../endpoints/endpoints.ts';
import type { EndpointAccess } from './access.ts';

export interface PublicPorts {
  /** Opens a listener for every open endpoint. Closes all other listeners with their connections. */
  sync(): Promise<void>;
  /** False if the SSH port of the instance is not open, for example because another program has it. */
  listens(instanceId: string): boolean;
  /** Number of ports that the last `sync` could not open. */
  unopened(): number;
  /** Refuses new connections. Open ones may go on for `graceMs`. Must not run at the same time as `sync`. */
  close(graceMs: number): Promise<void>;
}

/** What a public port leads to: SSH, or a port of the application. */
interface PublicPort {
  publicPort: number;
  instanceId: string;
  appPort: number | null;
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
  clock: Pick<Clock, 'monotonicMs' | 'after' | 'sleep'>;
  log: Log;
  link: Pick<Link, 'openStream' | 'isBehind'>;
  endpoints: Pick<Endpoints, 'openEndpoints'>;
  host: string;
  /** Addresses of proxies. Each of them connects for many clients. */
  trustProxy: readonly string[];
  /** Who may connect now; undefined if the instance must not be reached. */
  access(instanceId: string): Promise<EndpointAccess | undefined>;
}

/** How often a connection looks whether its host has read what it was sent. */
const BEHIND_PERIOD_MS = 50;

export function openPublicPorts({ log: plain, ...given }: PublicPortsDeps): PublicPorts {
  // Anyone can connect, so the log lines of an address are limited.
  const log = throttledLog(plain, given.clock);
  const deps = { ...given, log };
  const { db } = deps;
  /** The key is the public port. */
  const listeners = new Map<number, Listener>();
  /** The server of each instance's SSH port. */
  const sshServers = new Map<string, Server>();
  let unopened = 0;

  const listen = async (port: PublicPort): Promise<void> => {
    const connections: Listener['connections'] = new Set();
    const server = serverOf(port, connections, deps);
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port.publicPort, deps.host, resolve);
    });
    listeners.set(port.publicPort, { server, port, connections });
    if (port.appPort === null) sshServers.set(port.instanceId, server);
  };

  const shut = async (listener: Listener, graceMs: number): Promise<void> => {
    const { publicPort, instanceId } = listener.port;
    listeners.delete(publicPort);
    if (sshServers.get(instanceId) === listener.server) sshServers.delete(instanceId);
    const ended = new Promise<void>((resolve) => listener.server.close(() => resolve()));
    const cut = (): void => listener.connections.forEach(({ socket }) => socket.destroy());
    const cancel = graceMs === 0 ? cut() : deps.clock.after(graceMs, cut);
    await ended;
    cancel?.();
  };

  return {
    sync: async () => {
      const open = new Map<number, PublicPort>();
      // If a port has passed to another instance during the read, that instance comes later in the list.
      for (const endpoint of await deps.endpoints.openEndpoints(db.read))
        for (const port of portsOf(endpoint)) open.set(port.publicPort, port);
      // A listener whose socket has failed is opened again, and a port that leads elsewhere gets a new listener.
      for (const listener of listeners.values()) {
        const isRight = leadsTo(listener.port, open.get(listener.port.publicPort));
        if (!isRight || !listener.server.listening) await shut(listener, 0);
      }
      let failed = 0;
      for (const port of open.values()) {
        if (listeners.has(port.publicPort)) continue;
        await listen(port).catch((error: unknown) => {
          failed += 1;
          log.error(
            { instance_id: port.instanceId, port: port.publicPort, err: error },
            'a public port could not be opened; it is tried again',
          );
        });
      }
      unopened = failed;
    },
    unopened: () => unopened,
    listens: (instanceId) => sshServers.get(instanceId)?.listening === true,
    close: async (graceMs) => {
      await Promise.all([...listeners.values()].map((listener) => shut(listener, graceMs)));
    },
  };
}

export function portMeasures({ unopened }: Pick<PublicPorts, 'unopened'>): Measure[] {
  return [
    {
      name: 'svc_public_ports_unopened',
      help: 'Public ports of instances that could not be opened, most often because another program has them',
      kind: 'gauge',
      read: () => one(unopened()),
    },
  ];
}

function serverOf(port: PublicPort, connections: Listener['connections'], deps: PublicPortsDeps): Server {
  const { clock, log, trustProxy: trusted } = deps;
  const limit = openAddressLimit({ max: PORT_CONNECTIONS_PER_ADDRESS_MAX, trusted }, deps);
  const inTurn = openTurn();
  const alive = { keepAlive: true, keepAliveInitialDelay: TCP_KEEP_ALIVE_MS };
  return createServer({ allowHalfOpen: true, noDelay: true, ...alive }, (socket) => {
    // A client that resets its connection is normal.
    socket.on('error', () => undefined);
    if (!limit.admit(socket)) return;
    const [openedMs, clientIp] = [clock.monotonicMs(), socket.remoteAddress ?? ''];
    if (connections.size >= SSH_CONNECTIONS_MAX) {
      const stranger = port.appPort === null ? strangerOf(connections, openedMs) : undefined;
      if (stranger === undefined) return void socket.destroy();
      connections.delete(stranger);
      stranger.socket.destroy();
    }
    const connection = { socket, network: networkOf(clientIp), openedMs };
    connections.add(connection);
    socket.on('close', () => connections.delete(connection));
    const ask = (): Promise<Asked | undefined> => askHost(port, connection, deps);
    relay(socket, port.appPort === null ? inTurn(ask) : ask()).catch((error: unknown) => {
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

/** The stream that a host was asked to open. */
interface Asked {
  stream: Promise<Duplex>;
}

/**
 * Asks the host for a stream; undefined if nobody may connect or the client has left. Anyone can connect to SSH, and each connection sends
 * the host all keys. So it waits while the host has not read much of what it was sent, because otherwise its link would be ended, for all tenants.
 */
async function askHost(
  { instanceId, appPort }: PublicPort,
  { socket, openedMs }: Connection,
  { access: readAccess, clock, link }: PublicPortsDeps,
): Promise<Asked | undefined> {
  while (!socket.destroyed) {
    const access = await readAccess(instanceId);
    if (access === undefined || socket.destroyed) return undefined;
    const { machineId, workloadId, authorizedKeys } = access;
    if (appPort !== null) return { stream: link.openStream(machineId, workloadId, { kind: 'tcp', port: appPort }) };
    if (!link.isBehind(machineId)) {
      const ip = socket.remoteAddress ?? '';
      const target: OpenMessage['target'] = { kind: 'ssh', authorized_keys: authorizedKeys, client_ip: ip };
      return { stream: link.openStream(machineId, workloadId, target) };
    }
    // Keys may change during the wait, so they are read again after it.
    while (link.isBehind(machineId) && !socket.destroyed) {
      if (clock.monotonicMs() - openedMs >= STREAM_DIAL_MS_MAX) throw new Error('the host does not read from its link');
      await clock.sleep(BEHIND_PERIOD_MS);
    }
  }
  return undefined;
}

type InTurn = <T>(work: () => Promise<T>) => Promise<T>;

/** Runs one piece of work at a time, in the order of the calls. A port keeps the keys of one connection in memory, not of all that wait. */
function openTurn(): InTurn {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const result = last.then(work);
    const end = (): void => undefined;
    last = result.then(end, end);
    return result;
  };
}

/** Resolves when bytes flow. From then on the end of one side closes the other. */
async function relay(socket: Socket, asking: Promise<Asked | undefined>): Promise<void> {
  const asked = await asking;
  if (asked === undefined) return void socket.destroy();
  const stream = await asked.stream;
  if (socket.destroyed) return void stream.destroy();
  const onEnd = (error: NodeJS.ErrnoException | null): void => {
    if (!error) return;
    socket.destroy();
    stream.destroy();
  };
  pipeline(socket, stream, onEnd);
  pipeline(stream, socket, onEnd);
}

// A primary control plane that answers other control planes at real sockets, and the host behind it, which the test plays.
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, connect, createServer as createTcpServer, type Server as TcpServer } from 'node:net';
import type { Duplex } from 'node:stream';
import { openSealing, type Sealing } from '../../../control-plane/base/http/sealing.ts';
import type { Link } from '../../../control-plane/fleet/link/link.ts';
import { openPeerStreams } from '../../../control-plane/fleet/link/peer-streams.ts';
import {
  openPeerStreamsListener,
  type PeerStreamsListener,
} from '../../../control-plane/fleet/link/peer-streams-listener.ts';
import type { PeerPort } from '../../../control-plane/fleet/link/peer-wire.ts';
import { createIds } from '../../../shared/ids.ts';
import { HEADER_BYTES_READ_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import type { OpenMessage } from '../../../shared/protocol/link.ts';
import { streamDuplex } from '../../../shared/protocol/stream.ts';
import { seededRng } from '../../../shared/rng.ts';
import type { Certificate } from '../../kit/certificate.ts';
import { type VirtualClock, virtualClock } from '../../kit/virtual-clock.ts';

export const TARGET: OpenMessage['target'] = { kind: 'tcp', port: 8000 };

export interface PeerPrimary {
  clock: VirtualClock;
  sealing: Sealing;
  /** A sealing with another secret. */
  otherSealing: Sealing;
  /** Its lines, from `info` on. */
  logged: string[];
  /** The parameters of each call of `openStream`. */
  asked: unknown[];
  /** How it opens a stream. A test may replace it. */
  openStream: Link['openStream'];
  /** How it opens a port. A test may replace it. */
  openPort(port: PeerPort, gone: AbortSignal): Promise<Duplex | undefined>;
  /** The host's end of the stream that was opened last. */
  workload: Duplex;
  /** How far the wall clock of those that ask it is behind. */
  lateMs: number;
  /** How many callers have proven that they are a control plane. */
  proofs: number;
  /** How connections of callers have failed. */
  broken: string[];
  /** Listens. Returns its origin. */
  start(certificate?: Certificate): Promise<string>;
  /** Listens with another server in its place. Returns its origin. */
  startAs(server: Server): Promise<string>;
  /** Opens a stream as another control plane, whose primary is at `url`. */
  dial(url: string | undefined, target?: OpenMessage['target']): Promise<Duplex>;
  /** The number of open connections to it. */
  connections(): Promise<number>;
  /** Its streams may go on for `graceMs`. */
  drain(graceMs: number): Promise<void>;
  /** Breaks the connections to it. */
  cut(): void;
  /** Listens no more. */
  stop(): Promise<void>;
}

export function openPeerPrimary(): PeerPrimary {
  const clock = virtualClock();
  const ids = createIds(clock, seededRng(7));
  const log = createLog('test', 'info', { write: (line: string) => void primary.logged.push(line) });
  const upgraded: Duplex[] = [];
  let listener: PeerStreamsListener | undefined;
  let listening: Server | undefined;

  const serve = (server: Server): Promise<string> => {
    const { sealing } = primary;
    const opened = openPeerStreamsListener({
      sealing,
      clock,
      log,
      member: 'primary',
      openStream: (...what) => primary.openStream(...what),
      openPort: (...what) => primary.openPort(...what),
    });
    listener = opened;
    const proven = (): void => void (primary.proofs += 1);
    server.on('upgrade', (request, socket, head) => {
      upgraded.push(socket);
      socket.on('error', ({ message }) => (primary.broken.push(message), socket.destroy()));
      opened.onUpgrade({ request, socket, head, clientIp: '192.0.2.1', proven });
    });
    return primary.startAs(server);
  };

  const primary: PeerPrimary = {
    clock,
    sealing: sealingOf(5, clock),
    otherSealing: sealingOf(6, clock),
    logged: [],
    asked: [],
    openStream: async (...what) => {
      primary.asked.push(what);
      const [near, far] = await connected();
      primary.workload = far;
      return near;
    },
    openPort: async () => undefined,
    workload: undefined as unknown as Duplex,
    lateMs: 0,
    proofs: 0,
    broken: [],
    start: async (certificate) =>
      certificate === undefined
        ? serve(createServer({ maxHeaderSize: HEADER_BYTES_READ_MAX }))
        : (await serve(createTlsServer(certificate))).replace('http:', 'https:'),
    startAs: async (server) => {
      listening = server;
      return `http://127.0.0.1:${await portOf(server)}`;
    },
    dial: (url, target = TARGET) => {
      const { sealing } = primary;
      const of = url === undefined ? undefined : { id: 'primary', url };
      const late = { ...clock, now: () => clock.now() - primary.lateMs };
      const streams = openPeerStreams({ sealing, clock: late, ids, primary: () => of });
      return streams.openStream('m-1', 'w-1', target);
    },
    connections: () =>
      new Promise((resolve, reject) => {
        listening?.getConnections((error, count) => (error === null ? resolve(count) : reject(error)));
      }),
    drain: async (graceMs) => listener?.drain(graceMs),
    cut: () => upgraded.forEach((socket) => socket.destroy()),
    stop: () => new Promise((resolve) => (listening === undefined ? resolve() : listening.close(() => resolve()))),
  };
  return primary;
}

function sealingOf(byte: number, clock: VirtualClock): Sealing {
  return openSealing(new Uint8Array(32).fill(byte), createIds(clock, seededRng(byte)));
}

async function portOf(server: TcpServer): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

/** Both ends of a stream to a host, over a connection of its own. */
async function connected(): Promise<[Duplex, Duplex]> {
  const server = createTcpServer();
  const near = connect(await portOf(server), '127.0.0.1');
  const [far] = await once(server, 'connection');
  server.close();
  const head = Buffer.alloc(0);
  return [streamDuplex(near, { dialled: false, head }), streamDuplex(far, { dialled: true, head })];
}

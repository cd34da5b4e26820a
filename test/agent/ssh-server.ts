// The SSH server of a workload in this process, with a guest that a test plays.
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ssh2, { type ClientChannel, type ConnectConfig } from 'ssh2';
import type { Guests, SessionEvents } from '../../agent/holder/guest-connection.ts';
import type { SessionRequest } from '../../agent/wire/guest-messages.ts';
import { makeKeyPair } from '../../agent/holder/host-key.ts';
import { openSshServer, type SshServer } from '../../agent/holder/ssh-server.ts';
import { systemClock, type Clock } from '../../shared/clock.ts';
import { createLog } from '../../shared/log.ts';

const { private: hostKey, public: hostKeyLine } = makeKeyPair();
const log = createLog('test', 'silent');
const closing: (() => void)[] = [];

export { hostKeyLine };
export const user = makeKeyPair();
export const stranger = makeKeyPair();
export const keys = { authorized_keys: [user.public], client_ip: '127.0.0.1' };

/** Closes all that this file has opened. */
export function closeSshServers(): void {
  for (const close of closing.splice(0)) close();
}

export interface World {
  run: SshServer;
  port: number;
  /** Leads to the place of the probe. */
  probePort: number;
  /** The key that the stream of a probe names; the stranger's to begin with. */
  probeKey: string;
  /** Server ends of the connections. */
  streams: Socket[];
  /** Sessions that were opened, each with its two ends, the holder's and the played guest's, and the sizes that its terminal was set to. */
  sessions: { request: SessionRequest; events: SessionEvents; socket: Socket; peer: Socket; sizes: string[] }[];
  /** What the guest takes its time for; resolved to begin with. */
  delay: Promise<void>;
}

export async function startWorld(clock: Clock = systemClock()): Promise<World> {
  const world: Pick<World, 'sessions' | 'delay' | 'probeKey'> = {
    sessions: [],
    delay: Promise.resolve(),
    probeKey: stranger.public,
  };
  const guests: Guests = {
    connected: () => true,
    mainExit: () => null,
    open: async (request, events) => {
      const [socket, peer] = await socketPair();
      const sizes: string[] = [];
      world.sessions.push({ request, events, socket, peer, sizes });
      await world.delay;
      const path = request.kind === 'listen_agent' ? '/agent' : undefined;
      const resize = (cols: number, rows: number): void => void sizes.push(`${cols}x${rows}`);
      return { socket, resize, signal: () => {}, ...(path !== undefined && { path }) };
    },
    close: () => Promise.resolve(),
  };
  const run = openSshServer({ clock, log, guests, hostKey });
  const streams: Socket[] = [];
  const port = await listen((socket) => {
    streams.push(socket);
    try {
      run.serve(socket, keys);
    } catch {
      socket.destroy();
    }
  });
  const probePort = await listen((socket) => run.serveProbe(socket, { probe_key: world.probeKey }));
  closing.push(run.close);
  return Object.assign(world, { run, port, probePort, streams });
}

async function listen(serve: (socket: Socket) => void): Promise<number> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, serve).listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/** A unix socket connects both, like holder and guest. */
async function socketPair(): Promise<[Socket, Socket]> {
  const dir = mkdtempSync(join(tmpdir(), 'run-'));
  const server = createServer().listen(join(dir, 'socket'));
  await once(server, 'listening');
  const near = connect(join(dir, 'socket'));
  const [far]: Socket[] = await once(server, 'connection');
  server.close();
  rmSync(dir, { recursive: true });
  if (far === undefined) throw new Error('no connection');
  near.on('error', () => {});
  far.on('error', () => {});
  closing.push(() => far.destroy());
  return [near, far];
}

export function client(world: World, config: Partial<ConnectConfig> = {}): ssh2.Client {
  const made = new ssh2.Client();
  made.on('error', () => {});
  made.connect({ host: '127.0.0.1', port: world.port, username: 'root', privateKey: user.private, ...config });
  closing.push(() => made.destroy());
  return made;
}

export function exec(over: ssh2.Client): Promise<ClientChannel> {
  return new Promise((resolve, reject) => {
    over.exec('x', (error, channel) => (error ? reject(error) : resolve(channel)));
  });
}

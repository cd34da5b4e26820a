// The SSH server of one workload. ssh2 speaks the protocol; the guards that a public SSH server needs and ssh2 lacks are here.
import ssh2, { type Algorithms, type Connection } from 'ssh2';
import type { Duplex } from 'node:stream';
import { networkOf } from '../../shared/client-network.ts';
import type { Clock } from '../../shared/clock.ts';
import {
  SSH_CHANNELS_MAX,
  SSH_CONNECTIONS_MAX,
  SSH_LOGIN_GRACE_MS,
  SSH_UNAUTHENTICATED_MAX,
  SSH_UNAUTHENTICATED_PER_ADDRESS_MAX,
  SSH_UNSENT_BYTES_HIGH,
} from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { Guests } from './guests.ts';
import { type BufferBudget, createBufferBudget } from './ssh-budget.ts';
import { createLoginJudge, PROBE_USER, type LoginKeys } from './ssh-auth.ts';
import type { SessionHost, WindowedChannel } from './ssh-channel.ts';
import { serveForward } from './ssh-forward.ts';
import { createPace, type Pace } from './ssh-pace.ts';
import { serveReverse } from './ssh-reverse.ts';
import { serveSession } from './ssh-session.ts';

export interface SshDoor {
  /** Serves one client on a byte stream of its own. Throws where there are too many already. */
  serve(stream: Duplex, keys: LoginKeys & { client_ip: string }): void;
  close(): void;
}

export interface SshDoorDeps {
  clock: Clock;
  log: Log;
  guests: Guests;
  /** OpenSSH private key text. */
  hostKey: string;
}

const IDENT = 'svc';
const KEEPALIVE_MS = 15_000;
const KEEPALIVE_MISSES_MAX = 3;
/** A client that has not said who it is by now gets the widest choice of algorithms. */
const IDENT_MS_MAX = 1_000;
const GCM = ['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com'] as const;
const CTR = ['aes128-ctr', 'aes192-ctr', 'aes256-ctr'] as const;

interface Caller {
  stream: Duplex;
  keys: LoginKeys & { client_ip: string };
}

export function openSshDoor(deps: SshDoorDeps): SshDoor {
  const { clock } = deps;
  const budget = createBufferBudget();
  const open = new Set<Duplex>();
  /** With the network that each comes from. */
  const loggingIn = new Map<Duplex, string>();
  /** A burst of honest clients waits here, unread, instead of being refused. */
  let queue: Caller[] = [];

  const admit = (): void => {
    while (loggingIn.size < SSH_UNAUTHENTICATED_MAX) {
      const next = queue.findIndex(
        (caller) => countOf(loggingIn, networkOfCaller(caller)) < SSH_UNAUTHENTICATED_PER_ADDRESS_MAX,
      );
      const [caller] = next < 0 ? [] : queue.splice(next, 1);
      if (caller === undefined) return;
      logIn(caller);
    }
  };
  const logIn = (caller: Caller): void => {
    const { stream } = caller;
    loggingIn.set(stream, networkOfCaller(caller));
    const graceOver = clock.after(SSH_LOGIN_GRACE_MS, () => stream.destroy());
    const over = (): void => {
      graceOver();
      if (loggingIn.delete(stream)) admit();
    };
    stream.once('close', over);
    void readIdent(stream, clock).then((ident) => {
      if (!stream.destroyed) greet(caller, ident, { ...deps, budget }, over);
    });
  };

  return {
    serve: (stream, keys) => {
      if (open.size >= SSH_CONNECTIONS_MAX) throw new Error('too many SSH connections to this workload');
      open.add(stream);
      stream.on('error', () => stream.destroy());
      stream.once('close', () => {
        open.delete(stream);
        queue = queue.filter((caller) => caller.stream !== stream);
      });
      queue.push({ stream, keys });
      admit();
    },
    close: () => {
      for (const stream of open) stream.destroy();
    },
  };
}

function networkOfCaller({ keys }: Caller): string {
  return networkOf(keys.client_ip);
}

function countOf(loggingIn: ReadonlyMap<Duplex, string>, network: string): number {
  return [...loggingIn.values()].filter((each) => each === network).length;
}

/** Begins the protocol; `loggedIn` is called once the client has authenticated. */
function greet(
  { stream, keys }: Caller,
  ident: string,
  deps: SshDoorDeps & { budget: BufferBudget },
  loggedIn: () => void,
): void {
  const server = new ssh2.Server({
    hostKeys: [deps.hostKey],
    ident: IDENT,
    algorithms: algorithmsFor(ident),
    keepaliveInterval: KEEPALIVE_MS,
    keepaliveCountMax: KEEPALIVE_MISSES_MAX,
  });
  server.once('connection', (client) => {
    client.once('ready', () => {
      loggedIn();
      deps.log.info({ client_ip: keys.client_ip }, 'an SSH client logged in');
    });
    const { guests, clock, budget } = deps;
    serveClient({ client, stream, keys, guests, clock, budget, pace: createPace(stream) });
  });
  // ssh2 takes any Duplex; its types say Socket.
  (server.injectSocket as (socket: Duplex) => void).call(server, stream);
}

interface Served {
  client: Connection;
  stream: Duplex;
  keys: LoginKeys;
  guests: Guests;
  clock: Clock;
  budget: BufferBudget;
  pace: Pace;
}

function serveClient({ client, stream, keys, guests, clock, budget, pace }: Served): void {
  const judge = createLoginJudge(keys);
  let user = '';
  client.on('authentication', (attempt) => {
    const verdict = judge(attempt);
    if (verdict === 'accept') {
      user = attempt.username;
      attempt.accept();
    } else {
      attempt.reject(['publickey']);
      if (verdict === 'disconnect') client.end();
    }
  });
  // Malformed packets and lost peers: the connection ends by itself, nobody else is concerned.
  client.on('error', () => {});
  client.on('end', () => stream.end());
  const gone = new AbortController();
  const host: SessionHost = { client, guests, clock, pace, channels: new Set(), sessions: 0, gone: gone.signal };
  // In front of ssh2's own end of the channels, by which they would all have ended well.
  client.once('close', () => gone.abort());
  client.once('ready', () => {
    // Without these listeners ssh2 refuses every channel: that is all a probe gets.
    if (user === PROBE_USER) return;
    client.on('session', (accept, reject) => {
      if (host.sessions >= SSH_CHANNELS_MAX) return reject();
      serveSession(accept(), host);
    });
    client.on('tcpip', (accept, reject, info) => {
      if (host.sessions >= SSH_CHANNELS_MAX) return reject();
      void serveForward({ kind: 'dial', host: info.destIP, port: info.destPort }, { open: accept, reject }, host);
    });
    serveReverse(host);
  });
  budget.enter(stream, () => bufferedIn(stream, host.channels));
  stream.on('data', () => {
    budget.grown(stream);
    // ssh2 lets a client write past its window for ever; an honest one never does.
    for (const channel of host.channels) if (channel.incoming.window < 0) stream.destroy();
    // Answers to a client that does not read them would pile up: then we do not read it either.
    if (stream.writableLength > SSH_UNSENT_BYTES_HIGH && !stream.isPaused()) {
      stream.pause();
      stream.once('drain', () => stream.resume());
    }
  });
}

function bufferedIn(stream: Duplex, channels: Iterable<WindowedChannel>): number {
  let bytes = stream.writableLength;
  for (const channel of channels) bytes += channel.readableLength + channel.writableLength;
  return bytes;
}

/**
 * What we offer. The client's order decides, and OpenSSH puts the slower ciphers first, so it is offered the fast ones only;
 * others may know nothing but CTR or ChaCha20. No SHA-1, no CBC, no compression (it can be turned into a memory bomb).
 */
export function algorithmsFor(ident: string): Algorithms {
  const cipher = ident.startsWith('SSH-2.0-OpenSSH_')
    ? [...GCM]
    : [...GCM, ...CTR, 'chacha20-poly1305@openssh.com' as const];
  return {
    kex: ['curve25519-sha256', 'curve25519-sha256@libssh.org', 'ecdh-sha2-nistp256'],
    serverHostKey: ['ssh-ed25519'],
    cipher,
    hmac: ['hmac-sha2-256-etm@openssh.com', 'hmac-sha2-512-etm@openssh.com', 'hmac-sha2-256', 'hmac-sha2-512'],
    compress: ['none'],
  };
}

/** The client's first bytes (put back), or an empty text where it waits for ours. */
function readIdent(stream: Duplex, clock: Clock): Promise<string> {
  return new Promise((resolve) => {
    const finish = (): void => {
      cancel();
      stream.off('readable', finish);
      const first: Buffer | null = stream.destroyed ? null : stream.read();
      if (first !== null) stream.unshift(first);
      resolve(first?.subarray(0, 255).toString('latin1') ?? '');
    };
    const cancel = clock.after(IDENT_MS_MAX, finish);
    stream.once('readable', finish);
  });
}

// The SSH server of one workload. ssh2 implements the protocol; this file adds the guards that a public SSH server needs.
import ssh2, { type Algorithms, type Connection } from 'ssh2';
import type { Duplex } from 'node:stream';
import { networkOf } from '../../shared/client-network.ts';
import type { Clock } from '../../shared/clock.ts';
import { SSH_CHANNELS_MAX, SSH_LOGIN_GRACE_MS, SSH_PROBES_MAX, SSH_UNSENT_BYTES_HIGH } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { ProbeTarget, SshTarget } from '../../shared/protocol/link.ts';
import type { Guests } from './guest-connection.ts';
import { openAdmission, createLoginJudge } from './ssh-admission.ts';
import { type BufferBudget, createBufferBudget, createPace } from './ssh-buffers.ts';
import type { SessionHost, WindowedChannel } from './ssh-channel.ts';
import { serveForward, serveReverse } from './ssh-forward.ts';
import { serveSession } from './ssh-session.ts';

export interface SshServer {
  /** Serves one client on a byte stream of its own. Throws if there are too many already. */
  serve(stream: Duplex, target: Pick<SshTarget, 'authorized_keys' | 'client_ip'>): void;
  /** Serves a probe of the control plane: a login without channels, on a reserved place that no customer or stranger can take. */
  serveProbe(stream: Duplex, target: Pick<ProbeTarget, 'probe_key'>): void;
  close(): void;
}

export interface SshServerDeps {
  clock: Clock;
  log: Log;
  guests: Guests;
  /** OpenSSH private key text. */
  hostKey: string;
}

const IDENT = 'svc';
const KEEPALIVE_MS = 15_000;
const KEEPALIVE_MISSES_MAX = 3;
/** A client that has not sent its identification after this time gets the widest choice of algorithms. */
const IDENT_MS_MAX = 1_000;
const GCM = ['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com'] as const;
const CTR = ['aes128-ctr', 'aes192-ctr', 'aes256-ctr'] as const;

export function openSshServer(deps: SshServerDeps): SshServer {
  const { clock, log } = deps;
  const admission = openAdmission(clock);
  const budget = createBufferBudget();
  let probes: Duplex[] = [];

  return {
    serve: (stream, { authorized_keys: keys, client_ip: clientIp }) =>
      admission.enter(stream, networkOf(clientIp), () => {
        void readIdent(stream, clock).then((ident) => {
          if (stream.destroyed) return;
          speakSsh({ stream, ident, keys, hostKey: deps.hostKey }, (client) => {
            client.once('ready', () => {
              admission.loggedIn(stream);
              log.info({ client_ip: clientIp }, 'an SSH client logged in');
            });
            serveChannels(client, stream, { ...deps, budget });
          });
        });
      }),
    serveProbe: (stream, { probe_key: key }) => {
      stream.on('error', () => stream.destroy());
      probes = [...probes.filter((each) => !each.destroyed), stream];
      while (probes.length > SSH_PROBES_MAX) probes.shift()?.destroy();
      stream.once(
        'close',
        clock.after(SSH_LOGIN_GRACE_MS, () => stream.destroy()),
      );
      // No handler for channels, so ssh2 refuses them all: a probe can only log in.
      speakSsh({ stream, ident: '', keys: [key], hostKey: deps.hostKey }, () => undefined);
    },
    close: () => {
      admission.close();
      for (const stream of probes) stream.destroy();
    },
  };
}

interface Talk {
  stream: Duplex;
  /** The client's identification string; empty if the client waits for ours. */
  ident: string;
  /** OpenSSH public key lines that may log in. */
  keys: readonly string[];
  hostKey: string;
}

/** Starts the protocol on a stream and authenticates the client. `onClient` is called before the authentication. */
function speakSsh({ stream, ident, keys, hostKey }: Talk, onClient: (client: Connection) => void): void {
  const server = new ssh2.Server({
    hostKeys: [hostKey],
    ident: IDENT,
    algorithms: algorithmsFor(ident),
    keepaliveInterval: KEEPALIVE_MS,
    keepaliveCountMax: KEEPALIVE_MISSES_MAX,
  });
  const judge = createLoginJudge(keys);
  server.once('connection', (client) => {
    client.on('authentication', (attempt) => {
      const verdict = judge(attempt);
      if (verdict === 'accept') return attempt.accept();
      attempt.reject(['publickey']);
      if (verdict !== 'disconnect') return;
      client.end();
      // The client may keep its side open and go on, and each of its signatures would be verified.
      stream.once('finish', () => stream.destroy());
    });
    // Malformed packets or a lost peer end only this connection.
    client.on('error', () => {});
    client.on('end', () => stream.end());
    onClient(client);
  });
  stream.on('data', () => {
    // If a client does not read our answers, we stop reading from it. Otherwise the answers would pile up.
    if (stream.writableLength > SSH_UNSENT_BYTES_HIGH && !stream.isPaused()) {
      stream.pause();
      stream.once('drain', () => stream.resume());
    }
  });
  // ssh2 accepts any Duplex, although its types say Socket.
  (server.injectSocket as (socket: Duplex) => void).call(server, stream);
}

function serveChannels(
  client: Connection,
  stream: Duplex,
  { guests, clock, budget }: SshServerDeps & { budget: BufferBudget },
): void {
  const gone = new AbortController();
  const pace = createPace(stream, client);
  const counts = { channels: new Set<WindowedChannel>(), sessions: 0, envBytes: 0 };
  const host: SessionHost = { client, guests, clock, pace, ...counts, gone: gone.signal };
  // Registered before ssh2's own close handler, which would report a clean EOF on every channel.
  client.once('close', () => gone.abort());
  client.once('ready', () => {
    client.on('session', (accept, reject) => {
      if (host.sessions >= SSH_CHANNELS_MAX) return reject();
      serveSession(accept(), host);
    });
    client.on('tcpip', (accept, reject, info) => {
      if (host.sessions >= SSH_CHANNELS_MAX) return reject();
      void serveForward({ kind: 'dial', host: info.destIP, port: info.destPort }, { open: accept, reject }, host);
    });
    serveReverse(stream, host);
  });
  budget.enter(stream, () => bufferedIn(stream, host));
  stream.on('data', () => {
    budget.grown(stream);
    // ssh2 does not stop a client that writes past its window. An honest client never does that.
    for (const channel of host.channels) if (channel.incoming.window < 0) stream.destroy();
  });
}

function bufferedIn(stream: Duplex, { channels, envBytes }: SessionHost): number {
  let bytes = stream.writableLength + envBytes;
  for (const channel of channels) bytes += channel.readableLength + channel.writableLength;
  return bytes;
}

/**
 * The algorithms that we offer. The client's order decides, and OpenSSH prefers slower ciphers, so we offer it the fast ones only. Other
 * clients may know only CTR or ChaCha20. No SHA-1, no CBC, and no compression (a client could send a memory bomb).
 */
export function algorithmsFor(ident: string): Algorithms {
  const cipher = ident.startsWith('SSH-2.0-OpenSSH_')
    ? [...GCM]
    : [...GCM, ...CTR, 'chacha20-poly1305@openssh.com' as const];
  return {
    // Dropbear guesses the method in advance. Its guess must be first here: ssh2 drops a client that guesses right in another order.
    kex: ['curve25519-sha256@libssh.org', 'curve25519-sha256', 'ecdh-sha2-nistp256'],
    serverHostKey: ['ssh-ed25519'],
    cipher,
    hmac: ['hmac-sha2-256-etm@openssh.com', 'hmac-sha2-512-etm@openssh.com', 'hmac-sha2-256', 'hmac-sha2-512'],
    compress: ['none'],
  };
}

/** Reads the client's first bytes and puts them back; resolves with an empty text if the client waits for ours. */
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

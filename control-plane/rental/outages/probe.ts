// One probe of an instance: an SSH login at its holder over a separate stream, and a check of our own public port.
//
// The separate stream matters. Strangers can fill the public port, and a tenant can fill the SSH server. Neither may decide whether an
// instance counts as running. So the control plane asks the host for a stream of the kind `probe`. The holder reserves a connection for it
// that nobody else can take. The probe makes a real key exchange and a real login over that stream.
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import ssh2 from 'ssh2';
import { generateKeyPairSync } from 'node:crypto';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Probes } from '../instances/steps.ts';
import { findRental } from '../instances/store.ts';

/** A holder answers within milliseconds, and within a second over a slow line. */
export const PROBE_MS_MAX = 5_000;
/**
 * Limit of what a host may send for one login, which takes some 2 KiB. The library signs again for each message that asks for it, so a host could
 * make this process sign all the time.
 */
const LOGIN_BYTES_MAX = 32 * 1024;
/** Short, because our own listener is on this machine or next to it. */
const LISTENER_MS_MAX = 2_000;

/** The first step that failed, in the order of the login. */
type ProbeLeg = 'stream' | 'banner' | 'host_key' | 'auth';

export type LoginResult = { ok: true } | { ok: false; leg: ProbeLeg; detail: string };

interface ProbesDeps {
  db: Pick<Db, 'read'>;
  clock: Clock;
  endpoints: Pick<Endpoints, 'find'>;
  link: Pick<Link, 'openStream'>;
  /** The address of the public ports. */
  sshHost: string;
  /** Whether this process listens at the public SSH port of the instance: otherwise, a connection reaches another program. */
  listens(instanceId: string): boolean;
}

export function openProbes({ db, clock, endpoints, link, sshHost: host, listens }: ProbesDeps): Probes {
  // Each probe tells the holder which key it uses, so the key of this process is stored nowhere.
  const { privateKey, publicLine } = newLoginKey();
  return {
    holder: async (instanceId) => {
      const { machine_id: machineId, workload_id: workloadId } = (await findRental(db.read, instanceId)) ?? {};
      const endpoint = await endpoints.find(db.read, instanceId);
      if (endpoint === undefined || !endpoint.open || machineId == null || workloadId == null)
        return { ok: false, leg: 'stream', detail: 'the instance has no SSH port' };
      const target = { kind: 'probe' as const, probe_key: publicLine };
      const login = { user: PROBE_USER, privateKey, hostKey: endpoint.host_key };
      return logIn(login, () => link.openStream(machineId, workloadId, target), clock);
    },
    listener: async (instanceId) => {
      const endpoint = listens(instanceId) ? await endpoints.find(db.read, instanceId) : undefined;
      if (endpoint !== undefined && (await isListening({ host, port: endpoint.ssh_port }, clock))) return { ok: true };
      return { ok: false, leg: 'listener', detail: 'our own public port takes no connections' };
    },
  };
}

export interface Login {
  user: string;
  /** OpenSSH private key text. */
  privateKey: string;
  /** OpenSSH line that the server must show; null if its host has not reported one. */
  hostKey: string | null;
  /** The client's identification string; by default the library's own. */
  ident?: string;
}

/**
 * Only what a holder offers. The library would also agree to compression, with which a host could send a memory bomb, and to a key exchange with
 * a group of the host's choice, which could be too large to compute with.
 */
const ALGORITHMS: ssh2.Algorithms = {
  kex: ['curve25519-sha256@libssh.org', 'curve25519-sha256', 'ecdh-sha2-nistp256'],
  serverHostKey: ['ssh-ed25519'],
  cipher: ['aes128-gcm@openssh.com', 'aes256-gcm@openssh.com'],
  compress: ['none'],
};

/** One SSH login over the stream that `openStream` opens, and nothing else. Never throws; takes at most PROBE_MS_MAX. */
export function logIn(login: Login, openStream: () => Promise<Duplex>, clock: Clock): Promise<LoginResult> {
  return new Promise((resolve) => {
    const client = new ssh2.Client();
    let leg: ProbeLeg = 'stream';
    let isOver = false;
    let opened: Duplex | undefined;
    const done = (result: LoginResult): void => {
      isOver = true;
      cancel();
      client.end();
      // The library's own `destroy` does nothing after `end`, and a host could then keep the stream and go on sending.
      opened?.destroy();
      resolve(result);
    };
    const fail = (why: string): void => done({ ok: false, leg, detail: `${leg}: ${why}` });
    const cancel = clock.after(PROBE_MS_MAX, () => fail(`no answer within ${PROBE_MS_MAX / 1000} s`));
    client.on('handshake', () => (leg = 'auth'));
    client.on('ready', () => done({ ok: true }));
    client.on('error', (error) => fail(error.message));
    client.on('close', () => fail('the connection was closed'));
    const begin = (stream: Duplex): void => {
      stream.on('error', () => stream.destroy());
      if (isOver) return void stream.destroy();
      opened = stream;
      leg = 'banner';
      let bytes = 0;
      stream.on('data', (piece: Buffer) => {
        bytes += piece.length;
        if (bytes > LOGIN_BYTES_MAX) fail(`more than ${LOGIN_BYTES_MAX / 1024} KiB came`);
      });
      client.connect({
        sock: stream as never,
        username: login.user,
        privateKey: login.privateKey,
        readyTimeout: PROBE_MS_MAX,
        keepaliveInterval: 0,
        algorithms: ALGORITHMS,
        ...(login.ident === undefined ? {} : { ident: login.ident }),
        hostVerifier: (key: Buffer) => {
          const matches = login.hostKey?.split(' ')[1] === key.toString('base64');
          if (!matches) leg = 'host_key';
          return matches;
        },
      });
    };
    openStream().then(begin, (error: unknown) => fail(messageOf(error)));
  });
}

// The keys with which probes and decoys log in: ed25519, as OpenSSH files. Each instance that begins to run gets one for its decoy, so the file is
// built here: the library that reads such files takes ten times as long to write one.

/** The user name of a probe. The holder checks only the key. */
const PROBE_USER = 'svc-probe';
const KEY_BYTES = 32;
const LINE_CHARS = /.{70}/g;

const TYPE = sshString('ssh-ed25519');
const PUBLIC_BYTES = TYPE.length + 4 + KEY_BYTES;
const COMMENT = sshString(PROBE_USER);
/** The check number, the public key, the secret key, and the comment. */
const SECRET_BYTES = 8 + PUBLIC_BYTES + 4 + 2 * KEY_BYTES + COMMENT.length;
const PADDING = Buffer.from(Array.from({ length: (8 - (SECRET_BYTES % 8)) % 8 }, (_, i) => i + 1));

/** The parts of the file around the key: it has no passphrase. The check number stands there twice; any number will do, for example 0. */
const HEAD = Buffer.concat([
  Buffer.from('openssh-key-v1\0'),
  ...['none', 'none', ''].map(sshString),
  uint32(1),
  uint32(PUBLIC_BYTES),
]);
const PUBLIC = Buffer.concat([TYPE, uint32(KEY_BYTES)]);
const SECRET = Buffer.concat([uint32(SECRET_BYTES + PADDING.length), Buffer.alloc(8)]);
const PAIR = uint32(2 * KEY_BYTES);

export interface LoginKey {
  /** OpenSSH private key text. */
  privateKey: string;
  /** OpenSSH public key line. */
  publicLine: string;
}

export function newLoginKey(): LoginKey {
  const { x = '', d = '' } = generateKeyPairSync('ed25519').privateKey.export({ format: 'jwk' });
  const [key, seed] = [Buffer.from(x, 'base64url'), Buffer.from(d, 'base64url')];
  const file = Buffer.concat([HEAD, PUBLIC, key, SECRET, PUBLIC, key, PAIR, seed, key, COMMENT, PADDING]);
  const lines = file.toString('base64').replaceAll(LINE_CHARS, '$&\n');
  return {
    privateKey: `-----BEGIN OPENSSH PRIVATE KEY-----\n${lines}\n-----END OPENSSH PRIVATE KEY-----\n`,
    publicLine: `ssh-ed25519 ${Buffer.concat([PUBLIC, key]).toString('base64')} ${PROBE_USER}`,
  };
}

/** Whether our own public port accepts connections. Never throws; takes at most LISTENER_MS_MAX. */
function isListening(address: { host: string; port: number }, clock: Clock): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    const done = (listens: boolean): void => {
      cancel();
      // A reset shows our relay at once that the client is gone, so it does not ask the host for a stream.
      socket.resetAndDestroy();
      resolve(listens);
    };
    const cancel = clock.after(LISTENER_MS_MAX, () => done(false));
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
  });
}

/** RFC 4251, section 5: the length before the bytes. */
function sshString(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([uint32(bytes.length), bytes]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

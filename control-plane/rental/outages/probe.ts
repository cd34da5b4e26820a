// One look at an instance: a login at the SSH server of its holder on a way of its own, and a look at our own public port.
//
// The way of its own matters. Strangers can fill the public port, and a tenant can fill the SSH server; neither may decide whether a
// rental counts as running. So the control plane asks the host for a stream of the kind `probe`, which ends at a place that nobody else
// can take, and makes a real key exchange and a real login over it.
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import ssh2 from 'ssh2';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { Endpoints, ProbeKey } from '../endpoints/endpoints.ts';
import type { Probes } from '../instances/steps.ts';
import { findInstance } from '../instances/store.ts';

/** The name that a probe logs in with; only its key counts. */
const PROBE_USER = 'svc-probe';
/** A holder answers within some milliseconds, a slow line within a second. */
export const PROBE_MS_MAX = 5_000;
/** Our own listener, on this machine or beside it. */
const LISTENER_MS_MAX = 2_000;

/** The first leg that failed, in the order in which they are passed. */
type ProbeLeg = 'stream' | 'banner' | 'host_key' | 'auth';

export type LoginResult = { ok: true } | { ok: false; leg: ProbeLeg; detail: string };

interface ProbesDeps {
  db: Pick<Db, 'read'>;
  clock: Clock;
  endpoints: Pick<Endpoints, 'find'>;
  link: Pick<Link, 'openStream'>;
  /** The address of the public ports. */
  sshHost: string;
}

export function openProbes({ db, clock, endpoints, link, sshHost: host }: ProbesDeps): Probes {
  return {
    holder: async (instanceId) => {
      const { machine_id: machineId, workload_id: workloadId } = (await findInstance(db.read, instanceId)) ?? {};
      const endpoint = await endpoints.find(db.read, instanceId);
      if (endpoint === undefined || !endpoint.open || machineId == null || workloadId == null)
        return { ok: false, leg: 'stream', detail: 'the instance has no SSH port' };
      const target = { kind: 'probe' as const, probe_key: endpoint.probe_public_key };
      const login = { user: PROBE_USER, privateKey: endpoint.probe_private_key, hostKey: endpoint.host_key };
      return logIn(login, () => link.openStream(machineId, workloadId, target), clock);
    },
    listener: async (instanceId) => {
      const endpoint = await endpoints.find(db.read, instanceId);
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
  /** What the client says it is; left out, the library's own name. */
  ident?: string;
}

/** One SSH login over the stream that `openStream` opens, and nothing else. Never throws; takes at most PROBE_MS_MAX. */
export function logIn(login: Login, openStream: () => Promise<Duplex>, clock: Clock): Promise<LoginResult> {
  return new Promise((resolve) => {
    const client = new ssh2.Client();
    let leg: ProbeLeg = 'stream';
    let isOver = false;
    const done = (result: LoginResult): void => {
      isOver = true;
      cancel();
      client.end();
      client.destroy();
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
      leg = 'banner';
      client.connect({
        sock: stream as never,
        username: login.user,
        privateKey: login.privateKey,
        readyTimeout: PROBE_MS_MAX,
        keepaliveInterval: 0,
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

/** Whether our own public port takes connections. Never throws; takes at most LISTENER_MS_MAX. */
function isListening(address: { host: string; port: number }, clock: Clock): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(address);
    const done = (listens: boolean): void => {
      cancel();
      // Reset: whoever relays it sees at once that nobody is there, and asks no host for a stream.
      socket.resetAndDestroy();
      resolve(listens);
    };
    const cancel = clock.after(LISTENER_MS_MAX, () => done(false));
    socket.once('connect', () => done(true));
    socket.once('error', () => done(false));
  });
}

/** A fresh key for one endpoint. */
export function newProbeKey(): ProbeKey {
  // ssh2 drops leading zeros of a public key, so one pair in 256 cannot be read by anyone: then another is made.
  for (;;) {
    const pair = ssh2.utils.generateKeyPairSync('ed25519', { comment: PROBE_USER });
    if (ssh2.utils.parseKey(pair.private) instanceof Error) continue;
    return { privateKey: pair.private, publicLine: pair.public };
  }
}

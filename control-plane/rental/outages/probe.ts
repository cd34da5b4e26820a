// One probe of an instance: an SSH login at its holder over a separate stream, and a check of our own public port.
//
// The separate stream matters. Strangers can fill the public port, and a tenant can fill the SSH server. Neither may decide whether an
// instance counts as running. So the control plane asks the host for a stream of the kind `probe`. The holder reserves a connection for it
// that nobody else can take. The probe makes a real key exchange and a real login over that stream.
import { connect } from 'node:net';
import type { Duplex } from 'node:stream';
import ssh2 from 'ssh2';
import type { Clock } from '../../../shared/clock.ts';
import { messageOf } from '../../../shared/errors.ts';
import type { Db } from '../../base/db/db.ts';
import type { Link } from '../../fleet/link/link.ts';
import type { Endpoints } from '../endpoints/endpoints.ts';
import type { Probes } from '../instances/steps.ts';
import { findInstance } from '../instances/store.ts';
import { PROBE_USER } from './probe-keys.ts';

/** A holder answers within milliseconds, and within a second over a slow line. */
export const PROBE_MS_MAX = 5_000;
/** Short, because our own listener is on this machine or next to it. */
const LISTENER_MS_MAX = 2_000;

/** The first step that failed, in the order of the login. */
type ProbeLeg = 'stream' | 'banner' | 'host_key' | 'auth';

export type LoginResult = { ok: true } | { ok: false; leg: ProbeLeg; detail: string };

interface ProbesDeps {
  db: Pick<Db, 'read'>;
  clock: Clock;
  endpoints: Pick<Endpoints, 'find' | 'probePrivateKey'>;
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
      const login = { user: PROBE_USER, privateKey: endpoints.probePrivateKey(endpoint), hostKey: endpoint.host_key };
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
  /** The client's identification string; by default the library's own. */
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

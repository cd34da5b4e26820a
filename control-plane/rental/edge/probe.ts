// One end-to-end look at an instance's SSH door: the public port, a real key exchange, the expected host key, a real login.
import ssh2 from 'ssh2';
import type { Clock } from '../../../shared/clock.ts';
import type { Door, ProbeKey } from '../doors/doors.ts';

/** The user that may only authenticate. */
const PROBE_USER = 'svc-probe';
const PROBE_MS_MAX = 10_000;

/** The first leg that failed, in the order in which they are passed. */
export type ProbeLeg = 'tcp' | 'banner' | 'host_key' | 'auth';

export type DoorProbe = { ok: true } | { ok: false; leg: ProbeLeg; detail: string };

/** Never throws; takes at most PROBE_MS_MAX. */
export function probeDoor(door: Door, host: string, clock: Clock): Promise<DoorProbe> {
  return new Promise((resolve) => {
    const client = new ssh2.Client();
    let leg: ProbeLeg = 'tcp';
    const done = (result: DoorProbe): void => {
      cancel();
      client.end();
      client.destroy();
      resolve(result);
    };
    const cancel = clock.after(PROBE_MS_MAX, () =>
      done({ ok: false, leg, detail: `no answer within ${PROBE_MS_MAX / 1000} s (${leg})` }),
    );
    client.on('connect', () => (leg = 'banner'));
    client.on('handshake', () => (leg = 'auth'));
    client.on('ready', () => done({ ok: true }));
    client.on('error', (error) => done({ ok: false, leg, detail: `${leg}: ${error.message}` }));
    client.on('close', () => done({ ok: false, leg, detail: `${leg}: the connection was closed` }));
    client.connect({
      host,
      port: door.ssh_port,
      username: PROBE_USER,
      privateKey: door.probe_private_key,
      readyTimeout: PROBE_MS_MAX,
      keepaliveInterval: 0,
      hostVerifier: (key: Buffer) => {
        const matches = door.host_key?.split(' ')[1] === key.toString('base64');
        if (!matches) leg = 'host_key';
        return matches;
      },
    });
    // A login is a dozen small messages: without this each waits for the acknowledgement of the one before.
    client.setNoDelay(true);
  });
}

/** A fresh key for one door. */
export function newProbeKey(): ProbeKey {
  // ssh2 drops leading zeros of a public key, so one pair in 256 cannot be read by anyone: then another is made.
  for (;;) {
    const pair = ssh2.utils.generateKeyPairSync('ed25519', { comment: PROBE_USER });
    if (ssh2.utils.parseKey(pair.private) instanceof Error) continue;
    return { privateKey: pair.private, publicLine: pair.public };
  }
}

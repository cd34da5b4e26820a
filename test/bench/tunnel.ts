// The tunnel against OpenSSH's reverse tunnel: throughput both ways, round trip, and what stalled readers do to others.
//
// Four processes at a time share the machine: client and target (ours, with large buffers) and the two that carry the bytes.
// `no tunnel` is what client and target reach by themselves.
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runProgram } from '../kit/processes.ts';
import { installMissing, requireProgram } from '../kit/setup.ts';
import { median, report, shuffled, type Target } from './measure.ts';
import { memoryMb, type Chain } from './tunnel/chain.ts';
import { openSshTunnel } from './tunnel/open-ssh.ts';
import { openOwnTunnel, type Certificate } from './tunnel/own.ts';
import { startSide, type Side } from './side.ts';

const ROUNDS = 7;
const BYTES = 384e6;
const ECHOES = 3000;
const WARM_BYTES = 128e6;
const STALLED_READERS = 20;
const STALLED_ROUNDS = 3;

const PEER = 'OpenSSH -R';
const MEASURES = ['download', 'upload', 'echo'] as const;
type Measure = (typeof MEASURES)[number];
type Way = 'plain' | 'TLS' | typeof PEER | 'no tunnel';
type Figures = Map<string, number[]>;

const TARGETS: Record<'plain' | 'TLS', Record<Measure, Target | undefined>> = {
  plain: {
    download: { rule: 'at least', ratio: 0.75 },
    upload: { rule: 'at least', ratio: 0.75 },
    echo: { rule: 'at most', ratio: 1.3 },
  },
  TLS: {
    download: { rule: 'at least', ratio: 0.6 },
    upload: { rule: 'at least', ratio: 0.6 },
    echo: { rule: 'at most', ratio: 1.3 },
  },
};

const WHAT: Record<Measure, { name: string; unit: string }> = {
  download: { name: 'host to user', unit: 'MB/s' },
  upload: { name: 'user to host', unit: 'MB/s' },
  echo: { name: 'round trip of 64 bytes, p50', unit: 'us' },
};

export async function benchTunnel(): Promise<void> {
  const missing = installMissing(['ssh', 'sshd', 'openssl'], console.log);
  if (missing.length > 0) return console.log(`tunnel: not measured, ${missing.join(', ')} is missing here`);
  const dir = mkdtempSync(join(tmpdir(), 'bench-tunnel-'));
  const client = await startSide(new URL('./tunnel/client.ts', import.meta.url));
  const target = await startSide(new URL('./tunnel/target.ts', import.meta.url));
  try {
    const { port = 0 } = await target.ask({ kind: 'port' });
    const opener = openerOf(dir, port, await makeCertificate(dir));
    await benchSpeed(client, opener);
    await benchStalled(client, opener);
  } finally {
    await Promise.all([client.stop(), target.stop()]);
    rmSync(dir, { recursive: true });
  }
}

type Opener = (way: Way) => Promise<Chain>;

function openerOf(dir: string, targetPort: number, certificate: Certificate): Opener {
  let serial = 0;
  return async (way) => {
    switch (way) {
      case 'plain':
        return openOwnTunnel(targetPort);
      case 'TLS':
        return openOwnTunnel(targetPort, certificate);
      case PEER: {
        const own = join(dir, `ssh-${(serial += 1)}`);
        mkdirSync(own);
        return openSshTunnel(own, targetPort);
      }
      case 'no tunnel':
        return { port: targetPort, pids: [], close: async () => undefined };
    }
  };
}

async function benchSpeed(client: Side, open: Opener): Promise<void> {
  const ways = ['plain', 'TLS', PEER, 'no tunnel'] as const;
  const chains = new Map<Way, Chain>();
  for (const way of ways) chains.set(way, await open(way));
  const figures: Figures = new Map();
  for (const [, { port }] of chains) await warmUp(client, port);
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const [way, { port }] of shuffled([...chains])) {
      for (const measure of MEASURES) note(figures, `${way} ${measure}`, await take(client, measure, port));
    }
  }
  await Promise.all([...chains.values()].map((chain) => chain.close()));
  const of = (way: Way, measure: Measure): number => median(figures.get(`${way} ${measure}`) ?? []);
  for (const way of ['plain', 'TLS'] as const) {
    for (const measure of MEASURES) {
      const target = TARGETS[way][measure];
      report({
        what: `tunnel ${way}, ${WHAT[measure].name}`,
        ours: of(way, measure),
        peer: of(PEER, measure),
        peerName: PEER,
        unit: WHAT[measure].unit,
        ...(target === undefined ? {} : { target }),
      });
    }
  }
  const alone = MEASURES.map((measure) => `${of('no tunnel', measure).toFixed(0)} ${WHAT[measure].unit}`);
  console.log(`  client and target without a tunnel: ${alone.join(', ')}`);
}

/** New processes each time, because memory growth shows only once in a process. */
async function benchStalled(client: Side, open: Opener): Promise<void> {
  const figures: Figures = new Map();
  for (let round = 0; round < STALLED_ROUNDS; round += 1) {
    for (const way of shuffled(['plain', 'TLS', PEER] as const)) {
      const chain = await open(way);
      await warmUp(client, chain.port);
      const before = memoryMb(chain);
      await client.ask({ kind: 'stall', port: chain.port, amount: STALLED_READERS });
      note(figures, `${way} echo`, await take(client, 'echo', chain.port));
      note(figures, `${way} growth`, memoryMb(chain) - before);
      await client.ask({ kind: 'release' });
      await chain.close();
    }
  }
  const of = (way: Way, figure: string): number => median(figures.get(`${way} ${figure}`) ?? []);
  for (const way of ['plain', 'TLS'] as const) {
    const what = `tunnel ${way} beside ${STALLED_READERS} stalled readers`;
    const figure = (name: string): { ours: number; peer: number } => ({ ours: of(way, name), peer: of(PEER, name) });
    report({ what: `${what}, ${WHAT.echo.name}`, ...figure('echo'), peerName: PEER, unit: 'us' });
    report({ what: `${what}, memory growth`, ...figure('growth'), peerName: PEER, unit: 'MB' });
  }
}

async function take(client: Side, measure: Measure, port: number): Promise<number> {
  const amount = measure === 'echo' ? ECHOES : BYTES;
  const { mbPerSecond, p50Us } = await client.ask({ kind: measure, port, amount });
  return mbPerSecond ?? p50Us ?? Number.NaN;
}

async function warmUp(client: Side, port: number): Promise<void> {
  await client.ask({ kind: 'download', port, amount: WARM_BYTES });
  await client.ask({ kind: 'upload', port, amount: WARM_BYTES });
  await client.ask({ kind: 'echo', port, amount: ECHOES });
}

function note(figures: Figures, name: string, value: number): void {
  figures.set(name, [...(figures.get(name) ?? []), value]);
}

async function makeCertificate(dir: string): Promise<Certificate> {
  const made = { cert: join(dir, 'cert.pem'), key: join(dir, 'key.pem') };
  const how = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1';
  await runProgram({
    command: requireProgram('openssl'),
    args: [...how.split(' '), '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', made.key, '-out', made.cert],
  });
  return made;
}

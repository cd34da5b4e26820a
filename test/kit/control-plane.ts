// The real control plane as a child process on embedded SQLite or on PostgreSQL, and its operator's command line.
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { once } from 'node:events';
import { join, resolve } from 'node:path';
import { makeCertificate } from './certificate.ts';
import { capture, type Captured } from './capture.ts';
import { openDaemon, type Daemon } from './daemon.ts';
import { freePort } from './processes.ts';

export interface ControlPlane {
  daemon: Daemon;
  /** Of the public API; ends with /v1. */
  baseUrl: string;
  /** What agents are told. */
  agentUrl: string;
  configPath: string;
  databaseFile: string;
  /** PEM of the certificate of applications. */
  appCertificate: string;
  /** Ports that instances are reached at. */
  sshPorts: { first: number; last: number };
  /** Runs `svc-control-plane <argv> --json` and returns what it printed. Throws with its message where it fails. */
  operator(...argv: string[]): Promise<unknown>;
}

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');
const SSH_PORTS = 8;
const APP_DOMAIN = 'apps.localhost';

/** What the control plane is told of the world around it. */
export interface Surroundings {
  postgresUrl: string | undefined;
  /** `host:port` of registries on the loopback interface that speak plain HTTP. */
  registries: readonly string[];
}

/** Writes its configuration below `dir` and starts it. `dir` is new and short: unix socket paths are limited. */
export async function startControlPlane(dir: string, { postgresUrl, registries }: Surroundings): Promise<ControlPlane> {
  mkdirSync(dir, { mode: 0o700 });
  const configPath = join(dir, 'control-plane.yaml');
  const databaseFile = join(dir, 'control-plane.db');
  const port = await freePort();
  const [sshPorts, appPort] = [await freePortRange(SSH_PORTS), await freePort()];
  const agentUrl = `http://127.0.0.1:${port}`;
  const baseUrl = `${agentUrl}/v1`;
  const { cert, ...tls } = writeCertificate(dir);
  const config = {
    listen: { host: '127.0.0.1', port },
    base_url: baseUrl,
    database: postgresUrl === undefined ? { sqlite: databaseFile } : { postgres: postgresUrl },
    admin_socket: join(dir, 'admin.sock'),
    secret_file: join(dir, 'secret'),
    images: { private_registries: registries.map((host) => ({ host, plain_http: true })) },
    ssh: { host: '127.0.0.1', domain: 'ssh.localhost', port_range: sshPorts },
    apps: {
      domain: APP_DOMAIN,
      listen: { host: '127.0.0.1', port: appPort },
      public_port: appPort,
      tls,
    },
  };
  // JSON is YAML.
  writeFileSync(configPath, JSON.stringify(config, undefined, 2));
  const daemon = openDaemon({
    name: 'the control plane',
    argv: [process.execPath, LAUNCHER, 'serve', '--config', configPath],
    logPath: join(dir, 'control-plane.log'),
    ready: async () => (await fetch(`${agentUrl}/readyz`, { signal: AbortSignal.timeout(1000) })).ok,
  });
  await daemon.start();
  const operator = async (...argv: string[]): Promise<unknown> => {
    const line = [process.execPath, LAUNCHER, ...argv, '--config', configPath, '--json'];
    return JSON.parse(outputOf(await capture(line), argv));
  };
  return { daemon, baseUrl, agentUrl, appCertificate: cert, configPath, databaseFile, sshPorts, operator };
}

/** For all host names of applications. */
function writeCertificate(dir: string): { cert: string; certificate_file: string; key_file: string } {
  const { cert, key } = makeCertificate([`DNS:*.${APP_DOMAIN}`]);
  const [certificateFile, keyFile] = [join(dir, 'apps.pem'), join(dir, 'apps.key')];
  writeFileSync(certificateFile, cert);
  writeFileSync(keyFile, key, { mode: 0o600 });
  return { cert, certificate_file: certificateFile, key_file: keyFile };
}

function outputOf({ code, stdout, stderr }: Captured, argv: readonly string[]): string {
  if (code === 0) return stdout.toString();
  throw new Error(`svc-control-plane ${argv.join(' ')} ended with ${code}: ${stderr.trim()}`);
}

/** Ports below the range from which the system takes the ports of outgoing connections, free a moment ago. */
async function freePortRange(count: number): Promise<{ first: number; last: number }> {
  for (let tries = 0; tries < 50; tries += 1) {
    const first = 20_000 + Math.floor((Math.random() * 12_000) / count) * count;
    const ports = Array.from({ length: count }, (_, i) => first + i);
    const free = await Promise.all(ports.map(isFree));
    if (free.every(Boolean)) return { first, last: first + count - 1 };
  }
  throw new Error(`no ${count} free ports in a row on this machine`);
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer();
  try {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    server.close();
  }
}

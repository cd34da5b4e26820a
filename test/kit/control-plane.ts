// The real control plane as a child process on embedded SQLite or on PostgreSQL, and its operator's command line.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { get } from 'node:http';
import { get as getSecurely } from 'node:https';
import { join, resolve } from 'node:path';
import { askDaemon, type CommandDeps } from '../../control-plane/admin/command.ts';
import type { TlsFiles } from '../../control-plane/base/http/tls.ts';
import { operatorName } from '../../control-plane/config.ts';
import { systemClock } from '../../shared/clock.ts';
import { type Authority, type Certificate, makeCertificate } from './certificate.ts';
import { capture, type Captured } from './capture.ts';
import { openDaemon, type Daemon } from './daemon.ts';
import { runOperatorProgram } from './operator-program.ts';
import { freePort, freePorts } from './ports.ts';

export interface ControlPlane {
  daemon: Daemon;
  /** The address of the public API; it ends with /v1. */
  baseUrl: string;
  /** The address that agents enrol at. */
  agentUrl: string;
  configPath: string;
  databaseFile: string;
  /** The files of the API's certificate, if it has one. */
  apiTls: TlsFiles | undefined;
  /** PEM of the certificate of applications. */
  appCertificate: string;
  /** Ports that instances are reached at. */
  sshPorts: { first: number; last: number };
  /**
   * What `svc-control-plane <argv> --json` prints. Throws with its message if it fails. If the daemon can answer, the command runs in this process
   * and asks it over its socket: there are hundreds of them, and each start of Node would take a third of a second of a processor.
   */
  operator(...argv: string[]): Promise<unknown>;
}

const LAUNCHER = resolve(import.meta.dirname, '../../control-plane/svc-control-plane.js');
const SSH_PORTS = 8;
const APP_DOMAIN = 'apps.localhost';
/** What a certificate of the API must be good for. */
export const API_NAMES = ['IP:127.0.0.1', 'DNS:localhost'];

/** Settings for the surroundings of the control plane. */
export interface Surroundings {
  postgresUrl: string | undefined;
  /** `host:port` of registries on the loopback interface that speak plain HTTP. */
  registries: readonly string[];
  /** Left out, the API speaks plain HTTP. */
  authority: Authority | undefined;
  /** The host of `base_url`; by default 127.0.0.1. Passkeys need a name. */
  hostname?: string | undefined;
  /** Further keys of its configuration. */
  settings: object;
  /** The beginning of its command line; by default the one of this checkout. */
  program?: readonly string[] | undefined;
}

/** Writes its configuration below `dir` and starts it. `dir` is new and short: unix socket paths are limited. */
export async function startControlPlane(dir: string, around: Surroundings): Promise<ControlPlane> {
  const { postgresUrl, registries, authority, hostname = '127.0.0.1', settings } = around;
  const { program = [process.execPath, LAUNCHER] } = around;
  mkdirSync(dir, { mode: 0o700 });
  const configPath = join(dir, 'control-plane.yaml');
  const databaseFile = join(dir, 'control-plane.db');
  const port = await freePort();
  const [sshPorts, appPort] = [await freePorts(SSH_PORTS), await freePort()];
  const apiTls = authority === undefined ? undefined : writePair(dir, 'api', authority.issue(API_NAMES));
  const scheme = apiTls === undefined ? 'http' : 'https';
  const agentUrl = `${scheme}://127.0.0.1:${port}`;
  const baseUrl = `${scheme}://${hostname}:${port}/v1`;
  const appCertificate = makeCertificate([`DNS:*.${APP_DOMAIN}`]);
  const config = {
    listen: { host: '127.0.0.1', port },
    tls: apiTls,
    base_url: baseUrl,
    database: postgresUrl === undefined ? { sqlite: databaseFile } : { postgres: postgresUrl },
    admin_socket: join(dir, 'admin.sock'),
    secret_file: join(dir, 'secret'),
    // The disk of this machine may be nearly full.
    disk_reserve: { percent: 0, gib: 0 },
    images: { private_registries: registries.map((host) => ({ host, plain_http: true })) },
    ssh: { host: '127.0.0.1', domain: 'ssh.localhost', port_range: sshPorts },
    apps: {
      domain: APP_DOMAIN,
      listen: { host: '127.0.0.1', port: appPort },
      public_port: appPort,
      tls: writePair(dir, 'apps', appCertificate),
    },
    ...settings,
  };
  // JSON is YAML.
  writeFileSync(configPath, JSON.stringify(config, undefined, 2));
  const daemon = openDaemon({
    name: 'the control plane',
    argv: [...program, 'serve', '--config', configPath],
    logPath: join(dir, 'control-plane.log'),
    ready: () => answersWell(`${agentUrl}/readyz`, authority?.cert),
  });
  await daemon.start();
  const operator = async (...argv: string[]): Promise<unknown> => {
    const isProgram = around.program !== undefined || daemon.pid() === 0 || isOwnWork(argv);
    if (!isProgram) return JSON.parse(await runOperatorProgram(openCommands(config.admin_socket), [...argv, '--json']));
    const line = [...program, ...argv, '--config', configPath, '--json'];
    return JSON.parse(outputOf(await capture(line), argv));
  };
  return {
    daemon,
    baseUrl,
    agentUrl,
    apiTls,
    appCertificate: appCertificate.cert,
    configPath,
    databaseFile,
    sshPorts,
    operator,
  };
}

/** Commands that open files of the control plane themselves. */
function isOwnWork([first, second]: readonly string[]): boolean {
  return first === 'restore' || second === 'backup';
}

function openCommands(adminSocket: string): Omit<CommandDeps, 'print'> {
  return {
    ask: async (_config, request) => {
      const headers = { ...request.headers, 'svc-operator': operatorName() };
      const answer = await askDaemon(adminSocket, { ...request, headers });
      if (answer === undefined) throw new Error('no daemon listens on the socket of the operator');
      return answer;
    },
    backup: () => Promise.reject(new Error('this process makes no backup')),
    readFile: (file) => readFileSync(file, 'utf8'),
    now: systemClock().now,
  };
}

function writePair(dir: string, name: string, { cert, key }: Certificate): TlsFiles {
  const files = { certificate_file: join(dir, `${name}.pem`), key_file: join(dir, `${name}.key`) };
  writeFileSync(files.certificate_file, cert);
  writeFileSync(files.key_file, key, { mode: 0o600 });
  return files;
}

function outputOf({ code, stdout, stderr }: Captured, argv: readonly string[]): string {
  if (code === 0) return stdout.toString();
  throw new Error(`svc-control-plane ${argv.join(' ')} ended with ${code}: ${stderr.trim()}`);
}

/** Whether it answers 200 within a second. */
function answersWell(url: string, ca: string | undefined): Promise<boolean> {
  const ask = url.startsWith('https:') ? getSecurely : get;
  return new Promise((resolvePromise, reject) => {
    const asked = ask(url, { ca, agent: false, signal: AbortSignal.timeout(1000) }, (response) => {
      response.resume();
      resolvePromise(response.statusCode === 200);
    });
    asked.once('error', reject);
  });
}

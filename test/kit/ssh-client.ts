// The real OpenSSH client, against a port of this machine or the endpoint of an instance. It reads nothing from ~/.ssh.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Instance } from '../../shared/api/instance.ts';
import { capture, type Captured, type CaptureOptions } from './capture.ts';
import { startProgram, type Program } from './processes.ts';
import { requireProgram } from './setup.ts';

export interface SshIdentity {
  keyFile: string;
  /** One line in OpenSSH format. */
  publicKey: string;
}

export interface SshTarget {
  port: number;
  keyFile: string;
  /** The name of the server and the file with its host key. Without them the client accepts any host key at 127.0.0.1. */
  server?: { hostname: string; knownHostsFile: string };
}

export interface SshClient {
  /** `ssh <options> root@host`: append a command, or nothing for a shell. */
  argv(options?: readonly string[]): [string, ...string[]];
  /** Starts a command over there that stays; its input is open. */
  start(command: string): Program;
  /** Runs a command over there. */
  run(command: string, how?: CaptureOptions): Promise<Captured>;
}

/** A new ed25519 key without passphrase in `dir`. */
export async function makeIdentity(dir: string, name: string): Promise<SshIdentity> {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const keyFile = join(dir, name);
  const made = await capture(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', name, '-f', keyFile]);
  if (made.code !== 0) throw new Error(`ssh-keygen failed: ${made.stderr}`);
  return { keyFile, publicKey: readFileSync(`${keyFile}.pub`, 'utf8').trim() };
}

/** What `ssh`, `scp` and `sftp` take before the host. The first value of a setting counts, so `options` win. */
export function sshArgs({ port, keyFile, server }: SshTarget, options: readonly string[] = []): string[] {
  const trust =
    server === undefined
      ? // At other levels the client warns of each new host key.
        ['StrictHostKeyChecking=no', 'UserKnownHostsFile=/dev/null', 'LogLevel=ERROR']
      : [
          'StrictHostKeyChecking=yes',
          `UserKnownHostsFile=${server.knownHostsFile}`,
          'GlobalKnownHostsFile=/dev/null',
          // Not every system resolves names below `localhost`; the host key stays bound to the name.
          'HostName=127.0.0.1',
          `HostKeyAlias=[${server.hostname}]:${port}`,
        ];
  const settings = [...trust, 'IdentitiesOnly=yes', 'BatchMode=yes', 'ConnectTimeout=15'];
  return ['-F', 'none', ...options, ...settings.flatMap((one) => ['-o', one]), '-i', keyFile, '-p', String(port)];
}

/** Runs a command over there. `options` are further options of `ssh`. */
export function ssh(
  target: SshTarget,
  command: string,
  { options, ...how }: CaptureOptions & { options?: readonly string[] } = {},
): Promise<Captured> {
  return capture([...sshArgv(target, options), command], { timeoutMs: 120_000, ...how });
}

/** Throws if the instance has no endpoint yet. The host key is checked: a wrong one ends the connection. */
export function openSshClient(instance: Instance, { keyFile }: SshIdentity): SshClient {
  const { hostname, port, host_key: hostKey } = instance.connection ?? {};
  if (hostname === undefined || port === undefined || hostKey === undefined) {
    throw new Error(`instance ${instance.id} is ${instance.status} and has no endpoint`);
  }
  const knownHostsFile = `${keyFile}.known_hosts.${instance.id}`;
  writeFileSync(knownHostsFile, `[${hostname}]:${port} ${hostKey}\n`);
  const target = { port, keyFile, server: { hostname, knownHostsFile } };
  return {
    argv: (options) => sshArgv(target, options),
    start: (command) => {
      const [program, ...args] = sshArgv(target);
      return startProgram({ command: program, args: [...args, command], stdin: 'pipe' });
    },
    run: (command, how) => ssh(target, command, how),
  };
}

function sshArgv(target: SshTarget, options?: readonly string[]): [string, ...string[]] {
  return [requireProgram('ssh'), ...sshArgs(target, options), `root@${target.server?.hostname ?? '127.0.0.1'}`];
}

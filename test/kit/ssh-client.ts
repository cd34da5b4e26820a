// The real OpenSSH client against an instance's endpoint, with the host key that the API published and nothing from ~/.ssh.
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

export interface SshClient {
  /** `ssh <options> root@host`: append a command, or nothing for a shell. `more` are further options. */
  argv(more?: readonly string[]): [string, ...string[]];
  /** Starts a command over there that stays; its input is open. */
  start(command: string): Program;
  /** Runs a command over there. */
  run(command: string, options?: CaptureOptions): Promise<Captured>;
}

/** A new ed25519 key without passphrase in `dir`. */
export async function makeIdentity(dir: string, name: string): Promise<SshIdentity> {
  mkdirSync(dir, { recursive: true, mode: 0o700 });
  const keyFile = join(dir, name);
  const made = await capture(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', name, '-f', keyFile]);
  if (made.code !== 0) throw new Error(`ssh-keygen failed: ${made.stderr}`);
  return { keyFile, publicKey: readFileSync(`${keyFile}.pub`, 'utf8').trim() };
}

/** Throws if the instance has no endpoint yet. The host key is checked: a wrong one ends the connection. */
export function openSshClient(instance: Instance, identity: SshIdentity): SshClient {
  const { hostname, port, host_key: hostKey } = instance.connection ?? {};
  if (hostname === undefined || port === undefined || hostKey === undefined) {
    throw new Error(`instance ${instance.id} is ${instance.status} and has no endpoint`);
  }
  const knownHosts = `${identity.keyFile}.known_hosts.${instance.id}`;
  writeFileSync(knownHosts, `[${hostname}]:${port} ${hostKey}\n`);
  const options = [
    'StrictHostKeyChecking=yes',
    `UserKnownHostsFile=${knownHosts}`,
    'GlobalKnownHostsFile=/dev/null',
    'IdentitiesOnly=yes',
    'BatchMode=yes',
    'ConnectTimeout=10',
    // Not every system resolves names below `localhost`; the host key stays bound to the name.
    'HostName=127.0.0.1',
    `HostKeyAlias=[${hostname}]:${port}`,
  ];
  const argv = (more: readonly string[] = []): [string, ...string[]] => [
    requireProgram('ssh'),
    '-F',
    'none',
    '-i',
    identity.keyFile,
    '-p',
    String(port),
    ...options.flatMap((option) => ['-o', option]),
    ...more,
    `root@${hostname}`,
  ];
  const [ssh, ...args] = argv();
  return {
    argv,
    start: (command) => startProgram({ command: ssh, args: [...args, command], stdin: 'pipe' }),
    run: (command, more) => capture([ssh, ...args, command], more),
  };
}

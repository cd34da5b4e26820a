// `svc ssh`, `svc cp` and `svc open`: the system's own programs, with the host key that the API publishes.
import { mkdirSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import type { Client } from './client.ts';
import { replaceFile } from './config.ts';
import { type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, SvcError } from './exit.ts';
import { resolveName } from './names.ts';

const Instance = z.looseObject({
  status: z.string(),
  status_reason: z.string().nullish(),
  connection: z
    .looseObject({
      hostname: z.string(),
      port: z.int(),
      ssh_command: z.string(),
      host_key: z.string(),
      app_url: z.string().nullish(),
      terminal_url: z.string().nullish(),
    })
    // If there is no SSH endpoint, there is nothing to connect to yet.
    .nullable()
    .catch(null),
});
type Connection = NonNullable<z.infer<typeof Instance>['connection']>;

/** An instance that has an SSH endpoint. */
interface Reached {
  id: string;
  status: string;
  connection: Connection;
}

interface CopyOptions extends CommonOptions {
  recursive?: boolean;
  identity?: string;
}

const ANSWER_MS = 5_000;
const USER = /^[a-z_][\w.-]*$/i;
const HOST = /^[a-z0-9][\w.:-]*$/i;

export function addSshCommands(program: Command, deps: SvcDeps): void {
  withCommon(program.command('ssh <id> [args...]'))
    .description('log in to an instance, by id or name; what follows is passed on to ssh')
    .passThroughOptions()
    .action(async (name: string, args: string[], options: CommonOptions) => {
      const { connection } = await connectionOf(signedIn(deps, options), name);
      const own = ['-p', String(connection.port), ...hostKeyOptions(connection, deps)];
      await exec('ssh', [...own, `${userOf(connection)}@${connection.hostname}`, ...args], deps);
    });
  withCommon(program.command('cp <source> <target>'))
    .description('copy files to or from an instance; <id>:<path> is a path there')
    .option('-r, --recursive', 'whole folders')
    .option('-i, --identity <file>', 'the private key to log in with, if ssh does not try it by itself')
    .action(async (source: string, target: string, options: CopyOptions) => {
      const name = remoteName(source) ?? remoteName(target);
      if (name === undefined || (remoteName(source) !== undefined && remoteName(target) !== undefined)) {
        const message = 'one of the two paths must be on an instance, such as my-instance:/data';
        throw new SvcError(EXIT.usage, { code: 'usage', message });
      }
      const { connection } = await connectionOf(signedIn(deps, options), name);
      const { hostname } = connection;
      // scp would take the colons of an IPv6 address for the end of the host.
      const there = `${userOf(connection)}@${hostname.includes(':') ? `[${hostname}]` : hostname}:`;
      const paths = [source, target].map((path) =>
        remoteName(path) === undefined ? path : there + path.slice(path.indexOf(':') + 1),
      );
      const own = ['-P', String(connection.port), ...hostKeyOptions(connection, deps)];
      const how = [
        ...(options.recursive === true ? ['-r'] : []),
        ...(options.identity === undefined ? [] : ['-i', options.identity]),
      ];
      await exec('scp', [...own, ...how, ...paths], deps);
    });
  withCommon(program.command('open <id>'))
    .description('print the address of the application of an instance, and show it in a browser')
    .option('--terminal', 'its browser console instead')
    .action(async (name: string, options: CommonOptions & { terminal?: boolean }) => {
      const reached = await connectionOf(signedIn(deps, options), name);
      const { terminal_url: terminalUrl, app_url: appUrl } = reached.connection;
      const url = options.terminal === true ? terminalUrl : appUrl;
      if (url === null || url === undefined) throw options.terminal === true ? noTerminal(reached) : noApp(reached);
      if (!/^https?:/.test(url)) throw unsafe(`${JSON.stringify(url)}, which is no address of a page`);
      deps.print(`${url}\n`);
      if (deps.isTerminal) await deps.runProgram('xdg-open', [url], { quiet: true }).catch(() => undefined);
    });
}

/** Resolves with true if an SSH server answers at this address. */
export function answersSsh(host: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, timeout: ANSWER_MS });
    const end = (answers: boolean): void => {
      socket.destroy();
      resolve(answers);
    };
    socket.once('data', (banner) => end(banner.subarray(0, 4).toString() === 'SSH-'));
    socket
      .once('error', () => end(false))
      .once('timeout', () => end(false))
      .once('close', () => end(false));
  });
}

/** True if an instance with this status cannot run any more. */
export function runsNoMore(status: string): boolean {
  return status === 'error' || status === 'terminated' || status === 'stopped' || status === 'stopping';
}

async function connectionOf(client: Client, name: string): Promise<Reached> {
  const id = await resolveName(client, name, { isRead: false });
  const {
    connection,
    status,
    status_reason: reason,
  } = Instance.parse(await client.json({ method: 'GET', path: `/instances/${id}` }));
  if (connection !== null) return { id, status, connection: checked(connection) };
  const message = `the instance is ${status}${reason === null || reason === undefined ? '' : `: ${reason}`}`;
  throw new SvcError(EXIT.failed, {
    code: 'not_running',
    message,
    next: afterRefusal(status, id),
    resourceId: id,
  });
}

/** What a person can do about an instance with this status, which cannot be used now. */
function afterRefusal(status: string, id: string): string {
  return runsNoMore(status) ? `See what happened: svc instance events ${id}` : `Wait for it: svc wait ${id}`;
}

function noApp({ id }: Reached): SvcError {
  return new SvcError(EXIT.notFound, {
    code: 'not_found',
    message: 'the instance was launched without a primary port, so it has no application to show',
    next: `Name the port at the launch: --port 8080/http/primary. A shell in it: svc open ${id} --terminal`,
  });
}

function noTerminal({ id, status }: Reached): SvcError {
  return new SvcError(EXIT.notFound, {
    code: 'not_found',
    message: `the instance is ${status}, and has a browser console only while it runs`,
    next: afterRefusal(status, id),
  });
}

/**
 * These parts of the answer become arguments of ssh and names of files. ssh would take a user that begins with a hyphen as an option, and an
 * option can run a program on this machine.
 */
function checked(connection: Connection): Connection {
  if (USER.test(userOf(connection)) && HOST.test(connection.hostname)) return connection;
  throw unsafe(`${JSON.stringify(`${userOf(connection)}@${connection.hostname}`)}, which is no login`);
}

function unsafe(named: string): SvcError {
  const message = `the API names ${named}`;
  return new SvcError(EXIT.failed, {
    code: 'unsafe_answer',
    message,
    next: 'Check the address of the API: svc doctor',
  });
}

/** The user of the command that the API shows. */
function userOf({ ssh_command: command }: Connection): string {
  const target = command.split(' ').find((word) => word.includes('@'));
  return target?.split('@')[0] ?? 'root';
}

/** Writes the host key that the API publishes to a file of ours, so that nobody has to trust an unknown key at the first login. */
function hostKeyOptions({ hostname, port, host_key: key }: Connection, { logins }: SvcDeps): string[] {
  const folder = join(logins.folder, 'known_hosts.d');
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const file = join(folder, `${hostname}-${port}`);
  // Another ssh may read the file at this moment.
  replaceFile(file, `[${hostname}]:${port} ${key}\n`);
  return [
    '-o',
    // Without the quotes, a space in the path would divide it into two files. ssh replaces what follows a percent sign.
    `UserKnownHostsFile="${file.replaceAll('%', '%%')}"`,
    '-o',
    'StrictHostKeyChecking=yes',
    '-o',
    'GlobalKnownHostsFile=/dev/null',
  ];
}

/** The instance's name before the colon; undefined for a path on this machine. */
function remoteName(path: string): string | undefined {
  const [, name] = /^([^/:]+):/.exec(path) ?? [];
  return name;
}

/** The command ends with the code of the program. */
async function exec(command: string, args: readonly string[], { runProgram }: SvcDeps): Promise<void> {
  const code = await runProgram(command, args);
  if (code !== 0) throw new SvcError(code, { code: 'program_failed', message: `${command} exited with code ${code}` });
}

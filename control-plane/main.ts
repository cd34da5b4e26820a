// The command line of the control plane: `serve`, and the operator's commands.
import { existsSync, readFileSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { Command } from 'commander';
import { systemClock } from '../shared/clock.ts';
import { codeOf, messageOf } from '../shared/errors.ts';
import { createIds } from '../shared/ids.ts';
import { createLog, type Log, logWarnings } from '../shared/log.ts';
import { countBuffersWithHeap } from './base/systemd/v8.ts';
import { systemRng } from '../shared/rng.ts';
import { VERSION } from '../shared/version.ts';
import { readNamed } from '../shared/yaml-config.ts';
import {
  type CommandDeps,
  type CommonOptions,
  printAnswer,
  withCommon,
  type Answer,
  askDaemon,
} from './admin/command.ts';
import { addOperatorCommands } from './admin/commands.ts';
import type { Fields } from './base/http/operator.ts';
import { openSealing } from './base/http/sealing.ts';
import type { InjectedRequest } from './base/http/server.ts';
import { assertDataDirectories, assertDirectories } from './config-files.ts';
import { warningsOf } from './config-warnings.ts';
import { type Config, configFile, operatorName, readConfig } from './config.ts';
import type { House, HouseOptions } from './house.ts';
import { existingSecret } from './secret-file.ts';

/** A start that is to end gives back what it holds within this time. */
const START_ENDS_MS_MAX = 5_000;
const RELOAD = { method: 'POST', url: '/admin/reload' } as const;

async function serve(options: { config?: string }): Promise<void> {
  countBuffersWithHeap();
  const config = readConfig(options.config);
  assertDirectories(config);
  // Files that this process creates (database, secret, socket) are readable for this user only.
  process.umask(0o077);
  const log = createLog('control-plane', config.log_level);
  logWarnings(log);
  for (const { setting, what } of warningsOf(config, configFile(options.config).path)) log.warn({ setting }, what);
  let house: House | undefined;
  const reload: InjectedRequest = { ...RELOAD, headers: { 'svc-operator': 'SIGHUP' } };
  // The reload logs what is wrong with the files. A process that stands by reads them when it takes over.
  process.on('SIGHUP', () => void house?.admin.inject(reload));
  const starting = new AbortController();
  let stopping = false;
  const stop = (signal: NodeJS.Signals): void => {
    // The second signal ends the process at once. All important state is in the database.
    if (stopping) process.exit(1);
    stopping = true;
    if (house === undefined) {
      // A lease that cannot be given back in this time is free after 15 seconds.
      systemClock().after(START_ENDS_MS_MAX, () => process.exit(0));
      return starting.abort();
    }
    log.info(
      { signal },
      'stopping: requests under way are finished first, requests to models and connections to instances may last for drain_seconds',
    );
    void house.close().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error({ err: error }, 'the control plane could not stop in order, and ends now');
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', stop);
  process.on('SIGINT', stop);
  try {
    const readAgain = (): Config => readConfig(options.config);
    house = await openHouse(config, log, { readAgain, standsBy: true, stopping: starting.signal });
  } catch (error) {
    if (starting.signal.aborted) process.exit(0);
    throw error;
  }
  // An exit at once loses nothing: all state is in the database, which another process uses now.
  house.onLost(() => process.exit(1));
  try {
    await house.start();
  } catch (error) {
    await house.close();
    throw error;
  }
}

const NOT_RELOADED =
  'no control plane listens at admin_socket, so nothing was reloaded. A secondary is reloaded with "systemctl reload svc-control-plane"';

const NOT_RUNNING = 'no control plane listens at admin_socket: this command works on the database itself';

/** Sends the request to the running daemon. If none runs, opens the rooms without starting them and sends it to them. */
async function ask(configFile: string | undefined, what: InjectedRequest): Promise<Answer> {
  const config = readConfig(configFile);
  const request = { ...what, headers: { ...what.headers, 'svc-operator': operatorName() } };
  const answer = await askDaemon(config.admin_socket, request);
  if (answer !== undefined) return answer;
  if (request.url === RELOAD.url) throw new Error(NOT_RELOADED);
  assertDataDirectories(config);
  refuseFirstStartAsRoot(config);
  const log = createLog('control-plane', 'warn', { write: (line) => void process.stderr.write(line) });
  const house = await openHouse(config, log);
  try {
    process.stderr.write(`${NOT_RUNNING}\n`);
    return await house.admin.inject(request);
  } finally {
    await house.close();
  }
}

/** The first process makes the secret and the database. If they belonged to root, the daemon could never read them. */
function refuseFirstStartAsRoot({ secret_file: secret, database }: Config): void {
  if (process.getuid?.() !== 0) return;
  const files = [secret, ...('sqlite' in database ? [database.sqlite] : [])];
  if (files.every((file) => existsSync(file) || statSync(dirname(file)).uid === 0)) return;
  throw new Error(
    'no control plane has run here yet, and the files that this command would make would belong to root: start the daemon first (systemctl start svc-control-plane), or restore a backup',
  );
}

async function backup(configFile: string | undefined, file: string): Promise<Fields> {
  return (await import('./backup.ts')).backup(readConfig(configFile), resolve(file));
}

async function restore(file: string, options: CommonOptions & { force?: boolean }): Promise<void> {
  process.umask(0o077);
  const config = readConfig(options.config);
  assertDataDirectories(config);
  const clock = systemClock();
  const rng = systemRng();
  const ids = createIds(clock, rng);
  const log = createLog('control-plane', 'warn', { write: (line) => void process.stderr.write(line) });
  const core = { clock, rng, ids, log, sealing: openSealing(existingSecret(config), ids) };
  const request = { file: resolve(file), force: options.force === true };
  printAnswer(operator, options, await (await import('./backup.ts')).restore(config, request, core));
}

async function check({ config }: { config?: string }): Promise<void> {
  const { path, faults, warnings } = (await import('./check-config.ts')).checkConfig(config);
  for (const warning of warnings) process.stderr.write(`warning: ${warning}\n`);
  if (faults.length > 0) throw new Error(faults.join('\n'));
  process.stdout.write(`no mistake was found in ${path} and the files that it names\n`);
}

/** Loaded only when needed: a command that reaches the daemon needs none of the rooms. */
async function openHouse(config: Config, log: Log, options?: HouseOptions): Promise<House> {
  const house = await import('./house.ts');
  return house.openHouse(config, log, options);
}

const operator: CommandDeps = {
  ask,
  backup,
  readFile: (file) => readNamed('<file>', file, (path) => readFileSync(path, 'utf8')),
  print: (text) => void process.stdout.write(text),
  now: systemClock().now,
};
const program = new Command('svc-control-plane')
  .description('The control plane of the GPU rental and inference service.')
  .version(VERSION);
program
  .command('serve')
  .description('run the control plane')
  .option('--config <file>', 'YAML configuration; without it the one that SVC_CONFIG names, or the installed one')
  .action(serve);
program
  .command('check-config')
  .description(
    'say what is wrong in the configuration and in the files that it names, and change nothing; the daemon need not run',
  )
  .option('--config <file>', 'YAML configuration; without it the one that SVC_CONFIG names, or the installed one')
  .action(check);
withCommon(program.command('restore <backup>'))
  .description(
    'put the backup of a SQLite database in its place, or into an empty database on PostgreSQL; the daemon must be stopped',
  )
  .option('--force', 'if a database is there already, put it aside')
  .action(restore);
addOperatorCommands(program, operator);

process.stdout.on('error', (error) => {
  // It is no failure if the reader of the output, such as `head`, has ended. The command goes on, because its exit code may still be one.
  if (codeOf(error) === 'EPIPE') return;
  process.stderr.write(`the output cannot be written: ${messageOf(error)}\n`);
  process.exit(1);
});
try {
  await program.parseAsync();
} catch (error) {
  process.stderr.write(`${messageOf(error)}\n`);
  process.exitCode = error instanceof Error && 'exitCode' in error && error.exitCode === 2 ? 2 : 1;
}

// Commands that make instances, wait for them, read their logs and end them.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { type CommonOptions, number, show, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, SvcError } from './exit.ts';
import { resolveName } from './names.ts';
import { launch, type LAUNCH_OPTIONS, placed } from './launches.ts';
import { MINIMUMS } from './offer-commands.ts';
import { followLog, Line, writeLine } from './output.ts';
import { place } from './plain.ts';
import { runToEnd } from './run.ts';
import { WAITS, type WaitFor, waitUntil } from './waiting.ts';

interface WaitOptions extends CommonOptions {
  timeout: number;
  for: WaitFor;
}

interface LaunchOptions extends CommonOptions {
  gpuType?: string[];
  count: number;
  tier: string;
  image?: string;
  template?: string;
  environment?: string;
  region?: string;
  offering?: string;
  onlyRegion?: string[];
  minVram?: number;
  minCpus?: number;
  minRam?: number;
  minCuda?: string;
  minUptime?: number;
  name?: string;
  disk?: number;
  env?: string[];
  port?: string[];
  entrypoint?: string[];
  sshKey?: string[];
  registryCredential?: string;
  maxPrice?: number;
  autoTerminateHours?: number;
  autoTerminateOnExit?: true;
  wait?: boolean;
  timeout: number;
  rm?: boolean;
}

const TIMEOUT_S = 1_800;
const OPERATION = ['operation_id', 'state', 'resource_id', 'progress'] as const;
const INSTANCE = [
  'id',
  'name',
  'status',
  'status_reason',
  'gpu_type',
  'price_per_hour',
  'connection.hostname',
  'connection.port',
] as const;
/** Adds `instance create|delete|wait|logs`, and shortcuts for them at the top level of the program. */
export function addInstanceCommands(program: Command, instance: Command, deps: SvcDeps): void {
  launchCommand(instance.command('create [argv...]'), deps, false).description(
    "launch an instance; what follows -- replaces the CMD of the image, and '' clears it",
  );
  launchCommand(program.command('run [argv...]'), deps, true).description(
    'launch an image, follow its output, and exit with the code of its program',
  );
  for (const parent of [program, instance]) {
    waitCommand(parent, deps);
    logsCommand(parent, deps);
  }
  withCommon(instance.command('delete <id>'))
    .description('end an instance, by id or name')
    .option('--wait', 'until it has ended')
    .option('--timeout <seconds>', 'how long to wait', seconds, TIMEOUT_S)
    .action((id: string, options: LaunchOptions) => end(id, options, deps));
}

function launchCommand(command: Command, deps: SvcDeps, isRun: boolean): Command {
  withHostOptions(withCommon(command))
    .option('--tier <tier>', 'on_demand, spot or reserved', 'on_demand')
    .option('--image <image>', 'a container image')
    .option('--template <id>', 'an application of the catalogue')
    .option('--environment <name>', 'a place to log in to')
    .option('--name <name>', 'a name of your own')
    .option('--disk <gb>', 'size of the disk', number)
    .option(
      '--env <name[=value]>',
      'a variable of the container; without =, its value is that of your own variable; may be repeated',
      repeated,
    )
    .option(
      '--port <port/protocol>',
      'a port of the application, such as 5432/tcp; 8080/http/primary is served at the app URL; may be repeated',
      repeated,
    )
    .option(
      '--entrypoint <argument>',
      "an argument of the program, in place of the image's ENTRYPOINT; may be repeated; '' clears it",
      repeated,
    )
    .option('--ssh-key <id>', 'a key that may log in; may be repeated; all keys without it', repeated)
    .option('--registry-credential <id>', 'the login for a private image')
    .option('--max-price <usd>', 'the most that an hour of the whole instance may cost', number)
    .option('--auto-terminate-hours <hours>', 'end it this long after it began to run', number)
    .option('--timeout <seconds>', 'how long to wait', seconds, TIMEOUT_S);
  if (isRun) command.option('--rm', 'delete the instance also if this command ends before its program');
  else
    command.option('--auto-terminate-on-exit', 'end it when its program has ended').option('--wait', 'until it runs');
  return command.action((argv: string[], options: LaunchOptions) =>
    isRun ? run(argv, options, deps) : create(argv, options, deps),
  );
}

/** Adds the options that say on which host a launch may run. */
function withHostOptions(command: Command): Command {
  command
    .option(
      '--gpu-type <type>',
      'a type of svc gpu list; of several, separated by commas, the launch takes the cheapest that is free',
      listed,
    )
    .option('--count <gpus>', 'how many GPUs', number, 1)
    .option('--region <region>', 'preferred region; without capacity there, it runs elsewhere')
    .option('--offering <id>', 'run on this offering of svc price list or not at all')
    .option('--only-region <region>', 'run nowhere else; may be several, separated by commas', listed);
  for (const { flags, help, as } of MINIMUMS)
    command.option(flags, help, (text: string) => (as === 'number' ? number(text) : text));
  return command;
}

function waitCommand(parent: Command, deps: SvcDeps): void {
  withCommon(parent.command('wait <id>'))
    .description('wait for an instance, by id or name')
    .option('--for <state>', WAITS.join(', '), waitedState, 'running')
    .option('--timeout <seconds>', 'how long to wait', seconds, TIMEOUT_S)
    .action(async (name: string, options: WaitOptions) => {
      const client = signedIn(deps, options);
      const instanceId = await resolveName(client, name, { isRead: options.for === 'terminated' });
      const reached = await waitUntil(client, { instanceId, until: options.for, timeout: options.timeout }, deps);
      show(deps, options, reached, { columns: INSTANCE, id: 'id' });
    });
}

function logsCommand(parent: Command, deps: SvcDeps): void {
  withCommon(parent.command('logs <id>'))
    .description('read what the program of an instance has written, by id or name')
    .option('-f, --follow', 'and what it writes, until it ends')
    .option('--tail <lines>', 'so many of the last lines', number)
    .action(async (name: string, options: CommonOptions & { follow?: boolean; tail?: number }) => {
      const client = signedIn(deps, options);
      const id = await resolveName(client, name, { isRead: true });
      const onLine = (line: Line): void => writeLine(line, options, deps);
      if (options.follow === true) return followLog(client, { instanceId: id, tail: options.tail, onLine }, deps);
      const tail = options.tail === undefined ? '' : `?tail=${options.tail}`;
      const body = await client.json({ method: 'GET', path: `/instances/${id}/logs${tail}` });
      if (options.json === true) return deps.print(`${JSON.stringify(body)}\n`);
      for (const line of z.looseObject({ data: z.array(Line) }).parse(body).data) onLine(line);
    });
}

async function create(argv: string[], options: LaunchOptions, deps: SvcDeps): Promise<void> {
  const client = signedIn(deps, options);
  const accepted = await launch(client, launchOf(argv, options, deps));
  if (options.wait !== true) return show(deps, options, accepted, { columns: OPERATION, id: 'operation_id' });
  const instanceId = await placed(client, accepted, { ...deps, timeoutMs: options.timeout * 1_000 });
  const instance = await waitUntil(client, { instanceId, until: 'running', timeout: options.timeout }, deps);
  show(deps, options, instance, { columns: INSTANCE, id: 'id' });
}

async function run(argv: string[], options: LaunchOptions, deps: SvcDeps): Promise<void> {
  const onLine = (line: Line): void => writeLine(line, options, deps);
  // The instance ends with its program also if nobody is here then to delete it.
  const body = launchOf(argv, { ...options, autoTerminateOnExit: true }, deps);
  const wish = { body, timeout: options.timeout, isRemoved: options.rm === true, onLine };
  await runToEnd(signedIn(deps, options), wish, deps);
}

async function end(name: string, options: LaunchOptions, deps: SvcDeps): Promise<void> {
  const client = signedIn(deps, options);
  const instanceId = await resolveName(client, name, { isRead: false });
  const accepted = await client.json({ method: 'DELETE', path: `/instances/${instanceId}` });
  if (options.wait === true)
    await waitUntil(client, { instanceId, until: 'terminated', timeout: options.timeout }, deps);
  show(deps, options, accepted, { columns: OPERATION, id: 'operation_id' });
}

function launchOf(argv: string[], options: LaunchOptions, deps: SvcDeps): Record<string, unknown> {
  const types = options.gpuType;
  const given: Record<keyof typeof LAUNCH_OPTIONS, unknown> = {
    gpu_type: types?.length === 1 ? types[0] : undefined,
    offering_id: options.offering,
    'requirements.gpu_types': types?.length === 1 ? undefined : types,
    'requirements.regions': options.onlyRegion,
    'requirements.min_vram_gb': options.minVram,
    'requirements.min_cpu_cores': options.minCpus,
    'requirements.min_ram_gb': options.minRam,
    'requirements.min_cuda_version': options.minCuda,
    'requirements.min_uptime': options.minUptime,
    gpu_count: options.count,
    tier: options.tier,
    image: options.image,
    template_id: options.template,
    environment: options.environment,
    region: options.region,
    name: options.name,
    disk_gb: options.disk,
    env: options.env === undefined ? undefined : Object.fromEntries(options.env.map((text) => variableOf(text, deps))),
    ports: options.port?.map(portOf),
    ssh_key_ids: options.sshKey,
    registry_credential_id: options.registryCredential,
    max_price_per_hour: options.maxPrice,
    auto_terminate_hours: options.autoTerminateHours,
    auto_terminate_on_exit: options.autoTerminateOnExit,
    cmd: argv.length === 0 ? undefined : argumentsOf(argv),
    entrypoint: options.entrypoint === undefined ? undefined : argumentsOf(options.entrypoint),
  };
  const body: Record<string, unknown> = {};
  for (const [path, value] of Object.entries(given)) if (value !== undefined) place(body, path.split('.'), value);
  return body;
}

/** A name without a value takes that of the caller's own variable, so that a secret need not stand on the command line. */
function variableOf(text: string, { variable }: SvcDeps): [string, string] {
  const at = text.indexOf('=');
  if (at > 0) return [text.slice(0, at), text.slice(at + 1)];
  if (at === 0 || text === '') throw usage(`--env must be NAME=value or NAME, which "${text}" is not`);
  const value = variable(text);
  if (value === undefined)
    throw usage(
      `--env ${text} takes the value of your variable ${text}, which is not set: export it, or write ${text}=value`,
    );
  return [text, value];
}

function portOf(text: string): { port: number; protocol: string; primary?: true } {
  const [, port, protocol = 'http', primary] = /^(\d{1,5})(?:\/(http|tcp))?(\/primary)?$/.exec(text) ?? [];
  if (port === undefined) {
    throw usage(`--port must be like 8080/http, 8080/http/primary or 5432/tcp, which "${text}" is not`);
  }
  return { port: Number(port), protocol, ...(primary === undefined ? {} : { primary: true }) };
}

/** The arguments of the request. A single empty text means "no arguments", as in `docker run --entrypoint ''`. */
function argumentsOf(given: string[]): string[] {
  return given.length === 1 && given[0] === '' ? [] : given;
}

function usage(message: string): SvcError {
  return new SvcError(EXIT.usage, { code: 'usage', message });
}

function repeated(text: string, before: string[] = []): string[] {
  return [...before, text];
}

/** Each text may be several, separated by commas. */
function listed(text: string, before: string[] = []): string[] {
  return [...before, ...text.split(',').map((entry) => entry.trim())];
}

function seconds(text: string): number {
  const value = number(text);
  if (value <= 0) throw new InvalidArgumentError('must be more than 0');
  return value;
}

function waitedState(text: string): WaitFor {
  const state = WAITS.find((each) => each === text);
  if (state === undefined) throw new InvalidArgumentError(`must be ${WAITS.join(', ')}`);
  return state;
}

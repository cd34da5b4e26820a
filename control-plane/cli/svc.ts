// The program `svc`: all its commands, and how it ends.
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { messageOf } from '../../shared/errors.ts';
import { VERSION } from '../../shared/version.ts';
import { ACCOUNT_COMMANDS } from './account-commands.ts';
import { addAuthCommands } from './auth.ts';
import { addChatCommand, MODEL_COMMANDS, addFileCommands } from './model-commands.ts';
import { type CommonOptions, signedIn, type SvcDeps, withCommon } from './command.ts';
import { addCompletionCommands } from './completion.ts';
import { addDoctorCommand } from './doctor.ts';
import { errorJson, errorText, EXIT, knownError, SvcError } from './exit.ts';
import { addInstanceCommands } from './instances.ts';
import { addMetricsCommands } from './metrics.ts';
import { OFFER_COMMANDS } from './offer-commands.ts';
import { ORGANISATION_COMMANDS } from './organisation-commands.ts';
import { addPlainCommands, type PlainCommand } from './plain.ts';
import { addSshCommands } from './ssh.ts';
import { SUPPLIER_COMMANDS } from './supplier-commands.ts';
import { withSafeOutput } from './terminal.ts';
import { addListenCommand } from './webhook-listen.ts';

const NOUNS: Readonly<Record<string, string>> = {
  auth: 'sign in and out',
  gpu: 'GPU types',
  price: 'prices of what is on offer',
  template: 'applications that can be launched',
  environment: 'places to log in to that can be launched',
  key: 'SSH public keys',
  'api-key': 'keys of the API',
  member: 'the people of your organisation',
  invitation: 'invitations to your organisation',
  organisation: 'your organisation itself',
  registry: 'logins to registries, for private images',
  instance: 'rented GPUs',
  reservation: 'reserved capacity',
  usage: 'what instances used',
  balance: 'your prepaid balance',
  bill: 'bills',
  deposit: 'stablecoins for your balance',
  event: 'what happened',
  webhook: 'events that are sent to you',
  model: 'models',
  file: 'files for fine-tuning',
  job: 'fine-tuning jobs',
  machine: 'machines that you offer',
};

export const PLAIN_COMMANDS: readonly PlainCommand[] = [
  ...OFFER_COMMANDS,
  ...ACCOUNT_COMMANDS,
  ...ORGANISATION_COMMANDS,
  ...MODEL_COMMANDS,
  ...SUPPLIER_COMMANDS,
];

/** Runs one command line, without the name of the program. Resolves with the exit code. */
export async function runSvc(argv: readonly string[], given: Omit<SvcDeps, 'warn'>): Promise<number> {
  const deps = withSafeOutput(given);
  const isJson = ownArgs(argv).includes('--json');
  const program = buildProgram(deps, { isJson });
  try {
    await program.parseAsync([...argv], { from: 'user' });
    return EXIT.done;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return EXIT.done;
    const known = error instanceof CommanderError ? wrongUsage(error) : knownError(error, deps.interrupted);
    // commander has printed its own errors for people already.
    if (isJson) deps.tell(errorJson(known));
    else if (!(error instanceof CommanderError)) deps.tell(errorText(known));
    return known.exit;
  }
}

/** The words before `--`. The words after it belong to a program of the caller. */
function ownArgs(argv: readonly string[]): readonly string[] {
  const at = argv.indexOf('--');
  return at === -1 ? argv : argv.slice(0, at);
}

/** `isJson`: wrong usage is not printed for people. */
export function buildProgram(deps: SvcDeps, { isJson } = { isJson: false }): Command {
  const program = new Command('svc')
    .description('Rent GPUs and call models: the command line of the GPU rental and inference service.')
    .version(VERSION)
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: deps.print,
      writeErr: deps.tell,
      outputError: (text, write) => void (isJson || write(text)),
    });
  const nouns = new Map(Object.entries(NOUNS).map(([noun, help]) => [noun, program.command(noun).description(help)]));
  const nounOf = (noun: string): Command => {
    const found = nouns.get(noun);
    if (found === undefined) throw new Error(`the noun ${noun} has no description`);
    return found;
  };
  addAuthCommands(nounOf('auth'), deps);
  addInstanceCommands(program, nounOf('instance'), deps);
  addMetricsCommands(nounOf('instance'), nounOf('machine'), deps);
  addPlainCommands(nounOf, PLAIN_COMMANDS, deps);
  addFileCommands(nounOf('file'), deps);
  addListenCommand(nounOf('webhook'), deps);
  addSshCommands(program, deps);
  addChatCommand(program, deps);
  addDoctorCommand(program, deps);
  addCompletionCommands(program, deps);
  addApiCommand(program, deps);
  inheritOutput(program);
  return program;
}

/** Adds `svc api`, which sends any request, for routes that have no own command. */
function addApiCommand(program: Command, deps: SvcDeps): void {
  withCommon(program.command('api <method> <path>'))
    .description('send any request of the API, such as: svc api GET /instances')
    .option('--body <json>', 'JSON, or @file, or - for standard input')
    .action(async (method: string, path: string, options: CommonOptions & { body?: string }) => {
      if (options.body !== undefined && /^(get|head)$/i.test(method))
        throw new SvcError(EXIT.usage, {
          code: 'usage',
          message: `${method.toUpperCase()} has no body: leave --body out`,
        });
      const text = options.body === undefined ? undefined : await bodyText(options.body, deps);
      const below = `/${path.replace(/^\/?(v1\/)?/, '')}`;
      const answer = await signedIn(deps, options).any({
        method: method.toUpperCase(),
        path: below,
        // A POST is not repeated, because not every path takes an Idempotency-Key.
        isOnce: method.toUpperCase() === 'POST',
        ...(text === undefined ? {} : { body: jsonOf(text) }),
      });
      if ('text' in answer) return deps.print(answer.text);
      if (answer.json !== null)
        deps.print(`${JSON.stringify(answer.json, undefined, options.json === true ? undefined : 2)}\n`);
    });
}

async function bodyText(body: string, { readInput }: SvcDeps): Promise<string> {
  if (body === '-') return readInput();
  if (!body.startsWith('@')) return body;
  try {
    return readFileSync(body.slice(1), 'utf8');
  } catch (error) {
    const message = `--body ${body} cannot be read: ${messageOf(error)}`;
    throw new SvcError(EXIT.usage, { code: 'file_unreadable', message });
  }
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw new SvcError(EXIT.usage, { code: 'usage', message: `--body is not JSON: ${messageOf(error)}` });
  }
}

/** Copies the output settings to all commands, because commander copies them only to commands that are made later. */
function inheritOutput(command: Command): void {
  for (const each of command.commands) {
    each.copyInheritedSettings(command);
    inheritOutput(each);
  }
}

function wrongUsage({ message }: CommanderError): SvcError {
  return new SvcError(EXIT.usage, { code: 'usage', message: message.replace(/^error: /, '') });
}

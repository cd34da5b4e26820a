// Says of a call in the documents whether the service takes it: its routes and their bodies, the commands' real grammar, the scripts.
import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { Command as Program } from 'commander';
import { parse } from 'yaml';
import { buildProgram } from '../../../control-plane/cli/svc.ts';
import type { Overview } from '../../../shared/api/overview.ts';
import { addOperatorCommands } from '../../../control-plane/admin/commands.ts';
import type { Route } from '../../../control-plane/base/http/route.ts';
import { capture } from '../capture.ts';
import type { Call } from './recorder.ts';

/** Throws what is wrong with a call; programs that are not ours pass. */
export type Judge = (call: Call) => Promise<void>;

const ROOT = resolve(import.meta.dirname, '../../..');
const OPERATOR_COMMANDS = ['admin', 'ledger'];

/** `routes` are those of the public listener, and `ofSocket` those that people may ask on the operator's socket. */
export function openJudge(routes: readonly Route[], ofSocket: readonly Route[] = []): Judge {
  const helps = new Map<string, Promise<string>>();
  const helpOf = (launcher: string, command: string): Promise<string> => {
    const key = `${launcher} ${command}`;
    const help = helps.get(key) ?? readHelp(launcher, command);
    helps.set(key, help);
    return help;
  };
  const judge: Judge = async ([program, ...args]) => {
    if (program === 'npm') return judgeNpm(args, judge);
    if (program === 'npx') return judgeVitest(args);
    if (program === 'curl') return judgeCurl(args, routes, ofSocket);
    if (program === 'svc-agent') return judgeOptions(args, (command) => helpOf('agent/svc-agent.js', command));
    if (program === 'svc-control-plane') {
      if (OPERATOR_COMMANDS.includes(args[0] ?? '')) return judgeOperator(args);
      return judgeOptions(args, (command) => helpOf('control-plane/svc-control-plane.js', command));
    }
    if (program === 'svc') return judgeSvc(args);
    if (program === 'install.sh') return judgeInstaller(args);
    if (program === 'apt-get') return judgeApt(args);
    if (program === 'docker') return judgeCompose(args, judge);
  };
  return judge;
}

async function judgeNpm(args: readonly string[], judge: Judge): Promise<void> {
  const [verb = '', ...rest] = args.filter((arg) => arg !== '-s');
  if (verb === 'ci' || verb === 'test') return;
  const [script = '', dashes, ...own] = rest;
  const { scripts } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { scripts: object };
  if (verb !== 'run' || !(script in scripts)) throw new Error(`npm has no such script: ${args.join(' ')}`);
  if (dashes !== undefined && script.startsWith('svc-')) await judge([script, ...own]);
}

function judgeVitest([program, verb, option, project = '', ...files]: readonly string[]): void {
  if (program !== 'vitest' || verb !== 'run' || option !== '--project') throw new Error(`npx ${program} is not known`);
  const config = readFileSync(join(ROOT, 'vitest.config.ts'), 'utf8');
  if (!config.includes(`name: '${project}'`)) throw new Error(`vitest has no project ${project}`);
  for (const file of files) if (!existsSync(join(ROOT, file))) throw new Error(`there is no test ${file}`);
}

/** The compose file is that of the try-out, whose services have our programs. */
async function judgeCompose([compose, verb, ...args]: readonly string[], judge: Judge): Promise<void> {
  if (compose !== 'compose') throw new Error(`docker ${compose} is not known`);
  if (verb !== 'exec') return;
  const [service = '', program = '', ...own] = args;
  const { services } = parse(readFileSync(join(ROOT, 'installer/try-out/compose.yaml'), 'utf8')) as {
    services: object;
  };
  if (!(service in services)) throw new Error(`the try-out has no service ${service}`);
  await judge([program, ...own]);
}

function judgeApt([verb, file = '']: readonly string[]): void {
  const name = /^\.\/([a-z-]+)_\*_amd64\.deb$/.exec(file)?.[1] ?? '';
  const isMade = readFileSync(join(ROOT, 'installer/deb.ts'), 'utf8').includes(`name: '${name}'`);
  if (verb !== 'install' || !isMade) throw new Error(`we make no such package: ${file}`);
}

function judgeCurl(args: string[], routes: readonly Route[], ofSocket: readonly Route[]): void {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      request: { type: 'string', short: 'X' },
      header: { type: 'string', short: 'H', multiple: true, default: [] },
      data: { type: 'string', short: 'd' },
      form: { type: 'string', short: 'F', multiple: true },
      output: { type: 'string', short: 'o' },
      silent: { type: 'boolean', short: 's' },
      'no-buffer': { type: 'boolean', short: 'N' },
      'unix-socket': { type: 'string' },
    },
  });
  const url = new URL(positionals[0] ?? '');
  const isSocket = values['unix-socket'] !== undefined;
  if (isSocket && url.pathname === '/metrics') return;
  const hasBody = values.data !== undefined || values.form !== undefined;
  const method = values.request ?? (hasBody ? 'POST' : 'GET');
  // openapi.json is served by the server itself.
  if (method === 'GET' && url.pathname === '/v1/openapi.json') return;
  const found = (isSocket ? ofSocket : routes).find((each) => each.method === method && matches(each, url.pathname));
  if (found === undefined) throw new Error(`there is no route ${method} ${url.pathname} for people`);
  const headers = new Headers(values.header.map((header) => header.split(/: */, 2) as [string, string]));
  judgeHeaders(found, headers, values.data !== undefined);
  judgeQuery(found, url);
  if (values.form !== undefined) return judgeForm(found);
  if (found.body === undefined && values.data === undefined) return;
  if (found.body === undefined) throw new Error(`${method} ${url.pathname} takes no body`);
  found.body.parse(values.data === undefined ? undefined : JSON.parse(values.data));
}

function matches({ path, idHasSlashes }: Route, pathname: string): boolean {
  const segment = idHasSlashes === true ? '.+' : '[^/]+';
  return new RegExp(`^${path.replaceAll(/\{\w+\}/g, segment)}$`).test(pathname);
}

function judgeHeaders({ scope, idempotency, path }: Route, headers: Headers, sendsJson: boolean): void {
  if (scope !== 'none' && scope !== 'operator' && !headers.has('authorization'))
    throw new Error(`${path} wants an Authorization header`);
  if (idempotency === 'required' && !headers.has('idempotency-key')) {
    throw new Error(`${path} wants an Idempotency-Key`);
  }
  if (sendsJson && headers.get('content-type') !== 'application/json') {
    throw new Error(`${path} wants the Content-Type application/json`);
  }
}

function judgeQuery({ query, path }: Route, url: URL): void {
  if (url.search === '') return;
  if (query === undefined) throw new Error(`${path} takes no query`);
  query.parse(Object.fromEntries(url.searchParams));
}

function judgeForm({ upload, path }: Route): void {
  if (!Object.keys(upload?.mediaTypes ?? {}).includes('multipart/form-data')) throw new Error(`${path} takes no form`);
}

/** Finds the command and reads its options with the very grammar of the program; nothing is asked. */
function judgeSvc(args: readonly string[]): void {
  let command = buildProgram({} as Parameters<typeof buildProgram>[0]);
  let words = args;
  for (;;) {
    const inner = command.commands.find((each) => each.name() === words[0]);
    if (inner === undefined) break;
    [command, words] = [inner, words.slice(1)];
  }
  if (command.commands.length > 0) throw new Error(`svc has no such command: ${args.join(' ')}`);
  const { operands, unknown } = command.parseOptions([...words]);
  // What follows the arguments of ssh is passed on.
  const isPassed = command.registeredArguments.at(-1)?.variadic === true;
  if (unknown.length > 0 && !isPassed) throw new Error(`svc ${command.name()} has no option ${unknown.join(' ')}`);
  const needed = command.registeredArguments.filter(({ required }) => required).length;
  if (operands.length < needed) throw new Error(`svc ${command.name()} needs ${needed} arguments`);
}

/** Parses with the very grammar of the program; nothing is asked. */
async function judgeOperator(args: readonly string[]): Promise<void> {
  const program = new Program('svc-control-plane').exitOverride();
  const asked: string[] = [];
  addOperatorCommands(program, {
    ask: async (_config, { method, url }) => {
      asked.push(`${method} ${url}`);
      return { status: 200, body: JSON.stringify(answerTo(url)) };
    },
    readFile: () => '',
    backup: async (_config, file) => {
      asked.push(`backup ${file}`);
      return {};
    },
    print: () => undefined,
    now: () => 0,
  });
  silence(program);
  await program.parseAsync(args, { from: 'user' });
  if (asked.length !== 1) throw new Error(`${args.join(' ')} asks nothing`);
}

/** Some commands read the answer, so it has the right shape. */
function answerTo(url: string): object {
  if (url.startsWith('/admin/transfers')) return { data: [], next_cursor: null };
  if (url.startsWith('/admin/deposits/balances')) return { data: [], next_after_index: null };
  if (/^\/admin\/deposits\/[^/]+$/.test(url)) return { deposit: {}, transfers: [], history: [] };
  if (url === '/admin/overview') return NOTHING_THERE;
  if (url.endsWith('/metrics')) return { latest: null };
  if (!url.includes('/statement')) return { ok: true, faults: [] };
  const balances = { opening_balance: '0.00', closing_balance: '0.00' };
  return { org_id: 'o', month: '2026-01', currency: 'USD', is_complete: true, ...balances, totals: [], lines: [] };
}

const AT = '2026-01-01T00:00:00.000Z';
/** An overview of a service in which nothing has happened. */
const NOTHING_THERE: Overview = {
  at: AT,
  version: '0.1.0',
  started_at: AT,
  epoch: 1,
  secondaries: 0,
  paused: [],
  ledger: { faults: 0, transfers: 0, new_proven_at: null, whole_proven_at: null },
  machines: { listed: 0, linked: 0 },
  gpus: { offered: 0, rented: 0, revenue_per_hour: '0.00' },
  outages: { machines: 0, rentals: 0 },
  launches: { seconds: 3_600, asked: 0, ran: 0, failed: 0, median_seconds: null },
  disk: null,
  database_bytes: 0,
  waiting: { count: 0, oldest: [] },
  loops: [],
  due: [],
  models: [],
  traffic: [],
  last_day: { from: AT, until: AT, spans: [], silent_most: 0, outages: 0, credited: '0.00' },
};

function silence(program: Program): void {
  program.exitOverride().configureOutput({ writeOut: () => undefined, writeErr: () => undefined });
  for (const command of program.commands) silence(command);
}

async function judgeOptions(args: readonly string[], helpOf: (command: string) => Promise<string>): Promise<void> {
  const [command = ''] = args;
  const help = await helpOf(command.startsWith('--') ? '' : command);
  for (const flag of args.filter((arg) => arg.startsWith('--'))) {
    if (!help.includes(`${flag} `) && !help.includes(`${flag},`)) throw new Error(`${command} has no option ${flag}`);
  }
}

async function readHelp(launcher: string, command: string): Promise<string> {
  const argv = [process.execPath, join(ROOT, launcher), ...(command === '' ? [] : [command]), '--help'];
  const { code, stdout, stderr } = await capture(argv);
  if (code !== 0) throw new Error(`there is no command ${command}: ${stderr}`);
  return stdout.toString();
}

function judgeInstaller(args: readonly string[]): void {
  const usage = readFileSync(join(ROOT, 'installer/install.sh'), 'utf8');
  const [line = ''] = usage.match(new RegExp(`^install\\.sh ${args[0]}\\b.*$`, 'm')) ?? [];
  if (line === '') throw new Error(`install.sh has no ${args[0]}`);
  for (const flag of args.filter((arg) => arg.startsWith('--'))) {
    if (!line.includes(flag)) throw new Error(`install.sh ${args[0]} has no option ${flag}`);
  }
}

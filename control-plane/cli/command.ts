// What all commands share: their common options, where and how they print, and the client of the profile.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import { clearTextHost } from '../../shared/client-network.ts';
import type { Clock } from '../../shared/clock.ts';
import type { Ids } from '../../shared/ids.ts';
import { printable } from '../../shared/terminal.ts';
import { type Client, openClient } from './client.ts';
import type { Login, Logins } from './config.ts';
import { EXIT, SvcError } from './exit.ts';

export interface SvcDeps {
  logins: Logins;
  clock: Clock;
  ids: Pick<Ids, 'uuid' | 'secret'>;
  fetch: typeof fetch;
  /** Prints answers on the standard output. */
  print(text: string): void;
  /** Prints everything that is not an answer on the standard error, such as hints and progress. */
  tell(text: string): void;
  /** Prints a line on the standard error, but the same line only once. */
  warn(line: string): void;
  /** The value of a variable of the environment. */
  variable(name: string): string | undefined;
  readInput(): Promise<string>;
  /** Standard output is a terminal. */
  isTerminal: boolean;
  /** Runs a program with this terminal, or without its output if it is `quiet`, and resolves with its exit code. */
  runProgram(command: string, args: readonly string[], how?: { quiet: boolean }): Promise<number>;
  /** From now on the command goes on if the reader of its output, such as `head`, has ended. By itself it ends then. */
  goOnUnread(): void;
  /** Aborts on the first Ctrl-C, SIGTERM or SIGHUP. */
  interrupted: AbortSignal;
  /** How often a request is tried at most; undefined: as often as the client does by itself. */
  tries?: number | undefined;
}

export interface CommonOptions {
  json?: boolean;
  quiet?: boolean;
  profile?: string;
  baseUrl?: string;
}

const DEFAULT_PROFILE = 'default';

export function withCommon(command: Command): Command {
  return command
    .option('--json', "print the API's own JSON")
    .option('-q, --quiet', 'print ids only')
    .option('--profile <name>', 'the login to use', DEFAULT_PROFILE)
    .option('--base-url <url>', 'the address of the API, such as https://api.example.com');
}

/** A client with the key of the profile. @throws SvcError if nobody is signed in, or if the key was stored for another server */
export function signedIn(deps: SvcDeps, options: CommonOptions): Client {
  const { logins, fetch, clock, ids, interrupted, tries } = deps;
  const login = logins.find(options.profile ?? DEFAULT_PROFILE);
  if (login === undefined)
    throw new SvcError(EXIT.signIn, {
      code: 'not_signed_in',
      message: 'you are not signed in',
      next: 'Run svc auth login, or set SVC_API_KEY and SVC_BASE_URL.',
    });
  const baseUrl = addressOf(deps, options);
  assertSameServer(login, baseUrl);
  const readableAt = clearTextHost(new URL(baseUrl));
  if (readableAt !== undefined)
    deps.warn(
      `Warning: http:// carries your key, and all that you send, in clear text to ${readableAt}: use https://, except on a network that nobody else reads.`,
    );
  if (login.exposed !== null)
    deps.warn(`Warning: other users of this machine can read your keys: chmod 600 ${login.exposed}`);
  return openClient({ baseUrl, key: login.api_key, fetch, clock, ids, interrupted, tries });
}

/** An address with a mistake may be somebody else's server, which would get the key. @throws SvcError */
function assertSameServer({ made_for: madeFor, source }: Login, address: string): void {
  if (madeFor === null || new URL(madeFor).origin === new URL(address).origin) return;
  throw new SvcError(EXIT.signIn, {
    code: 'key_of_another_server',
    message: `the key of ${source} is for ${madeFor}, and not for ${address}`,
    next: `Check the address. If it is right, sign in there: svc auth login --base-url ${address} --profile <name>`,
  });
}

/** A client for requests that need no key. @throws SvcError if the address of the API is not known */
export function asStranger(deps: SvcDeps, options: CommonOptions): Client {
  const { fetch, clock, ids, interrupted } = deps;
  return openClient({ baseUrl: addressOf(deps, options), key: undefined, fetch, clock, ids, interrupted });
}

/** An address without a path gets `/v1`, and none ends with a slash. @throws SvcError if the address of the API is not known, or is no address */
export function addressOf({ logins }: SvcDeps, { profile, baseUrl }: CommonOptions): string {
  const address = baseUrl ?? logins.baseUrl(profile ?? DEFAULT_PROFILE);
  const next = 'Name it: --base-url https://api.example.com/v1, or SVC_BASE_URL.';
  if (address === undefined) {
    const message = 'the address of the API is not known';
    throw new SvcError(EXIT.usage, { code: 'no_address', message, next });
  }
  if (!/^https?:\/\//i.test(address) || !URL.canParse(address)) {
    const message = `${JSON.stringify(address)} is no address of an API: it must begin with https:// or http://`;
    throw new SvcError(EXIT.usage, { code: 'address_malformed', message, next });
  }
  const shortened = address.endsWith('/') ? address.slice(0, -1) : address;
  const { pathname, search } = new URL(shortened);
  return pathname === '/' && search === '' ? `${shortened}/v1` : shortened;
}

export interface Shown {
  /** The member with the rows of a list; undefined: the document is one row. */
  rows?: string | undefined;
  /** Members that are printed for people, in this order. */
  columns: readonly string[];
  /** The member that identifies a row. `--quiet` prints only this member. */
  id: string;
  /** Members that are lists, by their paths. For people, each list that has rows is printed below the rest. */
  parts?: readonly { of: string; columns: readonly string[] }[];
  /** Members beside a list. For people, they are printed below the rest. */
  sums?: readonly string[];
  /** What people read if a document has nothing to show; `none` if left out. */
  empty?: string | undefined;
}

/** Prints an answer in the form that the options ask for: JSON, only ids, or a table. */
export function show(deps: SvcDeps, options: CommonOptions, body: unknown, shown: Shown): void {
  const { rows, columns, id, parts = [], sums = [], empty = 'none' } = shown;
  if (options.json === true) return deps.print(`${JSON.stringify(body)}\n`);
  const list = rowsOf(body, rows);
  if (options.quiet === true) return deps.print(list.map((row) => `${textOf(row[id])}\n`).join(''));
  const texts = [tableOf(list, columns, { isOne: rows === undefined && !Array.isArray(body) })];
  for (const part of parts) {
    const partRows = rowsOf(body, part.of);
    if (partRows.length > 0) texts.push(`\n${part.of}\n${tableOf(partRows, part.columns, { isOne: false })}`);
  }
  if (isRecord(body) && sums.length > 0) texts.push(`\n${linesOf(body, sums)}`);
  const text = texts.join('');
  deps.print(text === '' ? `${empty}\n` : text);
  const next = nextOf(body, list.at(-1)?.[id]);
  if (next !== undefined) deps.tell(`There are more: ${next}\n`);
}

/** The value of an option that is a number. */
export function number(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || Number.isNaN(value)) throw new InvalidArgumentError('must be a number');
  return value;
}

export type Json = Record<string, unknown>;

export function isRecord(value: unknown): value is Json {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The option that asks for the next page; undefined for the last one. */
function nextOf(body: unknown, lastId: unknown): string | undefined {
  const { next_cursor: cursor, has_more: hasMore } = isRecord(body) ? body : {};
  if (typeof cursor === 'string') return `--cursor ${cursor}`;
  return hasMore === true ? `--after ${textOf(lastId)}` : undefined;
}

function rowsOf(body: unknown, rows: string | undefined): Json[] {
  const list = rows === undefined || !isRecord(body) ? body : valueAt(body, rows);
  return (Array.isArray(list) ? list : [list]).filter(isRecord);
}

export function textOf(value: unknown): string {
  if (value === null || value === undefined) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

type Row = Record<string, unknown>;

/** A table for people: aligned columns. `isOne`: the only row is shown as a list of its members. */
function tableOf(rows: readonly Row[], columns: readonly string[], { isOne }: { isOne: boolean }): string {
  const [first] = rows;
  if (isOne && first !== undefined) return linesOf(first, columns);
  if (rows.length === 0) return 'none\n';
  const cells = rows.map((row) => columns.map((column) => cellOf(row, column)));
  const widths = columns.map((column, i) => Math.max(column.length, ...cells.map((line) => line[i]?.length ?? 0)));
  const line = (texts: readonly string[]): string =>
    `${texts
      .map((text, i) => text.padEnd(widths[i] ?? 0))
      .join('  ')
      .trimEnd()}\n`;
  return [columns.map((column) => column.toUpperCase()), ...cells].map(line).join('');
}

function linesOf(row: Row, columns: readonly string[]): string {
  const names = columns.filter((column) => cellOf(row, column) !== '');
  const width = Math.max(0, ...names.map((name) => name.length));
  return names.map((name) => `${name.padEnd(width)}  ${cellOf(row, name)}\n`).join('');
}

/** The text of the member at `path`. */
function cellOf(row: Row, path: string): string {
  const value = valueAt(row, path);
  if (value === null || value === undefined) return '';
  const texts = z.array(z.union([z.string(), z.number()])).safeParse(value).data;
  const text = typeof value === 'string' ? value : (texts?.join(',') ?? JSON.stringify(value));
  return printable(text);
}

/** The member at `path`, like `connection.hostname`. If there is a list on the way, it is a list of the member of each of its rows. */
function valueAt(row: Row, path: string): unknown {
  let value: unknown = row;
  for (const name of path.split('.')) {
    value = Array.isArray(value) ? value.map((each) => memberOf(each, name)) : memberOf(value, name);
  }
  return value;
}

function memberOf(value: unknown, name: string): unknown {
  return Reflect.get(Object(value), name);
}

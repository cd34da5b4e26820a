// What all operator commands share: they send a request to the daemon over its unix socket and print a table or JSON.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import type { InjectedRequest } from '../base/http/server.ts';
import type { Fields } from '../base/http/operator.ts';
import { request as httpRequest } from 'node:http';
import { codeOf } from '../../shared/errors.ts';
import { printable } from '../../shared/terminal.ts';

export interface CommandDeps {
  /** Sends the request to the daemon, or directly to the rooms if no daemon runs. */
  ask(configFile: string | undefined, request: InjectedRequest): Promise<Answer>;
  /** Writes a snapshot of the database to a new file. @throws Error if that is not possible */
  backup(configFile: string | undefined, file: string): Promise<Fields>;
  /** @throws Error if the file cannot be read */
  readFile(file: string): string;
  print(text: string): void;
  now(): number;
}

export interface CommonOptions {
  config?: string;
  json?: boolean;
}

export interface ListOptions extends CommonOptions {
  limit?: string;
  after?: string;
}

const Row = z.record(z.string(), z.unknown());
const Rows = z.union([
  z.strictObject({ data: z.array(Row), next_cursor: z.string().nullable().default(null) }),
  Row.transform((row) => ({ data: [row], next_cursor: null })),
]);
const Refusal = z.looseObject({ code: z.string(), detail: z.string(), request_id: z.string() });

export function withCommon(command: Command): Command {
  return command
    .option(
      '--config <file>',
      'configuration of the control plane; without it the one that SVC_CONFIG names, or the installed one',
    )
    .option('--json', 'print JSON, for programs');
}

/** The options of a list that is answered in pages. */
export function withPages(command: Command): Command {
  return withCommon(command)
    .option('--limit <count>', 'rows on a page, 1 to 1000; 100 without it')
    .option('--after <cursor>', 'the page after the one that ended with this cursor');
}

export interface SearchOptions extends ListOptions {
  search?: string;
}

/** Adds the options of a list that is searched. `what` says where, like `name or id`. */
export function withSearch(command: Command, what: string): Command {
  return withPages(command).option('--search <text>', `only those that have this text in ${what}`);
}

/** Prints a page of a list. `filters` without a value are left out. */
export function showPage(
  deps: CommandDeps,
  { limit, after, ...options }: ListOptions,
  path: string,
  filters: Record<string, string | undefined> = {},
): Promise<void> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries({ ...filters, limit, cursor: after })) {
    if (value !== undefined) query.set(name, value);
  }
  return show(deps, options, { method: 'GET', url: query.size === 0 ? path : `${path}?${query.toString()}` });
}

export async function show(deps: CommandDeps, options: CommonOptions, request: InjectedRequest): Promise<void> {
  printAnswer(deps, options, await askOrThrow(deps, options, request));
}

/** Prints one thing or a list of things, as a table or as JSON. If a list has more rows, the last line shows the option for the next page. */
export function printAnswer({ print }: Pick<CommandDeps, 'print'>, options: CommonOptions, body: unknown): void {
  if (options.json === true) return print(jsonLine(body));
  const { data, next_cursor: next } = Rows.parse(body);
  print(`${tableOf(data)}${next === null ? '' : `\nThere are more. The next page: --after ${next}\n`}`);
}

/** The document in one line. JSON itself escapes only some of the characters that a terminal obeys. */
export function jsonLine(body: unknown): string {
  const escaped = (sign: string): string => `\\u${sign.charCodeAt(0).toString(16).padStart(4, '0')}`;
  return `${JSON.stringify(body).replaceAll(/\p{Cc}|\p{Bidi_Control}/gu, escaped)}\n`;
}

/** Prints an answer that has several parts, each as a table. Members that are not objects or lists come first, in one table. */
export async function showParts(deps: CommandDeps, options: CommonOptions, request: InjectedRequest): Promise<void> {
  const body = await askOrThrow(deps, options, request);
  if (options.json === true) return deps.print(jsonLine(body));
  const parts = Object.entries(Row.parse(body));
  const own = parts.filter(([, value]) => !isPart(value));
  const tables = parts
    .filter(([, value]) => isPart(value))
    .map(([name, value]) => `${name}\n${tableOf(Array.isArray(value) ? z.array(Row).parse(value) : fieldsOf(value))}`);
  deps.print([...(own.length === 0 ? [] : [tableOf(fieldsOf(Object.fromEntries(own)))]), ...tables].join('\n'));
}

const isPart = (value: unknown): boolean => typeof value === 'object' && value !== null;
const fieldsOf = (value: unknown): Record<string, unknown>[] =>
  Object.entries(Row.parse(value)).map(([field, each]) => ({ field, value: each }));

/** The body of the answer. @throws Error with the detail of a refusal */
export async function askOrThrow(
  deps: CommandDeps,
  options: CommonOptions,
  request: InjectedRequest,
): Promise<unknown> {
  const { status, body } = await deps.ask(options.config, request);
  const parsed: unknown = JSON.parse(body);
  if (status < 400) return parsed;
  const refusal = Refusal.safeParse(parsed);
  if (!refusal.success) throw new Error(`the daemon answered ${status}`);
  const { code, detail, request_id: requestId } = refusal.data;
  // The log of the daemon has the cause under this id.
  throw new Error(printable(code === 'internal_error' ? `${detail} (${requestId})` : detail));
}

/** Replaces a text with only a day by the first moment of that day in UTC. Any other text is left to the daemon to check. */
export function readTime(text: string): string {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text;
}

/** Converts decimal dollars to whole cents. A JavaScript fraction would lose some cents. */
export function readCents(text: string): number {
  const [, dollars = '', cents = ''] = /^(\d{1,12})(?:\.(\d{1,2}))?$/.exec(text) ?? [];
  if (dollars === '') throw new InvalidArgumentError('must be dollars with at most two decimals, like 25 or 25.50');
  return Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
}

/** Limit of list entries in a cell. A key with all scopes would fill several lines. */
const ENTRIES_SHOWN = 3;

/** Limit of characters for a nested value. --json prints all of it. */
const NESTED_CHARS_SHOWN = 100;

/** A table with the members of the first row as columns. Nested values are printed as the beginning of their JSON, missing values as a dash. */
export function tableOf(rows: readonly Record<string, unknown>[]): string {
  const [first] = rows;
  if (first === undefined) return 'none\n';
  const columns = Object.keys(first);
  const cells = [columns, ...rows.map((row) => columns.map((column) => cellOf(row[column])))];
  const widths = columns.map((_, i) => Math.max(...cells.map((line) => line[i]?.length ?? 0)));
  const lines = cells.map((line) => line.map((cell, i) => cell.padEnd(widths[i] ?? 0)).join('  '));
  return `${lines.map((line) => line.trimEnd()).join('\n')}\n`;
}

export interface Answer {
  status: number;
  body: string;
}

/** The answer of the daemon; undefined if no daemon listens on the socket. Other failures, such as missing permission, throw. */
export function askDaemon(
  socketPath: string,
  { method, url, payload, headers: own }: InjectedRequest,
): Promise<Answer | undefined> {
  return new Promise((resolve, reject) => {
    const body = payload === undefined ? '' : JSON.stringify(payload);
    const headers = {
      ...own,
      ...(body === '' ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) }),
    };
    const request = httpRequest({ socketPath, method, path: url, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(chunks).toString() }));
      response.on('error', (error) => reject(unanswered(socketPath, error)));
    });
    request.on('error', (error) => {
      if (['ENOENT', 'ECONNREFUSED'].includes(codeOf(error) ?? '')) resolve(undefined);
      else reject(unanswered(socketPath, error));
    });
    request.end(body);
  });
}

function unanswered(socketPath: string, cause: Error): Error {
  const messages: Record<string, string> = {
    EACCES: `you may not use ${socketPath}: run this command as root, or as the user of the service`,
    ECONNRESET:
      'the control plane ended before it had answered: once it runs again, `admin audit list` shows whether the command took effect',
  };
  const message = messages[codeOf(cause) ?? ''];
  return message === undefined ? cause : new Error(message, { cause });
}

function cellOf(value: unknown): string {
  if (value === null || value === undefined || value === '') return '-';
  if (Array.isArray(value)) return listText(value);
  if (typeof value === 'string') return printable(value);
  const text = printable(JSON.stringify(value));
  return text.length > NESTED_CHARS_SHOWN ? `${text.slice(0, NESTED_CHARS_SHOWN)}...` : text;
}

function listText(values: readonly unknown[]): string {
  const shown = values.slice(0, ENTRIES_SHOWN).map(cellOf).join(', ');
  return values.length > ENTRIES_SHOWN ? `${shown} and ${values.length - ENTRIES_SHOWN} more` : shown;
}

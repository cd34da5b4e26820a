// Runs the commands that send exactly one request to the API. Each of these commands is an entry of a table.
import { readFileSync } from 'node:fs';
import type { Command } from 'commander';
import { messageOf } from '../../shared/errors.ts';
import type { Client } from './client.ts';
import { EXIT, inOptions, SvcError } from './exit.ts';
import {
  asStranger,
  type CommonOptions,
  isRecord,
  show,
  type Shown,
  signedIn,
  type SvcDeps,
  textOf,
  withCommon,
} from './command.ts';
import { kindIn, resolveName } from './names.ts';

export interface PlainOption {
  /** The option in the form that commander takes: `--name <text>`. */
  flags: string;
  help: string;
  in: 'query' | 'body';
  /** The member of the query or body. */
  to: string;
  /**
   * How the text becomes a value; `text` if left out. `file` reads the file of this name, and `machine` finds the id of a machine. `nullable` is a
   * text that is null if it is empty. The texts of a `repeated` option become one, separated by commas.
   */
  as?: 'text' | 'repeated' | 'nullable' | 'number' | 'list' | 'flag' | 'file' | 'machine';
  required?: boolean;
  /** The value that is sent for an option without a text (`as: 'flag'`). */
  value?: string;
}

export interface PlainCommand extends Partial<Shown> {
  /** The command's own words, for example `key add`. */
  words: readonly [noun: string, verb: string];
  help: string;
  method: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** The path below /v1. Each `{name}` is an argument. */
  path: string;
  options?: readonly PlainOption[];
  /** How the next page of a list is requested: by a cursor, or by the id of the last row, as in OpenAI's API. */
  pages?: 'cursor' | 'after';
  /** Members that are always in the body. */
  body?: Record<string, unknown>;
  /** True if the request needs no key. */
  isOpen?: boolean;
  /** What is printed for an answer without a body. */
  done?: string;
}

const LIMIT: PlainOption = { flags: '--limit <count>', help: 'rows on a page', in: 'query', to: 'limit' };
const PAGES: Readonly<Record<NonNullable<PlainCommand['pages']>, readonly PlainOption[]>> = {
  cursor: [LIMIT, { flags: '--cursor <cursor>', help: 'the page after this one', in: 'query', to: 'cursor' }],
  after: [LIMIT, { flags: '--after <id>', help: 'the page after the row with this id', in: 'query', to: 'after' }],
};
/** The option of all commands about one month. */
export const MONTH: PlainOption = {
  flags: '--month <month>',
  help: 'such as 2026-11; the present one without it',
  in: 'query',
  to: 'month',
};

/** The option of all commands that move stablecoins. */
export const CHAIN: PlainOption = {
  flags: '--chain <chain>',
  help: 'ethereum, base, arbitrum, polygon or solana',
  in: 'body',
  to: 'chain',
  required: true,
};

/** Adds the commands to the program. `nounOf` returns the parent command of a noun, like `svc key`. */
export function addPlainCommands(
  nounOf: (noun: string) => Command,
  commands: readonly PlainCommand[],
  deps: SvcDeps,
): void {
  for (const plain of commands) {
    const [noun, verb] = plain.words;
    const names = argumentsOf(plain.path);
    const line = [verb, ...names.map((name) => `<${name}>`)].join(' ');
    // `show` is the default verb of a noun: `svc balance` means `svc balance show`.
    const command = withCommon(nounOf(noun).command(line, { isDefault: verb === 'show' })).description(plain.help);
    for (const { flags, help, required, as } of optionsOf(plain)) {
      if (required === true) command.requiredOption(flags, help);
      else if (as === 'repeated') command.option(flags, help, joined);
      else command.option(flags, help);
    }
    command.action(async (...given: unknown[]) => {
      const options = given.at(-2) as CommonOptions & Record<string, unknown>;
      await runPlain(plain, { texts: given.slice(0, names.length).map(String), options }, deps);
    });
  }
}

/** Sets a member at a path, and makes the objects on the way. */
export function place(body: Record<string, unknown>, [name = '', ...rest]: readonly string[], value: unknown): void {
  if (rest.length === 0) {
    body[name] = value;
    return;
  }
  const inner = isRecord(body[name]) ? body[name] : {};
  body[name] = inner;
  place(inner, rest, value);
}

function joined(text: string, before?: string): string {
  return before === undefined ? text : `${before},${text}`;
}

/** The names of the arguments in a path, in order. */
export function argumentsOf(path: string): string[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name);
}

/** All options of a command, with those of its pages. */
export function optionsOf({ options = [], pages }: PlainCommand): readonly PlainOption[] {
  return pages === undefined ? options : [...options, ...PAGES[pages]];
}

async function runPlain(
  plain: PlainCommand,
  { texts, options }: { texts: string[]; options: CommonOptions & Record<string, unknown> },
  deps: SvcDeps,
): Promise<void> {
  const client = plain.isOpen === true ? asStranger(deps, options) : signedIn(deps, options);
  const { query, body } = await requestOf(plain, options, client);
  let path = plain.path;
  for (const text of texts) {
    const kind = kindIn(path);
    const id = kind === undefined ? text : await resolveName(client, text, { kind, isRead: plain.method === 'GET' });
    path = path.replace(/\{\w+\}/, encodeURIComponent(id));
  }
  const request = {
    method: plain.method,
    path: query.size === 0 ? path : `${path}?${query.toString()}`,
    ...(body === undefined ? {} : { body }),
  };
  const answer = await client.json(request).catch((error: unknown) => {
    throw inOptions(error, new Map(optionsOf(plain).map((option) => [option.to, longOf(option)])));
  });
  if (answer === null) return deps.tell(`${plain.done ?? 'done'}\n`);
  const { rows, columns = [], id = 'id', parts = [], sums = [], empty } = plain;
  show(deps, options, answer, { rows, columns, id, parts, sums, empty });
}

async function requestOf(
  plain: PlainCommand,
  options: Record<string, unknown>,
  client: Client,
): Promise<{ query: URLSearchParams; body: Record<string, unknown> | undefined }> {
  const query = new URLSearchParams();
  const body: Record<string, unknown> = structuredClone(plain.body ?? {});
  for (const option of optionsOf(plain)) {
    const given = options[attributeOf(option)];
    if (given === undefined) continue;
    const value = option.value ?? (await valueOf(option, textOf(given), client));
    if (option.in === 'query') query.set(option.to, textOf(value));
    else place(body, option.to.split('.'), value);
  }
  if (plain.method === 'PATCH' && Object.keys(body).length === 0)
    throw usage(`give at least one of ${optionsOf(plain).map(longOf).join(', ')}`);
  const hasBody = plain.options?.some((option) => option.in === 'body') === true || plain.body !== undefined;
  return { query, body: hasBody ? body : undefined };
}

/** The option as a person writes it: `--max-price`. */
function longOf({ flags }: PlainOption): string {
  return /--[\w-]+/.exec(flags)?.[0] ?? '';
}

/** The member in which commander stores an option: `--max-price <usd>` is `maxPrice`. */
function attributeOf(option: PlainOption): string {
  return longOf(option)
    .slice(2)
    .replaceAll(/-(\w)/g, (_, letter: string) => letter.toUpperCase());
}

async function valueOf({ flags, as = 'text' }: PlainOption, text: string, client: Client): Promise<unknown> {
  switch (as) {
    case 'number':
      return Number.isNaN(Number(text)) || text.trim() === '' ? invalid(flags, 'must be a number') : Number(text);
    case 'list':
      return text.split(',').map((entry) => entry.trim());
    case 'file':
      return contentOf(flags, text);
    case 'machine':
      return resolveName(client, text, { kind: 'machine', isRead: true });
    case 'nullable':
      return text === '' ? null : text;
    case 'text':
    case 'repeated':
    case 'flag':
      return text;
  }
}

function contentOf(flags: string, path: string): string {
  try {
    return readFileSync(path, 'utf8').trim();
  } catch (error) {
    return invalid(flags, `names a file that cannot be read: ${messageOf(error)}`);
  }
}

function invalid(flags: string, rule: string): never {
  throw usage(`${flags} ${rule}`);
}

function usage(message: string): SvcError {
  return new SvcError(EXIT.usage, { code: 'usage', message });
}

// What all operator commands share: they send a request to the daemon and print a table or JSON.
import { type Command, InvalidArgumentError } from 'commander';
import { z } from 'zod';
import type { InjectedRequest } from '../base/http/server.ts';
import type { Answer } from './admin-socket.ts';
import type { Fields } from '../base/http/operator.ts';
import { tableOf } from './table.ts';

export interface CommandDeps {
  /** Sends the request to the daemon, or directly to the rooms if no daemon runs. */
  ask(configFile: string | undefined, request: InjectedRequest): Promise<Answer>;
  /** Writes a snapshot of the database to a new file. @throws Error if that is not possible */
  backup(configFile: string | undefined, file: string): Promise<Fields>;
  print(text: string): void;
  now(): number;
}

export interface CommonOptions {
  config?: string;
  json?: boolean;
}

const Rows = z.union([
  z.strictObject({ data: z.array(z.record(z.string(), z.unknown())) }).transform(({ data }) => data),
  z.record(z.string(), z.unknown()).transform((row) => [row]),
]);
const Refusal = z.looseObject({ code: z.string(), detail: z.string(), request_id: z.string() });

export function withCommon(command: Command): Command {
  return command
    .option('--config <file>', 'configuration of the control plane; without it the one that SVC_CONFIG names')
    .option('--json', 'print JSON, for programs');
}

export async function show(deps: CommandDeps, options: CommonOptions, request: InjectedRequest): Promise<void> {
  printAnswer(deps, options, await askOrThrow(deps, options, request));
}

/** Prints one thing, or a list of things, as a table or as JSON. */
export function printAnswer({ print }: Pick<CommandDeps, 'print'>, options: CommonOptions, body: unknown): void {
  print(options.json === true ? `${JSON.stringify(body)}\n` : tableOf(Rows.parse(body)));
}

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
  throw new Error(code === 'internal_error' ? `${detail} (${requestId})` : detail);
}

/** A day stands for its first moment in UTC. The daemon checks everything else. */
export function readTime(text: string): string {
  return /^\d{4}-\d{2}-\d{2}$/.test(text) ? `${text}T00:00:00Z` : text;
}

/** Converts decimal dollars to whole cents. A JavaScript fraction would lose some cents. */
export function readCents(text: string): number {
  const [, dollars = '', cents = ''] = /^(\d{1,12})(?:\.(\d{1,2}))?$/.exec(text) ?? [];
  if (dollars === '') throw new InvalidArgumentError('must be dollars with at most two decimals, like 25 or 25.50');
  return Number(dollars) * 100 + Number(cents.padEnd(2, '0'));
}

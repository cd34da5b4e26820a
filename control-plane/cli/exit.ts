// How a command ends: its exit code, and the error that carries it.
import { messageOf } from '../../shared/errors.ts';
import { printable } from '../../shared/terminal.ts';

export const EXIT = {
  done: 0,
  failed: 1,
  usage: 2,
  notFound: 3,
  signIn: 4,
  operationFailed: 5,
  timedOut: 6,
  interrupted: 130,
} as const;

export interface Refusal {
  /** The code of the API, or one of our own in the same style. */
  code: string;
  message: string;
  /** The members of the request that the API finds at fault. The message need not name them. */
  fields?: readonly string[];
  /** What the person can do next. */
  next?: string;
  requestId?: string;
  /** True if the API refuses the request also later. */
  isFinal?: boolean;
  /** Id of an instance or operation that still exists and may cost money. */
  resourceId?: string;
}

/** An error that ends the command with an exit code. It is printed to stderr as text, or as an object with `--json`. */
export class SvcError extends Error {
  readonly exit: number;
  readonly refusal: Refusal;

  constructor(exit: number, refusal: Refusal) {
    super(refusal.message);
    this.name = 'SvcError';
    this.exit = exit;
    this.refusal = refusal;
  }

  /** A copy of this error that also has the id of something that still exists, and the next step for it. */
  about(resourceId: string, next: string): SvcError {
    return new SvcError(this.exit, { ...this.refusal, resourceId, next });
  }
}

/** The error of a command that Ctrl-C has ended. */
export function interruption(): SvcError {
  return new SvcError(EXIT.interrupted, { code: 'interrupted', message: 'interrupted' });
}

/** The error with which a command ends. After an interruption, other errors are only its consequences. */
export function knownError(error: unknown, interrupted?: AbortSignal): SvcError {
  if (error instanceof SvcError) return error;
  if (interrupted?.aborted === true) return interruption();
  return new SvcError(EXIT.failed, { code: 'failed', message: messageOf(error) });
}

/**
 * The error of a request. Its next step names the options of the command for the members that are at fault or that the message names. A member
 * inside an object has its path, like `requirements.regions`.
 */
export function inOptions(error: unknown, optionOf: ReadonlyMap<string, string>): unknown {
  if (!(error instanceof SvcError) || error.refusal.next !== undefined) return error;
  const { message, fields = [] } = error.refusal;
  const members = new Set([...fields, ...membersIn(message)].map((path) => memberAt(path, optionOf)));
  const named = [...optionOf].filter(([member]) => members.has(member));
  if (named.length === 0) return error;
  const next = `${named.map(([member, option]) => `${member} is ${option}`).join(', ')}.`;
  return new SvcError(error.exit, { ...error.refusal, next });
}

/** The members that a sentence names: in backquotes, or a word that no language has. A word like "name" may only be a word of the sentence. */
function membersIn(sentence: string): string[] {
  const quoted = [...sentence.matchAll(/`([a-z_.]+)`/g)].map(([, path = '']) => path);
  return [...quoted, ...(sentence.match(/\b[a-z]+(?:[._][a-z]+)+\b/g) ?? [])];
}

/** The member at this path, or the one that has it inside, as `env` has `env.path`. */
function memberAt(path: string, optionOf: ReadonlyMap<string, string>): string {
  const at = path.lastIndexOf('.');
  return optionOf.has(path) || at === -1 ? path : memberAt(path.slice(0, at), optionOf);
}

/** The text for a person: one line, and the next step in a second one. */
export function errorText({ refusal }: SvcError): string {
  const { message, next, requestId, resourceId } = refusal;
  const about = [
    ...(resourceId === undefined ? [] : [resourceId]),
    ...(requestId === undefined ? [] : [`request ${requestId}`]),
  ];
  const first = printable(`svc: ${message}${about.length === 0 ? '' : ` (${about.join(', ')})`}`);
  return next === undefined ? `${first}\n` : `${first}\n${printable(next)}\n`;
}

/** The error as JSON, for programs. */
export function errorJson({ refusal }: SvcError): string {
  const { code, message, next, requestId, resourceId } = refusal;
  const document = {
    code,
    message,
    next: next ?? null,
    request_id: requestId ?? null,
    ...(resourceId === undefined ? {} : { resource_id: resourceId }),
  };
  return `${JSON.stringify(document)}\n`;
}

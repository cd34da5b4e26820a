// Checks a training file during its upload: JSON lines, each a conversation that ends with the answer to learn.
import { isUtf8 } from 'node:buffer';
import { hash } from 'node:crypto';
import type { TrainingProblem, TrainingReport } from '../../../shared/api/file.ts';
import { parseJson, TooManyValues } from '../../../shared/json.ts';
import {
  JSON_VALUES_MAX,
  TRAINING_EXAMPLES_MIN,
  TRAINING_LINE_BYTES_MAX,
  TRAINING_PROBLEMS_MAX,
} from '../../../shared/limits.ts';
import { openPieces } from '../../../shared/pieces.ts';
import { estimatedTokens } from '../gateway/price.ts';

/** A repeated line is looked for among this number of lines. Their hashes take a few megabytes for each upload. */
const HASHES_MAX = 100_000;
/** Number of problems after which the check stops, so that a useless file does not keep the processor busy. */
const PROBLEMS_COUNTED_MAX = 10_000;

type Rule = TrainingProblem['rule'];

export interface Check {
  /** The next piece of the file, of any length. */
  take(piece: Uint8Array): void;
  /** The result of the check. Must be called after the last piece. */
  report(): TrainingReport;
}

/** Keeps one line in memory. Accepts a byte order mark, CRLF, and empty lines at the end. */
export function openCheck(): Check {
  const problems: TrainingProblem[] = [];
  const seen = new Set<number>();
  const counts = { lines: 0, examples: 0, tokens: 0, problems: 0, repeated: 0, emptyLines: 0 };

  const note = (line: number | null, rule: Rule, message: string): void => {
    counts.problems += 1;
    if (problems.length < TRAINING_PROBLEMS_MAX) problems.push({ line, rule, message });
  };
  const isHopeless = (): boolean => counts.problems >= PROBLEMS_COUNTED_MAX;

  const lines = openLines((line, bytes) => {
    if (isHopeless()) return;
    counts.lines += 1;
    if (isEmpty(line)) {
      counts.emptyLines += 1;
      return;
    }
    // Empty lines are allowed only at the end of the file. This line has content, so the empty lines before it are faults.
    for (; counts.emptyLines > 0 && !isHopeless(); counts.emptyLines -= 1) {
      note(counts.lines - counts.emptyLines, 'empty_line', 'The line is empty.');
    }
    const example = bytes > TRAINING_LINE_BYTES_MAX ? TOO_LONG : readLine(line, counts.lines === 1);
    if (!('contents' in example)) {
      note(counts.lines, example.rule, example.message);
      return;
    }
    counts.examples += 1;
    counts.tokens += estimatedTokens(example.contents);
    if (counts.examples > HASHES_MAX) return;
    const mark = hash('sha256', line, 'buffer').readUIntBE(0, 6);
    if (seen.has(mark)) counts.repeated += 1;
    seen.add(mark);
  });

  return {
    take: (piece) => {
      if (!isHopeless()) lines.take(piece);
    },
    report: () => {
      lines.end();
      if (counts.examples < TRAINING_EXAMPLES_MIN) {
        const has = `The file has ${counts.examples} valid example(s), and must have at least ${TRAINING_EXAMPLES_MIN}.`;
        note(null, 'too_few_examples', has);
      }
      return {
        valid: counts.problems === 0,
        examples: counts.examples,
        estimated_tokens: counts.tokens,
        problems_found: counts.problems,
        problems,
        repeated_examples: counts.repeated,
      };
    },
  };
}

/** Passes on each line without its line end. It stores only the beginning of a line that is too long; `bytes` is the whole length. */
function openLines(onLine: (line: Uint8Array, bytes: number) => void): { take(piece: Uint8Array): void; end(): void } {
  let parts = openPieces();
  let bytes = 0;
  const keep = (part: Uint8Array): void => {
    if (bytes <= TRAINING_LINE_BYTES_MAX && part.length > 0) parts.add(part);
    bytes += part.length;
  };
  const endLine = (): void => {
    const line = oneBuffer(parts.list());
    const length = bytes;
    parts = openPieces();
    bytes = 0;
    onLine(line, length);
  };
  return {
    take: (piece) => {
      let start = 0;
      for (let end = piece.indexOf(NEWLINE); end !== -1; end = piece.indexOf(NEWLINE, start)) {
        keep(piece.subarray(start, end));
        endLine();
        start = end + 1;
      }
      keep(piece.subarray(start));
    },
    end: () => {
      if (bytes > 0) endLine();
    },
  };
}

const NEWLINE = 10;
const SPACE = 32;
const TAB = 9;
const CARRIAGE_RETURN = 13;
const BYTE_ORDER_MARK = '\uFEFF';

const TOO_LONG: Fault = {
  rule: 'line_too_long',
  message: `The line has more than ${TRAINING_LINE_BYTES_MAX} bytes.`,
};

function oneBuffer(parts: readonly Uint8Array[]): Uint8Array {
  const [only] = parts;
  return parts.length === 1 && only !== undefined ? only : Buffer.concat(parts);
}

function isEmpty(line: Uint8Array): boolean {
  for (const byte of line) if (byte !== SPACE && byte !== TAB && byte !== CARRIAGE_RETURN) return false;
  return true;
}

function readLine(line: Uint8Array, isFirst: boolean): Example | Fault {
  if (!isUtf8(line)) return { rule: 'not_utf8', message: 'The line is not UTF-8.' };
  const text = Buffer.from(line.buffer, line.byteOffset, line.length).toString('utf8');
  return readExample(isFirst && text.startsWith(BYTE_ORDER_MARK) ? text.slice(1) : text);
}

interface Fault {
  rule: Rule;
  message: string;
}

interface Example {
  contents: string[];
}

/** The first fault of a line, in the order in which a person would correct them. */
function readExample(text: string): Example | Fault {
  let value: unknown;
  try {
    value = parseJson(text, JSON_VALUES_MAX);
  } catch (error) {
    if (error instanceof TooManyValues) return { rule: 'too_many_values', message: `The line has ${error.message}.` };
    return { rule: 'not_json', message: `The line is not JSON: ${error instanceof Error ? error.message : ''}.` };
  }
  if (!isObject(value)) return { rule: 'not_an_object', message: 'The line must be a JSON object.' };
  const { messages, ...others } = value;
  if (!Array.isArray(messages) || messages.length === 0) {
    return { rule: 'missing_messages', message: 'The example must have "messages", a list of at least one message.' };
  }
  const [other] = Object.keys(others);
  if (other !== undefined)
    return { rule: 'unrecognized_key', message: `${quoted(other)} is not known beside "messages".` };
  const fault = messages.map(messageFault).find((each) => each !== undefined);
  return (
    fault ?? endingFault(messages as Message[]) ?? { contents: (messages as Message[]).map(({ content }) => content) }
  );
}

interface Message {
  role: string;
  content: string;
}

/** The same roles as in a chat request. */
const ROLES = ['system', 'user', 'assistant'];
const MESSAGE_KEYS = ['role', 'content', 'name', 'weight'];

function messageFault(message: unknown, index: number): Fault | undefined {
  const at = `messages[${index}]`;
  if (!isObject(message)) return { rule: 'message_not_an_object', message: `${at} must be an object.` };
  const missing = ['role', 'content'].find((key) => !(key in message));
  if (missing !== undefined) return { rule: 'message_missing_key', message: `${at} has no "${missing}".` };
  const unknown = Object.keys(message).find((key) => !MESSAGE_KEYS.includes(key));
  if (unknown !== undefined) {
    return { rule: 'message_unrecognized_key', message: `${at}: ${quoted(unknown)} is not known in a message.` };
  }
  const { role, content, weight } = message;
  if (typeof role !== 'string' || !ROLES.includes(role)) {
    return { rule: 'unrecognized_role', message: `${at}.role must be one of ${ROLES.join(', ')}.` };
  }
  if (typeof content !== 'string' || content.trim() === '') {
    return { rule: 'missing_content', message: `${at}.content must be a text that is not empty.` };
  }
  const cut = ['content', 'name'].find((key) => isCut(message[key]));
  if (cut !== undefined) {
    return { rule: 'not_utf8', message: `${at}.${cut} has half of a surrogate pair: an emoji was cut in two.` };
  }
  if (weight !== undefined && (role !== 'assistant' || (weight !== 0 && weight !== 1))) {
    return { rule: 'invalid_weight', message: `${at}.weight must be 0 or 1, and only of the assistant.` };
  }
  return undefined;
}

/** JSON can escape half of a pair. Readers of JSON in other languages refuse such a text, so the trainer would fail. */
function isCut(text: unknown): boolean {
  return typeof text === 'string' && !text.isWellFormed();
}

function endingFault(messages: readonly Message[]): Fault | undefined {
  if (!messages.some(({ role }) => role === 'assistant')) {
    return {
      rule: 'example_missing_assistant_message',
      message: 'The example has no message of the assistant to learn from.',
    };
  }
  if (messages.at(-1)?.role === 'assistant') return undefined;
  return { rule: 'last_message_not_assistant', message: 'The last message must be of the assistant.' };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Shortens and quotes a name from a stranger's file. */
function quoted(name: string): string {
  return JSON.stringify(name.slice(0, 64));
}

// Reads a YAML configuration file and checks it. Every error names its line or its setting.
import { LineCounter, parseDocument } from 'yaml';
import type { z } from 'zod';
import { fieldErrors } from './api/problem.ts';
import { codeOf, messageOf } from './errors.ts';

/**
 * The validated configuration in `text`. Throws one Error that lists every problem as `file:line: path: reason`;
 * unknown keys are problems if the schema is strict. An empty file counts as `{}`.
 */
export function parseYamlConfig<T>(text: string, schema: z.ZodType<T>, fileName: string): T {
  const lines = new LineCounter();
  const document = parseDocument(text, { lineCounter: lines });
  const complaints = document.errors.map(
    (error) => `${fileName}:${lines.linePos(error.pos[0]).line}: ${firstLine(error.message)}`,
  );
  if (complaints.length > 0) throw new Error(complaints.join('\n'));
  const input: unknown = document.toJS() ?? {};
  const parsed = schema.safeParse(input);
  if (parsed.success) return parsed.data;
  const lineOf = (path: string): number => {
    const names = path.split(/[.[\]]+/).filter((name) => name !== '');
    for (let depth = names.length; depth > 0; depth -= 1) {
      const offset = keyOffset(document.contents, names.slice(0, depth));
      if (offset !== undefined) return lines.linePos(offset).line;
    }
    return 1;
  };
  const found = fieldErrors(parsed.error, input, 'the file');
  throw new Error(found.map(({ field, rule }) => `${fileName}:${lineOf(field)}: ${field}: ${rule}`).join('\n'));
}

const FILE_FAULTS: Record<string, string> = {
  ENOENT: 'does not exist',
  EISDIR: 'is a directory',
  EACCES: 'may not be read by this user',
};

/** Reads the file `path` that `setting` names. @throws Error that names the setting if the file cannot be read */
export function readNamed<T>(setting: string, path: string, read: (path: string) => T): T {
  try {
    return read(path);
  } catch (error) {
    const code = codeOf(error) ?? '';
    throw new Error(`${setting} names ${path}, which ${FILE_FAULTS[code] ?? `cannot be read: ${messageOf(error)}`}`, {
      cause: error,
    });
  }
}

/** The offset of the last key of `path` in the text. */
function keyOffset(root: unknown, path: readonly string[]): number | undefined {
  let node = root;
  let offset: number | undefined;
  for (const name of path) {
    const items: readonly unknown[] = isObject(node) && Array.isArray(node['items']) ? node['items'] : [];
    const pair = items.find((item, index) => keyName(item) === name || (!isPair(item) && String(index) === name));
    if (pair === undefined) return undefined;
    offset = startOf(isPair(pair) ? pair['key'] : pair) ?? offset;
    node = isPair(pair) ? pair['value'] : pair;
  }
  return offset;
}

function keyName(item: unknown): string | undefined {
  return isPair(item) && isObject(item['key']) ? String(item['key']['value']) : undefined;
}

function startOf(node: unknown): number | undefined {
  const range = isObject(node) ? node['range'] : undefined;
  return Array.isArray(range) && typeof range[0] === 'number' ? range[0] : undefined;
}

function isPair(item: unknown): item is Record<string, unknown> {
  return isObject(item) && 'key' in item && 'value' in item;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function firstLine(text: string): string {
  return text.split('\n')[0] ?? text;
}

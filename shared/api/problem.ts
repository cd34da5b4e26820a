// The problem document: how every refusal and failure looks to a caller (RFC 9457 and our own members). Its entries for broken rules are made
// here from zod issues, with the field and the rule in plain words. Configuration errors use the same words.
import { z } from 'zod';
import type { FieldError } from '../errors.ts';

/** Further members may follow, e.g. `current_price_per_hour`. */
export const Problem = z
  .looseObject({
    type: z.string().describe('`urn:svc:error:` and the code'),
    title: z.string().describe('The code in a few words; the same for every occurrence'),
    status: z.int().describe('The HTTP status of this response'),
    detail: z.string().describe('What went wrong here and what to do about it'),
    instance: z.string().describe('The path of the request'),
    code: z.string().describe('Stable identifier of the kind of problem; branch on this one'),
    request_id: z.string().describe('Id of the request, also in the X-Request-Id header. Quote it if you ask for help'),
    errors: z
      .array(
        z.strictObject({
          field: z.string().describe('Path in the body like `ports[2].port`, or the name of a parameter or header'),
          rule: z.string().describe('The rule that was broken'),
        }),
      )
      .describe('One entry for each broken rule, empty if no field is at fault'),
  })
  .meta({ id: 'Problem' });
export type Problem = z.infer<typeof Problem>;

/** Lists every broken rule of `input`. If a rule is about the whole input, the field of its entry is `whole`. */
export function fieldErrors(error: z.ZodError, input: unknown, whole: string): FieldError[] {
  const mistyped = new Set(
    error.issues.filter(({ code }) => code === 'invalid_type').map(({ path }) => fieldPath(path)),
  );
  // If the value has the wrong type, only that is reported. A rule about its length would mislead: a list has no characters.
  const telling = error.issues.filter((issue) => issue.code === 'invalid_type' || !mistyped.has(fieldPath(issue.path)));
  return telling.flatMap((issue) => explain(issue, input, whole));
}

/**
 * Lists the texts at any depth of `value` that a program behind us cannot take. PostgreSQL cannot store U+0000. A half of a surrogate pair
 * is not a character: PostgreSQL would store another text, and model servers answer it with a failure that looks like their own.
 */
export function textErrors(value: unknown, whole: string): FieldError[] {
  if (!hasBadText(value)) return [];
  const search = (inner: unknown, path: readonly PropertyKey[]): FieldError[] => {
    if (typeof inner === 'string') {
      const rule = textRule(inner);
      return rule === undefined ? [] : [{ field: fieldPath(path) || whole, rule }];
    }
    if (typeof inner !== 'object' || inner === null) return [];
    const entries: [PropertyKey, unknown][] = Array.isArray(inner) ? [...inner.entries()] : Object.entries(inner);
    return entries.flatMap(([name, child]) => search(child, [...path, name]));
  };
  return search(value, []);
}

/** Searches for a bad text without its path. Almost no request has one, so the path is searched only afterwards. */
function hasBadText(value: unknown): boolean {
  if (typeof value === 'string') return textRule(value) !== undefined;
  if (typeof value !== 'object' || value === null) return false;
  return Object.values(value).some(hasBadText);
}

function textRule(text: string): string | undefined {
  if (text.includes('\0')) return 'must not contain the character U+0000';
  return text.isWellFormed() ? undefined : 'must not contain a half of a surrogate pair: an emoji was cut in two';
}

function explain(issue: z.core.$ZodIssue, input: unknown, whole: string): FieldError[] {
  const field = fieldPath(issue.path) || whole;
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({ field: fieldPath([...issue.path, key]), rule: 'is not a known field' }));
  }
  // If a value is missing, zod reports only the expected type. Our own rules (`custom`) explain when it is required.
  if (valueAt(input, issue.path) === undefined && issue.code !== 'custom') return [{ field, rule: 'is required' }];
  if (issue.code === 'invalid_union') return explainUnion(issue, input, whole);
  if (issue.code === 'invalid_key') {
    return [{ field, rule: `is not an allowed name: ${issue.issues.map(ruleOf).join(', ')}` }];
  }
  return [{ field, rule: ruleOf(issue) }];
}

/** If one branch accepts the type of the value, its complaints help the caller. Otherwise the allowed types are listed. */
function explainUnion(issue: z.core.$ZodIssueInvalidUnion, input: unknown, whole: string): FieldError[] {
  const field = fieldPath(issue.path) || whole;
  const meant = issue.errors.filter((branch) => !branch.some((inner) => inner.path.length === 0 && isTypeIssue(inner)));
  const [branch] = meant;
  if (meant.length === 1 && branch !== undefined) {
    return branch.flatMap((inner) => explain({ ...inner, path: [...issue.path, ...inner.path] }, input, whole));
  }
  const rules = [
    ...new Set(
      issue.errors
        .flat()
        .filter((inner) => inner.path.length === 0)
        .map(ruleOf),
    ),
  ];
  return [{ field, rule: rules.length === 0 ? issue.message : rules.join(' or ') }];
}

function isTypeIssue(issue: z.core.$ZodIssue): boolean {
  return issue.code === 'invalid_type' || issue.code === 'invalid_value';
}

const TYPE_WORDS: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  object: 'an object',
  record: 'an object',
  array: 'an array',
};

const FORMAT_WORDS: Record<string, string> = {
  datetime: 'must be an ISO 8601 UTC time like 2026-01-31T12:00:00Z',
  uuid: 'must be a UUID',
  url: 'must be a URL',
  email: 'must be an address like you@example.com',
  date: 'must be a date like 2026-01-31',
  regex: 'has a wrong form',
};

function ruleOf(issue: z.core.$ZodIssue): string {
  // If a message is not one of zod's own, the author of the schema wrote it for this rule, so it is used as it is.
  if (!/^(Invalid|Too|Unrecognized)\b/.test(issue.message)) return issue.message;
  switch (issue.code) {
    case 'invalid_type':
      return `must be ${TYPE_WORDS[issue.expected] ?? issue.expected}`;
    case 'invalid_value':
      return `must be ${issue.values.length === 1 ? '' : 'one of '}${issue.values.map(String).join(', ')}`;
    case 'too_small':
      return `must ${boundWords(issue.origin, issue.inclusive === false ? 'more than' : 'at least', issue.minimum)}`;
    case 'too_big':
      return `must ${boundWords(issue.origin, issue.inclusive === false ? 'less than' : 'at most', issue.maximum)}`;
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}`;
    case 'invalid_format':
      return FORMAT_WORDS[issue.format] ?? `must be a valid ${issue.format}`;
    default:
      return issue.message;
  }
}

function boundWords(origin: string, comparison: string, bound: number | bigint): string {
  const isOne = Number(bound) === 1;
  if (origin === 'string') return `have ${comparison} ${bound} ${isOne ? 'character' : 'characters'}`;
  if (origin === 'array' || origin === 'set') return `have ${comparison} ${bound} ${isOne ? 'entry' : 'entries'}`;
  return `be ${comparison} ${bound}`;
}

/** `ports[2].port` */
export function fieldPath(path: readonly PropertyKey[]): string {
  return path
    .map((part, i) => (typeof part === 'number' ? `[${part}]` : `${i === 0 ? '' : '.'}${String(part)}`))
    .join('');
}

function valueAt(input: unknown, path: readonly PropertyKey[]): unknown {
  let value = input;
  for (const part of path) {
    if (typeof value !== 'object' || value === null) return undefined;
    value = Reflect.get(value, part);
  }
  return value;
}

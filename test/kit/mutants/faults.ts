// Finds the faults that can be planted in a source: small changes that a test should notice.
import { parseSync } from 'oxc-parser';
import { sqlFaults } from './sql-faults.ts';

/** The text from `start` to `end` becomes `replacement`. */
export interface Fault {
  /** The path of the file, relative to the project. */
  path: string;
  line: number;
  start: number;
  end: number;
  replacement: string;
  /** Names the kind of fault, for example `condition negated`. */
  what: string;
  /** The text that the fault replaces, on one line. */
  was: string;
}

/** A change within one text. Its file and its line are added later. */
export type Change = Pick<Fault, 'start' | 'end' | 'replacement' | 'what'>;

/** The part of a syntax tree node that this file reads. */
interface Node {
  type: string;
  start: number;
  end: number;
  operator?: string;
  value?: unknown;
  raw?: string;
  test?: Node | null;
  left?: Node;
  right?: Node;
  expression?: Node;
  argument?: Node;
  callee?: Node;
  object?: Node;
  property?: Node;
  name?: string;
  tag?: Node;
  quasi?: Node;
}

/** A boundary moves by one, and an equality becomes its opposite. */
const COMPARISONS: Record<string, string> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
};
const EQUALITIES = new Set(['===', '!==']);
const WITH_TEST = new Set(['IfStatement', 'ConditionalExpression', 'WhileStatement']);
/** Nothing below these nodes has behaviour. */
const NO_BEHAVIOUR = /^(TSTypeAnnotation|TSTypeParameter\w*|TSInterface\w*|TSTypeAlias\w*|ImportDeclaration)$/;

/** Returns all faults of one source, in the order of the text. */
export function faultsOf(path: string, text: string): Fault[] {
  const changes: Change[] = [];
  walk(parseSync(path, text).program, undefined, (node, parent) => changes.push(...changesOf(node, parent, text)));
  return changes
    .map((change) => {
      const was = text.slice(change.start, change.end).replace(/\s+/g, ' ').trim();
      return { path, line: lineAt(text, change.start), was, ...change };
    })
    .filter((fault) => parseSync(path, planted(text, [fault])).errors.length === 0)
    .toSorted((one, other) => one.start - other.start || one.what.localeCompare(other.what));
}

/** Returns the text with all of these faults, which must not overlap. */
export function planted(text: string, faults: readonly Change[]): string {
  return faults
    .toSorted((one, other) => other.start - one.start)
    .reduce((rest, { start, end, replacement }) => rest.slice(0, start) + replacement + rest.slice(end), text);
}

function changesOf(node: Node, parent: Node | undefined, text: string): Change[] {
  const cut = ({ start, end }: Node): string => text.slice(start, end);
  const { type, left, right, operator = '', test, tag } = node;
  if (WITH_TEST.has(type) && test !== null && test !== undefined) {
    return [{ start: test.start, end: test.end, replacement: `!(${cut(test)})`, what: 'condition negated' }];
  }
  if (type === 'LogicalExpression' && operator !== '??' && left !== undefined && right !== undefined) {
    const { start, end } = node;
    const what = `one side of ${operator} dropped`;
    return [left, right].map((kept) => ({ start, end, replacement: cut(kept), what }));
  }
  if (type === 'BinaryExpression' && left !== undefined && right !== undefined) {
    // If the whole condition is an equality, negating the condition is the same fault.
    const isCondition = parent?.test === node && EQUALITIES.has(operator);
    return isCondition ? [] : compared(node, [left, right], text);
  }
  if (type === 'ExpressionStatement' && node.expression !== undefined && isEffect(node.expression)) {
    return [{ start: node.start, end: node.end, replacement: ';', what: 'statement dropped' }];
  }
  if (type === 'Literal') return constantChanged(node, parent);
  if (type === 'TaggedTemplateExpression' && tag?.name === 'sql' && node.quasi !== undefined) {
    const { start, end } = node.quasi;
    return sqlFaults(text.slice(start + 1, end - 1)).map((change) => ({
      ...change,
      start: change.start + start + 1,
      end: change.end + start + 1,
    }));
  }
  return [];
}

function compared({ operator = '' }: Node, [left, right]: readonly [Node, Node], text: string): Change[] {
  const swapped = COMPARISONS[operator];
  const between = text.slice(left.end, right.start);
  // Most strings that are joined are messages.
  const isText = [left, right].some(({ type, value }) => type === 'TemplateLiteral' || typeof value === 'string');
  if (swapped === undefined || (operator === '+' && isText)) return [];
  const start = left.end + between.indexOf(operator);
  const what = EQUALITIES.has(operator) ? 'equality turned round' : `${operator} became ${swapped}`;
  return [{ start, end: start + operator.length, replacement: swapped, what }];
}

/** True for a call (awaited or not) and for an assignment. Log calls do not count: no test asserts every log line. */
function isEffect(expression: Node): boolean {
  const { type, argument, callee, operator } = expression;
  if (type === 'AwaitExpression' || (type === 'UnaryExpression' && operator === 'void')) {
    return argument !== undefined && isEffect(argument);
  }
  if (type === 'AssignmentExpression' || type === 'UpdateExpression') return true;
  if (type !== 'CallExpression') return false;
  const owner = callee?.object;
  return owner?.name !== 'log' && owner?.property?.name !== 'log';
}

function constantChanged(node: Node, parent: Node | undefined): Change[] {
  const { value, raw = '', start, end } = node;
  // Most of these defaults are for values that are always there.
  if (parent?.operator === '??') return [];
  const what = `constant ${raw} changed`;
  // A test can miss that a limit of 24 hours is 25, but not that it is 48.
  if (typeof value === 'number') return [{ start, end, replacement: String(value < 10 ? value + 1 : value * 2), what }];
  if (typeof value === 'bigint')
    return [{ start, end, replacement: `${value < 10n ? value + 1n : value * 2n}n`, what }];
  if (typeof value === 'boolean') return [{ start, end, replacement: String(!value), what }];
  // All other strings are names and messages.
  const isCompared = EQUALITIES.has(parent?.operator ?? '') || parent?.type === 'SwitchCase';
  return typeof value === 'string' && isCompared ? [{ start, end, replacement: `'${value}?'`, what }] : [];
}

function walk(value: unknown, parent: Node | undefined, visit: (node: Node, parent: Node | undefined) => void): void {
  if (typeof value !== 'object' || value === null) return;
  if (Array.isArray(value)) return value.forEach((each) => walk(each, parent, visit));
  const node = value as Node;
  if (typeof node.type !== 'string') return;
  if (NO_BEHAVIOUR.test(node.type)) return;
  visit(node, parent);
  for (const each of Object.values(node)) walk(each, node, visit);
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split('\n').length;
}

// Finds out which tests run the code of a fault: a test that never comes there cannot notice the fault.
import { readFileSync } from 'node:fs';
import { parseSync } from 'oxc-parser';
import { type Change, type Fault, planted } from './faults.ts';

/** The part of a syntax tree node that this file reads. */
interface Node {
  type: string;
  start: number;
  end: number;
  body?: unknown;
}

/**
 * Returns the source with a probe in the smallest block around each of these faults. The first time that a test comes there, the probe adds
 * the number of the fault and the path of the test file to the file `reachedPath`. A fault outside any block is reached by every test that
 * loads the source.
 */
export function withProbes(text: string, faults: ReadonlyMap<Fault, number>, reachedPath: string): string {
  const blocks = blocksOf(text);
  const whole = { start: 0, end: text.length, isBlock: true };
  const changes: Change[] = [];
  let atEnd = '';
  for (const [fault, number] of faults) {
    const around = blocks
      .filter(({ start, end }) => start <= fault.start && fault.end <= end)
      .reduce((small, next) => (next.end - next.start < small.end - small.start ? next : small), whole);
    if (around === whole) atEnd += `\nreachedByTest(${number});`;
    else changes.push(...probeIn(around, number));
  }
  return `${planted(text, changes)}${atEnd}\n${reporter(reachedPath)}`;
}

/** Reads what the probes have written: the number of each fault that was reached, and the test files that came there. */
export function readReached(reachedPath: string): Map<number, Set<string>> {
  const found = new Map<number, Set<string>>();
  for (const line of readFileSync(reachedPath, 'utf8').split('\n').filter(Boolean)) {
    const [number = '', ...path] = line.split(' ');
    const files = found.get(Number(number)) ?? new Set();
    found.set(Number(number), files.add(path.join(' ')));
  }
  return found;
}

interface Block {
  start: number;
  end: number;
  /** False for the body of an arrow function that is one expression. */
  isBlock: boolean;
}

function blocksOf(text: string): Block[] {
  const blocks: Block[] = [];
  const walk = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    if (Array.isArray(value)) return value.forEach(walk);
    const { type, start, end, body } = value as Node;
    if (type === 'BlockStatement') blocks.push({ start, end, isBlock: true });
    if (type === 'ArrowFunctionExpression' && (body as Node).type !== 'BlockStatement') {
      blocks.push({ start: (body as Node).start, end: (body as Node).end, isBlock: false });
    }
    Object.values(value).forEach(walk);
  };
  walk(parseSync('a.ts', text).program);
  return blocks;
}

function probeIn({ start, end, isBlock }: Block, number: number): Change[] {
  const call = `reachedByTest(${number})`;
  const insert = (at: number, replacement: string): Change => ({ start: at, end: at, replacement, what: 'probe' });
  return isBlock ? [insert(start + 1, `${call};`)] : [insert(start, `(${call}, `), insert(end, ')')];
}

/** Vitest names the test file that a worker runs. Programs that a test starts have no such name, and report nothing. */
function reporter(reachedPath: string): string {
  return `function reachedByTest(number) {
  const file = globalThis.__vitest_worker__?.filepath;
  const line = number + ' ' + file + '\\n';
  reachedByTest.lines ??= new Set();
  if (file === undefined || reachedByTest.lines.has(line)) return;
  reachedByTest.lines.add(line);
  process.getBuiltinModule('node:fs').appendFileSync(${JSON.stringify(reachedPath)}, line);
}
`;
}

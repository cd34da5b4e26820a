// Runs the sampler of planted faults on a small project: which faults it finds in a text, and which it reports as caught.
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { faultsOf, planted } from './mutants/faults.ts';
import { hunt } from './mutants/mutants.ts';
import { readReached, withProbes } from './mutants/probes.ts';

const CHECKOUT = resolve(import.meta.dirname, '../..');

/** Returns the text with each of its faults. */
const leaves = (text: string): string[] => faultsOf('a.ts', text).map((fault) => planted(text, [fault]));

describe('the faults of a text', () => {
  test.each<[string, string, string[]]>([
    ['a condition', 'if (a) b;', ['if (!(a)) b;']],
    ['one side of a condition', 'x(a && b);', [';', 'x(a);', 'x(b);']],
    ['a boundary', 'return_ = a < b', [';', 'return_ = a <= b']],
    ['an equality', 'const x = a === b;', ['const x = a !== b;']],
    ['a compared word', "const x = a === 'on';", ["const x = a !== 'on';", "const x = a === 'on?';"]],
    ['a constant', 'const X_MAX = 1_000;', ['const X_MAX = 2000;']],
    ['no default', 'const x = row?.count ?? 0;', []],
    ['a call that is awaited', 'await tx.run();', [';']],
    ['nothing that is only logged', "deps.log.warn({}, 'x'); log.info('y');", []],
    ['no type, and no message', "type A = 1 | 2; const x: A = f('a' + b);", []],
  ])('are %s', (_what, text, expected) => {
    expect(leaves(text)).toEqual(expected);
  });

  test.each<[string, string, string[]]>([
    ['each of several conditions', 'where a = 1 and b is null', ['where b is null', 'where a = 1']],
    ['the only condition', 'where id = ${id}', ['where 1 = 1']],
    ['no condition out of its brackets', 'where (a = 1 or b = 2) limit 1', ['where 1 = 1 limit 1']],
    [
      'a condition of a query within another',
      'where id in (select id from t where a and b) and c',
      [
        'where c',
        'where id in (select id from t where b) and c',
        'where id in (select id from t where a) and c',
        'where id in (select id from t where a and b)',
      ],
    ],
    ['a boundary', 'set x = 1 where due <= ${now}', ['set x = 1 where 1 = 1', 'set x = 1 where due < ${now}']],
    ['a condition before what is done', 'where a and b do nothing', ['where b do nothing', 'where a do nothing']],
    ['a tie-break', 'order by a, b limit ${n}', ['order by a limit ${n}']],
    ['none where `and` belongs to `between`', 'where a between 1 and 2', []],
  ])('of SQL are %s', (_what, query, expected) => {
    const wrapped = (text: string): string => `sql\`${text}\``;
    expect(leaves(wrapped(query))).toEqual(expected.map(wrapped));
  });
});

describe('a probe', () => {
  const probed = (text: string): string =>
    withProbes(text, new Map(faultsOf('a.ts', text).map((fault, number) => [fault, number])), '/reached');

  test.each([
    ['at the beginning of its block', 'function f() { g(); }', 'function f() {reachedByTest(0); g(); }'],
    [
      'in the smallest block',
      'function f() { if (a) { g(); } }',
      '{reachedByTest(0); if (a) {reachedByTest(1); g(); } }',
    ],
    [
      'before the value of a short function',
      'const f = () => ({ b: true });',
      '() => (reachedByTest(0), ({ b: true }));',
    ],
    ['at the end of a source without blocks', 'const X_MAX = 5;', 'const X_MAX = 5;\nreachedByTest(0);'],
  ])('stands %s', (_where, text, expected) => {
    expect(probed(text)).toContain(expected);
    expect(faultsOf('a.ts', probed(text)).length).toBeGreaterThan(0);
  });

  test('reports each fault and the test file that came there', () => {
    const folder = mkdtempSync(join(tmpdir(), 'probes-'));
    writeFileSync(join(folder, 'reached'), '1 /a b.test.ts\n2 /a b.test.ts\n1 /c.test.ts\n');
    const found = readReached(join(folder, 'reached'));
    rmSync(folder, { recursive: true });
    expect([...found]).toEqual([
      [1, new Set(['/a b.test.ts', '/c.test.ts'])],
      [2, new Set(['/a b.test.ts'])],
    ]);
  });
});

describe('a hunt', () => {
  const SOURCE = `// A room.
export function isFull(count: number, max: number): boolean {
  return count >= max;
}
export function isNamed(name: string): boolean {
  return name === 'a';
}
`;
  const TEST = `import { expect, test } from 'vitest';
import { isFull } from '../../rooms/one/full.ts';
test('a room is full at its limit', () => expect([isFull(2, 3), isFull(3, 3)]).toEqual([false, true]));
`;
  const CONFIG = `export default { test: { projects: [{ test: { name: 'unit', include: ['test/**/*.test.ts'] } }] } };`;
  const TYPES =
    '{"compilerOptions": {"strict": true, "module": "nodenext", "target": "es2024", "allowImportingTsExtensions": true, "types": [], "skipLibCheck": true}, "include": ["rooms"]}';

  let root: string;
  beforeEach(() => {
    root = mkdtempSync(join(tmpdir(), 'hunt-'));
    const files = {
      'rooms/one/full.ts': SOURCE,
      'test/rooms/one.test.ts': TEST,
      'vitest.config.ts': CONFIG,
      'tsconfig.json': TYPES,
      'package.json': '{"type": "module"}',
      '.gitignore': 'node_modules\n',
    };
    for (const [path, text] of Object.entries(files)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), text);
    }
    symlinkSync(join(CHECKOUT, 'node_modules'), join(root, 'node_modules'));
    spawnSync('git', ['init', '-q'], { cwd: root });
  });
  afterEach(() => rmSync(root, { recursive: true }));

  test('tells which faults are caught and by what, draws none that the compiler refuses, and leaves the sources alone', async () => {
    const lines: string[] = [];
    const write = (line: string): void => void lines.push(line);
    await hunt({ root, rooms: ['rooms/one'], seed: 1, count: 9, quick: false, write });
    // `name === 'a?'` and `name !== 'a'` stand in one line: one of them is drawn.
    expect(lines.toSorted()).toEqual([
      '1 of 2 caught (50 %)',
      'rooms/one/full.ts:3  >= became >: >=  caught by test/rooms/one.test.ts',
      expect.stringMatching(/^rooms\/one\/full\.ts:6 {2}.* {2}SURVIVED$/),
    ]);
    expect(readFileSync(join(root, 'rooms/one/full.ts'), 'utf8')).toBe(SOURCE);
  });

  test('does not begin where tests fail without a fault', async () => {
    writeFileSync(join(root, 'test/rooms/one.test.ts'), TEST.replace('false, true', 'true, true'));
    const hunting = hunt({ root, rooms: ['rooms/one'], seed: 1, count: 1, quick: true, write: () => undefined });
    await expect(hunting).rejects.toThrow('test/rooms/one.test.ts fails without a fault');
  });
});

// The comments above the tests name every rule of the specification that is proven, and no word of its outline is missing from them.
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { specComments } from './spec-comments.ts';
import { NOT_BUILT, OUTLINE } from './spec-outline.ts';

const TESTS = resolve(import.meta.dirname, '..');

const files = globSync('**/*.ts', { cwd: TESTS }).toSorted();
const comments = files.map((file) => specComments(file, readFileSync(resolve(TESTS, file), 'utf8')));
const rules = comments.flatMap((each) => each.rules);
const keys = rules.map(({ section, rule }) => `${section} ${rule}`);

test('each rule of the specification stands directly above a test', () => {
  expect(comments.flatMap(({ faults }) => faults)).toEqual([]);
});

test('no rule stands twice in a section', () => {
  expect(keys.filter((key, i) => keys.indexOf(key) !== i)).toEqual([]);
});

const sections = [...new Set([...Object.keys(OUTLINE), ...rules.map(({ section }) => section)])];

test.each(sections)(
  'section %s: each word of its outline stands in a rule above a test, or is not built yet',
  (section) => {
    const tested = rules.filter((each) => each.section === section).map(({ rule }) => rule);
    const known = [...tested, ...(NOT_BUILT[section] ?? [])];
    const words = (OUTLINE[section] ?? 'no outline of this section').split(' ');
    expect(words.filter((word) => !known.some((rule) => names(rule, word)))).toEqual([]);
  },
);

test('each section of what is not built yet has an outline, and no test has a rule of the same words', () => {
  expect(Object.keys(NOT_BUILT).filter((section) => OUTLINE[section] === undefined)).toEqual([]);
  const unbuilt = Object.entries(NOT_BUILT).flatMap(([section, all]) => all.map((rule) => `${section} ${rule}`));
  expect(unbuilt.filter((key) => keys.includes(key))).toEqual([]);
});

/** Whole words: letters, digits and underscores beside it would make it another. */
function names(rule: string, word: string): boolean {
  const isPart = (character: string | undefined): boolean => character !== undefined && /\w/.test(character);
  for (let at = rule.indexOf(word); at >= 0; at = rule.indexOf(word, at + 1)) {
    const before = isPart(word[0]) && isPart(rule[at - 1]);
    const after = isPart(word.at(-1)) && isPart(rule[at + word.length]);
    if (!before && !after) return true;
  }
  return false;
}

test('a word is not found in a longer word that contains it', () => {
  expect(names('at most 255', '25')).toBe(false);
  expect(names('gpu_types are listed', 'gpu_type')).toBe(false);
  expect(names('gpu_types and gpu_type', 'gpu_type')).toBe(true);
  expect(names('t=<unix_seconds>', 't=')).toBe(true);
});

/** Composed, so that this file does not contain the comments that it collects. */
const RULE = ['// Specification', '8: A limit.'].join(' ');
const OTHER = ['// Specification', '2.11: Another.'].join(' ');
const collect = (...lines: string[]): ReturnType<typeof specComments> => specComments('a.test.ts', lines.join('\n'));

describe('the collector', () => {
  test.each([
    ['a test', "test('a', () => {});"],
    ['a test of the other name', "it('a', () => {});"],
    ['a test in a group', "  test('a', async () => {});"],
    ['a test of several lines', 'test(', "  'a',"],
    ['a test with a table', "test.each([1])('%s', () => {});"],
    ['a test with a typed table', 'test.each<[number, string]>(['],
    ['a test that a function of the file makes', 'refusal(', '  "it\'s a",', '  async () => {}'],
  ])('finds a rule above %s', (_what, ...code) => {
    const indent = /^ */.exec(code[0] ?? '')?.[0] ?? '';
    const source = ["describe('group', () => {", `${indent}${RULE}`, ...code];
    expect(collect(...source)).toEqual({ rules: [{ section: '8', rule: 'A limit' }], faults: [] });
  });

  test('finds several rules above one test, and a rule of several lines', () => {
    const lines = [
      '// Why.',
      RULE,
      OTHER.replace('r.', 'r'),
      '// goes on,',
      '// and on.',
      RULE,
      "test('a', () => {});",
    ];
    expect(collect(...lines)).toEqual({
      rules: [
        { section: '8', rule: 'A limit' },
        { section: '2.11', rule: 'Another goes on, and on' },
        { section: '8', rule: 'A limit' },
      ],
      faults: [],
    });
  });

  test.each([
    ['a group', RULE, "describe('a', () => {});"],
    ['a group with a table', RULE, "describe.each([1])('%s', () => {});"],
    ['a hook', RULE, 'beforeEach(() => {});'],
    ['other code', RULE, 'const a = 1;', "test('a', () => {});"],
    ['an empty line', RULE, '', "test('a', () => {});"],
    ['a comment of another kind', RULE, '/** Why. */', "test('a', () => {});"],
    ['nothing', RULE],
  ])('reports a rule above %s', (_what, ...lines) => {
    expect(collect(...lines).faults).toEqual(['a.test.ts:1: a rule stands directly above a test that proves it.']);
  });

  test.each([
    ['behind code', `const a = 1; ${RULE}`],
    ['in a comment of another kind', RULE.replace('//', '/**').replace('.', '. */')],
    ['without a space before it', RULE.replace('// ', '//')],
    ['of no section', RULE.replace('8', '8.1.2')],
    ['without words', RULE.replace(' A limit.', '')],
  ])('reports a rule %s', (_what, line) => {
    const { rules: collected, faults } = collect(line, "test('a', () => {});");
    expect(collected).toEqual([]);
    expect(faults).toEqual(['a.test.ts:1: a rule is a comment of the form "// Specification <section>: <rule>."']);
  });

  test('reports a rule without a full stop, which may be cut off', () => {
    const { faults } = collect(RULE.slice(0, -1), "test('a', () => {});");
    expect(faults).toEqual(['a.test.ts:1: a rule ends with a full stop.']);
  });
});

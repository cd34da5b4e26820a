// Every rule of the specification that is claimed has a test of that very title.
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
import { NOT_BUILT, OUTLINE } from './spec-outline.ts';
import { SPEC_ROWS } from './spec-rows.ts';

const TESTS = resolve(import.meta.dirname, '..');

/** The titles of a test file: texts that are followed by a function, and do not name a group. */
function titlesOf(source: string): Set<string> {
  const titles = source.matchAll(/(describe(?:\.\w+)?)?\(\s*(['"`])((?:\\.|(?!\2)[^\\])*)\2,\s*(?:async\s*)?\(/g);
  return new Set([...titles].flatMap(([, group, , title]) => (group === undefined ? (title ?? []) : [])));
}

const files = [...new Set(SPEC_ROWS.map(({ file }) => file))];
const titles = new Map(
  files.map((file) => {
    const path = resolve(TESTS, file);
    return [file, existsSync(path) ? titlesOf(readFileSync(path, 'utf8')) : new Set<string>()];
  }),
);

test.each(SPEC_ROWS.map((row) => [row.section, row.rule, row] as const))('%s: %s', (_section, _rule, row) => {
  expect([...(titles.get(row.file) ?? [])]).toContain(row.test);
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

const sections = [...new Set([...Object.keys(OUTLINE), ...SPEC_ROWS.map(({ section }) => section)])];

test.each(sections)(
  'section %s: each word of its outline stands in a rule with a test, or is not built yet',
  (section) => {
    const rules = SPEC_ROWS.filter((row) => row.section === section).map(({ rule }) => rule);
    const told = [...rules, ...(NOT_BUILT[section] ?? [])];
    const words = (OUTLINE[section] ?? 'no outline of this section').split(' ');
    expect(words.filter((word) => !told.some((rule) => names(rule, word)))).toEqual([]);
  },
);

test('what is not built yet is of a section of the outline, and no rule has a test for the same words', () => {
  expect(Object.keys(NOT_BUILT).filter((section) => OUTLINE[section] === undefined)).toEqual([]);
  const rules = new Set(SPEC_ROWS.map(({ section, rule }) => `${section} ${rule}`));
  const both = Object.entries(NOT_BUILT).flatMap(([section, all]) =>
    all.filter((rule) => rules.has(`${section} ${rule}`)),
  );
  expect(both).toEqual([]);
});

test('a word is not taken for another that holds it', () => {
  expect(names('at most 255', '25')).toBe(false);
  expect(names('gpu_types are listed', 'gpu_type')).toBe(false);
  expect(names('gpu_types and gpu_type', 'gpu_type')).toBe(true);
  expect(names('t=<unix_seconds>', 't=')).toBe(true);
});

test('no rule stands there twice', () => {
  const rules = SPEC_ROWS.map(({ section, rule }) => `${section} ${rule}`);
  expect(rules.filter((rule, i) => rules.indexOf(rule) !== i)).toEqual([]);
});

test('titles are found however they are quoted, and groups are not taken for tests', () => {
  const source = `describe('group', () => {\n test("it's", () => {});\n test.each([1])(\n 'each %d', async (n) => {});\n});`;
  expect([...titlesOf(source)]).toEqual(["it's", 'each %d']);
});

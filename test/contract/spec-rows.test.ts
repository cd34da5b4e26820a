// Every rule of the specification that is claimed has a test of that very title.
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';
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

test('no rule stands there twice', () => {
  const rules = SPEC_ROWS.map(({ section, rule }) => `${section} ${rule}`);
  expect(rules.filter((rule, i) => rules.indexOf(rule) !== i)).toEqual([]);
});

test('titles are found however they are quoted, and groups are not taken for tests', () => {
  const source = `describe('group', () => {\n test("it's", () => {});\n test.each([1])(\n 'each %d', async (n) => {});\n});`;
  expect([...titlesOf(source)]).toEqual(["it's", 'each %d']);
});

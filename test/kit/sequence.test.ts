// The order of test files: every one that is put first is there.
import { globSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { LONG } from './sequence.ts';

test('what begins first by its name is a test file', () => {
  const files = globSync('**/*.test.ts', { cwd: resolve(import.meta.dirname, '..') });
  expect(files.map((path) => basename(path, '.test.ts'))).toEqual(expect.arrayContaining([...LONG]));
});

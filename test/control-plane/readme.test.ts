// The README's tables of settings: every key that the daemons take, and no other.
import { readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, test } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const README = readFileSync(resolve(ROOT, 'README.md'), 'utf8');

/** The first words of the first column: `ssh.host`, `ssh.port_range` are both of `ssh`. */
function tableOf(title: string): string[] {
  const [, table = ''] = new RegExp(`^\\| ${title} +\\|[^\\n]*\\n((?:\\|[^\\n]*\\n)+)`, 'm').exec(README) ?? [];
  const keys = table.split('\n').flatMap((row) => (row.split('|')[1] ?? '').match(/`[a-z_]+/g) ?? []);
  return [...new Set(keys.map((key) => key.slice(1)))].toSorted();
}

/** The keys of the outermost object of a schema, as they are written down. */
function keysOf(file: string, begin: string): string[] {
  const source = readFileSync(resolve(ROOT, file), 'utf8');
  const body = source.slice(source.indexOf(begin)).split('\n});')[0] ?? '';
  return [...body.matchAll(/^ {2}([a-z_]+):/gm)].map(([, key = '']) => key).toSorted();
}

test.each([
  ['control plane', 'control-plane/config.ts', 'const ConfigFields'],
  ['agent', 'agent/config.ts', 'const AgentConfig'],
])('every setting of the %s is in the README', (title, file, begin) => {
  expect(tableOf(title)).toEqual(keysOf(file, begin));
  expect(tableOf(title).length).toBeGreaterThan(4);
});

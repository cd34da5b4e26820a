// Each regular expression of both daemons takes time in proportion to its text, or stands below with the reason why that does not matter.
import { parseSync } from 'oxc-parser';
import { checkSync } from 'recheck';
import { expect, test } from 'vitest';
import { readSources } from '../kit/sources.ts';

/** `file pattern`: who writes the text. None of them is a stranger. */
const OWN_TEXTS = new Map([
  ['control-plane/base/db/migrate.ts (?<=^\\S.*);$', 'our own migrations'],
  ['control-plane/base/db/migrate.ts ^-- only sqlite$[\\s\\S]*?^-- end$', 'our own migrations'],
  ['control-plane/base/accounts/public-key.ts =+$', 'a hash of ours, of 44 characters'],
  ['agent/host/facts.ts ^\\s*nameserver\\s+(\\S+)', 'the resolv.conf of the host'],
]);

/** Patterns that are made while the program runs: the parts that they are made of are checked here in their place. */
const MADE = new Map([
  ['agent/host/facts.ts', '^Max open files\\s+\\S+\\s+(\\S+)'],
  ['control-plane/base/db/migrate.ts', '^-- only sqlite$[\\s\\S]*?^-- end$'],
  ['control-plane/base/http/server.ts', '^/v1/instances/[^/]+/deliveries/[^/]+$'],
  [
    'control-plane/rental/launch/reference.ts',
    '^(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*|\\[[0-9a-f:.]+\\])(?::\\d{1,5})?$',
  ],
]);

interface Pattern {
  file: string;
  source: string;
  flags: string;
}

const sources = readSources(process.cwd()).filter(({ path }) => /^(agent|control-plane|shared)\/.*\.ts$/.test(path));
const found = sources.flatMap(({ path, text }) => nodesOf(parseSync(path, text).program, path));

test('each regular expression reads its text in one pass', () => {
  const own = (pattern: Pattern): boolean => OWN_TEXTS.has(`${pattern.file} ${pattern.source}`);
  const written = found.flatMap((node) => (node.kind === 'literal' ? [node.pattern] : []));
  const made = [...MADE].map(([file, source]): Pattern => ({ file, source, flags: 'm' }));
  const patterns = new Map([...written, ...made].map((each) => [`${each.file} ${each.source}`, each]));
  const slow = [...patterns.values()].filter((each) => !own(each)).flatMap(complaintOf);
  expect(slow).toEqual([]);
  expect([...OWN_TEXTS.keys()].filter((name) => !patterns.has(name))).toEqual([]);
});

test('each pattern that is made while the program runs is listed here', () => {
  const files = found.filter((node) => node.kind === 'made').map((node) => node.file);
  expect([...new Set(files)].toSorted()).toEqual([...MADE.keys()].toSorted());
});

function complaintOf({ file, source, flags }: Pattern): string[] {
  const result = checkSync(source, flags, { timeout: 10_000 });
  if (result.status === 'safe') return [];
  const attack = result.status === 'vulnerable' ? `, attacked by ${result.attack.pattern.slice(0, 80)}` : '';
  return [`${file}: /${source}/ is ${result.status}${attack}`];
}

type Found = { kind: 'literal'; pattern: Pattern } | { kind: 'made'; file: string };

function nodesOf(node: unknown, file: string): Found[] {
  if (typeof node !== 'object' || node === null) return [];
  if (Array.isArray(node)) return node.flatMap((each) => nodesOf(each, file));
  const { type, regex, callee } = node as {
    type?: string;
    regex?: { pattern: string; flags: string };
    callee?: { name?: string };
  };
  if (type === 'Literal' && regex !== undefined) {
    return [{ kind: 'literal', pattern: { file, source: regex.pattern, flags: regex.flags } }];
  }
  const made: Found[] = type === 'NewExpression' && callee?.name === 'RegExp' ? [{ kind: 'made', file }] : [];
  return [...made, ...Object.values(node).flatMap((each) => nodesOf(each, file))];
}

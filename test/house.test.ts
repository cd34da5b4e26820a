// The walls of the house: every rule holds for the real sources, and each rule is shown to catch a planted fault.
import { resolve } from 'node:path';
import { describe, expect, test } from 'vitest';
import { readSources, type SourceFile } from './kit/sources.ts';
import {
  barrels,
  commentSubjects,
  commentWidths,
  rowSchemas,
  fileNames,
  fileSizes,
  firstLines,
  leftovers,
  lockFile,
  namedAmounts,
  origins,
} from './kit/tidy.ts';
import { roomReadmes, unusedEntries } from './kit/plan-checks.ts';
import { rowTurns, unusedRowTurns } from './kit/row-turns.ts';
import { ambientState, importCircles, importOrder, migrations, packageDoors, tableOwners } from './kit/walls.ts';

const CHECKOUT = resolve(import.meta.dirname, '..');

const RULES = {
  importOrder,
  importCircles,
  packageDoors,
  ambientState,
  tableOwners,
  migrations,
  fileSizes,
  firstLines,
  fileNames,
  barrels,
  roomReadmes,
  leftovers,
  commentSubjects,
  namedAmounts,
  commentWidths,
  rowSchemas,
  rowTurns,
  lockFile,
  origins: (files: readonly SourceFile[]) => origins(files, CHECKOUT),
};
type Rule = keyof typeof RULES;

const real = readSources(CHECKOUT);

describe('the house', () => {
  test('the sources were found', () => {
    expect(real.map(({ path }) => path)).toEqual(
      expect.arrayContaining(['package.json', 'shared/clock.ts', '.gitignore']),
    );
  });
  test.each(Object.keys(RULES) as Rule[])('%s', (rule) => {
    expect(RULES[rule](real)).toEqual([]);
  });
  test('nothing in the plan is unused', () => {
    expect(unusedEntries(real)).toEqual([]);
    expect(unusedRowTurns(real)).toEqual([]);
  });
});

/** Composed, so that this file does not break the rule it tests. */
const REGISTRY_HOST = ['registry', 'example', 'org'].join('.');
const LATER = ['TO', 'DO'].join('');
const PARKED = ['test', 'only'].join('.');

const file = (path: string, ...lines: string[]): SourceFile => ({ path, text: `${lines.join('\n')}\n` });
const imports = (path: string, target: string): SourceFile =>
  file(path, '// planted', `import { x } from '${target}';`);

/** Each row holds the rule, what is wrong, the planted file, and a part of the message. */
const FAULTS: [Rule, string, SourceFile, string][] = [
  ['importOrder', 'a lower room', imports('control-plane/base/db/a.ts', '../http/server.ts'), 'rooms above it'],
  [
    'importOrder',
    'a later wing',
    imports('control-plane/money/ledger/a.ts', '../../fleet/supply/b.ts'),
    'rooms above it',
  ],
  ['importOrder', 'a type', file('agent/gpus/a.ts', "import type { X } from '../link/b.ts';"), 'rooms above it'],
  [
    'importOrder',
    'several lines',
    file('agent/host/a.ts', 'import {', '  x,', "} from '../link/b.ts';"),
    'rooms above it',
  ],
  ['importOrder', 'a re-export', file('agent/host/a.ts', "export { x } from '../link/b.ts';"), 'rooms above it'],
  [
    'importOrder',
    'a lazy import',
    file('agent/host/a.ts', "const x = await import('../link/b.ts');"),
    'rooms above it',
  ],
  ['importOrder', 'a room that is kept apart', imports('agent/holder/a.ts', '../guest/b.ts'), 'apart'],
  ['importOrder', 'the other daemon', imports('agent/link/a.ts', '../../control-plane/house.ts'), 'only in shared'],
  ['importOrder', 'shared looking up', imports('shared/a.ts', '../agent/house.ts'), 'knows neither'],
  ['importOrder', 'the composition', imports('control-plane/admin/a.ts', '../config.ts'), 'handed to its openX'],
  ['importOrder', 'a test', imports('agent/link/a.ts', '../../test/kit/engine.ts'), 'no room'],
  ['importOrder', 'an unknown room', file('control-plane/attic/a.ts', '// planted'), 'no such room'],
  ['importOrder', 'a stray file', file('control-plane/stray.ts', '// planted'), 'no such room'],
  ['importCircles', 'a file that imports itself', imports('agent/host/a.ts', './a.ts'), 'break this circle'],
  [
    'packageDoors',
    'sqlite',
    imports('control-plane/money/ledger/store.ts', 'better-sqlite3'),
    'control-plane/base/db/',
  ],
  ['packageDoors', 'pg', imports('control-plane/admin/a.ts', 'pg'), 'control-plane/base/db/'],
  [
    'packageDoors',
    'fastify',
    imports('control-plane/rental/instances/create.ts', 'fastify'),
    'control-plane/base/http/',
  ],
  ['packageDoors', 'ws', imports('control-plane/base/http/a.ts', 'ws'), 'own sockets'],
  ['packageDoors', 'dockerode', imports('agent/runtime/plan.ts', 'dockerode'), 'agent/runtime/docker.ts'],
  ['packageDoors', 'ssh2', imports('agent/link/a.ts', 'ssh2'), 'agent/holder/'],
  ['packageDoors', 'node-pty', imports('agent/holder/main.ts', '@lydell/node-pty'), 'inside the container'],
  ['packageDoors', 'child_process', imports('agent/runtime/a.ts', 'node:child_process'), 'never through a shell'],
  ['packageDoors', 'the prefix of a sub path', imports('agent/runtime/a.ts', 'ws/wrapper.mjs'), 'own sockets'],
  ['ambientState', 'the environment', file('agent/host/a.ts', 'const home = process.env.HOME;'), 'config.ts'],
  ['ambientState', 'the time', file('agent/host/a.ts', 'const now = new Date();'), 'Clock'],
  [
    'ambientState',
    'the time of a browser',
    file('control-plane/console/web/a.ts', 'const ms = Date.now();'),
    'serviceNow',
  ],
  ['ambientState', 'a module variable', file('agent/host/a.ts', 'let count = 0;'), 'two houses'],
  ['ambientState', 'a module map', file('agent/host/a.ts', 'const seen = new Map<string, number>();'), 'two houses'],
  ['tableOwners', 'select', file('control-plane/admin/a.ts', 'sql`SELECT * FROM transfers t`'), 'money/ledger'],
  ['tableOwners', 'join', file('control-plane/admin/a.ts', 'sql`… x left join "orgs" o`'), 'base/accounts'],
  ['tableOwners', 'insert', file('control-plane/admin/a.ts', 'sql`insert into events (id)`'), 'base/events'],
  ['tableOwners', 'update', file('control-plane/admin/a.ts', 'sql`UPDATE', '  instances SET`'), 'rental/instances'],
  ['tableOwners', 'delete', file('control-plane/admin/a.ts', 'sql`DELETE FROM leases`'), 'base/db'],
  ['tableOwners', 'comma', file('control-plane/admin/a.ts', 'sql`from local_rows x, machines m`'), 'fleet/supply'],
  [
    'tableOwners',
    'alter in a foreign migration',
    file('control-plane/admin/migrations/0001-a.sql', 'ALTER TABLE endpoints ADD x text;'),
    'rental/endpoints',
  ],
  [
    'migrations',
    'a foreign table',
    file('control-plane/base/db/migrations/0002-a.sql', 'CREATE TABLE endpoints (x)'),
    'creates endpoints, which rental/endpoints',
  ],
  ['migrations', 'a bad name', file('control-plane/base/db/migrations/init.sql', 'select 1;'), 'NNNN-name'],
  ['migrations', 'another place', file('shared/0001-init.sql', 'select 1;'), 'NNNN-name'],
  ['fileSizes', 'too long', file('agent/host/a.ts', ...Array<string>(401).fill('// x')), '401 lines'],
  ['fileSizes', 'a test too long', file('test/a.test.ts', ...Array<string>(601).fill('// x')), '601 lines'],
  ['firstLines', 'no comment', file('agent/host/a.ts', 'export const x = 1;'), 'what the file is for'],
  ['fileNames', 'a drawer', file('agent/host/utils.ts', '// x'), 'drawer'],
  ['fileNames', 'a named drawer', file('agent/host/docker-helper.ts', '// x'), 'drawer'],
  ['fileNames', 'camel case', file('agent/host/dockerEngine.ts', '// x'), 'kebab-case'],
  ['barrels', 'stars', file('agent/host/a.ts', '// x', "export * from './b.ts';"), 'where the thing lives'],
  ['barrels', 'names', file('agent/host/a.ts', '// x', 'export { x,', "  y } from './b.ts';"), 'where the thing lives'],
  ['roomReadmes', 'missing', file('agent/host/a.ts', '// x'), 'no README.md'],
  ['roomReadmes', 'an old list of imports', file('agent/host/README.md', '- Imports: `gpus`.'), 'only `shared`'],
  ['origins', 'a registry', file('README.md', `see ${REGISTRY_HOST}`), 'registry'],
  [
    'lockFile',
    'addresses',
    file('package-lock.json', '{"packages": {"node_modules/a": {"resolved": "x"}}}'),
    'resolved',
  ],
  [
    'lockFile',
    'a platform without its package',
    file('package-lock.json', '{"packages": {"node_modules/a": {"optionalDependencies": {"a-mac": "1"}}}}'),
    'no entry for a-mac',
  ],
  ['leftovers', 'a note', file('agent/host/a.ts', `// ${LATER} later`), 'note for later'],
  ['leftovers', 'a parked test', file('test/a.test.ts', `${PARKED}('x')`), 'parks a test'],
  ['commentSubjects', 'whose thing it is', file('agent/host/a.ts', '/** Of an answer. */'), '"Of an answer."'],
  ['commentSubjects', 'a key', file('agent/host/a.ts', '  /** By machine. */'), '"By machine."'],
  ['commentSubjects', 'a lone clause', file('agent/host/a.ts', '// So that it is the last.'), 'no subject'],
  [
    'commentSubjects',
    'a comparison',
    file('agent/host/a.ts', '/**', ' * As it came, byte for', ' * byte.', ' */'),
    'As it',
  ],
  [
    'namedAmounts',
    'a number',
    file('agent/host/a.ts', '// A launch fails after so', '// many hosts.'),
    'so many hosts',
  ],
  ['commentWidths', 'a long line', file('agent/host/a.ts', `// ${'word '.repeat(30)}`), 'has 153 characters'],
  [
    'rowSchemas',
    'a query',
    file('control-plane/base/db/a.ts', 'tx.one(', '  z.object({ id: text }),'),
    'for each query',
  ],
  [
    'rowSchemas',
    'a part of another schema',
    file('control-plane/base/db/a.ts', 'tx.all(Row.pick({ id: true }), a)'),
    'for each query',
  ],
  [
    'rowTurns',
    'a transaction',
    file('control-plane/admin/a.ts', 'for (const row of rows) await db.tx("a", () => end(row));'),
    'of rows: a row that fails',
  ],
  [
    'rowTurns',
    'a function that opens a transaction',
    file(
      'control-plane/admin/a.ts',
      'for (const row of await due(1)) {',
      '  await end(row);',
      '}',
      'function end(row) {',
      '  return db.tx("a", (tx) => tx.run(row));',
      '}',
    ),
    'of await due(…)',
  ],
  ['commentSubjects', 'SQL', file('control-plane/base/db/migrations/0001-a.sql', '-- In microcents.'), 'In microcents'],
];

describe('a planted fault is caught', () => {
  test.each(FAULTS)('%s: %s', (rule, _what, planted, message) => {
    const found = RULES[rule]([planted]);
    expect(found).toHaveLength(1);
    expect(found[0]).toContain(message);
    expect(found[0]).toContain(planted.path.split('/').slice(0, 2).join('/'));
  });

  test('origins: the path of a checkout, unless it is a name that others use too', () => {
    const planted = [file('README.md', 'cd /home/me/checkout/agent, or /app/agent')];
    expect(origins(planted, '/home/me/checkout')).toEqual(["README.md holds the path of somebody's checkout."]);
    expect(origins(planted, '/app')).toEqual([]);
  });

  test('importCircles: two files that import each other, named once', () => {
    const planted = [imports('agent/host/a.ts', './b.ts'), imports('agent/host/b.ts', './a.ts')];
    expect(importCircles(planted)).toEqual([
      'agent/host/a.ts imports agent/host/b.ts imports agent/host/a.ts: break this circle.',
    ]);
  });

  test('unusedEntries: a file, a room and a door that are only in the plan', () => {
    const plan = {
      daemons: [{ folder: 'agent', composition: ['main.ts', 'gone.ts'], rooms: [{ path: 'attic', tables: ['zoo'] }] }],
      doors: [{ packages: ['ws'], doors: ['agent/attic/'], why: 'planted' }],
    };
    const found = unusedEntries([file('agent/main.ts', '// x')], plan);
    expect(found.map((message) => message.split(':')[0])).toEqual([
      'agent/gone.ts does not exist',
      'agent/attic has no file',
      'nothing in agent/attic/ imports ws',
    ]);
  });

  test('every rule has a planted fault', () => {
    expect(Object.keys(RULES).filter((rule) => !FAULTS.some(([name]) => name === rule))).toEqual([]);
  });
});

/** Each row holds the rule, what is right, and the planted file. */
const FINE: [Rule, string, SourceFile][] = [
  ['importOrder', 'a room above', imports('control-plane/rental/instances/a.ts', '../../money/ledger/b.ts')],
  ['importOrder', 'its own room', imports('agent/guest/a.ts', './b.ts')],
  ['importOrder', 'shared', imports('agent/link/a.ts', '../../shared/protocol/link.ts')],
  ['importOrder', 'the version', imports('shared/a.ts', '../package.json')],
  ['importOrder', 'the composition itself', imports('control-plane/house.ts', './admin/a.ts')],
  ['importOrder', 'an import in a comment', file('agent/host/a.ts', "// import { x } from '../link/b.ts';")],
  ['packageDoors', 'its own folder', imports('control-plane/base/http/server.ts', 'fastify')],
  ['packageDoors', 'a package with a longer name', imports('agent/host/a.ts', 'pg-types')],
  ['ambientState', 'settings', file('agent/config.ts', 'const home = process.env.HOME;')],
  ['ambientState', 'a given time', file('agent/host/a.ts', 'const at = new Date(nowMs);')],
  ['ambientState', 'a constant map', file('agent/host/a.ts', "const names = new Map([['a', 1]]);")],
  ['tableOwners', 'its own table', file('control-plane/base/events/store.ts', 'sql`select * from events`')],
  [
    'tableOwners',
    'a comment',
    file('control-plane/admin/a.ts', '// taken from events', '/** read from', ' * from events */'),
  ],
  ['barrels', 'a re-export beside code', file('agent/host/a.ts', "export { x } from './b.ts';", 'export const y = 1;')],
  ['commentSubjects', 'a clause before a sentence', file('agent/host/a.ts', '// Without a key, nothing is sent.')],
  [
    'commentSubjects',
    'a noun phrase',
    file('agent/host/a.ts', '/** The largest count. Of others, nothing is known. */'),
  ],
  ['commentSubjects', 'a second line', file('agent/host/a.ts', '// The port of the host', '// in the container.')],
  [
    'namedAmounts',
    'a consequence',
    file('agent/host/a.ts', '// It is so long that nobody waits, as long as it lives.'),
  ],
  ['rowSchemas', 'a promise', file('control-plane/base/db/a.ts', 'await Promise.all(Object.keys(a));')],
  ['rowSchemas', 'a constant', file('control-plane/base/db/a.ts', 'tx.one(Row, a)')],
  [
    'rowTurns',
    'a loop that goes on',
    file('control-plane/admin/a.ts', 'for (const row of rows) await failures.note("x", db.tx("a", () => end(row)));'),
  ],
  [
    'rowTurns',
    'a loop in a transaction',
    file(
      'control-plane/admin/a.ts',
      'await db.tx("a", async (tx) => {',
      '  for (const r of rows) await end(tx, r);',
      '});',
    ),
  ],
  ['commentWidths', 'a line of the largest width', file('agent/host/a.ts', `// ${'x'.repeat(147)}`)],
  ['commentWidths', 'an address', file('agent/host/a.ts', `// https://host.example/${'x'.repeat(150)}`)],
  ['firstLines', 'after a shebang', file('agent/host/a.ts', '#!/usr/bin/env node', '// what it is for')],
];

test.each(FINE)('what is right passes: %s: %s', (rule, _what, planted) => {
  expect(RULES[rule]([planted])).toEqual([]);
});

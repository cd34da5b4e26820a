// The tables and files in the manual agree with the code: settings, error codes, scopes, YAML examples, and the size of pages.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { readConfig as readAgentConfig } from '../../../agent/config.ts';
import { SCOPES, scopeText } from '../../../control-plane/base/http/scopes.ts';
import { readConfig } from '../../../control-plane/config.ts';
import { parseModels } from '../../../control-plane/models/catalog/models.ts';
import { imageOf, readEnvironments } from '../../../control-plane/rental/launch/environments.ts';
import { fillTemplate, readTemplates } from '../../../control-plane/rental/launch/templates.ts';
import { CHAT_DEFAULTS, CHAT_NOTHINGS } from '../../../shared/api/nothings.ts';
import { CreateInstance } from '../../../shared/api/instance.ts';
import { Problem } from '../../../shared/api/problem.ts';
import { Requirements } from '../../../shared/api/requirements.ts';
import { ERRORS } from '../../../shared/errors.ts';
import { UPLOAD_BYTES_MAX } from '../../../shared/limits.ts';
import { DAEMONS } from '../../kit/house-plan.ts';
import { blocksOf, headingsOf, pageOf, readPages, yamlOf } from '../../kit/manual/documents.ts';

const ROOT = resolve(import.meta.dirname, '../../..');
const pages = readPages();
const docs = (name: string) => pageOf(pages, `control-plane/docs/${name}.md`);
const dir = mkdtempSync(join(tmpdir(), 'svc-'));
afterAll(() => rmSync(dir, { recursive: true }));
/** The keys in the models example, with the values that replace them here. */
const KEY_FILE = '/etc/svc-control-plane/models.key';
const keyFile = join(dir, 'models.key');
writeFileSync(keyFile, 'sk-1\n');

/** The cells of the tables below a heading. */
function tableOf(name: string, heading: string): string[][] {
  const section =
    docs(name)
      .text.split(/^#+ /m)
      .find((text) => text.startsWith(`${heading}\n`)) ?? '';
  const rows = section
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .slice(2);
  return rows.map((row) =>
    row
      .split(/ ?(?<!\\)\| ?/)
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

/** The keys of the outermost object of a schema, in the order of the source. */
function keysOf(file: string, begin: string): string[] {
  const source = readFileSync(resolve(ROOT, file), 'utf8');
  const body = source.slice(source.indexOf(begin)).split('\n});')[0] ?? '';
  return [...body.matchAll(/^ {2}([a-z0-9_]+):/gm)].map(([, key = '']) => key).toSorted();
}

test.each([
  ['Control plane', 'control-plane/config.ts', 'const ConfigFields'],
  ['Agent', 'agent/config.ts', 'const AgentConfig'],
])('the table of the %s has every setting and no others', (heading, file, begin) => {
  // `ssh.host`, `ssh.port_range` are both of `ssh`.
  const named = tableOf('configuration', heading).flatMap(([first = '']) => first.match(/`[a-z0-9_]+/g) ?? []);
  const keys = [...new Set(named.map((key) => key.slice(1)))].toSorted();
  expect(keys).toEqual(keysOf(file, begin));
  expect(keys.length).toBeGreaterThan(4);
});

test('the table of errors has every code with its status and title', () => {
  const rows = tableOf('api-conventions', 'Errors').map(([status = '', code = '', title = '']) => [
    code,
    status,
    title,
  ]);
  const codes = Object.entries(ERRORS).map(([code, { status, title }]) => [
    `\`${code}\``,
    status === 0 ? 'none' : String(status),
    title,
  ]);
  expect(new Set(rows.map(String))).toEqual(new Set(codes.map(String)));
  expect(rows.length).toBe(codes.length);
});

test('the table of scopes has every scope with its meaning', () => {
  const scopes = Object.entries(SCOPES).map(([scope, meaning]) => [
    `\`${scopeText(scope as keyof typeof SCOPES)}\``,
    meaning,
  ]);
  expect(tableOf('api-conventions', 'Scopes')).toEqual(scopes);
});

test('the table of values that ask for nothing has every field', () => {
  const rows = Object.entries({ ...CHAT_NOTHINGS, ...CHAT_DEFAULTS }).map(([member, values]) => [
    `\`${member}\``,
    values.map((value) => `\`${JSON.stringify(value)}\``).join(' or '),
  ]);
  expect(tableOf('api-conventions', 'Values that ask for nothing')).toEqual([
    ...rows,
    ['any member that is not required', '`null`'],
  ]);
});

test('the limits of requests to models that two pages name are the defaults', () => {
  const file = join(dir, 'empty.yaml');
  writeFileSync(file, '');
  const { rate_limits: rates, ...open } = readConfig(file);
  const [key, org] = [open.open_inference_requests_per_key, open.open_inference_requests_per_org];
  const { inference_per_key_per_second: keyRate, inference_per_org_per_second: orgRate } = rates;
  const prose = docs('models').text.replaceAll(/\s+/g, ' ');
  expect(prose).toContain(
    `A key may send ${keyRate} requests to models each second and have ${key} open, and all keys of an organisation ${orgRate} and ${org},`,
  );
  const limits = new Map(tableOf('api-conventions', 'Limits').map(([what = '', limit = '']) => [what, limit]));
  expect(limits.get('requests to models of one key')).toBe(
    `${keyRate} each second, bursts of ${rates.inference_burst}; ${key} open at once`,
  );
  expect(limits.get('requests to models of all keys of one organisation')).toBe(
    `${orgRate} each second, bursts of ${rates.inference_burst_per_org}; ${org} open at once`,
  );
  expect(limits.get('bytes of one upload in parts')).toBe(`${UPLOAD_BYTES_MAX / 1024 ** 3} GiB`);
});

test('the example of a refusal is a problem document', () => {
  const [example] = blocksOf(docs('api-conventions')).filter(({ language }) => language === 'json');
  const { code, status, title } = Problem.parse(JSON.parse(example?.text ?? ''));
  expect(ERRORS[code as keyof typeof ERRORS]).toEqual({ status, title });
});

test('the example of what a launch requires of its host is one that the service takes', () => {
  const [example] = blocksOf(docs('customer')).filter(({ language }) => language === 'json');
  const launch = { gpu_count: 2, tier: 'on_demand', image: 'busybox', ...(JSON.parse(example?.text ?? '') as object) };
  expect(CreateInstance.parse(launch)).toEqual(launch);
  expect(Object.keys(CreateInstance.parse(launch).requirements ?? {})).toEqual(Object.keys(Requirements.shape));
});

test('the table of rooms matches the plan of the house, as far as it is built', () => {
  const planned = DAEMONS.flatMap(({ folder, rooms }) => rooms.map(({ path }) => `${folder}/${path}`));
  const named = tableOf('architecture', 'Wings and rooms').flatMap(([wing = '', rooms = '']) =>
    rooms.split(', ').map((room) => `${wing}/${room}`),
  );
  expect(named).toEqual(planned.filter((path) => existsSync(join(ROOT, path))));
});

describe('examples in YAML', () => {
  const READERS: Record<string, (file: string) => unknown> = {
    'control-plane.yaml': readConfig,
    'agent.yaml': readAgentConfig,
    'templates.yaml': readTemplates,
    'environments.yaml': readEnvironments,
    'models.yaml': (file) => parseModels(readFileSync(file, 'utf8').replaceAll(KEY_FILE, keyFile), file),
  };
  const blocks = pages.flatMap(blocksOf).filter(({ language }) => language === 'yaml');
  const write = (text: string): string => {
    const file = join(dir, 'example.yaml');
    writeFileSync(file, text);
    return file;
  };

  test.each(blocks)('$path:$line is a file that the service takes', async ({ text }) => {
    const read = READERS[/^# (\S+)\n/.exec(text)?.[1] ?? ''];
    if (read === undefined) throw new Error('the first line must name the file, like `# control-plane.yaml`');
    await read(write(text));
    await expect((async () => read(write(`${text}\nunknown_key: 1\n`)))()).rejects.toThrow('unknown_key');
  });

  test('the template fills in its command', () => {
    const [block] = yamlOf(pages, 'templates.yaml');
    const template = readTemplates(write(block?.text ?? '')).get('vllm');
    if (template === undefined) throw new Error('the manual has no template vllm');
    const { cmd } = fillTemplate(template, { MODEL: 'org/model' }, 2);
    expect(cmd).toEqual(['--model', 'org/model', '--tensor-parallel-size', '2']);
  });

  test('the default environment has an image', () => {
    const [block] = yamlOf(pages, 'environments.yaml');
    expect(imageOf(readEnvironments(write(block?.text ?? '')), undefined)).toMatch(/^pytorch\//);
  });
});

describe('the size of the documents', () => {
  const linesOf = (text: string): number => text.trimEnd().split('\n').length;
  test('the README has at most 150 lines', () => {
    expect(linesOf(pageOf(pages, 'README.md').text)).toBeLessThanOrEqual(150);
  });
  test('the glossary has at most 40 lines, and each word once', () => {
    expect(linesOf(docs('glossary').text)).toBeLessThanOrEqual(40);
    const words = tableOf('glossary', 'Glossary').map(([word]) => word);
    expect(words.length).toBeGreaterThan(20);
    expect(new Set(words).size).toBe(words.length);
  });
  test('no page has two equal headings', () => {
    for (const page of pages.filter(({ path }) => path.startsWith('control-plane/'))) {
      const titles = headingsOf(page).map(({ title }) => title);
      expect([page.path, titles.filter((title, index) => titles.indexOf(title) < index)]).toEqual([page.path, []]);
    }
  });
});

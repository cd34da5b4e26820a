// Templates as operators write them: what ships is sound, what is wrong is refused with its line, and launches fill them in.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { LAUNCH_BYTES_MAX } from '../../../../shared/limits.ts';
import {
  fillTemplate,
  readTemplates,
  type Template,
  templateView,
} from '../../../../control-plane/rental/launch/templates.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

function read(...lines: string[]): Map<string, Template> {
  const file = join(directory, 'templates.yaml');
  writeFileSync(file, lines.join('\n'));
  return readTemplates(file);
}

/** A sound template, with lines of its own; these begin in line 6. */
const one = (...lines: string[]): string[] => [
  'templates:',
  '  - id: app',
  '    title: App',
  '    description: An app.',
  '    image: ghcr.io/org/app:1',
  ...lines.map((line) => `    ${line}`),
];
const app = (...lines: string[]): Template => {
  const template = read(...one(...lines)).get('app');
  if (template === undefined) throw new Error('there is no template');
  return template;
};

describe('the built-in templates', () => {
  const shipped = readTemplates(undefined);

  test('are vllm, sglang, jupyter, comfyui, pytorch and ssh', () => {
    expect([...shipped.keys()]).toEqual(['vllm', 'sglang', 'jupyter', 'comfyui', 'pytorch', 'ssh']);
  });

  test.each([...shipped.values()].map((template): [string, Template] => [template.id, template]))(
    '%s: names a fixed tag, and with its required variables alone nothing is left to fill in',
    (_id, template) => {
      expect(parseReference(template.image).tag).not.toBe('latest');
      const required = Object.entries(template.env).filter(([, variable]) => variable.required);
      const given = Object.fromEntries(required.map(([key]) => [key, `the-${key}`]));
      const { entrypoint, cmd, env } = fillTemplate(template, given, 2);
      for (const text of [...(entrypoint ?? []), ...(cmd ?? [])]) {
        expect(text).not.toMatch(/\$\{/);
        expect(text).not.toBe('');
      }
      expect(env).toMatchObject(given);
      expect(JSON.stringify(templateView(template))).not.toContain(template.image);
    },
  );

  test.each(['vllm', 'sglang'])('%s serves MODEL on all GPUs, on its primary port', (id) => {
    const template = shipped.get(id);
    if (template === undefined) throw new Error(id);
    expect(template).toMatchObject({ serves_model: true, min_vram_gb: 16 });
    const { cmd } = fillTemplate(template, { MODEL: 'Qwen/Qwen3-8B', HF_TOKEN: 'hf_secret' }, 4);
    const line = cmd?.join(' ') ?? '';
    expect(line).toMatch(/--model(-path)? Qwen\/Qwen3-8B /);
    expect(line).toMatch(/--(tensor-parallel|tp)-size 4/);
    expect(line).toContain(`--port ${template.ports.find(({ primary }) => primary)?.port}`);
    expect(line).not.toContain('hf_secret');
  });
});

describe('a file', () => {
  test.each<[string, string[], string]>([
    ['an unknown key', one('colour: red'), 'templates.yaml:6: templates[0].colour: is not a known field'],
    ['no image', one().slice(0, 4), 'templates.yaml:2: templates[0].image:'],
    [
      'an image that is no reference',
      [...one().slice(0, 4), '    image: Org/App'],
      'templates.yaml:5: templates[0].image',
    ],
    ['an id twice', [...one(), ...one().slice(1)], 'templates.yaml:6: templates[1].id: the id app is used twice'],
    ['an id with capitals', ['templates:', '  - id: App'], 'templates.yaml:2: templates[0].id'],
    [
      'a number as a default',
      one('env: { A: { description: a, default: 1 } }'),
      'templates.yaml:6: templates[0].env.A.default',
    ],
    [
      'a reserved name',
      one('env: { SVC_A: { description: a } }'),
      'templates.yaml:6: templates[0].env.SVC_A: is a reserved name',
    ],
    [
      'a required variable that nobody may set',
      one('env: { A: { description: a, required: true } }'),
      'must be user_overridable',
    ],
    [
      'a required variable with a default',
      one('env: { A: { description: a, required: true, user_overridable: true, default: b } }'),
      'so it is not required',
    ],
    [
      'a secret with a default',
      one('env: { A: { description: a, secret: true, default: b } }'),
      'must have no default',
    ],
    [
      'a secret in a command line',
      one('cmd: [["--t", "${A}"]]', 'env: { A: { description: a, secret: true } }'),
      'templates.yaml:6: templates[0].cmd[0]: holds the secret A',
    ],
    [
      'a variable that is not declared',
      one('entrypoint: [x, "${B}"]'),
      'templates.yaml:6: templates[0].entrypoint[1]: names the variable B',
    ],
    ['a variable that may have no value', one('cmd: ["${A}"]', 'env: { A: { description: a } }'), 'may have no value'],
    ['GPU_COUNT as a variable', one('env: { GPU_COUNT: { description: a } }'), 'is the number of GPUs already'],
    ['a model without MODEL', one('serves_model: true'), 'needs a required variable MODEL'],
    ['a primary port of tcp', one('ports: [{ port: 1, protocol: tcp, primary: true }]'), 'must be http'],
    ['port 22', one('ports: [{ port: 22, protocol: tcp }]'), 'must not be 22'],
  ])('with %s is refused with its line', (_what, lines, complaint) => {
    expect(() => read(...lines)).toThrow(complaint);
  });

  test('may hold no templates at all', () => {
    expect(read('templates: []').size).toBe(0);
  });

  test('that does not exist is refused by its name', () => {
    expect(() => readTemplates('/nowhere/templates.yaml')).toThrow('/nowhere/templates.yaml');
  });
});

describe('a launch', () => {
  const lines = [
    'cmd: [serve, "--name=${NAME}-${GPU_COUNT}", [--limit, "${LIMIT}"], "${LEVEL}"]',
    'env:',
    '  NAME: { description: The name, required: true, user_overridable: true }',
    '  LIMIT: { description: The limit, user_overridable: true }',
    '  LEVEL: { description: The level, default: "3" }',
  ];

  test('fills in its values, and leaves out what has none', () => {
    const template = app(...lines);
    expect(fillTemplate(template, { NAME: 'a b;$(c)' }, 2)).toEqual({
      env: { NAME: 'a b;$(c)', LEVEL: '3' },
      entrypoint: null,
      cmd: ['serve', '--name=a b;$(c)-2', '3'],
    });
    expect(fillTemplate(template, { NAME: '${LEVEL}', LIMIT: '9' }, 1).cmd).toEqual([
      'serve',
      '--name=${LEVEL}-1',
      '--limit',
      '9',
      '3',
    ]);
    expect(fillTemplate(template, { NAME: 'a', LIMIT: '' }, 1).cmd).not.toContain('--limit');
  });

  test('puts each value into one argument as it is, whatever it holds', () => {
    const template = app(...lines);
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), fc.string(), fc.integer({ min: 1, max: 8 }), (NAME, LIMIT, count) => {
        const { cmd, env } = fillTemplate(template, { NAME, LIMIT }, count);
        const limit = LIMIT === '' ? [] : ['--limit', LIMIT];
        expect(cmd).toEqual(['serve', `--name=${NAME}-${count}`, ...limit, '3']);
        expect(env).toEqual({ NAME, LIMIT, LEVEL: '3' });
      }),
      { seed: 31 },
    );
  });

  test('whose variables and arguments do not fit into the message to a host is refused, at its edge', () => {
    const twice = app(
      'cmd: ["${NAME}"]',
      'env: { NAME: { description: The name, required: true, user_overridable: true } }',
    );
    const room = (LAUNCH_BYTES_MAX - JSON.stringify(fillTemplate(twice, { NAME: '-' }, 1)).length + 2) / 2;
    expect(fillTemplate(twice, { NAME: 'x'.repeat(Math.floor(room)) }, 1).cmd).toHaveLength(1);
    expect(() => fillTemplate(twice, { NAME: 'x'.repeat(Math.floor(room) + 1) }, 1)).toThrow(
      expect.objectContaining({
        code: 'validation_failed',
        details: expect.objectContaining({ errors: [{ field: 'env', rule: expect.stringContaining('262144 bytes') }] }),
      }),
    );
  });

  test('is refused with the name of each missing or forbidden value', () => {
    for (const given of [{}, { NAME: '' }]) {
      expect(() => fillTemplate(app(...lines), given, 1)).toThrow('env.NAME is required by the template app: The name');
    }
    const refusal = catchError(() => fillTemplate(app(...lines), { LEVEL: '4', OTHER: 'x' }, 1));
    expect(refusal).toMatchObject({
      code: 'validation_failed',
      details: {
        errors: [
          { field: 'env.LEVEL', rule: 'cannot be set for the template app; those that can be set are NAME, LIMIT' },
          { field: 'env.OTHER' },
          { field: 'env.NAME' },
        ],
      },
    });
    expect(() => fillTemplate(app(), { A: 'x' }, 1)).toThrow('it has none that can be set');
  });
});

function catchError(work: () => unknown): unknown {
  try {
    work();
  } catch (error) {
    return error;
  }
  throw new Error('nothing was thrown');
}

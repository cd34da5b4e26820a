// The examples that the README gives operators are files that the control plane takes.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, test } from 'vitest';
import { imageOf, readEnvironments } from '../../../../control-plane/rental/launch/environments.ts';
import { fillTemplate } from '../../../../control-plane/rental/launch/fill.ts';
import { readTemplates } from '../../../../control-plane/rental/launch/templates.ts';

const README = readFileSync(resolve(import.meta.dirname, '../../../../README.md'), 'utf8');

function withExample<T>(begin: string, read: (file: string) => T): T {
  const [, example = ''] = new RegExp(`\`\`\`yaml\n(${begin}[^]*?)\`\`\``).exec(README) ?? [];
  const directory = mkdtempSync(join(tmpdir(), 'svc-'));
  try {
    const file = join(directory, 'example.yaml');
    writeFileSync(file, example);
    return read(file);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('of a template', () => {
  const template = withExample('templates:', readTemplates).get('vllm');
  if (template === undefined) throw new Error('the README has no template vllm');
  expect(fillTemplate(template, { MODEL: 'org/model' }, 2).cmd).toEqual([
    '--model',
    'org/model',
    '--tensor-parallel-size',
    '2',
  ]);
});

test('of environments', () => {
  const environments = withExample('default:', readEnvironments);
  expect(imageOf(environments, undefined)).toMatch(/^pytorch\//);
});

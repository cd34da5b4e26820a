// Environments as operators write them: what ships is sound, what is wrong is refused with its line, and what a launch names is found.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  type Environments,
  environmentsView,
  imageOf,
  readEnvironments,
} from '../../../../control-plane/rental/launch/environments.ts';
import { parseReference } from '../../../../control-plane/rental/launch/reference.ts';
import { Environments as View } from '../../../../shared/api/preset.ts';

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'svc-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

function read(...lines: string[]): Environments {
  const file = join(directory, 'environments.yaml');
  writeFileSync(file, lines.join('\n'));
  return readEnvironments(file);
}

const BASE =
  'base: { cuda128: { default: true, image: "base:128", includes: [] }, cuda124: { image: "base:124", includes: [] } }';
const version = (id: string, more = ''): string =>
  `      - { id: "${id}", label: L, variant: cuda128, image: "jax:${id}"${more} }`;
/** Frameworks begin in line 3, versions in line 6. */
const file = (...versions: string[]): string[] => [
  'default: certified:jax',
  BASE,
  'frameworks:',
  '  jax:',
  '    includes: { cuda128: [{ name: jax }] }',
  '    versions:',
  ...versions,
];
const SOUND = file(version('1.0', ', default: true'), version('0.9'));

describe('the built-in environments', () => {
  const shipped = readEnvironments(undefined);
  const { frameworks, versions, includes } = environmentsView(shipped);

  // Specification 2.16: frameworks are ids usable as certified:<framework>.
  test('each framework and version that is shown leads to an image with a fixed tag', () => {
    const names = frameworks.flatMap((name) => [
      `certified:${name}`,
      ...(versions[name] ?? []).map(({ id }) => `certified:${name}@${id}`),
    ]);
    expect(names.length).toBeGreaterThan(frameworks.length);
    for (const name of ['certified', 'provider_template', undefined, ...names]) {
      expect(parseReference(imageOf(shipped, name)).tag).not.toBe('latest');
    }
  });

  // Specification 2.16: includes are told by framework, and for base, by CUDA variant.
  test('every version has a CUDA variant with its contents, and shows no image', () => {
    for (const name of frameworks) {
      for (const { variant } of versions[name] ?? []) expect(includes[name]?.[variant]?.length).toBeGreaterThan(0);
    }
    expect(Object.keys(includes['base'] ?? {})).toEqual(['cuda128', 'cuda124']);
    expect(JSON.stringify(View.parse(environmentsView(shipped)))).not.toMatch(/image"|nvidia\//);
  });
});

describe('a file', () => {
  // Specification 2.16: FrameworkVersion: at most one default of a framework.
  test.each<[string, string[], string]>([
    [
      'more than one default version',
      file(version('1', ', default: true'), version('2', ', default: true')),
      'environments.yaml:8: frameworks.jax.versions[1].default: is true for more than one',
    ],
    [
      'a version twice',
      file(version('1', ', default: true'), version('1')),
      'environments.yaml:8: frameworks.jax.versions[1].id',
    ],
    [
      'an image that is no reference',
      file('      - { id: a, label: L, variant: cuda128, image: "A B", default: true }'),
      'environments.yaml:7: frameworks.jax.versions[0].image',
    ],
    [
      'an unknown CUDA variant',
      file(version('1').replace('cuda128', 'cuda999')),
      'environments.yaml:7: frameworks.jax.versions[0].variant',
    ],
    [
      'a variant without its contents',
      file(version('1').replace('cuda128', 'cuda124')),
      'includes says nothing about cuda124',
    ],
    [
      'a framework without versions',
      ['default: certified', BASE, 'frameworks: { jax: { includes: {}, versions: [] } }'],
      'environments.yaml:3: frameworks.jax.versions',
    ],
    [
      'a framework called base',
      [
        'default: certified',
        BASE,
        ...file(version('1'))
          .slice(2)
          .map((line) => line.replace('  jax:', '  base:')),
      ],
      'must not have one that is called base',
    ],
    [
      'no default base',
      ['default: certified', BASE.replace('default: true, ', ''), 'frameworks: {}'],
      'environments.yaml:2: base: must have exactly one default',
    ],
    ['an unknown key', [...SOUND, 'more: 1'], 'more: is not a known field'],
    [
      'a default that is not there',
      ['default: certified:torch', ...SOUND.slice(1)],
      'environments.yaml:1: default: there is no framework torch; there are jax',
    ],
    [
      'raw_vm as the default',
      ['default: raw_vm', ...SOUND.slice(1)],
      'environments.yaml:1: default: must be certified',
    ],
  ])('with %s is refused with its line', (_what, lines, complaint) => {
    expect(() => read(...lines)).toThrow(complaint);
  });
});

describe('the environment of a launch', () => {
  // Specification 4.3: certified, certified:<framework>, certified:<framework>@<version>, provider_template.
  test.each([
    [undefined, 'jax:1.0'],
    ['provider_template', 'jax:1.0'],
    ['certified', 'base:128'],
    ['certified:jax', 'jax:1.0'],
    ['certified:jax@1.0', 'jax:1.0'],
    ['certified:jax@0.9', 'jax:0.9'],
  ])('%s is %s', (named, image) => {
    expect(imageOf(read(...SOUND), named)).toBe(image);
  });

  test.each([
    ['certified:torch', 'there is no framework torch; there are jax'],
    ['certified:toString', 'there is no framework toString'],
    ['certified:jax@2', 'there is no version 2 of jax; there are 1.0, 0.9'],
    ['raw_vm', 'no host on offer runs virtual machines; use certified'],
    ['raw_vm:ubuntu-24.04', 'no host on offer runs virtual machines'],
  ])('%s cannot be served: %s', (named, why) => {
    expect(() => imageOf(read(...SOUND), named)).toThrow(
      `environment_unavailable: The environment ${named} cannot be served: ${why}`,
    );
  });

  test('needs a default version if it names no version', () => {
    const lines = ['default: certified', ...file(version('1')).slice(1)];
    expect(() => imageOf(read(...lines), 'certified:jax')).toThrow(
      'jax has no default version; name one of 1 after an @',
    );
    expect(imageOf(read(...lines), 'certified:jax@1')).toBe('jax:1');
  });
});

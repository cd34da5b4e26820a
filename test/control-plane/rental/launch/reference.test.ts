// Image references as Docker reads them.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  hostOf,
  parseReference,
  pinnedText,
  readRegistry,
  referenceText,
} from '../../../../control-plane/rental/launch/reference.ts';
import { ServiceError } from '../../../../shared/errors.ts';

const DIGEST = `sha256:${'a'.repeat(64)}`;

test.each([
  ['alpine', 'docker.io', 'library/alpine', 'latest', null],
  ['alpine:3.20', 'docker.io', 'library/alpine', '3.20', null],
  ['org/app', 'docker.io', 'org/app', 'latest', null],
  ['docker.io/alpine', 'docker.io', 'library/alpine', 'latest', null],
  ['index.docker.io/library/alpine', 'docker.io', 'library/alpine', 'latest', null],
  ['registry-1.docker.io/org/app:1', 'docker.io', 'org/app', '1', null],
  ['ghcr.io/org/team/app:1.2-rc_3', 'ghcr.io', 'org/team/app', '1.2-rc_3', null],
  ['GHCR.io/org/app', 'ghcr.io', 'org/app', 'latest', null],
  ['registry.lan:5000/app', 'registry.lan:5000', 'app', 'latest', null],
  ['[2001:db8::1]:5000/app:x', '[2001:db8::1]:5000', 'app', 'x', null],
  ['localhost/app', 'localhost', 'app', 'latest', null],
  [`alpine@${DIGEST}`, 'docker.io', 'library/alpine', null, DIGEST],
  [`ghcr.io/org/app:1@${DIGEST}`, 'ghcr.io', 'org/app', '1', DIGEST],
  ['a__b/c-----d/e.f', 'docker.io', 'a__b/c-----d/e.f', 'latest', null],
])('%s', (text, ...parts) => {
  const { registry, repository, tag, digest } = parseReference(text);
  expect([registry, repository, tag, digest]).toEqual(parts);
});

test.each([
  ['', 'must name a repository'],
  ['https://ghcr.io/org/app', 'scheme'],
  ['ghcr.io/org/app:1 2', 'no spaces'],
  ['ghcr.io/örg/app', 'ASCII'],
  ['alpine:', 'tag'],
  ['alpine:-x', 'tag'],
  [`alpine:${'x'.repeat(129)}`, 'tag'],
  ['alpine@sha256:abc', '64'],
  [`alpine@sha512:${'a'.repeat(128)}`, 'sha256'],
  [`alpine@${DIGEST}@${DIGEST}`, 'at most one digest'],
  ['org/App', 'lower case'],
  ['org//app', 'separated by'],
  ['/app', 'separated by'],
  ['org/app/', 'separated by'],
  ['a___b', 'separated by'],
  ['-app', 'separated by'],
  ['../app', 'registry'],
  ['ghcr.io:0/app', 'registry'],
  ['ghcr.io:65536/app', 'registry'],
  ['-ghcr.io/app', 'registry'],
  ['REGISTRY/app', 'a dot or a port'],
  ['user@ghcr.io/app', '64'],
  ['a'.repeat(64), 'id of a local image'],
  [`ghcr.io/${'a/'.repeat(128)}`, 'separated by'],
  [`ghcr.io/${'a'.repeat(256)}`, 'at most 255'],
])('%s is malformed', (text, detail) => {
  const refusal = refusalOf(text);
  expect(refusal).toMatchObject({ code: 'image_reference_invalid', details: { errors: [{ field: 'image' }] } });
  expect(refusal?.details.detail).toContain(detail);
});

test('a name of 255 characters and a tag of 128 are the longest', () => {
  expect(parseReference(`ghcr.io/${'a'.repeat(255)}:${'x'.repeat(128)}`).repository).toHaveLength(255);
});

test.each([
  ['docker.io/library/alpine', 'alpine:latest'],
  ['docker.io/library/a/b', 'library/a/b:latest'],
  ['docker.io/localhost/a', 'docker.io/localhost/a:latest'],
  ['index.docker.io/localhost', 'localhost:latest'],
])('%s is written as %s, which means the same', (text, written) => {
  const reference = parseReference(text);
  expect(referenceText(reference)).toBe(written);
  expect(parseReference(written)).toEqual(reference);
});

test('any text is read or refused, and what is read means the same when it is written', () => {
  const pieces = fc.constantFrom(
    'a',
    'B',
    '/',
    ':',
    '@',
    '.',
    '_',
    '-',
    '5000',
    'localhost',
    'docker.io',
    DIGEST,
    '[::1]',
    ' ',
  );
  fc.assert(
    fc.property(fc.array(pieces, { maxLength: 8 }), (parts) => {
      const text = parts.join('');
      if (refusalOf(text) !== undefined) return;
      const reference = parseReference(text);
      expect(parseReference(referenceText(reference))).toEqual(reference);
    }),
  );
});

describe('written', () => {
  test('the pinned image has its digest and no tag, and no words that people leave out', () => {
    expect(pinnedText(parseReference('docker.io/library/alpine:3'), DIGEST)).toBe(`alpine@${DIGEST}`);
    expect(pinnedText(parseReference('ghcr.io/org/app:3'), DIGEST)).toBe(`ghcr.io/org/app@${DIGEST}`);
  });

  test.each(['docker.io', 'Docker.IO', 'index.docker.io', 'registry-1.docker.io', 'https://index.docker.io/v1/'])(
    '%s is Docker Hub',
    (text) => {
      expect(readRegistry(text)).toBe('docker.io');
      expect(hostOf('docker.io')).toBe('registry-1.docker.io');
    },
  );

  test.each(['https://ghcr.io', 'ghcr.io/org', 'ghcr io', 'ghcr.io:', 'ghcr.io:99999', 'a..b', ''])(
    '%s is no registry',
    (text) => {
      expect(readRegistry(text)).toBeUndefined();
    },
  );
});

function refusalOf(text: string): ServiceError | undefined {
  try {
    parseReference(text);
    return undefined;
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
}

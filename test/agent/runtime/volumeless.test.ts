// Copies of images without their volumes: all the rest is the same, in an archive that tar and the engine can read.
import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { tarOf, type LayeredImage, withoutVolumes } from '../../../agent/runtime/volumeless.ts';

const IMAGE = { Id: 'sha256:abc', Architecture: 'amd64', Os: 'linux', RootFS: { Layers: ['sha256:1', 'sha256:2'] } };
const fileOf = (archive: Buffer, name: string): unknown =>
  JSON.parse(execFileSync('tar', ['-xO', name], { input: archive }).toString());

test('an image without volumes is used as it is', () => {
  const configs: LayeredImage['Config'][] = [{}, { Volumes: null }, { Volumes: {} }];
  for (const Config of configs) expect(withoutVolumes({ ...IMAGE, Config })).toBe(undefined);
});

test('a copy has everything of its image except the volumes, and no layer is copied', () => {
  const Config = { Volumes: { '/data': {} }, Env: ['A=1'], User: 'me' };
  const made = withoutVolumes({ ...IMAGE, Config });
  const archive = made?.archive ?? Buffer.alloc(0);
  expect(fileOf(archive, 'config.json')).toEqual({
    architecture: 'amd64',
    os: 'linux',
    config: { Env: ['A=1'], User: 'me' },
    rootfs: { type: 'layers', diff_ids: ['sha256:1', 'sha256:2'] },
  });
  expect(fileOf(archive, 'manifest.json')).toEqual([
    { Config: 'config.json', RepoTags: ['svc-without-volumes:abc'], Layers: ['0.tar', '1.tar'] },
  ]);
  expect(made?.folders.map(({ path }) => path)).toEqual(['/data']);
});

describe('an archive', () => {
  test('has files and folders with their modes, whatever their sizes', () => {
    const entries = [{ name: 'folder/' }, ...[0, 511, 512, 513].map((n) => ({ name: `${n}`, content: 'x'.repeat(n) }))];
    const listed = execFileSync('tar', ['-tv', '--numeric-owner'], { input: tarOf(entries) }).toString();
    const lines = listed
      .trim()
      .split('\n')
      .map((line) => line.split(/\s+/));
    expect(lines.map(([mode, owner, size, , , name]) => [mode, owner, size, name])).toEqual([
      ['drwxr-xr-x', '0/0', '0', 'folder/'],
      ...[0, 511, 512, 513].map((n) => ['-rw-r--r--', '0/0', `${n}`, `${n}`]),
    ]);
  });

  test('takes names of 100 bytes and no longer ones', () => {
    const name = 'n'.repeat(100);
    expect(execFileSync('tar', ['-t'], { input: tarOf([{ name, content: '' }]) }).toString()).toBe(`${name}\n`);
    expect(() => tarOf([{ name: `${name}n` }])).toThrow('too long');
  });
});

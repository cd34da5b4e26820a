// Copies of images without their volumes: all the rest is the same, in an archive that tar and the engine can read.
import { execFileSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { imageFaultOf } from '../../../agent/runtime/docker-answers.ts';
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

  test.each([
    ['100 bytes', 'n'.repeat(100)],
    ['256 bytes with a slash after 155', `${'p'.repeat(155)}/${'n'.repeat(100)}`],
    ['many short parts', `${'data/'.repeat(50)}`],
    ['letters of two bytes', `${'ä/'.repeat(50)}${'ä'.repeat(50)}`],
  ])('takes names of %s', (_what, name) => {
    const [entry] = execFileSync('tar', ['-tP', '--quoting-style=literal'], { input: tarOf([{ name, content: '' }]) })
      .toString()
      .split('\n');
    expect(entry).toBe(name);
  });

  test.each([
    ['101 bytes without a slash', 'n'.repeat(101)],
    ['101 bytes that begin with their only slash', `/${'n'.repeat(100)}`],
    ['101 bytes that end with their only slash', `${'n'.repeat(100)}/`],
    ['a slash after more than 155 bytes only', `${'p'.repeat(156)}/n`],
    ['257 bytes', `${'p'.repeat(156)}/${'n'.repeat(100)}`],
  ])('takes no names of %s', (_what, name) => {
    expect(() => tarOf([{ name }])).toThrow('too long');
  });
});

test('a copy creates the folder of a volume with a long path, and one that is too long is refused with that reason', () => {
  const path = `/opt/${'data/'.repeat(45)}end`;
  const made = withoutVolumes({ ...IMAGE, Config: { Volumes: { [path]: {} } } });
  const listed = execFileSync('tar', ['-t'], { input: made?.folders[0]?.archive ?? Buffer.alloc(0) }).toString();
  expect(listed).toBe(`${path.slice(1)}/\n`);
  const tooLong = `/opt/${'data/'.repeat(60)}`;
  const Config = { Volumes: { '/fine': {}, [tooLong]: {} } };
  expect(() => withoutVolumes({ ...IMAGE, Config })).toThrow(`the path of a VOLUME is too long: ${tooLong}`);
});

test('an image with more volumes than a host can make in time is refused on every host', () => {
  const withVolumes = (count: number): LayeredImage['Config'] => ({
    Volumes: Object.fromEntries(Array.from({ length: count }, (_, nth) => [`/${nth}`, {}])),
  });
  expect(withoutVolumes({ ...IMAGE, Config: withVolumes(100) })?.folders).toHaveLength(100);
  const refusal = 'the image declares 101 VOLUMEs, and a host makes 100 at most';
  expect(() => withoutVolumes({ ...IMAGE, Config: withVolumes(101) })).toThrow(refusal);
  expect(imageFaultOf(refusal)).toBe(`the image cannot be run: ${refusal}`);
});

// Which btrfs a folder lies on, and whether the kernel still counts its sizes; with files that look like the kernel's.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { hasCount } from '../../../agent/host/btrfs.ts';

let dir: string;
beforeEach(() => (dir = mkdtempSync(join(tmpdir(), 'btrfs-'))));
afterEach(() => rmSync(dir, { recursive: true }));

/** Mounts as `[mount point, file system, device]`, and by the name of a device what its file `inconsistent` says. */
function kernel(mounts: string[][], flags: Record<string, string | undefined>): ReturnType<typeof hasCount> {
  mkdirSync(join(dir, 'dev'));
  const lines = mounts.map(
    ([at, type, device]) => `49 26 0:40 /@a ${at} rw shared:1 - ${type} ${dir}/dev/${device} rw,subvol=/@a`,
  );
  writeFileSync(join(dir, 'mountinfo'), `${lines.join('\n')}\n`);
  mkdirSync(join(dir, 'btrfs', 'features'), { recursive: true });
  for (const [device, flag] of Object.entries(flags)) {
    writeFileSync(join(dir, 'dev', device), '');
    const fileSystem = join(dir, 'btrfs', `of-${device}`);
    mkdirSync(join(fileSystem, 'devices', device), { recursive: true });
    if (flag === undefined) continue;
    mkdirSync(join(fileSystem, 'qgroups'));
    writeFileSync(join(fileSystem, 'qgroups', 'inconsistent'), `${flag}\n`);
  }
  symlinkSync(join(dir, 'dev', 'sda'), join(dir, 'dev', 'mapped'));
  return hasCount('/var/lib/docker', { mountinfo: join(dir, 'mountinfo'), btrfs: join(dir, 'btrfs') });
}

describe('a folder on a btrfs', () => {
  test.each<[string, string | undefined, boolean]>([
    ['counts', '0', true],
    ['has given the count up', '1', false],
    ['does not say (Linux before 6.1, or no limits yet)', undefined, true],
  ])('that %s', async (_how, flag, counts) => {
    expect(await kernel([['/', 'btrfs', 'sda']], { sda: flag, sdb: '1' })).toBe(counts);
  });

  test('is found by the real device behind a name', async () => {
    expect(await kernel([['/', 'btrfs', 'mapped']], { sda: '1' })).toBe(false);
  });

  test.each<[string, string, boolean]>([
    ['counts if every btrfs of the host does', '0', true],
    ['does not count if another btrfs does not', '1', false],
  ])('whose device has a name that is not there %s', async (_how, flag, counts) => {
    expect(await kernel([['/', 'btrfs', 'root']], { sda: '0', sdb: flag })).toBe(counts);
  });
});

describe('the mount that holds the folder is', () => {
  test.each<[string, string[][], boolean]>([
    [
      'the deepest one above it',
      [
        ['/', 'btrfs', 'sda'],
        ['/var/lib', 'btrfs', 'sdb'],
      ],
      true,
    ],
    [
      'the last one at a place',
      [
        ['/var', 'btrfs', 'sda'],
        ['/var', 'ext4', 'sdb'],
      ],
      true,
    ],
    [
      'the folder itself',
      [
        ['/', 'ext4', 'sdb'],
        ['/var/lib/docker', 'btrfs', 'sda'],
      ],
      false,
    ],
    [
      'not one with a similar name',
      [
        ['/', 'btrfs', 'sda'],
        ['/var/lib/dock', 'btrfs', 'sdb'],
      ],
      false,
    ],
    [
      'not one below it',
      [
        ['/', 'btrfs', 'sda'],
        ['/var/lib/docker/volumes', 'btrfs', 'sdb'],
      ],
      false,
    ],
  ])('%s', async (_which, mounts, counts) => {
    expect(await kernel(mounts, { sda: '1', sdb: '0' })).toBe(counts);
  });
});

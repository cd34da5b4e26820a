// Disks of a test: a few megabytes that it can fill, and a btrfs on which an engine can hold containers to their disk size. Needs Linux and root.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync, mkdirSync, truncateSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requireProgram } from './setup.ts';

export interface SmallDisk {
  dir: string;
  freeBytes(): number;
  /** Fills the disk and leaves the given number of bytes. */
  fill(leaveBytes?: number): void;
  /** Frees that space again. */
  empty(): void;
  remove(): void;
}

export function mountSmallDisk(bytes: number): SmallDisk {
  const dir = mkdtempSync(join(tmpdir(), 'small-'));
  execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${bytes}`, 'tmpfs', dir]);
  const filler = join(dir, 'filler');
  const freeBytes = (): number => {
    const { bavail, bsize } = statfsSync(dir);
    return bavail * bsize;
  };
  return {
    dir,
    freeBytes,
    fill: (leaveBytes = 0) => writeFileSync(filler, Buffer.alloc(freeBytes() - leaveBytes)),
    empty: () => rmSync(filler),
    remove: () => {
      execFileSync('umount', [dir]);
      rmSync(dir, { recursive: true });
    },
  };
}

export interface MountedBtrfs {
  dir: string;
  /**
   * Waits until the disks of removed containers are gone, and has the sizes of all others counted again. The kernel gives the count up
   * if such a disk goes at a bad moment, and then a container can write beyond its size (agent/host/btrfs.ts).
   */
  settle(): void;
  /** Whether the kernel counts the sizes of containers. */
  hasCount(): boolean;
  /** Makes the kernel give the count up, by a group of subvolumes of which one shares its content with a subvolume outside. */
  giveUpCount(): void;
  /** Unmounts it and removes all of it. */
  remove(): void;
}

/** Needs Linux, root, loop devices and a kernel with btrfs. The file behind it is sparse. */
export function mountBtrfs(sizeBytes: number): MountedBtrfs {
  const whole = mkdtempSync(join(tmpdir(), 'btrfs-'));
  const [image, dir] = [join(whole, 'image'), join(whole, 'm')];
  writeFileSync(image, '');
  truncateSync(image, sizeBytes);
  mkdirSync(dir);
  execFileSync(requireProgram('mkfs.btrfs'), ['--quiet', image], { stdio: 'ignore' });
  execFileSync('mount', ['--options', 'loop', image, dir]);
  const btrfs = (...argv: string[]): string =>
    execFileSync(requireProgram('btrfs'), argv, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
  return {
    dir,
    settle: () => {
      btrfs('filesystem', 'sync', dir);
      btrfs('subvolume', 'sync', dir);
      btrfs('quota', 'rescan', '-w', dir);
    },
    hasCount: () => {
      const [, uuid = ''] = /uuid: (\S+)/.exec(btrfs('filesystem', 'show', dir)) ?? [];
      return readFileSync(`/sys/fs/btrfs/${uuid}/qgroups/inconsistent`, 'utf8').trim() === '0';
    },
    giveUpCount: () => {
      const shared = join(dir, 'shared');
      btrfs('subvolume', 'create', shared);
      writeFileSync(join(shared, 'file'), Buffer.alloc(1024 ** 2));
      btrfs('subvolume', 'snapshot', shared, `${shared}-2`);
      btrfs('quota', 'rescan', '-w', dir);
      const [, id = ''] = /Subvolume ID:\s+(\d+)/.exec(btrfs('subvolume', 'show', shared)) ?? [];
      btrfs('qgroup', 'create', '1/1', dir);
      btrfs('qgroup', 'assign', '--no-rescan', `0/${id}`, '1/1', dir);
    },
    remove: () => {
      execFileSync('umount', [dir]);
      rmSync(whole, { recursive: true });
    },
  };
}

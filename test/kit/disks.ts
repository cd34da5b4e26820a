// Disks of a test: a few megabytes that it can fill, and a btrfs on which an engine can hold containers to their disk size. Needs Linux and root.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, writeFileSync, mkdirSync, truncateSync } from 'node:fs';
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
   * Waits until removed containers are gone and the sizes of all others are counted. Docker has the kernel count anew whenever a container
   * is removed. Until that is done, and if the kernel gives the count up, a container can write beyond its size. The kernel gives it up
   * if the disk of a removed container goes during a count.
   */
  settle(): void;
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
  return {
    dir,
    settle: () => {
      for (const argv of [
        ['filesystem', 'sync', dir],
        ['subvolume', 'sync', dir],
        ['quota', 'rescan', '-w', dir],
      ])
        execFileSync(requireProgram('btrfs'), argv, { stdio: 'ignore' });
    },
    remove: () => {
      execFileSync('umount', [dir]);
      rmSync(whole, { recursive: true });
    },
  };
}

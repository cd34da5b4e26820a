// A small btrfs of its own for a test: a file system on which an engine can hold containers to their disk size.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { requireProgram } from './setup.ts';

export interface MountedBtrfs {
  dir: string;
  /** Unmounts it and removes all of it. */
  remove(): void;
}

const SIZE_BYTES = 4 * 1024 ** 3;

/** Needs Linux, root, loop devices and a kernel with btrfs. The file behind it is sparse. */
export function mountBtrfs(): MountedBtrfs {
  const whole = mkdtempSync(join(tmpdir(), 'btrfs-'));
  const [image, dir] = [join(whole, 'image'), join(whole, 'm')];
  writeFileSync(image, '');
  truncateSync(image, SIZE_BYTES);
  mkdirSync(dir);
  execFileSync(requireProgram('mkfs.btrfs'), ['--quiet', image], { stdio: 'ignore' });
  execFileSync('mount', ['--options', 'loop', image, dir]);
  return {
    dir,
    remove: () => {
      execFileSync('umount', [dir]);
      rmSync(whole, { recursive: true });
    },
  };
}

// A disk of a few megabytes for a test that fills it. Needs Linux and root.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, statfsSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface SmallDisk {
  dir: string;
  freeBytes(): number;
  /** Fills the disk except for so many bytes. */
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

// Whether a btrfs still counts the sizes of its subvolumes. Docker makes each container a subvolume, and limits the size that the kernel counts.
//
// The kernel may give the count up, and from then on no container is limited. It happens in this order:
//   1. Docker turns the count on when it creates the first container with a size. The disks of older containers are then counted incompletely.
//   2. Docker removes such a disk. The kernel meets numbers that do not fit, and stops counting.
//   3. Docker never has the sizes counted again. `countAgain` does.
//
// The kernel shows this state in `/sys/fs/btrfs/<file system>/qgroups/inconsistent`. Linux 6.1 is the first that shows it, and also the first that
// gives a count up.
import { access, readdir, readFile, realpath } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { run } from './run.ts';
import { isMissing } from './state.ts';

interface KernelFiles {
  mountinfo: string;
  btrfs: string;
}

const KERNEL_FILES: KernelFiles = { mountinfo: '/proc/self/mountinfo', btrfs: '/sys/fs/btrfs' };

const COUNT_MS_MAX = 10 * 60_000;

/**
 * Whether the sizes below `folder` are counted. True also if the folder is on another file system, or if the kernel never gives a count up.
 *
 * A kernel that was started without an initramfs calls the device of its root `/dev/root`, which does not exist. Then every btrfs of the host must
 * have its count.
 */
export async function hasCount(folder: string, files: KernelFiles = KERNEL_FILES): Promise<boolean> {
  const source = btrfsSource(await readFile(files.mountinfo, 'utf8'), folder);
  if (source === undefined) return true;
  const device = await unlessMissing(realpath(source));
  for (const fileSystem of await readdir(files.btrfs)) {
    const at = (...path: string[]): string => join(files.btrfs, fileSystem, ...path);
    if (device !== undefined && !(await isThere(at('devices', basename(device))))) continue;
    const flag = await unlessMissing(readFile(at('qgroups', 'inconsistent'), 'utf8'));
    if (flag !== undefined && flag.trim() !== '0') return false;
  }
  return true;
}

/** Resolves when all sizes are counted again. It needs root and btrfs-progs. @throws Error with the words of the program `btrfs` */
export async function countAgain(folder: string): Promise<void> {
  const { code, stderr } = await run(['btrfs', 'quota', 'rescan', '-w', folder], { timeoutMs: COUNT_MS_MAX });
  if (code !== 0) throw new Error(`btrfs quota rescan ${folder} failed: ${stderr.trim()}`);
}

/**
 * The block device below the folder; undefined if that is no btrfs. A line reads
 * `49 26 0:40 /@docker /var/lib/docker rw,relatime shared:1 - btrfs /dev/sda2 rw,subvol=/@docker`.
 */
function btrfsSource(mountinfo: string, folder: string): string | undefined {
  let found = { mount: '', type: '', source: '' };
  for (const line of mountinfo.trim().split('\n')) {
    const [place = '', fileSystem = ''] = line.split(' - ');
    const mount = unescaped(place.split(' ')[4] ?? '');
    const [type = '', source = ''] = fileSystem.split(' ');
    const isAbove = mount === '/' || folder === mount || folder.startsWith(`${mount}/`);
    // A later mount at the same place hides the earlier one.
    if (isAbove && mount.length >= found.mount.length) found = { mount, type, source: unescaped(source) };
  }
  return found.type === 'btrfs' ? found.source : undefined;
}

/** The kernel writes spaces, tabs, line ends and backslashes as octal numbers. */
function unescaped(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}

async function unlessMissing<T>(found: Promise<T>): Promise<T | undefined> {
  return found.catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
}

async function isThere(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

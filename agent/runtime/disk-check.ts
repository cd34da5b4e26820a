// Tests whether this host enforces the disk size of a container. It fills a disk, because the engine's own claims are no proof.
import { join } from 'node:path';
import { z } from 'zod';
import type { Log } from '../../shared/log.ts';
import { messageOf } from '../../shared/errors.ts';
import { countAgain, hasCount } from '../host/btrfs.ts';
import { readJson, writeJson } from '../host/state.ts';
import type { Engine, Mount } from './engine.ts';
import { makeEtcFiles } from './shape.ts';

const Finding = z.strictObject({ enforced: z.boolean() });

/** How to run Node inside a container that has nothing else. */
export interface BareNode {
  argv: string[];
  mounts: Mount[];
}

/** What a file system knows of the sizes of containers below a folder (host/btrfs.ts). */
export interface Sizes {
  hasCount(folder: string): Promise<boolean>;
  countAgain(folder: string): Promise<void>;
}

export interface DiskCheck {
  /** The result of the last try, also of an earlier process; false before the first, and while a btrfs does not count sizes. */
  enforced(): boolean;
  /**
   * Fills the disk of a small container, once per process. A btrfs that has given up counting sizes is made to count again, before that and
   * later. Rejects if the engine does not answer before the disk was filled once.
   */
  measure(): Promise<void>;
}

const LIMIT_MIB = 64;
const HELD = 0;
const NOT_HELD = 3;

/**
 * Writes up to twice the limit to each place that could lie outside the container's disk. A file system may notice the limit late, so
 * every few MiB are flushed. The error numbers are numbers, because Node has no name for EDQUOT.
 */
const FILL = `
const fs = require('node:fs');
const { ENOSPC, EDQUOT, EROFS, EACCES } = require('node:os').constants.errno;
const chunk = Buffer.alloc(1024 * 1024, 1);
function fill(path) {
  const file = fs.openSync(path, 'a');
  for (let mib = 1; mib <= ${2 * LIMIT_MIB}; mib += 1) {
    fs.writeSync(file, chunk);
    if (mib % 8 === 0) fs.fsyncSync(file);
  }
  process.exit(${NOT_HELD});
}
for (const [path, held] of [
  ['/etc/hosts', [EROFS, EACCES, ENOSPC, EDQUOT]],
  ['/etc/hostname', [EROFS, EACCES, ENOSPC, EDQUOT]],
  ['/etc/resolv.conf', [EROFS, EACCES, ENOSPC, EDQUOT]],
  ['/fill', [ENOSPC, EDQUOT]],
]) {
  try {
    fill(path);
  } catch (error) {
    if (!held.includes(-error.errno)) process.exit(1);
  }
}
process.exit(${HELD});
`;

/** Reads the result of an earlier process. */
export async function openDiskCheck(
  stateDir: string,
  deps: { engine: Engine; node: BareNode; log: Log; sizes?: Sizes },
): Promise<DiskCheck> {
  const { engine, node, log, sizes = { hasCount, countAgain } } = deps;
  const file = join(stateDir, 'disk-check.json');
  // A damaged file counts as no result. The next try writes a new one.
  let finding = await readJson(file, Finding).catch(() => undefined);
  let tried = false;
  let counted = true;
  const fill = async (): Promise<void> => {
    await engine.version();
    const etc = await makeEtcFiles(join(stateDir, 'disk-check'), 'disk-check');
    const enforced = await isHeld(engine, { ...node, mounts: [...node.mounts, ...etc] }, log);
    tried = true;
    if (enforced === finding?.enforced) return;
    log.info({ enforced }, 'tested whether disk sizes of containers are enforced');
    await writeJson(file, { enforced });
    finding = { enforced };
  };
  const count = async (): Promise<void> => {
    const disk = await engine.disk().catch(() => undefined);
    if (disk === undefined) return;
    const wasCounted = counted;
    counted = await sizes.hasCount(disk.folder);
    if (counted) return;
    const { folder } = disk;
    if (wasCounted)
      log.warn({ folder }, 'the btrfs has given up counting the sizes of containers, so it must count again');
    const detail = await sizes.countAgain(folder).then(() => undefined, messageOf);
    counted = await sizes.hasCount(folder);
    if (wasCounted && !counted)
      log.warn(
        { folder, detail },
        'the btrfs does not count the sizes of containers, so their disks have no limit: install btrfs-progs, and see the kernel log',
      );
  };
  return {
    enforced: () => counted && (finding?.enforced ?? false),
    measure: async () => {
      if (tried && finding?.enforced !== true) return;
      await count();
      // Nothing holds a container while the sizes are not counted, so the result would be wrong.
      if (!tried && counted) await fill();
    },
  };
}

async function isHeld(engine: Engine, node: BareNode, log: Log): Promise<boolean> {
  try {
    const argv = [...node.argv, '-e', FILL];
    const code = await engine.runBare({ name: 'disk', argv, mounts: node.mounts, disk_mib: LIMIT_MIB, network: false });
    if (code !== HELD && code !== NOT_HELD)
      log.warn(
        { code },
        'the disk check failed, so this host does not promise disk sizes: the program that fills the disk of a container ended with this code',
      );
    return code === HELD;
  } catch (error) {
    log.debug({ detail: messageOf(error) }, 'the engine refuses to limit a disk');
    return false;
  }
}

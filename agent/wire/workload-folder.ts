// The paths in a workload's folder. `run/` is mounted read-only into the container.
import { chmod, chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../host/state.ts';

export interface WorkloadPaths {
  /** The supervisor connects to the holder here. The container cannot see this socket. */
  holderSocket: string;
  /** Process id of the holder, so that one that hangs can be killed. */
  holderPid: string;
  hostKey: string;
  log: string;
  run: string;
  /** The guest connects here. The host never connects into the container, where a tenant could choose the path. */
  guestSocket: string;
  launchFile: string;
}

export function workloadPaths(folder: string): WorkloadPaths {
  const run = join(folder, 'run');
  return {
    holderSocket: join(folder, 'holder.sock'),
    holderPid: join(folder, 'holder.pid'),
    hostKey: join(folder, 'host_key'),
    log: join(folder, 'holder.log'),
    run,
    guestSocket: join(run, 'guest.sock'),
    launchFile: join(run, 'launch.json'),
  };
}

/**
 * Sets the owner of the guest's socket to the owner of the launch file. Then no other user of the container can pose as the guest. Holder
 * and supervisor both call this function, because either of the two files may be created first.
 */
export async function openRunFolderToUser(folder: string): Promise<void> {
  const { guestSocket, launchFile } = workloadPaths(folder);
  try {
    const { uid, mode } = await stat(launchFile);
    await chown(guestSocket, uid, uid);
    await chmod(guestSocket, (mode & 0o004) === 0 ? 0o600 : 0o666);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

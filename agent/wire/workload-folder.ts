// The paths of a workload's folder. `run/` is the part that the container sees, read-only.
import { chmod, chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../host/state.ts';

export interface WorkloadPaths {
  /** The supervisor talks to the holder here; never seen by the container. */
  holderSocket: string;
  /** The process that serves, so that one that does not answer can be ended. */
  holderPid: string;
  hostKey: string;
  log: string;
  run: string;
  /** The guest dials out to this one, so a tenant can never make the host connect to a path of his choice. */
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
 * Lets the user who may read the launch file use the guest's socket too: another user of the container cannot pose as the guest.
 * Holder and supervisor both call it, because either of the two files may come first.
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

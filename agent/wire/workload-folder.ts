// Where the parts of a workload's door lie in its folder. `door/` is the part that the container sees, read-only.
import { chmod, chown, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { isMissing } from '../host/state.ts';

export interface DoorPaths {
  /** The supervisor talks to the holder here; never seen by the container. */
  holderSocket: string;
  /** The process that serves, so that one that does not answer can be ended. */
  holderPid: string;
  hostKey: string;
  log: string;
  door: string;
  /** The guest dials out to this one, so a tenant can never make the host connect to a path of his choice. */
  guestSocket: string;
  launchFile: string;
}

export function doorPaths(folder: string): DoorPaths {
  const door = join(folder, 'door');
  return {
    holderSocket: join(folder, 'holder.sock'),
    holderPid: join(folder, 'holder.pid'),
    hostKey: join(folder, 'host_key'),
    log: join(folder, 'holder.log'),
    door,
    guestSocket: join(door, 'guest.sock'),
    launchFile: join(door, 'launch.json'),
  };
}

/**
 * Lets the user who may read the launch file use the guest's socket too: another user of the container cannot pose as the guest.
 * Holder and supervisor both call it, because either of the two files may come first.
 */
export async function openDoorToUser(folder: string): Promise<void> {
  const { guestSocket, launchFile } = doorPaths(folder);
  try {
    const { uid, mode } = await stat(launchFile);
    await chown(guestSocket, uid, uid);
    await chmod(guestSocket, (mode & 0o004) === 0 ? 0o600 : 0o666);
  } catch (error) {
    if (!isMissing(error)) throw error;
  }
}

// The supervisor's side of every workload's door: starts the holder process where none answers, talks to it, and leaves it alone when leaving.
import { connect, type Socket } from 'node:net';
import { chmod, chown, mkdir } from 'node:fs/promises';
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import { writeFileSafely } from '../host/state.ts';
import type { DoorStatus } from '../runtime/observe.ts';
import { workloadFolder } from '../runtime/records.ts';
import type { Doors } from '../runtime/runtime.ts';
import type { Launch } from '../runtime/shape.ts';
import { doorPaths, openDoorToUser } from './door-folder.ts';
import { endHolder, serveHolder, type Holder, type StreamOpen } from './holder-client.ts';
import { DOOR_TARGET, KIT_TARGET, type Kit } from './kit.ts';

export interface DoorsDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  kit: Kit;
  /** Starts `svc-agent holder --dir <folder>` in a session of its own. */
  startHolder: (folder: string, logFile: string) => Promise<number>;
}

export interface AccessDoors extends Doors {
  /** Has the holder dial the stream. Rejects with a reason where it cannot. */
  open(stream: StreamOpen): Promise<void>;
  /** Lets go of all holders; they go on by themselves. */
  leave(): void;
}

const START_MS_MAX = 10_000;
const CONNECT_RETRY_MS = 25;

/** `onChange` is called whenever `statuses()` may have changed. */
export function openDoors(deps: DoorsDeps, onChange: () => void): AccessDoors {
  const holders = new Map<string, Holder>();
  const lastStatus = new Map<string, DoorStatus>();
  const ensuring = new Map<string, Promise<void>>();
  let left = false;

  const adopt = (id: string, socket: Socket): void => {
    const holder = serveHolder(socket, { ...deps, workloadId: id }, (status) => {
      if (status !== undefined) lastStatus.set(id, status);
      else if (holders.get(id) === holder) holders.delete(id);
      if (!left) onChange();
    });
    holders.set(id, holder);
  };

  const start = async (id: string): Promise<void> => {
    const folder = workloadFolder(deps.stateDir, id);
    const { holderSocket, door, log } = doorPaths(folder);
    const answering = await dial(holderSocket);
    if (answering !== undefined) return adopt(id, answering);
    await mkdir(door, { recursive: true, mode: 0o755 });
    const pid = await deps.startHolder(folder, log);
    deps.log.info({ workload_id: id, pid }, 'a holder was started');
    const deadlineMs = deps.clock.monotonicMs() + START_MS_MAX;
    while (deps.clock.monotonicMs() < deadlineMs && !left) {
      const socket = await dial(holderSocket);
      if (socket !== undefined) return adopt(id, socket);
      await deps.clock.sleep(CONNECT_RETRY_MS);
    }
    throw new Error(`the holder did not answer within ${START_MS_MAX / 1000} s; its log is ${log}`);
  };

  return {
    prepare: (id, launch, ownerUid) => prepare(deps, id, launch, ownerUid),
    ensure: (id) => {
      if (holders.has(id)) return Promise.resolve();
      const work = ensuring.get(id) ?? start(id).finally(() => ensuring.delete(id));
      ensuring.set(id, work);
      return work;
    },
    open: async (stream) => {
      const holder = holders.get(stream.workload_id);
      if (holder === undefined) throw new Error('this workload has no door here');
      await holder.open(stream);
    },
    statuses: () => statusesOf(holders, lastStatus),
    end: async (id) => {
      lastStatus.delete(id);
      const held = holders.get(id)?.socket;
      if (held === undefined) await endDoor(deps.stateDir, id);
      else endHolder(held);
    },
    leave: () => {
      left = true;
      for (const holder of holders.values()) holder.socket.destroy();
    },
  };
}

/** Ends the holder of a workload, if one answers. */
export async function endDoor(stateDir: string, workloadId: string): Promise<void> {
  endHolder(await dial(doorPaths(workloadFolder(stateDir, workloadId)).holderSocket));
}

/** A holder that is being restarted keeps its host key and its main process's end: those are known from before. */
function statusesOf(
  holders: ReadonlyMap<string, Holder>,
  last: ReadonlyMap<string, DoorStatus>,
): Map<string, DoorStatus> {
  const statuses = new Map<string, DoorStatus>();
  for (const [id, status] of last) statuses.set(id, { ...status, up: false, guest: false });
  for (const [id, holder] of holders) statuses.set(id, holder.status());
  return statuses;
}

async function prepare(
  deps: DoorsDeps,
  id: string,
  launch: Launch,
  ownerUid: number | null,
): ReturnType<Doors['prepare']> {
  const folder = workloadFolder(deps.stateDir, id);
  const { door, launchFile } = doorPaths(folder);
  await mkdir(door, { recursive: true, mode: 0o755 });
  await chmod(door, 0o755);
  // Environments hold secrets: only the image's user reads them, where we can know who that is.
  await writeFileSafely(launchFile, JSON.stringify(launch), ownerUid === null ? 0o444 : 0o400);
  if (ownerUid !== null) await chown(launchFile, ownerUid, ownerUid);
  await openDoorToUser(folder);
  return {
    entrypoint: [...deps.kit.entrypoint, DOOR_TARGET],
    mounts: [
      { source: deps.kit.folder, target: KIT_TARGET },
      { source: door, target: DOOR_TARGET },
    ],
  };
}

/** A connection to whoever listens at `path`, or undefined. */
function dial(path: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = connect(path);
    socket.once('connect', () => resolve(socket));
    socket.on('error', () => {
      socket.destroy();
      resolve(undefined);
    });
  });
}

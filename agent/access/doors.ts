// The supervisor's side of every workload's door: starts the holder process where none answers, talks to it, and leaves it alone when leaving.
import { connect, type Socket } from 'node:net';
import { chmod, chown, mkdir } from 'node:fs/promises';
import type { Clock } from '../../shared/clock.ts';
import { messageOf } from '../../shared/errors.ts';
import { STREAM_DIAL_MS_MAX } from '../../shared/limits.ts';
import type { Log } from '../../shared/log.ts';
import type { OpenTarget } from '../../shared/protocol/link.ts';
import { writeFileSafely } from '../host/state.ts';
import type { DoorStatus } from '../runtime/observe.ts';
import { workloadFolder } from '../runtime/records.ts';
import type { Doors } from '../runtime/runtime.ts';
import type { Launch } from '../runtime/shape.ts';
import { eachFrame, FRAME, FRAME_BYTES_MAX, sendJson } from './guest/frames.ts';
import { doorPaths, openDoorToUser } from './door-folder.ts';
import { HolderNews, type SupervisorWord } from './holder-words.ts';
import { DOOR_TARGET, KIT_TARGET, type Kit } from './kit.ts';

export interface DoorsDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  kit: Kit;
  /** Starts `svc-agent holder --dir <folder>` in a session of its own. */
  startHolder: (folder: string, logFile: string) => Promise<number>;
}

export interface StreamOpen {
  workload_id: string;
  stream_id: string;
  url: string;
  ca: string | undefined;
  target: OpenTarget;
}

export interface AccessDoors extends Doors {
  /** Has the holder dial the stream. Rejects with a reason where it cannot. */
  open(stream: StreamOpen): Promise<void>;
  /** Lets go of all holders; they go on by themselves. */
  leave(): void;
}

interface Door {
  socket: Socket;
  status: DoorStatus;
  opening: Map<string, { resolve: () => void; reject: (error: Error) => void }>;
}

const START_MS_MAX = 10_000;
const CONNECT_RETRY_MS = 25;
const DOWN: DoorStatus = { up: false, guest: false, host_key: null, main_exit: null };

/** `onChange` is called whenever `statuses()` may have changed. */
export function openDoors(deps: DoorsDeps, onChange: () => void): AccessDoors {
  const doors = new Map<string, Door>();
  const lastStatus = new Map<string, DoorStatus>();
  const ensuring = new Map<string, Promise<void>>();
  let left = false;

  const hear = (id: string, door: Door, payload: Buffer): void => {
    const news = HolderNews.parse(JSON.parse(payload.toString()));
    switch (news.kind) {
      case 'status':
        door.status = { up: true, guest: news.guest, host_key: news.host_key, main_exit: news.main_exit };
        lastStatus.set(id, door.status);
        return onChange();
      case 'opened':
        return door.opening.get(news.stream_id)?.resolve();
      case 'refused':
        return door.opening.get(news.stream_id)?.reject(new Error(news.detail));
    }
  };

  const adopt = (id: string, socket: Socket): void => {
    const door: Door = {
      socket,
      status: { ...(lastStatus.get(id) ?? DOWN), up: false, guest: false },
      opening: new Map(),
    };
    doors.set(id, door);
    void eachFrame(socket, FRAME_BYTES_MAX, ({ type, payload }) => {
      if (type === FRAME.json) hear(id, door, payload);
    })
      .catch((error: unknown) =>
        deps.log.warn({ workload_id: id, detail: messageOf(error) }, 'a holder spoke nonsense'),
      )
      .finally(() => {
        socket.destroy();
        for (const one of door.opening.values()) one.reject(new Error('the holder went away'));
        if (doors.get(id) === door) doors.delete(id);
        if (!left) onChange();
      });
  };

  const start = async (id: string): Promise<void> => {
    const folder = workloadFolder(deps.stateDir, id);
    const { holderSocket: path, door, log } = doorPaths(folder);
    const answering = await dial(path);
    if (answering !== undefined) return adopt(id, answering);
    await mkdir(door, { recursive: true, mode: 0o755 });
    const pid = await deps.startHolder(folder, log);
    deps.log.info({ workload_id: id, pid }, 'a holder was started');
    const deadlineMs = deps.clock.monotonicMs() + START_MS_MAX;
    while (deps.clock.monotonicMs() < deadlineMs && !left) {
      const socket = await dial(path);
      if (socket !== undefined) return adopt(id, socket);
      await deps.clock.sleep(CONNECT_RETRY_MS);
    }
    throw new Error(`the holder did not answer within ${START_MS_MAX / 1000} s; its log is ${log}`);
  };

  const ensure = (id: string): Promise<void> => {
    if (doors.has(id)) return Promise.resolve();
    const work = ensuring.get(id) ?? start(id).finally(() => ensuring.delete(id));
    ensuring.set(id, work);
    return work;
  };

  const open = async (stream: StreamOpen): Promise<void> => {
    const door = doors.get(stream.workload_id);
    if (door === undefined) throw new Error('this workload has no door here');
    const answer = Promise.withResolvers<void>();
    door.opening.set(stream.stream_id, answer);
    const cancel = deps.clock.after(STREAM_DIAL_MS_MAX, () =>
      answer.reject(new Error('the holder did not dial in time')),
    );
    const { stream_id, url, target } = stream;
    const word: SupervisorWord = { kind: 'open', stream_id, url, ca: stream.ca ?? null, target };
    sendJson(door.socket, word);
    await answer.promise.finally(() => {
      cancel();
      door.opening.delete(stream.stream_id);
    });
  };

  return {
    prepare: (id, launch, ownerUid) => prepare(deps, id, launch, ownerUid),
    ensure,
    open,
    statuses: () => statusesOf(doors, lastStatus),
    end: async (id) => {
      const { holderSocket } = doorPaths(workloadFolder(deps.stateDir, id));
      const socket = doors.get(id)?.socket ?? (await dial(holderSocket));
      lastStatus.delete(id);
      if (socket === undefined) return;
      const word: SupervisorWord = { kind: 'exit' };
      sendJson(socket, word);
      socket.end();
    },
    leave: () => {
      left = true;
      for (const door of doors.values()) door.socket.destroy();
    },
  };
}

/** A holder that is being restarted keeps its host key and its main process's end: those are known from before. */
function statusesOf(doors: ReadonlyMap<string, Door>, last: ReadonlyMap<string, DoorStatus>): Map<string, DoorStatus> {
  const statuses = new Map<string, DoorStatus>();
  for (const [id, status] of last) statuses.set(id, { ...status, up: false, guest: false });
  for (const [id, door] of doors) statuses.set(id, door.status);
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

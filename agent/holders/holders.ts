// Keeps one holder process per workload: starts it if none answers, replaces it if it hangs, and leaves it running when the agent ends.
import type { Socket } from 'node:net';
import { chmod, chown, mkdir } from 'node:fs/promises';
import type { Clock } from '../../shared/clock.ts';
import type { Log } from '../../shared/log.ts';
import { type LoopStatus, startLoop } from '../../shared/loop.ts';
import { endProcess } from '../host/run.ts';
import { writeFileSafely } from '../host/state.ts';
import { dialListener, hasListener } from '../host/status-socket.ts';
import type { HolderStatus } from '../runtime/observe.ts';
import { workloadFolder } from '../runtime/records.ts';
import type { Holders } from '../runtime/steps.ts';
import type { MainProgram } from '../runtime/shape.ts';
import { workloadPaths, openRunFolderToUser } from '../wire/workload-folder.ts';
import { endHolder, type FirstStatus, type Holder, serveHolder, type StreamOpen } from './holder-client.ts';
import { RUN_TARGET, BUNDLE_TARGET, type Bundle } from './bundle.ts';

export interface HoldersDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  bundle: Bundle;
  /** Starts the holder of a workload's folder in a session of its own. */
  startHolder: (folder: string, logFile: string) => Promise<number>;
  /** Reports to the control plane that a holder was silent or was replaced. */
  tell(seen: { workload_id: string; state: 'silent' | 'replaced'; detail: string }): void;
}

export interface HolderProcesses extends Holders {
  /** Asks the holder to dial the stream. Rejects with a reason if it cannot. */
  open(stream: StreamOpen): Promise<void>;
  /** Kills the holder of a workload and starts another one. The container goes on. Never rejects. */
  replace(workloadId: string, reason: string): Promise<void>;
  status(): LoopStatus;
  /** Disconnects from all holders, which go on by themselves. */
  leave(): Promise<void>;
}

const START_MS_MAX = 10_000;
const CONNECT_RETRY_MS = 25;
/** The kernel ends a killed process within this, unless the process waits for a device. Then it serves nobody and ends later. */
const KILL_MS_MAX = 5_000;
/** After it was replaced, a holder is not replaced again for this time. */
const REPLACED_MS_MIN = 5_000;
/** How often each holder is asked whether it answers. */
const CHECK_MS = 10_000;
const SILENT = 'the holder did not answer the agent';

/** `onChange` is called whenever `statuses()` may have changed. */
export function openHolders(deps: HoldersDeps, onChange: () => void): HolderProcesses {
  const holders = new Map<string, Holder>();
  const lastStatus = new Map<string, HolderStatus>();
  /** Workloads that should have a holder: from `ensure` until `pause` or `end`. */
  const wanted = new Set<string>();
  const starts = openStarts();
  let left = false;

  const adopt = (id: string, socket: Socket): Holder => {
    const holder = serveHolder(socket, { ...deps, workloadId: id }, (status) => {
      if (status === undefined) forget(holders, id, holder);
      else if (wanted.has(id)) lastStatus.set(id, status);
      if (!left) onChange();
    });
    holders.set(id, holder);
    return holder;
  };
  const processes: Processes = {
    connect: async (id) => {
      const holder = holders.get(id) ?? adopt(id, await holderOf(id, () => left, deps));
      return holder.firstStatus();
    },
    kill: async (id) => {
      await killHolder(id, deps);
      holders.get(id)?.socket.destroy();
      holders.delete(id);
    },
    isWanted: (id) => wanted.has(id) && !left,
  };
  const start = starter(processes, deps);
  const replace = replacer({ ...processes, start, starts }, deps);
  const checks = startLoop({ name: 'holders', periodMs: CHECK_MS, run: () => check(holders, replace) }, deps);
  const endOne = async (id: string): Promise<void> => {
    wanted.delete(id);
    await starts.settled(id);
    await endHolderOf(id, deps, holders.get(id)?.socket);
  };

  return {
    prepare: (id, launch, ownerUid) => prepare(deps, id, launch, ownerUid),
    ensure: async (id) => {
      wanted.add(id);
      if (holders.get(id)?.status().up !== true) await starts.run(id, () => start(id));
    },
    replace: (id, reason) => replace(id, { reason, wasSilent: false }),
    open: async (stream) => {
      const holder = holders.get(stream.workload_id);
      if (holder === undefined) throw new Error('this workload has no holder here');
      await holder.open(stream);
    },
    statuses: () => statusesOf(holders, lastStatus),
    pause: endOne,
    end: async (id) => {
      lastStatus.delete(id);
      await endOne(id);
    },
    status: checks.status,
    leave: async () => {
      left = true;
      await checks.stop();
      for (const holder of holders.values()) holder.socket.destroy();
    },
  };
}

interface Starts {
  /** Starts or replaces the holder of a workload. If that is at work already, no second work begins, and the caller waits for the first. */
  run(id: string, work: () => Promise<void>): Promise<void>;
  isAtWork(id: string): boolean;
  /** Resolves when the work is over. Never rejects. */
  settled(id: string): Promise<void>;
}

function openStarts(): Starts {
  const atWork = new Map<string, Promise<void>>();
  return {
    run: (id, work) => {
      const running = atWork.get(id) ?? work().finally(() => atWork.delete(id));
      atWork.set(id, running);
      return running;
    },
    isAtWork: (id) => atWork.has(id),
    settled: async (id) => atWork.get(id)?.catch(() => undefined),
  };
}

function forget(holders: Map<string, Holder>, id: string, gone: Holder): void {
  if (holders.get(id) === gone) holders.delete(id);
}

interface Processes {
  /** Connects to the workload's holder, which is started if none answers, and waits for its first status. */
  connect(id: string): Promise<FirstStatus>;
  kill(id: string): Promise<void>;
  /** False if the workload should have no holder any more. */
  isWanted(id: string): boolean;
}

/**
 * Returns a function that gives a workload a holder that works. The kernel accepts a connection to a holder that hangs, so a holder counts
 * only once it has sent a status. One that sends none is replaced.
 */
function starter({ connect, kill, isWanted }: Processes, { log, tell }: HoldersDeps): (id: string) => Promise<void> {
  /** A holder may still accept a connection while it ends. So if the holder goes away, there is one more try. */
  const connectTwice = async (id: string): Promise<FirstStatus> => {
    const status = await connect(id);
    return status === 'gone' && isWanted(id) ? connect(id) : status;
  };
  /** False if the holder works, or if none is wanted any more. */
  const hangs = async (id: string): Promise<boolean> => {
    if (!isWanted(id)) return false;
    const status = await connectTwice(id);
    if (!isWanted(id)) return false;
    if (status === 'gone') throw new Error('the holder went away');
    return status === 'silent';
  };
  return async (id) => {
    if (!(await hangs(id))) return;
    log.warn({ workload_id: id }, 'a holder accepts connections and sends nothing, so it is replaced');
    tell({ workload_id: id, state: 'silent', detail: SILENT });
    await kill(id);
    if (await hangs(id)) throw new Error(SILENT);
    if (isWanted(id)) tell({ workload_id: id, state: 'replaced', detail: replacedBecause(SILENT) });
  };
}

/** A connection to the workload's holder, which is started if none answers. */
async function holderOf(id: string, hasLeft: () => boolean, deps: HoldersDeps): Promise<Socket> {
  const folder = workloadFolder(deps.stateDir, id);
  const { holderSocket, run, log } = workloadPaths(folder);
  const answering = await dialListener(holderSocket);
  if (answering !== undefined) return answering;
  await mkdir(run, { recursive: true, mode: 0o755 });
  const pid = await deps.startHolder(folder, log);
  deps.log.info({ workload_id: id, pid }, 'a holder was started');
  const deadlineMs = deps.clock.monotonicMs() + START_MS_MAX;
  while (deps.clock.monotonicMs() < deadlineMs && !hasLeft()) {
    const socket = await dialListener(holderSocket);
    if (socket !== undefined) return socket;
    await deps.clock.sleep(CONNECT_RETRY_MS);
  }
  throw new Error(`the holder did not answer within ${START_MS_MAX / 1000} s; its log is ${log}`);
}

/** Pings every holder, and replaces those that do not answer. */
async function check(holders: ReadonlyMap<string, Holder>, replace: Replace): Promise<void> {
  await Promise.all(
    [...holders].map(async ([id, holder]) => {
      if ((await holder.answers()) || holders.get(id) !== holder) return;
      await replace(id, { reason: SILENT, wasSilent: true });
    }),
  );
}

type Replace = (id: string, why: { reason: string; wasSilent: boolean }) => Promise<void>;

interface Replacing extends Processes {
  start(id: string): Promise<void>;
  starts: Starts;
}

function replacer({ kill, start, starts, isWanted }: Replacing, { clock, log, tell }: HoldersDeps): Replace {
  /** When each workload's holder was last replaced; old entries are removed. */
  const replacedMs = new Map<string, number>();
  const restart = async (id: string): Promise<void> => {
    await kill(id);
    await start(id);
  };
  return async (id, { reason, wasSilent }) => {
    // A holder that is being started is replaced by its start if it is silent.
    if (!isWanted(id) || starts.isAtWork(id)) return;
    if (wasSilent) tell({ workload_id: id, state: 'silent', detail: SILENT });
    for (const [other, ms] of replacedMs) if (clock.monotonicMs() - ms >= REPLACED_MS_MIN) replacedMs.delete(other);
    if (replacedMs.has(id)) return;
    replacedMs.set(id, clock.monotonicMs());
    log.warn({ workload_id: id, reason }, 'a holder is replaced');
    try {
      await starts.run(id, () => restart(id));
      if (isWanted(id)) tell({ workload_id: id, state: 'replaced', detail: replacedBecause(reason) });
    } catch (error) {
      log.error(
        { workload_id: id, err: error },
        'a holder could not be replaced; the next tick of the runtime starts one',
      );
    }
  };
}

function replacedBecause(reason: string): string {
  return `the holder was replaced: ${reason}`.slice(0, 512);
}

/** Ends the holder of a workload, if there is one. A holder that does not obey is killed. `held` is an open connection to it. */
export async function endHolderOf(
  id: string,
  deps: Pick<HoldersDeps, 'clock' | 'stateDir'>,
  held?: Socket,
): Promise<void> {
  const socket = held ?? (await dialListener(holderSocketOf(deps.stateDir, id)))?.resume();
  if (socket !== undefined) await endHolder(socket, deps.clock);
  await killHolder(id, deps);
  socket?.destroy();
}

/**
 * Does nothing if the process has ended. The id of the process is in a file. If the disk hangs, the file cannot be read, and this gives up after
 * KILL_MS_MAX: the end of a rental must not wait for a disk.
 */
async function killHolder(id: string, { clock, stateDir }: Pick<HoldersDeps, 'clock' | 'stateDir'>): Promise<void> {
  const folder = workloadFolder(stateDir, id);
  const over = new AbortController();
  const kill = async (): Promise<void> => {
    while (!(await endProcess(workloadPaths(folder).holderPid, folder)) && !over.signal.aborted) {
      await clock.sleep(CONNECT_RETRY_MS, over.signal);
    }
  };
  await Promise.race([kill(), clock.sleep(KILL_MS_MAX, over.signal)]).finally(() => over.abort());
}

/** Whether the holder of a workload answers. */
export async function hasHolder(stateDir: string, workloadId: string): Promise<boolean> {
  return hasListener(holderSocketOf(stateDir, workloadId));
}

function holderSocketOf(stateDir: string, workloadId: string): string {
  return workloadPaths(workloadFolder(stateDir, workloadId)).holderSocket;
}

/** While a holder restarts, its status keeps the last known host key and exit of the main process. */
function statusesOf(
  holders: ReadonlyMap<string, Holder>,
  last: ReadonlyMap<string, HolderStatus>,
): Map<string, HolderStatus> {
  const statuses = new Map<string, HolderStatus>();
  for (const [id, status] of last) statuses.set(id, { ...status, up: false, guest: false });
  for (const [id, holder] of holders) if (holder.status().up || !statuses.has(id)) statuses.set(id, holder.status());
  return statuses;
}

async function prepare(
  deps: HoldersDeps,
  id: string,
  launch: MainProgram,
  ownerUid: number | null,
): ReturnType<Holders['prepare']> {
  const folder = workloadFolder(deps.stateDir, id);
  const { run, launchFile } = workloadPaths(folder);
  await mkdir(run, { recursive: true, mode: 0o755 });
  await chmod(run, 0o755);
  // Environments contain secrets. If the image's user is known, only that user may read them.
  await writeFileSafely(launchFile, JSON.stringify(launch), ownerUid === null ? 0o444 : 0o400);
  if (ownerUid !== null) await chown(launchFile, ownerUid, ownerUid);
  await openRunFolderToUser(folder);
  return {
    entrypoint: [...deps.bundle.entrypoint, RUN_TARGET],
    mounts: [
      { source: deps.bundle.folder, target: BUNDLE_TARGET },
      { source: run, target: RUN_TARGET },
    ],
  };
}

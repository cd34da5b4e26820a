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
import { endHolder, serveHolder, type Holder, type StreamOpen } from './holder-client.ts';
import { RUN_TARGET, BUNDLE_TARGET, type Bundle } from './bundle.ts';

export interface HoldersDeps {
  clock: Clock;
  log: Log;
  stateDir: string;
  bundle: Bundle;
  /** Starts `svc-agent holder --dir <folder>` in a session of its own. */
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
/** After it was replaced, a holder is not replaced again for this time. */
const REPLACED_MS_MIN = 5_000;
/** How often each holder is asked whether it answers. */
const CHECK_MS = 10_000;
const SILENT = 'the holder did not answer the agent';

/** `onChange` is called whenever `statuses()` may have changed. */
export function openHolders(deps: HoldersDeps, onChange: () => void): HolderProcesses {
  const holders = new Map<string, Holder>();
  const lastStatus = new Map<string, HolderStatus>();
  /** Workloads whose holder must not come back before `ensure`. */
  const paused = new Set<string>();
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

  const ensure = (id: string): Promise<void> => {
    paused.delete(id);
    if (holders.has(id)) return Promise.resolve();
    const start = async (): Promise<void> => adopt(id, await holderOf(id, () => left, deps));
    const work = ensuring.get(id) ?? start().finally(() => ensuring.delete(id));
    ensuring.set(id, work);
    return work;
  };

  const replace = replacer({ holders, ensure, mayReplace: (id) => lastStatus.has(id) && !paused.has(id) }, deps);
  const checks = startLoop({ name: 'holders', periodMs: CHECK_MS, run: () => check(holders, replace, deps) }, deps);

  const endOne = async (id: string): Promise<void> => {
    const held = holders.get(id)?.socket;
    if (held === undefined) await endHolderOf(deps.stateDir, id);
    else endHolder(held);
  };

  return {
    prepare: (id, launch, ownerUid) => prepare(deps, id, launch, ownerUid),
    ensure,
    replace,
    open: async (stream) => {
      const holder = holders.get(stream.workload_id);
      if (holder === undefined) throw new Error('this workload has no holder here');
      await holder.open(stream);
    },
    statuses: () => statusesOf(holders, lastStatus),
    pause: (id) => {
      paused.add(id);
      return endOne(id);
    },
    end: (id) => {
      paused.delete(id);
      lastStatus.delete(id);
      return endOne(id);
    },
    status: checks.status,
    leave: async () => {
      left = true;
      await checks.stop();
      for (const holder of holders.values()) holder.socket.destroy();
    },
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
async function check(
  holders: ReadonlyMap<string, Holder>,
  replace: HolderProcesses['replace'],
  { tell }: HoldersDeps,
): Promise<void> {
  await Promise.all(
    [...holders].map(async ([id, holder]) => {
      if ((await holder.answers()) || holders.get(id) !== holder) return;
      tell({ workload_id: id, state: 'silent', detail: SILENT });
      await replace(id, SILENT);
    }),
  );
}

interface Replaced {
  holders: Map<string, Holder>;
  ensure(id: string): Promise<void>;
  /** False for a workload that should have no holder now. */
  mayReplace(id: string): boolean;
}

function replacer({ holders, ensure, mayReplace }: Replaced, deps: HoldersDeps): HolderProcesses['replace'] {
  const { clock, log, stateDir, tell } = deps;
  /** When each workload's holder was last replaced; old entries are removed. */
  const replacedMs = new Map<string, number>();
  return async (id, reason) => {
    for (const [other, ms] of replacedMs) if (clock.monotonicMs() - ms >= REPLACED_MS_MIN) replacedMs.delete(other);
    if (!mayReplace(id) || replacedMs.has(id)) return;
    replacedMs.set(id, clock.monotonicMs());
    log.warn({ workload_id: id, reason }, 'a holder is replaced');
    const folder = workloadFolder(stateDir, id);
    try {
      while (!(await endProcess(workloadPaths(folder).holderPid, folder))) await clock.sleep(CONNECT_RETRY_MS);
      holders.get(id)?.socket.destroy();
      holders.delete(id);
      await ensure(id);
      tell({ workload_id: id, state: 'replaced', detail: `the holder was replaced: ${reason}`.slice(0, 512) });
    } catch (error) {
      // The runtime starts another holder at its next tick.
      log.error({ workload_id: id, err: error }, 'a holder could not be replaced');
    }
  };
}

/** Ends the holder of a workload, if one answers. */
export async function endHolderOf(stateDir: string, workloadId: string): Promise<void> {
  endHolder(await dialListener(holderSocketOf(stateDir, workloadId)));
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
  for (const [id, holder] of holders) statuses.set(id, holder.status());
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

// The commands `check` and `clear`: whether this host can be rented out, and the removal of everything that runs on it for us.
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { systemClock } from '../shared/clock.ts';
import { codeOf, messageOf } from '../shared/errors.ts';
import { createLog } from '../shared/log.ts';
import type { GpuFault, Inventory } from '../shared/protocol/inventory.ts';
import { endHolderOf, hasHolder } from './holders/holders.ts';
import type { AgentConfig } from './config.ts';
import { withExcluded } from './gpus/faults.ts';
import { readGpus, readUnfit } from './gpus/nvidia-smi.ts';
import { type GpuReading, inTime } from './gpus/watch.ts';
import { readBootId, readHostFacts } from './host/facts.ts';
import { removeFence } from './host/nftables.ts';
import { DISK, isMissing } from './host/state.ts';
import { openStatusSocket } from './host/status-socket.ts';
import { readIdentity } from './link/identity.ts';
import { openDesired } from './runtime/desired.ts';
import { openDocker } from './runtime/docker.ts';
import type { Engine, LocalContainer } from './runtime/engine.ts';
import { findGpuLack } from './runtime/gpu-check.ts';
import { openRecords, type WorkloadRecord } from './runtime/records.ts';
import { assertRentable, faultInWords, findFence, takeInventory } from './inventory.ts';

const SILENT = createLog('agent', 'silent');

/** The inventory of this host. @throws Error that lists everything that keeps it from being rented out */
export async function surveyHost(config: AgentConfig, clock = systemClock()): Promise<Inventory> {
  const engine = openDocker({ socketPath: config.docker_socket, machineId: '' });
  const { nvidia_smi: nvidiaSmi } = config;
  const gpus = await inTime(readCards(config), { nvidiaSmi, clock }).catch((error: unknown) => ({
    gpus: [],
    gpu_error: messageOf(error),
    gpu_faults: [],
  }));
  const facts = await readHostFacts(config.state_dir);
  const fence = await findFence(config);
  const inventory = await takeInventory(gpus, { engine, facts, diskEnforced: false, fence });
  const uuids = inventory.gpus.map(({ uuid }) => uuid);
  const gpuLack = uuids.length === 0 ? undefined : await findGpuLack(engine, uuids);
  assertRentable(inventory, config, gpuLack);
  return inventory;
}

/** The GPUs, without the errors in the kernel log, which only the agent reads. */
async function readCards({ nvidia_smi: nvidiaSmi, excluded_gpus: excluded }: AgentConfig): Promise<GpuReading> {
  const gpus = (await readGpus(nvidiaSmi, () => [])) ?? [];
  const unfit = withExcluded(await readUnfit(nvidiaSmi), excluded);
  const gpuFaults = gpus.flatMap(({ uuid }): GpuFault[] => {
    const detail = unfit.get(uuid);
    return detail === undefined ? [] : [{ uuid, severity: 'unfit', detail }];
  });
  return { gpus, gpu_error: '', gpu_faults: gpuFaults };
}

/** Number and names of the GPUs, like `8 GPUs (NVIDIA H100 80GB HBM3)`, and those that must not be rented. */
export function gpusInWords({ gpus, gpu_faults: faults }: Inventory): string {
  const names = [...new Set(gpus.map((gpu) => gpu.name))].join(', ');
  return [`${gpus.length} GPUs (${names})`, ...faults.map(faultInWords)].join(', ');
}

export interface Cleared {
  /** Number of rentals that were ended, also of those that did not run. */
  ended: number;
  /** False: containers and networks of this machine stay, if there are any. */
  hasEngine: boolean;
}

/**
 * Removes containers, networks and holders of this machine's rentals, and the fence. The enrolment stays, and tombstones of the rentals. If the
 * Docker Engine is gone, the holders and the fence are removed. @throws Error if an agent runs here, or if a rental is here and `force` is false
 */
export async function clearHost(config: AgentConfig, { force }: { force: boolean }): Promise<Cleared> {
  const { state_dir: stateDir } = config;
  const machineId = (await readIdentity(stateDir))?.enrolled?.machine_id;
  if (machineId === undefined) return { ended: 0, hasEngine: true };
  const lock = await openStatusSocket(stateDir, () => undefined);
  try {
    const engine = openDocker({ socketPath: config.docker_socket, machineId });
    const containers = await containersOf(engine);
    const workloads = await workloadsIn(stateDir);
    const records = await openRecords(stateDir, { files: DISK, log: SILENT, now: systemClock().now });
    const rentals = await findRentals(stateDir, { workloads, containers, records: records.all() });
    const count = rentals.running + rentals.stopped;
    if (count > 0 && !force) throw new Error(refusal(machineId, rentals));
    for (const { workload_id: id } of containers ?? []) await engine.remove(id);
    if (containers !== undefined) await engine.removeUnusedNetworks();
    for (const id of workloads) await endHolderOf(id, { clock: systemClock(), stateDir });
    // The next agent reports that they are gone. Otherwise it would wait for their containers, as for a disk that is not mounted.
    if (containers !== undefined) for (const id of placedIn(records.all(), containers)) await records.bury(id);
    if (config.network_fence === 'nftables') await removeFence();
    return { ended: count, hasEngine: containers !== undefined };
  } finally {
    await lock.close();
  }
}

/** Workloads that have a container, as far as the records or the engine know. */
function placedIn(
  records: ReadonlyMap<string, WorkloadRecord>,
  containers: readonly LocalContainer[] | undefined,
): ReadonlySet<string> {
  const recorded = [...records.values()].filter((record) => record.container_id !== null && !record.gone);
  return new Set([...(containers ?? []), ...recorded].map((one) => one.workload_id));
}

/** The containers of this machine; undefined if nobody listens on the engine's socket. An engine that hangs or refuses is an error. */
async function containersOf(engine: Engine): Promise<LocalContainer[] | undefined> {
  return engine.list().catch((error: unknown) => {
    const code = error instanceof Error ? codeOf(error.cause) : undefined;
    if (code === 'ENOENT' || code === 'ECONNREFUSED') return undefined;
    throw error;
  });
}

interface Traces {
  /** Workloads with a folder here. */
  workloads: readonly string[];
  /** Undefined if there is no engine. */
  containers: LocalContainer[] | undefined;
  records: ReadonlyMap<string, WorkloadRecord>;
}

interface Rentals {
  running: number;
  /** The agent would start their containers again. */
  stopped: number;
}

/**
 * Counts the rentals of this host. After a reboot, none of their containers runs until the agent starts them. Therefore a container counts
 * even if it does not run, unless the control plane or this host has ended or failed its workload. A container that the engine does not list
 * counts too, because the disk with its data may not be mounted. Without an engine, only the holders show what runs.
 */
async function findRentals(stateDir: string, { workloads, containers, records }: Traces): Promise<Rentals> {
  const bootId = await readBootId();
  const desired = await openDesired(stateDir, { files: DISK, log: SILENT, clock: systemClock(), bootId });
  const removed = desired.held()?.workloads.filter((workload) => workload.desired === 'removed') ?? [];
  const over = new Set([
    ...removed.map((workload) => workload.workload_id),
    ...[...records].filter(([, record]) => isOver(record)).map(([id]) => id),
  ]);
  const active =
    containers === undefined
      ? await withHolder(stateDir, workloads)
      : containers.filter((one) => one.running).map((one) => one.workload_id);
  const all = new Set([...active, ...placedIn(records, containers)].filter((id) => !over.has(id)));
  const running = active.filter((id) => !over.has(id)).length;
  return { running, stopped: all.size - running };
}

/** True if no customer has data in the container of the workload any more. The files of a finished job are uploaded. */
function isOver({ removing, gone, failure, job }: WorkloadRecord): boolean {
  return removing || gone || failure !== null || job?.finished === true;
}

function refusal(machineId: string, { running, stopped }: Rentals): string {
  const more = stopped === 0 ? '' : `, and ${stopped} are stopped with their data until the agent starts them again`;
  return [
    `${running} rentals run here${more}: take the machine out of supply (DELETE /v1/community/machines/${machineId})`,
    'and wait for their end while the agent runs; or use --force, which ends them and deletes the data in their containers',
  ].join(' ');
}

/** Those of the workloads whose holder answers. */
async function withHolder(stateDir: string, workloads: readonly string[]): Promise<string[]> {
  const alive = await Promise.all(workloads.map((id) => hasHolder(stateDir, id)));
  return workloads.filter((_, index) => alive[index]);
}

async function workloadsIn(stateDir: string): Promise<string[]> {
  return readdir(join(stateDir, 'workloads')).catch((error: unknown) => {
    if (isMissing(error)) return [];
    throw error;
  });
}

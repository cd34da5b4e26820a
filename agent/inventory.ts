// The inventory of this host: read at the start, kept current, and sent to the control plane when it changes.
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Log } from '../shared/log.ts';
import { type Loop, type LoopStatus, startLoop } from '../shared/loop.ts';
import type { GpuFault, Inventory } from '../shared/protocol/inventory.ts';
import { VERSION } from '../shared/version.ts';
import { bareNode, type Bundle, removeOldBundles } from './holders/bundle.ts';
import type { AgentConfig } from './config.ts';
import { openKernelLog } from './gpus/kernel-log.ts';
import { readToolkitVersion } from './gpus/nvidia-smi.ts';
import { type GpuReading, type GpuWatch, openGpuWatch } from './gpus/watch.ts';
import type { HostFacts } from './host/facts.ts';
import type { StateFiles } from './host/state.ts';
import { assertNftables } from './host/nftables.ts';
import { openDiskCheck } from './runtime/disk-check.ts';
import { openGpuCheck } from './runtime/gpu-check.ts';
import type { Engine } from './runtime/engine.ts';
import type { Fence, FenceFinding } from './runtime/fence.ts';
import type { Runtime } from './runtime/runtime.ts';

/** The first version with all that the agent needs: `DeviceRequests` with GPU UUIDs, and cgroups of both versions. */
const ENGINE_VERSION_MIN = [20, 10] as const;
const INVENTORY_PERIOD_MS = 60_000;
/** A broken GPU is noticed within this time. */
const KERNEL_LOG_PERIOD_MS = 5_000;
/**
 * The longest time that the start waits for the first reading. A broken card can block nvidia-smi, and the engine can hang. Meanwhile there is no
 * link, and rentals without a link count as unreachable after 20 seconds.
 */
const FIRST_MS_MAX = 10_000;
const UNREAD: GpuReading = {
  gpus: [],
  gpu_error: 'this host was not read yet since the agent has started',
  gpu_faults: [],
};
/** How often the disk check is tried if the engine was away at our start, and how soon it is noticed that a btrfs no longer counts sizes. */
const DISK_PERIOD_MS = 30_000;

export interface InventoryWatch {
  /** The last reading. */
  inventory(): Inventory;
  /** Reads the inventory periodically, and calls `tell` after each change. */
  start(containers: Pick<Runtime, 'containerIds' | 'mountSources'>, tell: (inventory: Inventory) => void): void;
  /** Reads the inventory soon, because something has changed. */
  nudge(): void;
  /** The engine has refused GPUs to a rental: asks whether it gives any, now and each minute until it does. */
  doubtGpus(): void;
  loops(): LoopStatus[];
  stop(): Promise<void>;
}

interface InventoryDeps {
  engine: Engine;
  facts: HostFacts;
  bootId: string;
  files: StateFiles;
  bundle: Bundle;
  fence: Pick<Fence, 'finding'>;
  clock: Clock;
  log: Log;
}

/** Starts without GPUs if nvidia-smi fails: after an upgrade of the driver, running rentals must stay reachable. */
export async function openInventory(config: AgentConfig, deps: InventoryDeps): Promise<InventoryWatch> {
  const { engine, facts, bundle, fence, clock, log } = deps;
  const disk = await openDiskCheck(config.state_dir, { engine, node: bareNode(bundle), log });
  const gpus = await openGpus(config, deps);
  const gpuCheck = openGpuCheck({ engine, log });
  /** The ids of our containers; none until `start` is called. A reading asks for them late, so one that began before `start` may get them. */
  let idsNow = (): readonly string[] => [];
  const reading = (): InventoryReading => ({ engine, facts, diskEnforced: disk.enforced(), fence: fence.finding() });
  const take = async (): Promise<Inventory> =>
    takeInventory(gpuCheck.applyTo(await gpus.read(() => idsNow())), reading());
  let inventory = (await withinFirstTime(take(), clock)) ?? inventoryOf(UNREAD, reading(), NO_VERSIONS);
  let loops: Loop[] = [];
  let gpuLoop: Loop | undefined;
  return {
    inventory: () => inventory,
    start: ({ containerIds, mountSources }, tell) => {
      idsNow = containerIds;
      /** A container whose bundle was removed never starts again, so the engine must have listed all containers. */
      const sweepBundles = async (): Promise<void> => {
        const inUse = mountSources();
        if (inUse !== null) await removeOldBundles(config.state_dir, bundle, inUse);
      };
      const readInventory = async (): Promise<void> => {
        const now = await take();
        if (JSON.stringify(now) === JSON.stringify(inventory)) return;
        inventory = now;
        tell(now);
      };
      const inventoryWatch = startLoop({ name: 'inventory', periodMs: INVENTORY_PERIOD_MS, run: readInventory }, deps);
      const tryDisk = async (): Promise<void> => {
        await disk.measure();
        if (disk.enforced() !== inventory.disk_enforced) inventoryWatch.nudge();
      };
      const hearGpus = async (): Promise<void> => {
        if (await gpus.hear()) inventoryWatch.nudge();
      };
      const askForGpus = async (): Promise<void> => {
        if (await gpuCheck.ask(inventory)) inventoryWatch.nudge();
      };
      gpuLoop = startLoop({ name: 'gpu-check', periodMs: INVENTORY_PERIOD_MS, run: askForGpus }, deps);
      loops = [
        inventoryWatch,
        gpuLoop,
        startLoop({ name: 'disk', periodMs: DISK_PERIOD_MS, run: tryDisk }, deps),
        startLoop({ name: 'bundles', periodMs: INVENTORY_PERIOD_MS, run: sweepBundles }, deps),
        startLoop({ name: 'kernel-log', periodMs: KERNEL_LOG_PERIOD_MS, run: hearGpus }, deps),
      ];
    },
    nudge: () => loops[0]?.nudge(),
    doubtGpus: () => {
      gpuCheck.doubt();
      gpuLoop?.nudge();
    },
    loops: () => loops.map((loop) => loop.status()),
    stop: async () => {
      await Promise.all(loops.map((loop) => loop.stop()));
      await gpus.close();
    },
  };
}

function openGpus(config: AgentConfig, { bootId, files, clock, log }: InventoryDeps): Promise<GpuWatch> {
  const { nvidia_smi: nvidiaSmi, excluded_gpus: excluded, state_dir: stateDir } = config;
  return openGpuWatch({ nvidiaSmi, excluded, stateDir, bootId, files, kernelLog: openKernelLog(), clock, log });
}

/**
 * The supplier sees the error at the command line. `gpuLack` is what `findGpuLack` has found.
 * @throws Error that lists everything that keeps the host from being rented out
 */
export function assertRentable(inventory: Inventory, config: AgentConfig, gpuLack: string | undefined): void {
  const lacks: string[] = [];
  if (inventory.gpu_error !== '') {
    lacks.push(`repair the NVIDIA driver (${inventory.gpu_error})`);
  } else if (inventory.gpus.length === 0) {
    lacks.push(`${config.nvidia_smi} names no GPU: install the NVIDIA driver, or set nvidia_smi`);
  } else if (inventory.gpus.every(({ uuid }) => inventory.gpu_faults.some((fault) => fault.uuid === uuid))) {
    lacks.push(`no GPU is fit to be rented: ${inventory.gpu_faults.map(faultInWords).join(', ')}`);
  }
  const unknown = config.excluded_gpus.filter((uuid) => !inventory.gpus.some((gpu) => gpu.uuid === uuid));
  if (inventory.gpu_error === '' && unknown.length > 0) {
    lacks.push(`excluded_gpus names ${unknown.join(', ')}, which this host does not have: see ${config.nvidia_smi} -L`);
  }
  if (inventory.engine_version === '') {
    lacks.push(`no Docker Engine answers at ${config.docker_socket}: start it, or set docker_socket`);
  } else if (isTooOld(inventory.engine_version)) {
    lacks.push(
      `Docker Engine ${inventory.engine_version} is too old: install ${ENGINE_VERSION_MIN.join('.')} or newer`,
    );
  } else if (gpuLack !== undefined) {
    lacks.push(gpuLack);
  }
  if (inventory.fence_error !== '') {
    lacks.push(
      `${inventory.fence_error}, or set network_fence: none where something else keeps containers from this host`,
    );
  }
  if (lacks.length > 0) throw new Error(`this host cannot be rented out yet: ${lacks.join('; ')}`);
}

export function faultInWords({ uuid, severity, detail }: GpuFault): string {
  return `${uuid} is ${severity}: ${detail}`;
}

/** A version that does not begin with two numbers counts as new. */
function isTooOld(engineVersion: string): boolean {
  const [, major = 'Infinity', minor = '0'] = /^(\d+)\.(\d+)/.exec(engineVersion) ?? [];
  const [majorMin, minorMin] = ENGINE_VERSION_MIN;
  return Number(major) < majorMin || (Number(major) === majorMin && Number(minor) < minorMin);
}

/** Whether this agent could install the configured fence. Installs nothing. */
export async function findFence({ network_fence }: AgentConfig): Promise<FenceFinding> {
  if (network_fence === 'none') return { network_fence, fence_error: '' };
  return { network_fence, fence_error: await assertNftables().then(() => '', messageOf) };
}

export interface InventoryReading {
  engine: Engine;
  facts: HostFacts;
  /** Whether disk sizes of containers are enforced here; false until that was tested. */
  diskEnforced: boolean;
  fence: FenceFinding;
}

/** The version is empty if the engine does not answer. */
export async function takeInventory(gpus: GpuReading, taking: InventoryReading): Promise<Inventory> {
  const [version, toolkit] = await Promise.all([taking.engine.version().catch(() => ''), readToolkitVersion()]);
  return inventoryOf(gpus, taking, { engine_version: version.slice(0, 64), container_toolkit_version: toolkit });
}

type Versions = Pick<Inventory, 'engine_version' | 'container_toolkit_version'>;
const NO_VERSIONS: Versions = { engine_version: '', container_toolkit_version: '' };

function inventoryOf(gpus: GpuReading, taking: InventoryReading, versions: Versions): Inventory {
  const { facts, diskEnforced, fence } = taking;
  return { ...gpus, ...facts, ...fence, ...versions, disk_enforced: diskEnforced, agent_version: VERSION };
}

/** The first inventory; undefined if it takes too long. Its reading goes on, and the next one waits for nvidia-smi together with it. */
async function withinFirstTime(first: Promise<Inventory>, clock: Clock): Promise<Inventory | undefined> {
  const over = new AbortController();
  const tooLong = clock.sleep(FIRST_MS_MAX, over.signal).then(() => undefined);
  return Promise.race([first, tooLong]).finally(() => over.abort());
}

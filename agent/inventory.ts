// What this host says about itself: taken at the start, kept current, and told to the control plane when it changes.
import type { Clock } from '../shared/clock.ts';
import { messageOf } from '../shared/errors.ts';
import type { Log } from '../shared/log.ts';
import { type Loop, type LoopStatus, startLoop } from '../shared/loop.ts';
import type { Inventory } from '../shared/protocol/inventory.ts';
import { VERSION } from '../shared/version.ts';
import { bareNode, type Bundle, removeOldBundles } from './holders/bundle.ts';
import type { AgentConfig } from './config.ts';
import { openKernelLog } from './gpus/kernel-log.ts';
import { readToolkitVersion } from './gpus/toolkit.ts';
import { type GpuReading, openGpuWatch } from './gpus/watch.ts';
import type { HostFacts } from './host/facts.ts';
import { assertNftables } from './host/nftables.ts';
import { openDiskCheck } from './runtime/disk-check.ts';
import type { Engine } from './runtime/engine.ts';
import type { Fence, FenceFinding } from './runtime/fence.ts';

/** With what the agent asks of it: `DeviceRequests` that name GPUs by UUID, and cgroups of both versions. */
const ENGINE_VERSION_MIN = [20, 10] as const;
const INVENTORY_PERIOD_MS = 60_000;
/** A GPU that breaks is known this soon. */
const KERNEL_LOG_PERIOD_MS = 5_000;
/** An engine that was away at our start is tried when it is back. */
const DISK_PERIOD_MS = 10 * 60_000;

export interface InventoryWatch {
  /** As last taken. */
  inventory(): Inventory;
  /** Takes it again and again; `tell` hears of each change. */
  start(containerIds: () => string[], tell: (inventory: Inventory) => void): void;
  /** Takes it soon: something has changed. */
  nudge(): void;
  loops(): LoopStatus[];
  stop(): Promise<void>;
}

interface InventoryDeps {
  engine: Engine;
  facts: HostFacts;
  bootId: string;
  bundle: Bundle;
  fence: Pick<Fence, 'finding'>;
  clock: Clock;
  log: Log;
}

/** Starts without GPUs where nvidia-smi fails: a host whose driver was upgraded under it still has rentals that are to be reached. */
export async function openInventory(config: AgentConfig, deps: InventoryDeps): Promise<InventoryWatch> {
  const { engine, facts, bundle, fence, clock, log } = deps;
  const disk = await openDiskCheck(config.state_dir, { engine, node: bareNode(bundle), log });
  const gpus = await openGpuWatch({
    nvidiaSmi: config.nvidia_smi,
    stateDir: config.state_dir,
    bootId: deps.bootId,
    kernelLog: openKernelLog(),
    clock,
    log,
  });
  const take = async (containerIds: string[]): Promise<Inventory> =>
    takeInventory(await gpus.read(containerIds), {
      engine,
      facts,
      diskEnforced: disk.enforced(),
      fence: fence.finding(),
    });
  let inventory = await take([]);
  let loops: Loop[] = [];
  return {
    inventory: () => inventory,
    start: (containerIds, tell) => {
      const readInventory = async (): Promise<void> => {
        // An engine that does not answer is not an empty one.
        const containers = await engine.list().catch(() => undefined);
        const inUse = containers?.flatMap((container) => container.mount_sources);
        if (inUse !== undefined) await removeOldBundles(config.state_dir, bundle, inUse);
        const now = await take(containerIds());
        if (JSON.stringify(now) === JSON.stringify(inventory)) return;
        inventory = now;
        tell(now);
      };
      const inventoryWatch = startLoop({ name: 'inventory', periodMs: INVENTORY_PERIOD_MS, run: readInventory }, deps);
      const tryDisk = async (): Promise<void> => {
        await disk.measure();
        inventoryWatch.nudge();
      };
      const hearGpus = async (): Promise<void> => {
        if (await gpus.hear()) inventoryWatch.nudge();
      };
      loops = [
        inventoryWatch,
        startLoop({ name: 'disk', periodMs: DISK_PERIOD_MS, run: tryDisk }, deps),
        startLoop({ name: 'kernel-log', periodMs: KERNEL_LOG_PERIOD_MS, run: hearGpus }, deps),
      ];
    },
    nudge: () => loops[0]?.nudge(),
    loops: () => loops.map((loop) => loop.status()),
    stop: async () => {
      await Promise.all(loops.map((loop) => loop.stop()));
      await gpus.close();
    },
  };
}

/** For a supplier who is there to mend it. @throws Error that says all the host lacks before anybody can rent it */
export function assertRentable(inventory: Inventory, config: AgentConfig): void {
  const lacks: string[] = [];
  if (inventory.gpu_error !== '') {
    lacks.push(`${inventory.gpu_error}: mend the NVIDIA driver`);
  } else if (inventory.gpus.length === 0) {
    lacks.push(`${config.nvidia_smi} names no GPU: install the NVIDIA driver, or set nvidia_smi`);
  }
  if (inventory.engine_version === '') {
    lacks.push(`no Docker Engine answers at ${config.docker_socket}: start it, or set docker_socket`);
  } else if (isTooOld(inventory.engine_version)) {
    lacks.push(
      `Docker Engine ${inventory.engine_version} is too old: install ${ENGINE_VERSION_MIN.join('.')} or newer`,
    );
  }
  if (inventory.fence_error !== '') {
    lacks.push(
      `${inventory.fence_error}, or set network_fence: none where something else keeps containers from this host`,
    );
  }
  if (lacks.length > 0) throw new Error(`this host cannot be rented out yet: ${lacks.join('; ')}`);
}

/** A version that does not begin with two numbers is taken for a new one. */
function isTooOld(engineVersion: string): boolean {
  const [, major = 'Infinity', minor = '0'] = /^(\d+)\.(\d+)/.exec(engineVersion) ?? [];
  const [majorMin, minorMin] = ENGINE_VERSION_MIN;
  return Number(major) < majorMin || (Number(major) === majorMin && Number(minor) < minorMin);
}

/** Whether this agent can put up what its configuration asks for; nothing is put up. */
export async function findFence({ network_fence }: AgentConfig): Promise<FenceFinding> {
  if (network_fence === 'none') return { network_fence, fence_error: '' };
  return { network_fence, fence_error: await assertNftables().then(() => '', messageOf) };
}

export interface InventoryReading {
  engine: Engine;
  facts: HostFacts;
  /** Whether containers are held to their disk size here; false where nobody has tried yet. */
  diskEnforced: boolean;
  fence: FenceFinding;
}

/** An engine that does not answer has no version. */
export async function takeInventory(gpus: GpuReading, taking: InventoryReading): Promise<Inventory> {
  const { engine, facts, diskEnforced, fence } = taking;
  const [engineVersion, toolkitVersion] = await Promise.all([engine.version().catch(() => ''), readToolkitVersion()]);
  return {
    ...gpus,
    ...facts,
    ...fence,
    disk_enforced: diskEnforced,
    engine_version: engineVersion.slice(0, 64),
    container_toolkit_version: toolkitVersion,
    agent_version: VERSION,
  };
}

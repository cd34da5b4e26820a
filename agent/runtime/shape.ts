// From a wanted workload and its image to the container we make of them: command, environment, and its share of the machine.
import { commandOf, type DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { ContainerShape, ImageFacts, Mount } from './engine.ts';

/** What the main process gets: the guest starts it so. Written to the workload's holder folder. */
export interface Launch {
  argv: string[];
  env: Record<string, string>;
  /** Sent to the main process when the container is told to stop, e.g. `SIGTERM`. */
  stop_signal: string;
  /** Started only where the container sees exactly these. */
  gpu_uuids: string[];
}

/** How our program gets into the container. */
export interface GuestEntry {
  entrypoint: string[];
  mounts: Mount[];
}

export interface Machine {
  cpu_cores: number;
  ram_bytes: number;
  gpu_count: number;
  /** The highest limits this machine lets us set. */
  limits: { memlock_bytes: number; nofile: number };
}

/** Kept for the host itself, the engine, the agent and its holders. */
const HOST_RAM_BYTES = 1024 ** 3;
const MEMORY_BYTES_MIN = 512 * 1024 ** 2;
const PIDS_MAX = 16_384;
/** Weight of one GPU's share when cores are contended; the engine's default for one container. */
const CPU_SHARES_PER_GPU = 1024;
/**
 * What the device hook may read from an image: what it needs of the driver. Other names have it put in devices of the host (NVIDIA_MOFED,
 * NVIDIA_GDS, NVIDIA_IMEX_CHANNELS, ...), with which a tenant goes around the network fence.
 */
const HOOK_ENV = /^(NVIDIA_DRIVER_CAPABILITIES|NVIDIA_REQUIRE_\w+|NVIDIA_DISABLE_REQUIRE|CUDA_VERSION)$/;

/** The main process's start, from the image and the request; the request's environment wins. */
export function launchOf(workload: DesiredWorkload, image: ImageFacts): Launch {
  return {
    argv: commandOf(workload.command, image),
    env: { ...Object.fromEntries(image.env.map(splitEnv)), ...workload.env },
    stop_signal: image.stop_signal || 'SIGTERM',
    gpu_uuids: workload.gpu_uuids,
  };
}

/** The container: our guest as its program, the image's environment kept away from it, the machine's share by GPU count. */
export function shapeOf(
  workload: DesiredWorkload,
  image: ImageFacts,
  entry: GuestEntry,
  machine: Machine,
): ContainerShape {
  const part = Math.max(1, workload.gpu_uuids.length);
  const share = part / Math.max(1, machine.gpu_count, part);
  const memoryBytes = Math.max(MEMORY_BYTES_MIN, Math.floor((machine.ram_bytes - HOST_RAM_BYTES) * share));
  return {
    workload_id: workload.workload_id,
    instance_id: workload.instance_id,
    image: workload.image,
    hostname: workload.instance_id,
    entrypoint: entry.entrypoint,
    env: containerEnv(workload, image),
    mounts: entry.mounts,
    gpu_uuids: workload.gpu_uuids,
    disk_gb: workload.disk_gb,
    memory_bytes: memoryBytes,
    shm_bytes: Math.floor(memoryBytes / 2),
    nano_cpus: Math.round(Math.max(1, machine.cpu_cores * share) * 1e9),
    cpu_shares: CPU_SHARES_PER_GPU * part,
    pids_max: PIDS_MAX,
    ...machine.limits,
  };
}

/**
 * LD_PRELOAD, NODE_OPTIONS and the like of an image would break or capture our guest, so no name of the image's environment
 * stays in the container's. NVIDIA_VISIBLE_DEVICES is ours alone: an image that says `all` would get every GPU of the host.
 */
function containerEnv(workload: DesiredWorkload, image: ImageFacts): string[] {
  const merged = { ...Object.fromEntries(image.env.map(splitEnv)), ...workload.env };
  const kept = Object.entries(merged).filter(([name]) => HOOK_ENV.test(name));
  const dropped = Object.keys(merged).filter((name) => !HOOK_ENV.test(name) && name !== 'NVIDIA_VISIBLE_DEVICES');
  const devices = workload.gpu_uuids.length === 0 ? ['NVIDIA_VISIBLE_DEVICES=void'] : ['NVIDIA_VISIBLE_DEVICES'];
  return [...kept.map(([name, value]) => `${name}=${value}`), ...dropped, ...devices];
}

function splitEnv(line: string): [string, string] {
  const at = line.indexOf('=');
  return at < 0 ? [line, ''] : [line.slice(0, at), line.slice(at + 1)];
}

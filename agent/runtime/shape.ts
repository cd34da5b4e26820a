// Computes the container of a workload: command, environment, its share of the machine, and its files in /etc.
import { HOST_RAM_GB } from '../../shared/limits.ts';
import { commandOf, type DesiredWorkload } from '../../shared/protocol/workload.ts';
import type { ContainerShape, LocalImage, Mount } from './engine.ts';
import { join } from 'node:path';
import { writeFileSafely } from '../host/state.ts';

/** How the guest starts the main process. Written to the workload's folder. */
export interface MainProgram {
  argv: string[];
  env: Record<string, string>;
  /** Signal for the main process when the container is stopped, e.g. `SIGTERM`. */
  stop_signal: string;
  /** The main process starts only if the container sees exactly these GPUs. */
  gpu_uuids: string[];
}

/** How our guest program gets into the container. */
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

const HOST_RAM_BYTES = HOST_RAM_GB * 1024 ** 3;
const MEMORY_BYTES_MIN = 512 * 1024 ** 2;
const PIDS_MAX = 16_384;
/** Weight of one GPU's share when cores are contended; the engine's default for one container. */
const CPU_SHARES_PER_GPU = 1024;
/**
 * Variables of the image that NVIDIA's device hook may read: those about the driver. Others (NVIDIA_MOFED, NVIDIA_GDS,
 * NVIDIA_IMEX_CHANNELS, ...) would add devices of the host, with which a tenant could bypass the network fence.
 */
const HOOK_ENV = /^(NVIDIA_DRIVER_CAPABILITIES|NVIDIA_REQUIRE_\w+|NVIDIA_DISABLE_REQUIRE|CUDA_VERSION)$/;

/** The main process's start, from the image and the request; the request's environment wins. */
export function mainProgramOf(workload: DesiredWorkload, image: LocalImage): MainProgram {
  return {
    argv: commandOf(workload.command, image),
    env: { ...Object.fromEntries(image.env.map(splitEnv)), ...workload.env },
    stop_signal: image.stop_signal || 'SIGTERM',
    gpu_uuids: workload.gpu_uuids,
  };
}

/** The container: our guest as its program, without the image's environment, with a share of the machine by GPU count. */
export function shapeOf(
  workload: DesiredWorkload,
  image: LocalImage,
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
    network: 'own',
    // The guest gets this signal, and then sends the image's own stop signal to the main process.
    stop_signal: 'SIGTERM',
    folders: [],
    disk_gb: workload.disk_gb,
    memory_bytes: memoryBytes,
    shm_bytes: Math.floor(memoryBytes / 2),
    nano_cpus: Math.round(Math.max(1, machine.cpu_cores * share) * 1e9),
    cpu_shares: CPU_SHARES_PER_GPU * part,
    pids_max: PIDS_MAX,
    ...machine.limits,
  };
}

/** Folders that a job may write. Its events, its results and its checkpoints are read from there. */
export const JOB_FOLDERS = { out: '/job/out', checkpoints: '/job/ckpt' } as const;

/** The container of a job: the image's own program without our guest, without a network, with `mounts` below `/job`. */
export function jobShapeOf(
  workload: DesiredWorkload,
  image: LocalImage,
  mounts: Mount[],
  machine: Machine,
): ContainerShape {
  const shape = shapeOf(workload, image, { entrypoint: commandOf(workload.command, image), mounts }, machine);
  const devices = workload.gpu_uuids.length === 0 ? 'NVIDIA_VISIBLE_DEVICES=void' : 'NVIDIA_VISIBLE_DEVICES';
  return {
    ...shape,
    env: [...Object.entries(workload.env).map(([name, value]) => `${name}=${value}`), devices],
    network: 'none',
    stop_signal: 'SIGKILL',
    folders: Object.values(JOB_FOLDERS),
  };
}

/** Docker's DNS server, in every network except its default one. */
const ENGINE_RESOLVER = '127.0.0.11';

/**
 * Writes read-only /etc/hosts, /etc/hostname and /etc/resolv.conf for a container below `folder`. The engine's own versions are writable and lie
 * on the host's disk, outside the container's disk size: a tenant could fill the host's disk through them. Each container needs its own folder,
 * because the engine may write to mounted files.
 */
export async function makeEtcFiles(folder: string, hostname: string): Promise<Mount[]> {
  const files = {
    // The container's address is not known before it starts.
    hosts: `127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 ${hostname}\n`,
    hostname: `${hostname}\n`,
    'resolv.conf': `nameserver ${ENGINE_RESOLVER}\noptions ndots:0\n`,
  };
  const mounts: Mount[] = [];
  for (const [name, text] of Object.entries(files)) {
    const source = join(folder, 'etc', name);
    await writeFileSafely(source, text, 0o644);
    mounts.push({ source, target: `/etc/${name}` });
  }
  return mounts;
}

/**
 * An image's LD_PRELOAD or NODE_OPTIONS would break or capture our guest, so every variable of the image is unset in the container.
 * We set NVIDIA_VISIBLE_DEVICES ourselves: an image with `all` would get every GPU of the host.
 */
function containerEnv(workload: DesiredWorkload, image: LocalImage): string[] {
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

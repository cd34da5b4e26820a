// Reads the facts of this machine except its GPUs: cores, memory, disk, names, the id of this boot, and its name servers.
import type { StatsFs } from 'node:fs';
import { readFile, statfs } from 'node:fs/promises';
import { cpu, mem, osInfo } from 'systeminformation';
import { networkInterfaces } from 'node:os';
import { dirname } from 'node:path';
import { z } from 'zod';
import { isMissing } from './state.ts';

export interface HostFacts {
  cpu_cores: number;
  ram_bytes: number;
  /** Size of the file system that holds `dataDir`. */
  storage_bytes: number;
  hostname: string;
  kernel: string;
}

const CAP_SYS_RESOURCE = 1n << 24n;
/** Open files per process: the kernel's default maximum. Data loaders with many workers need it. */
const NOFILE_MAX = 1_048_576;

/** Reads the machine; takes some hundred milliseconds, so callers keep the result. `dataDir` may not exist yet. */
export async function readHostFacts(dataDir: string): Promise<HostFacts> {
  // Only this file system is asked. Others may be of a server that is away, and would never answer.
  const [processor, memory, disk, system] = await Promise.all([cpu(), mem(), fileSystemOf(dataDir), osInfo()]);
  return {
    cpu_cores: processor.cores,
    ram_bytes: memory.total,
    storage_bytes: disk.blocks * disk.bsize,
    hostname: system.hostname.slice(0, 255),
    kernel: system.kernel.slice(0, 255),
  };
}

/** The file system that holds the folder, or will hold it. */
async function fileSystemOf(folder: string): Promise<StatsFs> {
  try {
    return await statfs(folder);
  } catch (error) {
    if (!isMissing(error) || folder === dirname(folder)) throw error;
    return fileSystemOf(dirname(folder));
  }
}

/** The highest limits a container can get here; -1 is unlimited. */
export interface LimitFacts {
  memlock_bytes: number;
  nofile: number;
}

/**
 * Raising a hard limit needs CAP_SYS_RESOURCE. Some virtual machines withhold it from everyone, and then a container with higher limits
 * than the machine's does not start.
 */
export async function readLimits(): Promise<LimitFacts> {
  const [status, limits] = await Promise.all([
    readFile('/proc/self/status', 'utf8'),
    readFile('/proc/self/limits', 'utf8'),
  ]);
  return parseLimits(status, limits);
}

/** Parses the content of `status` and `limits` in /proc/self. */
export function parseLimits(status: string, limits: string): LimitFacts {
  const bounding = BigInt(`0x${/^CapBnd:\s*([0-9a-f]+)$/m.exec(status)?.[1] ?? '0'}`);
  if ((bounding & CAP_SYS_RESOURCE) !== 0n) return { memlock_bytes: -1, nofile: NOFILE_MAX };
  const hard = (name: string): number => {
    const text = new RegExp(`^${name}\\s+\\S+\\s+(\\S+)`, 'm').exec(limits)?.[1];
    return text === undefined || text === 'unlimited' ? -1 : Number(text);
  };
  const nofile = hard('Max open files');
  return { memlock_bytes: hard('Max locked memory'), nofile: nofile < 0 ? NOFILE_MAX : Math.min(NOFILE_MAX, nofile) };
}

/** Changes with every boot of the machine. */
export async function readBootId(): Promise<string> {
  const text = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  return text.trim();
}

/** Networks of the host's interfaces without loopback, each as `address/length` with the host's own address. */
export function readOwnNetworks(interfaces = networkInterfaces()): string[] {
  return Object.values(interfaces).flatMap((addresses) =>
    (addresses ?? []).flatMap(({ internal, cidr }) => (internal || cidr === null ? [] : [cidr])),
  );
}

/** If systemd-resolved runs, the first file names only a stub on loopback, and the engine uses the servers of the second file. */
const RESOLV_CONFS = ['/etc/resolv.conf', '/run/systemd/resolve/resolv.conf'];
const ENGINE_CONFIG = '/etc/docker/daemon.json';
const EngineDns = z.looseObject({ dns: z.array(z.string()).default([]) });

/** Addresses of all name servers of this host, including those that no container can use. A missing or unreadable file counts as empty. */
export async function readResolvers(): Promise<string[]> {
  const read = (file: string): Promise<string> => readFile(file, 'utf8').catch(() => '');
  const [engineConfig, ...confs] = await Promise.all([ENGINE_CONFIG, ...RESOLV_CONFS].map(read));
  return [...confs.flatMap(nameServersOf), ...engineDnsOf(engineConfig ?? '')];
}

/** The `nameserver` lines of a resolv.conf. */
export function nameServersOf(resolvConf: string): string[] {
  return [...resolvConf.matchAll(/^\s*nameserver\s+(\S+)/gm)].flatMap(([, address]) => address ?? []);
}

/** The name servers that daemon.json sets for containers instead of the host's. */
export function engineDnsOf(daemonJson: string): string[] {
  try {
    return EngineDns.parse(JSON.parse(daemonJson)).dns;
  } catch {
    return [];
  }
}

// Reads what a running container uses from its cgroup, of version 2 or 1, and from the network that its processes see.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ContainerFigures } from '../../shared/protocol/metrics.ts';
import { networkBytes } from './host-figures.ts';

/** The folders in which the kernel shows cgroups and processes; other folders in tests. */
export interface KernelFiles {
  cgroups: string;
  proc: string;
}

export const KERNEL: KernelFiles = { cgroups: '/sys/fs/cgroup', proc: '/proc' };

/** The folders in which Docker puts the cgroup of a container, by its two drivers: `cgroupfs` and `systemd`. */
const foldersOf = (id: string): string[] => [`docker/${id}`, `system.slice/docker-${id}.scope`];
/** Version 1 of cgroups writes "no limit" as a number above this one. */
const LIMIT_BYTES_MAX = 2 ** 60;
const NONE: ContainerFigures = {
  cpu_seconds: null,
  memory_used_bytes: null,
  memory_limit_bytes: null,
  network_received_bytes: null,
  network_sent_bytes: null,
};

/** Figures of a container. Undefined if it has no cgroup here: it has stopped, or its engine keeps cgroups in another place. */
export async function readContainer(id: string, files: KernelFiles): Promise<ContainerFigures | undefined> {
  for (const folder of foldersOf(id)) {
    const figures = (await readVersion2(join(files.cgroups, folder))) ?? (await readVersion1(files.cgroups, folder));
    if (figures === undefined) continue;
    const network = await networkOf(figures.processes, files.proc);
    // Undefined if a value is out of range, as if there were no figures.
    return ContainerFigures.safeParse({ ...NONE, ...figures.values, ...network }).data;
  }
  return undefined;
}

interface Read {
  /** The process ids of the container, as `cgroup.procs` lists them. */
  processes: string;
  values: Partial<ContainerFigures>;
}

async function readVersion2(folder: string): Promise<Read | undefined> {
  const [cpu, memory, stat, limit, processes] = await Promise.all(
    ['cpu.stat', 'memory.current', 'memory.stat', 'memory.max', 'cgroup.procs'].map((name) => read(folder, name)),
  );
  if (cpu === undefined) return undefined;
  const values = {
    cpu_seconds: scaled(memberOf(cpu, 'usage_usec'), 1e-6),
    memory_used_bytes: withoutCache(numberOf(memory), memberOf(stat, 'inactive_file')),
    memory_limit_bytes: limitOf(limit),
  };
  return { processes: processes ?? '', values };
}

async function readVersion1(cgroups: string, folder: string): Promise<Read | undefined> {
  const cpuFolder = join(cgroups, 'cpuacct', folder);
  const memoryFolder = join(cgroups, 'memory', folder);
  const [cpu, processes, memory, stat, limit] = await Promise.all([
    read(cpuFolder, 'cpuacct.usage'),
    read(cpuFolder, 'cgroup.procs'),
    read(memoryFolder, 'memory.usage_in_bytes'),
    read(memoryFolder, 'memory.stat'),
    read(memoryFolder, 'memory.limit_in_bytes'),
  ]);
  if (cpu === undefined) return undefined;
  const values = {
    cpu_seconds: scaled(numberOf(cpu), 1e-9),
    memory_used_bytes: withoutCache(numberOf(memory), memberOf(stat, 'total_inactive_file')),
    memory_limit_bytes: limitOf(limit),
  };
  return { processes: processes ?? '', values };
}

/** Counters of the container's network. All processes of a container share it, so those of the first listed process are read. */
async function networkOf(processes: string, proc: string): Promise<Partial<ContainerFigures>> {
  const [pid] = /\d+/.exec(processes) ?? [];
  const text = pid === undefined ? undefined : await read(join(proc, pid, 'net'), 'dev');
  return text === undefined ? {} : networkBytes(text);
}

function read(folder: string, name: string): Promise<string | undefined> {
  return readFile(join(folder, name), 'utf8').catch(() => undefined);
}

/** The number after `name` in a file with one name and number per line. */
function memberOf(text: string | undefined, name: string): number | null {
  return numberOf(
    text
      ?.split('\n')
      .find((line) => line.startsWith(`${name} `))
      ?.slice(name.length + 1),
  );
}

function numberOf(text: string | undefined): number | null {
  return text !== undefined && /^\d+\s*$/.test(text) ? Number(text) : null;
}

function scaled(number: number | null, by: number): number | null {
  return number === null ? null : number * by;
}

function withoutCache(used: number | null, cache: number | null): number | null {
  return used === null ? null : Math.max(0, used - (cache ?? 0));
}

/** A limit in bytes. Null if there is none: `max` in version 2, a number near 2^63 in version 1. */
function limitOf(text: string | undefined): number | null {
  const limit = numberOf(text);
  return limit === null || limit > LIMIT_BYTES_MAX ? null : limit;
}

// What this machine is, apart from its GPUs: cores, memory, disk, names, and which boot this is.
import { readFile } from 'node:fs/promises';
import { fsSize, mem, osInfo, cpu } from 'systeminformation';

export interface HostFacts {
  cpu_cores: number;
  ram_bytes: number;
  /** Size of the file system that holds `dataDir`. */
  storage_bytes: number;
  hostname: string;
  kernel: string;
}

/** Reads the machine; takes some hundred milliseconds, so callers keep the result. */
export async function readHostFacts(dataDir: string): Promise<HostFacts> {
  const [processor, memory, disks, system] = await Promise.all([cpu(), mem(), fsSize(), osInfo()]);
  const holding = disks
    .filter((disk) => isWithin(dataDir, disk.mount))
    .toSorted((a, b) => b.mount.length - a.mount.length)[0];
  return {
    cpu_cores: processor.cores,
    ram_bytes: memory.total,
    storage_bytes: Math.round(holding?.size ?? 0),
    hostname: system.hostname.slice(0, 255),
    kernel: system.kernel.slice(0, 255),
  };
}

/** Changes with every boot of the machine. */
export async function readBootId(): Promise<string> {
  const text = await readFile('/proc/sys/kernel/random/boot_id', 'utf8').catch(() => '');
  return text.trim();
}

function isWithin(path: string, mount: string): boolean {
  return mount === '/' || path === mount || path.startsWith(`${mount}/`);
}

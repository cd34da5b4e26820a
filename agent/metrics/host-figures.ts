// Reads what this machine uses in all: processors, memory, disk, and the counters of its network interfaces.
import { readFile, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { HostFigures } from '../../shared/protocol/metrics.ts';

/** The kernel reports processor time to programs in hundredths of a second, whatever the frequency of its own timer is. */
const TICKS_PER_SECOND = 100;
const KIB = 1024;

/** `dataDir`: a folder on the disk that is reported. Rejects if the kernel's files cannot be read. */
export async function readHost(dataDir: string, proc: string): Promise<HostFigures> {
  const read = (name: string): Promise<string> => readFile(join(proc, name), 'utf8');
  const [stat, memory, network, disk] = await Promise.all([
    read('stat'),
    read('meminfo'),
    read('net/dev').catch(() => undefined),
    statfs(dataDir),
  ]);
  const total = kibibytes(memory, 'MemTotal');
  return HostFigures.parse({
    cpu_cores: [...stat.matchAll(/^cpu\d+ /gm)].length,
    cpu_seconds: busySeconds(stat),
    memory_used_bytes: total === null ? null : Math.max(0, total - (kibibytes(memory, 'MemAvailable') ?? 0)),
    memory_limit_bytes: total,
    disk_used_bytes: (disk.blocks - disk.bfree) * disk.bsize,
    disk_total_bytes: disk.blocks * disk.bsize,
    network_received_bytes: null,
    network_sent_bytes: null,
    ...(network === undefined ? {} : networkBytes(network, { onlyPhysical: true })),
  });
}

/** Names of the host's network cards. Other interfaces (bridges, bonds, and VLANs such as `eth0.7`) would count the same bytes again. */
const PHYSICAL = /^(en|eth|em\d|p\d+p|ib|wl|ww)[^.]*$/;

interface Bytes {
  network_received_bytes: number;
  network_sent_bytes: number;
}

/** Sum of all interfaces without loopback, for a container. If `onlyPhysical`: sum of the interfaces to other machines, for a host. */
export function networkBytes(text: string, { onlyPhysical = false } = {}): Bytes {
  let received = 0;
  let sent = 0;
  for (const line of text.split('\n')) {
    const [name = '', counters] = line.split(':').map((part) => part.trim());
    if (counters === undefined) continue;
    if (name === 'lo' || (onlyPhysical && !PHYSICAL.test(name))) continue;
    const numbers = counters.split(/\s+/).map(Number);
    received += numbers[0] ?? 0;
    sent += numbers[8] ?? 0;
  }
  return { network_received_bytes: received, network_sent_bytes: sent };
}

/** Sum of the line `cpu user nice system idle iowait irq softirq steal ...` without idle, iowait, and the guest columns (part of user and nice). */
function busySeconds(stat: string): number | null {
  const [, line] = /^cpu +(.+)$/m.exec(stat) ?? [];
  if (line === undefined) return null;
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] = line.split(' ').map(Number);
  return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND;
}

function kibibytes(text: string, name: string): number | null {
  const line = text.split('\n').find((each) => each.startsWith(`${name}:`));
  const number = Number.parseInt(line?.slice(name.length + 1) ?? '', 10);
  return Number.isNaN(number) ? null : number * KIB;
}

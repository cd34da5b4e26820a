// The figures of containers and of the host, from the kernel's files as they look on real machines.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { type KernelFiles, readContainer } from '../../../agent/metrics/cgroups.ts';
import { readHost } from '../../../agent/metrics/host-figures.ts';

const root = mkdtempSync(join(tmpdir(), 'cgroups-'));
afterAll(() => rmSync(root, { recursive: true }));
const ID = 'f'.repeat(64);
const NET = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:  111     2    0    0    0     0          0         0      111       2    0    0    0     0       0          0
  eth0: 5000    40    0    0    0     0          0         0     7000      50    0    0    0     0       0          0
veth12: 9000    40    0    0    0     0          0         0     9000      50    0    0    0     0       0          0
`;

/** Cards on older systems. */
const OLD_NAMES = '   em1: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n  p3p1: 100 1 0 0 0 0 0 0 200 1 0 0 0 0 0 0\n';

function kernel(name: string, files: Record<string, string>): KernelFiles {
  for (const [path, text] of Object.entries(files)) {
    const file = join(root, name, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
  return { cgroups: join(root, name, 'cgroup'), proc: join(root, name, 'proc') };
}

const VERSION_2 = {
  'cpu.stat': 'usage_usec 12500000\nuser_usec 12000000\nsystem_usec 500000\n',
  'memory.current': '3000\n',
  'memory.stat': 'anon 1500\ninactive_file 1000\nactive_file 500\n',
  'memory.max': '8589934592\n',
  'cgroup.procs': '4711\n4712\n',
};
const within = (folder: string, files: Record<string, string>): Record<string, string> =>
  Object.fromEntries(Object.entries(files).map(([name, text]) => [`cgroup/${folder}/${name}`, text]));

test.each([`docker/${ID}`, `system.slice/docker-${ID}.scope`])(
  'cgroups of version 2 are read in %s',
  async (folder) => {
    const files = kernel(`v2 ${folder.length}`, { ...within(folder, VERSION_2), 'proc/4711/net/dev': NET });
    expect(await readContainer(ID, files)).toEqual({
      cpu_seconds: 12.5,
      memory_used_bytes: 2_000,
      memory_limit_bytes: 8_589_934_592,
      network_received_bytes: 14_000,
      network_sent_bytes: 16_000,
    });
  },
);

test('cgroups of version 1 are read, and a number near 2^63 in them is no limit', async () => {
  const files = kernel('v1', {
    [`cgroup/cpuacct/docker/${ID}/cpuacct.usage`]: '2500000000\n',
    [`cgroup/cpuacct/docker/${ID}/cgroup.procs`]: '',
    [`cgroup/memory/docker/${ID}/memory.usage_in_bytes`]: '4096\n',
    [`cgroup/memory/docker/${ID}/memory.stat`]: 'cache 1\ninactive_file 9\ntotal_inactive_file 96\n',
    [`cgroup/memory/docker/${ID}/memory.limit_in_bytes`]: '9223372036854771712\n',
  });
  expect(await readContainer(ID, files)).toEqual({
    cpu_seconds: 2.5,
    memory_used_bytes: 4_000,
    memory_limit_bytes: null,
    network_received_bytes: null,
    network_sent_bytes: null,
  });
});

test('a container without a limit, and one whose processes have ended, lacks only that', async () => {
  const files = kernel('bare', within(`docker/${ID}`, { ...VERSION_2, 'memory.max': 'max\n' }));
  expect(await readContainer(ID, files)).toMatchObject({
    cpu_seconds: 12.5,
    memory_limit_bytes: null,
    network_received_bytes: null,
  });
});

test('a container that has stopped has no figures', async () => {
  expect(await readContainer(ID, kernel('none', {}))).toBeUndefined();
});

test('the host counts its processors, memory without caches, and only interfaces that lead to other machines', async () => {
  const { proc } = kernel('host', {
    'proc/stat': 'cpu  1000 100 200 99999 50 10 20 5 0 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nintr 5\n',
    'proc/meminfo': 'MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    600 kB\n',
    // The bytes of a VLAN and of a bond are those of a card.
    'proc/net/dev': `${NET}eth0.7: 500 4 0 0 0 0 0 0 700 5 0 0 0 0 0 0\n bond0: 5000 40 0 0 0 0 0 0 7000 50 0 0 0 0 0 0\n${OLD_NAMES}`,
  });
  expect(await readHost(root, proc)).toMatchObject({
    cpu_cores: 2,
    cpu_seconds: 13.35,
    memory_used_bytes: 409_600,
    memory_limit_bytes: 1_024_000,
    network_received_bytes: 5_110,
    network_sent_bytes: 7_220,
  });
});

test('this machine has figures of its own', async () => {
  const host = await readHost(root, '/proc');
  expect(host.cpu_cores).toBeGreaterThan(0);
  expect(host.disk_used_bytes).toBeLessThanOrEqual(host.disk_total_bytes ?? 0);
});

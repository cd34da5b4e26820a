// The limits of holders, with real processes and a folder in place of the kernel's cgroups.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openConfinement, userOf } from '../../../agent/host/confinement.ts';
import { capture } from '../../kit/capture.ts';

let cgroups: string;
beforeEach(() => {
  cgroups = mkdtempSync(join(tmpdir(), 'cgroups-'));
  writeFileSync(join(cgroups, 'cgroup.controllers'), 'cpuset cpu io memory hugetlb pids\n');
});
afterEach(() => rmSync(cgroups, { recursive: true }));

const text = (...path: string[]): string => readFileSync(join(cgroups, ...path), 'utf8');
const SAY = [
  'sh',
  '-c',
  'echo $$; cat /proc/self/oom_score_adj; grep NoNewPrivs /proc/self/status; ulimit -H -c; echo "$@"',
  'say',
];

describe('a holder', () => {
  test('runs in its own cgroup, which limits memory, processors and processes before it begins', async () => {
    const confinement = await openConfinement({ cgroups, filterProbe: ['false'] });
    expect(confinement.lack).toBe('');
    const { stdout } = await capture(await confinement.around('wl_a', [...SAY, 'a b', '--dir']));
    const [pid, score, privileges, core, rest] = stdout.toString().split('\n');
    expect(text('svc-holders/wl_a/cgroup.procs').trim()).toBe(pid);
    expect([score, privileges, core, rest]).toEqual(['500', 'NoNewPrivs:\t1', '0', 'a b --dir']);
    expect(text('cgroup.subtree_control')).toBe('+cpu +memory +pids');
    expect(text('svc-holders/cgroup.subtree_control')).toBe('+cpu +memory +pids');
    const bounds = ['memory.max', 'memory.swap.max', 'memory.oom.group', 'cpu.max', 'pids.max'];
    expect(bounds.map((file) => text('svc-holders/wl_a', file))).toEqual([
      String(512 * 1024 ** 2),
      '0',
      '1',
      '150000 100000',
      '64',
    ]);
  });

  test('does not run outside the cgroup that was made for it', async () => {
    const argv = await (await openConfinement({ cgroups })).around('wl_a', SAY);
    rmSync(join(cgroups, 'svc-holders'), { recursive: true });
    expect(await capture(argv)).toMatchObject({ code: 1, stdout: Buffer.alloc(0) });
  });

  test('leaves a cgroup that the start of the next one removes', async () => {
    mkdirSync(join(cgroups, 'svc-holders/wl_over'), { recursive: true });
    await (await openConfinement({ cgroups, filterProbe: ['false'] })).around('wl_a', SAY);
    expect(readdirSync(join(cgroups, 'svc-holders')).toSorted()).toEqual(['cgroup.subtree_control', 'wl_a']);
  });

  test('keeps its cgroup while it starts, whatever else starts at the same moment', async () => {
    const confinement = await openConfinement({ cgroups, filterProbe: ['false'] });
    const names = Array.from({ length: 17 }, (_, i) => `wl_${i}`);
    for (const name of names) {
      await confinement.around(name, SAY);
      // The kernel removes a cgroup although it has these files.
      for (const file of readdirSync(join(cgroups, 'svc-holders', name)))
        rmSync(join(cgroups, 'svc-holders', name, file));
    }
    const left = readdirSync(join(cgroups, 'svc-holders')).filter((name) => name.startsWith('wl_'));
    expect(left.toSorted()).toEqual(names.slice(1).toSorted());
  });

  test('is killed first if memory runs out, even on a host without cgroups, which is reported', async () => {
    writeFileSync(join(cgroups, 'cgroup.controllers'), 'hugetlb\n');
    const confinement = await openConfinement({ cgroups, filterProbe: ['false'] });
    expect(confinement.lack).toContain('no cgroups of version 2 with cpu, memory, pids');
    const { stdout } = await capture(await confinement.around('wl_a', SAY));
    expect(stdout.toString()).toMatch(/^\d+\n500\n/);
    expect(readdirSync(cgroups)).toEqual(['cgroup.controllers']);
  });
});

test.each([
  [['true'], 'no filter of system calls: the agent does not run as the unit svc-agent.service'],
  [['/none'], 'it is not known whether a filter of system calls is in force (spawn /none ENOENT)'],
] as const)(
  'a host where %o succeeds or is missing is reported: it filters no system calls',
  async (filterProbe, lack) => {
    expect((await openConfinement({ cgroups, filterProbe })).lack).toBe(lack);
  },
);

test('each holder has its own user', () => {
  const users = Array.from({ length: 256 }, (_, nth) => userOf(`wl_${nth}`));
  expect(new Set(users).size).toBe(users.length);
  expect(Math.min(...users)).toBeGreaterThanOrEqual(0x7000_0000);
  expect(Math.max(...users)).toBeLessThan(0x7ffe_0000);
});

// How the disk check judges the exit of its program, and what it does if a btrfs no longer counts sizes.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type DiskCheck, openDiskCheck, type Sizes } from '../../../agent/runtime/disk-check.ts';
import type { BareRun, Engine } from '../../../agent/runtime/engine.ts';
import { createLog } from '../../../shared/log.ts';

let dir: string;
let runs: BareRun[];
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'disk-check-'));
  runs = [];
});
afterEach(() => rmSync(dir, { recursive: true }));

function engineOf(end: number | Error): Engine {
  const engine: Pick<Engine, 'version' | 'runBare' | 'disk'> = {
    version: async () => '27',
    disk: async () => ({ folder: '/var/lib/docker', free_bytes: 1, total_bytes: 2 }),
    runBare: async (run) => {
      runs.push(run);
      if (end instanceof Error) throw end;
      return end;
    },
  };
  return engine as Engine;
}

const check = (end: number | Error): ReturnType<typeof openDiskCheck> =>
  openDiskCheck(dir, { engine: engineOf(end), node: { argv: ['node'], mounts: [] }, log: createLog('test', 'silent') });

test.each<[string, number | Error, boolean]>([
  ['met the limit everywhere', 0, true],
  ['wrote beyond it', 3, false],
  ['failed by itself', 1, false],
  ['was ended', 137, false],
  ['was refused by the engine', new Error('storage-opt is not supported'), false],
])('a program that %s', async (_how, end, enforced) => {
  const disk = await check(end);
  await disk.measure();
  expect(disk.enforced()).toBe(enforced);
  expect((await check(end)).enforced()).toBe(enforced);
});

test('the disk check runs once per process, with our files over those of the engine', async () => {
  const disk = await check(0);
  await disk.measure();
  await disk.measure();
  expect(runs.map(({ mounts }) => mounts.map(({ target }) => target))).toEqual([
    ['/etc/hosts', '/etc/hostname', '/etc/resolv.conf'],
  ]);
  // A program that only fills a disk needs no network.
  expect(runs).toMatchObject([{ network: false, disk_mib: 64 }]);
  // It tries twice the limit, in steps of a MiB.
  expect(runs[0]?.argv.at(-1)).toContain('mib <= 128;');
});

test.each([
  [0, 0],
  [3, 0],
  [1, 1],
  [137, 1],
])('a program that ends with %d is reported in the log %d times', async (end, times) => {
  const lines: string[] = [];
  const log = createLog('test', 'warn', { write: (line: string) => void lines.push(line) });
  const disk = await openDiskCheck(dir, { engine: engineOf(end), node: { argv: ['node'], mounts: [] }, log });
  await disk.measure();
  expect(lines).toHaveLength(times);
});

test('a check that the engine cannot make is made later, and the same result is stored once', async () => {
  let isAway = true;
  const engine = engineOf(0);
  const version = async (): Promise<string> => {
    if (isAway) throw new Error('connect ENOENT');
    return '27';
  };
  const lines: string[] = [];
  const log = createLog('test', 'info', { write: (line: string) => void lines.push(line) });
  const open = (): ReturnType<typeof openDiskCheck> =>
    openDiskCheck(dir, { engine: { ...engine, version }, node: { argv: ['node'], mounts: [] }, log });
  const disk = await open();
  await expect(disk.measure()).rejects.toThrow('ENOENT');
  expect([disk.enforced(), runs.length]).toEqual([false, 0]);
  isAway = false;
  await disk.measure();
  expect([disk.enforced(), runs.length]).toEqual([true, 1]);
  await (await open()).measure();
  expect([runs.length, lines.length]).toEqual([2, 1]);
});

describe('a btrfs that has given up counting sizes', () => {
  const openWith = (end: number, sizes: Sizes): ReturnType<typeof openDiskCheck> =>
    openDiskCheck(dir, {
      engine: engineOf(end),
      node: { argv: ['node'], mounts: [] },
      log: createLog('test', 'silent'),
      sizes,
    });

  test('counts again, and meanwhile no disk size is promised', async () => {
    const seen: unknown[] = [];
    let has = true;
    const disk: DiskCheck = await openWith(0, {
      hasCount: async () => has,
      countAgain: async (folder) => {
        seen.push([folder, disk.enforced()]);
        has = true;
      },
    });
    await disk.measure();
    expect([disk.enforced(), seen]).toEqual([true, []]);
    has = false;
    await disk.measure();
    expect([disk.enforced(), seen]).toEqual([true, [['/var/lib/docker', false]]]);
    expect(runs).toHaveLength(1);
  });

  test('before the first try counts again first, because nothing would hold the container of the try', async () => {
    const order: string[] = [];
    let has = false;
    const disk = await openWith(0, {
      hasCount: async () => has,
      countAgain: async () => {
        order.push(`count after ${runs.length} tries`);
        has = true;
      },
    });
    await disk.measure();
    expect([disk.enforced(), order, runs.length]).toEqual([true, ['count after 0 tries'], 1]);
  });

  test('and cannot count again leaves no disk size promised, and nothing tried, until it can', async () => {
    const lines: string[] = [];
    let isFailing = true;
    const disk = await openDiskCheck(dir, {
      engine: engineOf(0),
      node: { argv: ['node'], mounts: [] },
      log: createLog('test', 'warn', { write: (line: string) => void lines.push(line) }),
      sizes: {
        hasCount: async () => !isFailing,
        countAgain: () => Promise.reject(new Error('no such program')),
      },
    });
    await disk.measure();
    await disk.measure();
    expect([disk.enforced(), runs.length]).toEqual([false, 0]);
    // Both lines are written once, and the second one says what is missing.
    expect(lines).toHaveLength(2);
    expect(lines[1]).toContain('no such program');
    isFailing = false;
    await disk.measure();
    expect([disk.enforced(), runs.length]).toEqual([true, 1]);
  });

  test('is not looked at while the engine is away', async () => {
    const disk = await openDiskCheck(dir, {
      engine: { ...engineOf(0), disk: () => Promise.reject(new Error('connect ENOENT')) },
      node: { argv: ['node'], mounts: [] },
      log: createLog('test', 'silent'),
      sizes: {
        hasCount: () => Promise.reject(new Error('never')),
        countAgain: () => Promise.reject(new Error('never')),
      },
    });
    await disk.measure();
    await disk.measure();
    expect(disk.enforced()).toBe(true);
  });

  test('is nothing to a host that never enforced sizes', async () => {
    const disk = await openWith(3, {
      hasCount: async () => false,
      countAgain: () => Promise.reject(new Error('never')),
    });
    await disk.measure();
    expect(disk.enforced()).toBe(false);
  });
});

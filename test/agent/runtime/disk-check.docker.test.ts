// Disk sizes of containers, on an engine that can enforce them (btrfs) and on one that cannot (overlay2 on an ordinary file system).
import { mkdirSync, mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { constants, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { bareNode, type Bundle, BUNDLE_TARGET, prepareBundle } from '../../../agent/holders/bundle.ts';
import { openDiskCheck } from '../../../agent/runtime/disk-check.ts';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { ContainerShape } from '../../../agent/runtime/engine.ts';
import { createLog } from '../../../shared/log.ts';
import { type MountedBtrfs, mountBtrfs } from '../../kit/disks.ts';
import { type Engine, engineContents, startEngine } from '../../kit/engine.ts';
import { containerShape, importEmptyImage } from '../container-shape.ts';

const log = createLog('test', 'silent');
let stateDir: string;
let bundle: Bundle;
let btrfs: MountedBtrfs;
let holding: Engine;
let plain: Engine;

beforeAll(async () => {
  stateDir = mkdtempSync(join(tmpdir(), 'disk-'));
  btrfs = mountBtrfs(4 * 1024 ** 3);
  const dir = join(btrfs.dir, 'e');
  mkdirSync(dir);
  [bundle, holding, plain] = await Promise.all([
    prepareBundle(stateDir),
    startEngine({ dir, storageDriver: 'btrfs' }),
    startEngine(),
  ]);
});
afterAll(async () => {
  await Promise.all([holding.stop(), plain.stop()]);
  btrfs.remove();
  rmSync(stateDir, { recursive: true });
});

const engineOf = ({ socketPath }: Engine): ReturnType<typeof openDocker> => openDocker({ socketPath, machineId: 'm' });
const check = (engine: Engine, name: string): ReturnType<typeof openDiskCheck> =>
  openDiskCheck(join(stateDir, name), {
    engine: engineOf(engine),
    node: bareNode(bundle),
    log,
  });

describe('the disk check', () => {
  test('finds that btrfs enforces the disk size, leaves nothing behind, and stores its result', async () => {
    const disk = await check(holding, 'btrfs');
    expect(disk.enforced()).toBe(false);
    await disk.measure();
    expect(disk.enforced()).toBe(true);
    expect(await engineContents(holding.docker)).toEqual([]);
    expect(await holding.docker.listImages()).toEqual([]);
    expect((await check(holding, 'btrfs')).enforced()).toBe(true);
  });

  test('finds that an ordinary file system does not', async () => {
    const disk = await check(plain, 'plain');
    await disk.measure();
    expect(disk.enforced()).toBe(false);
    expect(await engineContents(plain.docker)).toEqual([]);
  });

  test("finds that the engine's own files lie outside the disk size, and does not pass an engine that leaves them writable", async () => {
    const engine = engineOf(holding);
    const open: typeof engine = {
      ...engine,
      runBare: (run) => engine.runBare({ ...run, mounts: run.mounts.filter(({ target }) => target !== '/etc/hosts') }),
    };
    const disk = await openDiskCheck(join(stateDir, 'open'), { engine: open, node: bareNode(bundle), log });
    await disk.measure();
    expect(disk.enforced()).toBe(false);
  });

  test('removes the leftovers of an earlier check after a crash', async () => {
    const disk = await check(holding, 'again');
    const { argv, mounts } = bareNode(bundle);
    const hanging = engineOf(holding).runBare({
      name: 'disk',
      argv: [...argv, '-e', 'setInterval(() => 0, 1e6)'],
      mounts,
      disk_mib: 64,
      network: false,
    });
    hanging.catch(() => undefined);
    await expect.poll(async () => (await holding.docker.listContainers()).length).toBe(1);
    await disk.measure();
    expect(disk.enforced()).toBe(true);
    await hanging.catch(() => undefined);
    expect(await engineContents(holding.docker)).toEqual([]);
  });
});

test('a btrfs that has given up counting sizes is made to count again', async () => {
  const disk = await check(holding, 'count');
  await disk.measure();
  btrfs.giveUpCount();
  expect(btrfs.hasCount()).toBe(false);
  await disk.measure();
  expect([btrfs.hasCount(), disk.enforced()]).toEqual([true, true]);
});

test.each([
  ['to its root', '/fill', [], {}],
  ['where its image wants a volume', '/data/deep/fill', ['VOLUME ["/data/deep", "/other"]', 'ENV KEPT=1'], {}],
  ['to the folder of a job', '/job/out/fill', [], { network: 'none', folders: ['/job/out'] }],
] satisfies [string, string, string[], Partial<ContainerShape>][])(
  'a workload cannot write beyond the disk that it was given: %s',
  async (_where, path, changes: string[], more: Partial<ContainerShape>) => {
    const fill = `
    const file = require('node:fs').openSync('${path}', 'w');
    const chunk = Buffer.alloc(16 * 1024 * 1024, 1);
    let mib = 0;
    let errno = 0;
    try { for (; mib < 1200; mib += 16) require('node:fs').writeSync(file, chunk); } catch (error) { errno = error.errno; }
    console.log('end', errno, mib);
  `;
    await importEmptyImage(holding.docker, changes);
    const engine = engineOf(holding);
    onTestFinished(() => engine.remove('wl_disk'));
    const mounts = [{ source: bundle.folder, target: BUNDLE_TARGET }];
    const shape = containerShape('wl_disk', { entrypoint: [...bundle.node, '-e', fill], mounts, disk_gb: 1, ...more });
    const id = await engine.create(shape);
    btrfs.settle();
    await engine.start(id);
    await holding.docker.getContainer(id).wait();
    // The engine may write the line into its log a moment after the program has ended.
    const said = async (): Promise<string> =>
      String(await holding.docker.getContainer(id).logs({ stdout: true, stderr: true }));
    await expect.poll(said).toContain('end');
    const [, errno, mib] = /end (\S+) (\d+)/.exec(await said()) ?? [];
    expect(Number(errno)).toBe(-constants.errno.EDQUOT);
    expect(Number(mib)).toBeGreaterThan(900);
    expect(Number(mib)).toBeLessThanOrEqual(1024);
    const { Mounts, Config } = await holding.docker.getContainer(id).inspect();
    expect(Mounts.filter(({ Type }) => Type === 'volume')).toEqual([]);
    expect(Config.Env).toEqual(expect.arrayContaining(changes.length === 0 ? [] : ['KEPT=1']));
  },
);

test('the copy of an image without its volumes is made once, and is used whether or not disk sizes are enforced', async () => {
  const engine = engineOf(holding);
  await importEmptyImage(holding.docker, ['VOLUME /data']);
  const shape = (id: string, disk_gb: number | null): ReturnType<typeof containerShape> =>
    containerShape(id, { entrypoint: ['/none'], mounts: [], disk_gb });
  const images = async (): Promise<number> => (await holding.docker.listImages()).length;
  await engine.create(shape('wl_one', 1));
  const count = await images();
  await engine.create(shape('wl_two', 1));
  expect(await images()).toBe(count);
  const plainId = await engine.create(shape('wl_three', null));
  expect((await holding.docker.getContainer(plainId).inspect()).Mounts).toEqual([]);
  for (const id of ['wl_one', 'wl_two', 'wl_three']) await engine.remove(id);
});

test('an image is removed together with its copy, and not while a container uses it', async () => {
  const engine = engineOf(holding);
  await importEmptyImage(holding.docker, ['VOLUME /data', 'ENV ANOTHER=1']);
  await engine.create(containerShape('wl_last', { entrypoint: ['/none'], mounts: [] }));
  await expect(engine.removeImage('empty:1')).rejects.toThrow(/container/);
  await engine.remove('wl_last');
  await engine.removeImage('empty:1');
  await engine.removeImage('empty:1');
  const names = (await holding.docker.listImages()).flatMap(({ RepoTags }) => RepoTags ?? []);
  expect(names.filter((name) => name === 'empty:1')).toEqual([]);
});

test('the disk that images lie on is the one that holds the data of the engine', async () => {
  const { free_bytes: free, total_bytes: total } = (await engineOf(holding).disk()) ?? {
    free_bytes: 0,
    total_bytes: 0,
  };
  const { blocks, bsize } = statfsSync(btrfs.dir);
  expect(total).toBe(blocks * bsize);
  expect(free).toBeGreaterThan(0);
  expect(free).toBeLessThan(total);
});

// The Docker driver on a real engine: interrupted pulls fail, and refusals come without the client library's additions.
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine as AgentEngine } from '../../../agent/runtime/engine.ts';
import { type Engine, engineContents, startEngine } from '../../kit/engine.ts';
import { requireProgram } from '../../kit/setup.ts';
import { containerShape, importEmptyImage } from '../container-shape.ts';

let engine: Engine;
let docker: AgentEngine;
let registry: Server;
let host: string;
/** The layer that is on its way for ever. */
const slow = { asked: Promise.withResolvers<void>(), ended: false };

const CONFIG = JSON.stringify({
  architecture: 'amd64',
  os: 'linux',
  config: {},
  rootfs: { type: 'layers', diff_ids: ['sha256:0'] },
});
const NEVER = new AbortController().signal;
const digestOf = (text: string): string => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const MANIFEST_TYPE = 'application/vnd.docker.distribution.manifest.v2+json';
const MANIFEST = JSON.stringify({
  schemaVersion: 2,
  mediaType: MANIFEST_TYPE,
  config: {
    mediaType: 'application/vnd.docker.container.image.v1+json',
    size: CONFIG.length,
    digest: digestOf(CONFIG),
  },
  layers: [
    { mediaType: 'application/vnd.docker.image.rootfs.diff.tar.gzip', size: 1000, digest: `sha256:${'1'.repeat(64)}` },
  ],
});

/** A registry that has an image's manifest and configuration but lost its only layer. */
beforeAll(async () => {
  registry = createServer((request, response) => {
    const path = request.url ?? '';
    if (path === '/v2/') return void response.end('{}');
    if (path.includes('/manifests/')) {
      response.setHeader('content-type', MANIFEST_TYPE);
      response.setHeader('docker-content-digest', digestOf(MANIFEST));
      response.setHeader('content-length', MANIFEST.length);
      return void response.end(request.method === 'HEAD' ? undefined : MANIFEST);
    }
    // A layer that comes so slowly that it is on its way for ever.
    if (path.startsWith('/v2/slow/blobs/sha256:1')) {
      response.setHeader('content-length', 1e9);
      // Docker Engine 20.10 notices only while it writes that its caller has gone, so it must have something to report.
      const trickle = setInterval(() => response.write(Buffer.alloc(100_000)), 20);
      slow.asked.resolve();
      return void request.socket.once('close', () => {
        clearInterval(trickle);
        slow.ended = true;
      });
    }
    if (path.endsWith(digestOf(CONFIG))) return void response.end(CONFIG);
    response.statusCode = 404;
    response.end('{"errors":[{"code":"BLOB_UNKNOWN","message":"the layer is lost"}]}');
  });
  registry.listen(0, '127.0.0.1');
  await once(registry, 'listening');
  const { port } = registry.address() as AddressInfo;
  host = `127.0.0.1:${port}`;
  engine = await startEngine({});
  await engine.letThrough(port);
  docker = openDocker({ socketPath: engine.socketPath, machineId: 'm' });
});

afterAll(async () => {
  await engine.stop();
  registry.closeAllConnections();
  registry.close();
});

test('a layer that the registry does not have fails the pull', async () => {
  await expect(docker.pull(`${host}/half:1`, null, () => undefined, NEVER)).rejects.toThrow(
    /unknown blob|lost|404|not found/i,
  );
  expect(await docker.inspectImage(`${host}/half:1`)).toBeUndefined();
});

test('a pull that is aborted is ended at the registry too', async () => {
  const abort = new AbortController();
  const news = Promise.withResolvers<void>();
  const pulled = docker.pull(
    `${host}/slow:1`,
    null,
    ({ done_bytes: done }) => void (done > 1_000_000 && news.resolve()),
    abort.signal,
  );
  pulled.catch(() => undefined);
  await Promise.all([slow.asked.promise, news.promise]);
  expect(slow.ended).toBe(false);
  abort.abort(new Error('too slow'));
  await expect(pulled).rejects.toThrow(/abort|too slow/);
  await expect.poll(() => slow.ended).toBe(true);
});

test("a refusal has the engine's own text", async () => {
  const refusal = docker.pull('127.0.0.1:1/nothing:1', null, () => undefined, NEVER);
  await expect(refusal).rejects.toThrow(/^Get .*connection refused$/);
});

test('a container whose start fails counts as never started, and one that has ended does not', async () => {
  await importEmptyImage(engine.docker);
  const dir = mkdtempSync(join(tmpdir(), 'mount-'));
  const mounts = [
    { source: requireProgram('busybox'), target: '/busybox' },
    { source: dir, target: '/from' },
  ];
  const id = await docker.create(containerShape('wl_a', { entrypoint: ['/busybox', 'true'], mounts }));
  const started = async (): Promise<boolean[]> => (await docker.list()).map((one) => one.started);
  rmSync(dir, { recursive: true });
  await expect(docker.start(id)).rejects.toThrow(dir);
  expect(await started()).toEqual([false]);
  mkdirSync(dir);
  await docker.start(id);
  await expect.poll(async () => (await docker.list()).some(({ running }) => running)).toBe(false);
  expect(await started()).toEqual([true]);
  await docker.remove('wl_a');
  rmSync(dir, { recursive: true });
});

test('a container that somebody has paused counts as running, is resumed, and is stopped also while it is paused', async () => {
  await importEmptyImage(engine.docker);
  const mounts = [{ source: requireProgram('busybox'), target: '/busybox' }];
  const id = await docker.create(containerShape('wl_p', { entrypoint: ['/busybox', 'sleep', '600'], mounts }));
  await docker.start(id);
  const states = async (): Promise<unknown> =>
    (await docker.list()).map(({ running, paused = false }) => ({ running, paused }));
  const pause = (): Promise<unknown> => engine.docker.getContainer(id).pause();
  await pause();
  expect(await states()).toEqual([{ running: true, paused: true }]);
  await docker.resume(id);
  expect(await states()).toEqual([{ running: true, paused: false }]);
  await pause();
  await docker.stopAndCut('wl_p');
  expect(await states()).toEqual([{ running: false, paused: false }]);
  await docker.remove('wl_p');
});

test('the folder of a volume with a long path is made, and a path that no archive can name is refused', async () => {
  const path = `/opt/${'data/'.repeat(45)}end`;
  await importEmptyImage(engine.docker, [`VOLUME ${path}`]);
  const shape = containerShape('wl_long', { entrypoint: ['/run'], mounts: [], network: 'none' });
  const container = engine.docker.getContainer(await docker.create(shape));
  const stat = await container.infoArchive({ path });
  expect(stat).toMatchObject({ statusCode: 200 });
  await docker.remove('wl_long');
  await importEmptyImage(engine.docker, [`VOLUME /${'p'.repeat(120)}`]);
  await expect(docker.create(shape)).rejects.toThrow('the path of a VOLUME is too long');
  expect(await docker.list()).toEqual([]);
});

test('a bare container whose engine is restarted fails, and leaves nothing for the next one', async () => {
  const mounts = [{ source: requireProgram('busybox'), target: '/busybox' }];
  const bare = { name: 'fence', mounts, disk_mib: null, network: true } as const;
  const interrupted = docker.runBare({ ...bare, argv: ['/busybox', 'sleep', '600'] });
  interrupted.catch(() => undefined);
  await expect.poll(async () => (await engine.docker.listContainers()).length).toBe(1);
  await engine.restart();
  await expect(interrupted).rejects.toThrow(
    /aborted|ECONN|ENOENT|EPIPE|hang up|before the container did|shutting down/,
  );
  expect(await docker.runBare({ ...bare, argv: ['/busybox', 'sh', '-c', 'exit 7'] })).toBe(7);
  expect(await engineContents(engine.docker)).toEqual([]);
});

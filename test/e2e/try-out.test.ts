// The try-out of the package: `docker compose up` in its folder, a link from the operator's command, and the console answers in a browser.
import { mkdtempSync, readFileSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeTree } from '../../installer/tree.ts';
import { capture, type Captured } from '../kit/capture.ts';
import { engineContents, type Engine, pullImage, startEngine } from '../kit/engine.ts';
import { busyboxImage } from '../kit/images.ts';
import { eventually, runProgram } from '../kit/processes.ts';
import { type Registry, startRegistry } from '../kit/registry.ts';
import { requireProgram } from '../kit/setup.ts';

const ROOT = resolve(import.meta.dirname, '../..');
const SQLITE = join(ROOT, 'node_modules/better-sqlite3/prebuilds/linux-x64.node');

let dir: string;
let folder: string;
let engine: Engine;
let registry: Registry;

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'try-'));
  makeTree(join(dir, 'package'));
  folder = join(dir, 'package/try-out');
  registry = await startRegistry();
  engine = await startEngine({ dir: mkdtempSync(join(dir, 'engine-')) });
  await engine.letThrough(registry.port);
  await makeBaseImage();
});
afterAll(async () => {
  await engine.stop();
  await registry.stop();
  rmSync(dir, { recursive: true });
});

/** Stands in for Debian's image, which no registry here has: a shell, and the libraries that Node and SQLite are linked against. */
async function makeBaseImage(): Promise<void> {
  const programs = [realpathSync(process.execPath), SQLITE];
  const linked = await Promise.all(programs.map((program) => runProgram({ command: 'ldd', args: [program] })));
  const paths = linked.flatMap((text) => [...text.matchAll(/(\/\S+) \(0x/g)].map(([, path = '']) => path));
  const files = Object.fromEntries(paths.map((path) => [path.slice(1), readFileSync(path)]));
  const { ref } = await busyboxImage(registry, { files });
  await pullImage(engine.docker, ref);
  const [, from] = /^FROM (\S+)$/m.exec(readFileSync(join(folder, 'Dockerfile'), 'utf8')) ?? [];
  const [repo = '', tag = ''] = from?.split(':') ?? [];
  await engine.docker.getImage(ref).tag({ repo, tag });
}

const compose = (...argv: string[]): Promise<Captured> =>
  capture([requireProgram('docker-compose'), '-f', join(folder, 'compose.yaml'), ...argv], {
    env: { DOCKER_HOST: `unix://${engine.socketPath}` },
    timeoutMs: 180_000,
  });
const operator = (...argv: string[]): Promise<Captured> =>
  compose('exec', '-T', 'control-plane', 'svc-control-plane', 'admin', ...argv);
const curl = (path: string): Promise<Captured> =>
  capture(engine.inside(['curl', '-sS', `http://127.0.0.1:8080${path}`]));

test('one command brings the control plane up', async () => {
  expect(await compose('up', '--build', '--detach')).toMatchObject({ code: 0 });
  await eventually('answer of the API', 30_000, async () => {
    const { code, stdout } = await curl('/v1/gpu-types');
    return code === 0 && stdout.toString().includes('"data"') ? true : undefined;
  });
});

test('the engine leaves it as long to stop as its unit does', async () => {
  const [running] = await engine.docker.listContainers();
  const unit = readFileSync(join(ROOT, 'systemd/svc-control-plane.service'), 'utf8');
  const { Config: config } = await engine.docker.getContainer(running?.Id ?? '').inspect();
  const [, seconds] = /\nTimeoutStopSec=(\d+)\n/.exec(unit) ?? [];
  expect(config).toMatchObject({ StopTimeout: Number(seconds) });
});

test('a second one prints a link into the console, whose page is served', async () => {
  const user = ['--email', 'you@example.com', '--name', 'You', '--operator', '--json'];
  const added = await operator('user', 'add', ...user);
  expect(added).toMatchObject({ code: 0 });
  const { url } = JSON.parse(added.stdout.toString()) as { url: string };
  expect(url).toMatch(/^http:\/\/localhost:8080\/welcome#\S+$/);
  const { stdout } = await curl(new URL(url).pathname);
  const [script = ''] = /\/console\/assets\/[\w.-]+\.js/.exec(stdout.toString()) ?? [];
  expect((await curl(script)).stdout.byteLength).toBeGreaterThan(1_000);
});

test('the data outlives the container, and `down --volumes` leaves nothing', async () => {
  expect(await compose('stop')).toMatchObject({ code: 0 });
  const [stopped] = await engine.docker.listContainers({ all: true });
  // The daemon has ended by itself: the engine killed nothing.
  expect(stopped?.Status).toMatch(/^Exited \(0\)/);
  expect(await compose('start')).toMatchObject({ code: 0 });
  const listed = await eventually('answer of the operator socket', 30_000, async () => {
    const { code, stdout } = await operator('user', 'list');
    return code === 0 ? stdout.toString() : undefined;
  });
  expect(listed).toContain('you@example.com');
  expect(await compose('down', '--volumes')).toMatchObject({ code: 0 });
  expect(await engineContents(engine.docker)).toEqual([]);
});

// The engine kit on a real dockerd: images from the private registry, simulated GPUs, restarts, and nothing left behind.
import type Docker from 'dockerode';
import { existsSync, mkdtempSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { engineContents, pullImage, startEngine, type Engine } from './engine.ts';
import { busyboxImage, scratchImage, type TestImage } from './images.ts';
import { leftoverProcesses, mountsBelow } from './leaks.ts';
import { runProgram } from './processes.ts';
import { startRegistry, type Registry } from './registry.ts';

const dir = mkdtempSync(join(tmpdir(), 'engine-'));
let registry: Registry;
let engine: Engine;
let busybox: TestImage;

beforeAll(async () => {
  registry = await startRegistry();
  busybox = await busyboxImage(registry, { files: { 'etc/motd': 'hello\n' } });
  engine = await startEngine({ dir, env: { FAKE_GPU_COUNT: '4', FAKE_GPU_NAME: 'NVIDIA L4' } });
  await engine.letThrough(registry.port);
  await pullImage(engine.docker, busybox.pinnedRef);
});

afterAll(async () => {
  await engine.stop();
  await registry.stop();
  expect(leftoverProcesses({ id: 'none', dir })).toEqual([]);
  expect(mountsBelow(dir)).toEqual([]);
  expect(existsSync(dir)).toBe(false);
});

async function startContainer(options: Partial<Docker.ContainerCreateOptions>): Promise<Docker.Container> {
  const container = await engine.docker.createContainer({ Image: busybox.pinnedRef, ...options });
  await container.start();
  return container;
}

/** Output of a command in a container. */
async function execIn(container: Docker.Container, ...argv: string[]): Promise<string> {
  const exec = await container.exec({ Cmd: argv, AttachStdout: true, AttachStderr: true, Tty: true });
  const stream = await exec.start({ Tty: true });
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString().replaceAll('\r', '');
}

const gpus = (...ids: string[]): Docker.ContainerCreateOptions => ({
  HostConfig: { DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: ids, Capabilities: [['gpu']] }] },
});
const uuid = (index: number): string => `GPU-00000000-0000-4000-8000-${index.toString().padStart(12, '0')}`;

test('a busybox image comes from the registry by its digest', async () => {
  const container = await startContainer({});
  expect(await execIn(container, 'cat', '/etc/motd')).toBe('hello\n');
  expect(await execIn(container, 'sh', '-c', 'id -un; ls /dev | grep -c nvidia')).toBe('root\n0\n');
});

test('the same content has the same digest', async () => {
  expect(await busyboxImage(registry, { tag: 'again', files: { 'etc/motd': 'hello\n' } })).toMatchObject({
    digest: busybox.digest,
  });
});

test('a scratch image runs without a shell', async () => {
  const image = await scratchImage(registry);
  await pullImage(engine.docker, image.ref);
  const container = await startContainer({ Image: image.ref });
  expect((await container.inspect()).State.Running).toBe(true);
  expect(await execIn(container, 'sh')).toContain('executable file not found');
});

test('a container sees the GPUs that it asked for, and only those', async () => {
  const container = await startContainer(gpus(uuid(1), uuid(3)));
  expect(await execIn(container, 'sh', '-c', 'ls /dev | grep nvidia')).toBe(
    'nvidia-uvm\nnvidia1\nnvidia3\nnvidiactl\n',
  );
  expect(await execIn(container, 'nvidia-smi', '-L')).toBe(
    `GPU 0: NVIDIA L4 (UUID: ${uuid(1)})\nGPU 1: NVIDIA L4 (UUID: ${uuid(3)})\n`,
  );
});

test('a GPU that is not there fails the start', async () => {
  await expect(startContainer(gpus(uuid(0), uuid(9)))).rejects.toThrow('unknown device');
});

test.each(['SIGTERM', 'SIGKILL'] as const)('a container outlives dockerd that ends by %s', async (signal) => {
  const container = await startContainer({});
  const before = await container.inspect();
  await engine.restart(signal);
  const after = await container.inspect();
  expect(after.State).toMatchObject({ Running: true, Pid: before.State.Pid, StartedAt: before.State.StartedAt });
  expect(await execIn(container, 'echo', 'still here')).toBe('still here\n');
});

test('what the engine holds is listed by kind and name', async () => {
  const before = await engineContents(engine.docker);
  const container = await startContainer({ name: 'left' });
  const network = await engine.docker.createNetwork({ Name: 'left-net' });
  const added = (await engineContents(engine.docker)).filter((line) => !before.includes(line));
  expect(added).toEqual([`container /left of ${busybox.pinnedRef}, running`, 'network left-net']);
  await Promise.all([container.remove({ force: true }), network.remove()]);
  expect(await engineContents(engine.docker)).toEqual(before);
});

test('the engine network has the loopback ports that were let through, whole in both directions, and no other', async () => {
  const server = createServer((request, response) => void request.pipe(response)).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  const script = `const sent = 'x'.repeat(3e6);
    const got = await (await fetch('http://127.0.0.1:${port}/', { method: 'POST', body: sent })).text();
    console.log(got === sent ? 'same' : 'different');`;
  const [command, ...args] = engine.inside([process.execPath, '--input-type=module', '-e', script]);
  await expect(runProgram({ command, args })).rejects.toThrow('ECONNREFUSED');
  await engine.letThrough(port);
  expect(await runProgram({ command, args })).toMatch(/^same$/m);
  server.close();
});

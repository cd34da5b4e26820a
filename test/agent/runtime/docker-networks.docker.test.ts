// Networks of containers on a real engine: one for each container, one in advance, and none that stays for ever after a crash.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine as AgentEngine } from '../../../agent/runtime/engine.ts';
import { type Engine, engineContents, startEngine } from '../../kit/engine.ts';
import { requireProgram } from '../../kit/setup.ts';
import { containerShape, importEmptyImage } from '../container-shape.ts';

const dir = mkdtempSync(join(tmpdir(), 'networks-'));
let engine: Engine;
let agent: AgentEngine;

/** The engine keeps its data here from its next start on. */
const useDisk = (name: string): void => {
  mkdirSync(join(dir, name), { recursive: true });
  rmSync(join(dir, 'data'), { force: true });
  symlinkSync(name, join(dir, 'data'));
};

beforeAll(async () => {
  useDisk('disk');
  engine = await startEngine({ dir });
  await importEmptyImage(engine.docker);
  agent = openAgent();
});
afterEach(async () => {
  for (const id of ['wl_a', 'wl_b']) await agent.remove(id);
  // The next agent does the same.
  await openAgent().removeUnusedNetworks();
  agent = openAgent();
  expect(await engineContents(engine.docker)).toEqual([]);
});
afterAll(() => engine.stop());

const openAgent = (machineId = 'm'): AgentEngine => openDocker({ socketPath: engine.socketPath, machineId });

/** Its program is this machine's own, which needs nothing else. */
const create = (id: string, image?: string): Promise<string> =>
  agent.create(
    containerShape(id, {
      entrypoint: ['/busybox', 'sleep', '60'],
      mounts: [{ source: requireProgram('busybox'), target: '/busybox' }],
      ...(image === undefined ? {} : { image }),
    }),
  );

const networks = async (): Promise<string[]> =>
  (await engineContents(engine.docker)).flatMap((line) => /^network (.*)/.exec(line)?.[1] ?? []).toSorted();

const networkOf = async (id: string): Promise<string> =>
  (await engine.docker.getContainer(`svc-${id}`).inspect()).HostConfig.NetworkMode ?? '';

test('the network made in advance is used by the next container, and by no other', async () => {
  await agent.keepSpareNetwork();
  await agent.keepSpareNetwork();
  const [spare = '', ...more] = await networks();
  expect(more).toEqual([]);
  const ids = [await create('wl_a'), await create('wl_b')];
  expect(await networkOf('wl_a')).toBe(spare);
  expect(await networks()).toEqual([spare, await networkOf('wl_b')].toSorted());
  for (const id of ids) await agent.start(id);
  await agent.stopAndCut('wl_a');
  expect(await networks()).toEqual([await networkOf('wl_b')]);
  await agent.keepSpareNetwork();
  expect(await networks()).toHaveLength(2);
  expect(await networks()).not.toContain(spare);
});

test('the next agent removes unused networks, but none of a container or of another machine', async () => {
  await create('wl_a');
  await agent.keepSpareNetwork();
  const other = openAgent('another');
  await other.keepSpareNetwork();
  const before = await networks();
  await openAgent().keepSpareNetwork();
  const kept = (await networks()).filter((name) => before.includes(name));
  expect(before).toHaveLength(3);
  expect(kept).toHaveLength(2);
  expect(kept).toContain(await networkOf('wl_a'));
  expect(await networks()).toHaveLength(3);
  await openAgent('another').removeUnusedNetworks();
});

test('the network of a container that was removed by hand is removed too', async () => {
  const id = await create('wl_a');
  const left = await networkOf('wl_a');
  await engine.docker.getContainer(id).remove();
  await agent.keepSpareNetwork();
  expect(await networks()).toEqual([expect.not.stringContaining(left)]);
});

test('a container that cannot be created leaves its network to the next one', async () => {
  await expect(create('wl_a', 'not-here:1')).rejects.toThrow(/No such image/);
  const [left = '', ...more] = await networks();
  expect(more).toEqual([]);
  await agent.keepSpareNetwork();
  expect(await networks()).toEqual([left]);
  await create('wl_a');
  expect(await networkOf('wl_a')).toBe(left);
});

test('a container whose folder cannot be made does not stay, and a network never has two containers', async () => {
  // The path of the volume leads through a file.
  await importEmptyImage(engine.docker, ['VOLUME /busybox/x']);
  await expect(create('wl_a')).rejects.toThrow('a folder that the image declares as a VOLUME cannot be made');
  await importEmptyImage(engine.docker);
  expect(await agent.list()).toEqual([]);
  const ids = [await create('wl_a'), await create('wl_b')];
  expect(await networkOf('wl_a')).not.toBe(await networkOf('wl_b'));
  expect((await agent.list()).map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
});

test('if two containers cannot be created at the same time, one of their networks is kept for the next', async () => {
  const failing = ['wl_a', 'wl_b'].map((id) => create(id, 'not-here:1'));
  // Awaited together: if only the first were awaited, the second could fail without a handler.
  await Promise.all(failing.map((each) => expect(each).rejects.toThrow(/No such image/)));
  expect(await networks()).toHaveLength(1);
});

test('a container that was never started is made anew, and one that was started never is', async () => {
  const first = await create('wl_a');
  const second = await create('wl_a');
  expect(second).not.toBe(first);
  await agent.start(second);
  await expect(create('wl_a')).rejects.toThrow(/already in use/);
  expect(await agent.list()).toEqual([expect.objectContaining({ id: second, running: true })]);
});

test('a network that is gone before the start is made again', async () => {
  await agent.keepSpareNetwork();
  const id = await create('wl_a');
  const name = await networkOf('wl_a');
  await engine.docker.getNetwork(name).remove();
  await agent.start(id);
  expect((await agent.list()).find((container) => container.id === id)).toMatchObject({ running: true });
  const { Labels: labels } = (await engine.docker.getNetwork(name).inspect()) as { Labels: object };
  expect(labels).toEqual({ 'svc.machine_id': 'm' });
});

test('the engine shows that a container was removed by hand, and does not show it while the disk with its data is away', async () => {
  const id = await create('wl_a');
  await agent.keepSpareNetwork();
  await agent.keepSpareNetwork();
  useDisk('mount-point');
  await engine.restart();
  expect([await agent.list(), await agent.hasItsData()]).toEqual([[], false]);
  useDisk('disk');
  await engine.restart();
  expect(await agent.list()).toEqual([expect.objectContaining({ id })]);
  await engine.docker.getContainer(id).remove();
  expect([await agent.list(), await agent.hasItsData()]).toEqual([[], true]);
  await agent.keepSpareNetwork();
  expect(await agent.hasItsData()).toBe(true);
});

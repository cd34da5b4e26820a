// The driver of the Docker Engine: which calls it makes, and which refusals it takes for success. The test plays the engine.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import { imageFaultOf } from '../../../agent/runtime/docker-answers.ts';
import type { ContainerShape, Engine } from '../../../agent/runtime/engine.ts';
import { messageOf } from '../../../shared/errors.ts';
import { type EngineAnswer, openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';

let script: ScriptedEngine;
let engine: Engine;
beforeEach(async () => {
  script = await openScriptedEngine();
  engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
});
afterEach(() => script.close());

const SHAPE: ContainerShape = {
  workload_id: 'w-1',
  instance_id: 'i-1',
  image: 'app',
  hostname: 'host',
  entrypoint: ['/guest'],
  env: ['A=1', 'B'],
  mounts: [{ source: '/from', target: '/to' }],
  gpu_uuids: ['GPU-1', 'GPU-2'],
  network: 'own',
  stop_signal: 'SIGTERM',
  folders: [],
  disk_gb: 20,
  memory_bytes: 1_000,
  shm_bytes: 2_000,
  nano_cpus: 3_000,
  cpu_shares: 4_000,
  pids_max: 5_000,
  memlock_bytes: 6_000,
  nofile: 7_000,
};
const OURS = {
  Id: 'c-1',
  State: 'running',
  Labels: { 'svc.workload_id': 'w-1', 'svc.gpu_uuids': 'GPU-1,GPU-2' },
  Mounts: [{ Source: '/a' }, {}],
  HostConfig: { NetworkMode: 'net-1' },
};
const IMAGE = { Id: 'sha256:1', Architecture: 'amd64', Os: 'linux', RootFS: { Layers: ['sha256:2'] }, Config: {} };

const answer = (line: string, reply: EngineAnswer): void => void script.answers.set(line, reply);
const found = (...containers: object[]): void => answer('GET /containers/json', { body: containers });
const bodyOf = (line: string): unknown => script.asked.find((each) => each.line === line)?.body;
const queryOf = (line: string): unknown => script.asked.find((each) => each.line === line)?.query;

describe('a container', () => {
  test('gets every limit, our labels, a network of its own behind the fence, and nothing that it could misuse', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    expect(await engine.create(SHAPE)).toBe('c-new');
    const network = bodyOf('POST /networks/create') as { Name: string; Options: Record<string, string> };
    expect(network).toMatchObject({ Driver: 'bridge', Labels: { 'svc.machine_id': 'm-1' } });
    expect(network.Options['com.docker.network.bridge.name']).toMatch(/^svcbr-[0-9a-f]{9}$/);
    expect(queryOf('POST /containers/create')).toMatchObject({ name: 'svc-w-1' });
    expect(bodyOf('POST /containers/create')).toMatchObject({
      Image: 'app',
      Hostname: 'host',
      Entrypoint: ['/guest'],
      Env: ['A=1', 'B'],
      Labels: {
        'svc.workload_id': 'w-1',
        'svc.instance_id': 'i-1',
        'svc.machine_id': 'm-1',
        'svc.gpu_uuids': 'GPU-1,GPU-2',
      },
      Healthcheck: { Test: ['NONE'] },
      StopSignal: 'SIGTERM',
      HostConfig: {
        Init: true,
        NetworkMode: network.Name,
        Mounts: [{ Type: 'bind', Source: '/from', Target: '/to', ReadOnly: true }],
        Memory: 1_000,
        MemorySwap: 1_000,
        ShmSize: 2_000,
        NanoCpus: 3_000,
        CpuShares: 4_000,
        PidsLimit: 5_000,
        CapDrop: ['NET_RAW', 'MKNOD'],
        SecurityOpt: ['no-new-privileges:true'],
        Ulimits: [
          { Name: 'memlock', Soft: 6_000, Hard: 6_000 },
          { Name: 'nofile', Soft: 7_000, Hard: 7_000 },
          { Name: 'core', Soft: 0, Hard: 0 },
        ],
        LogConfig: { Type: 'json-file', Config: { 'max-size': '10m', 'max-file': '3' } },
        RestartPolicy: { Name: 'no' },
        DeviceRequests: [{ Driver: 'nvidia', DeviceIDs: ['GPU-1', 'GPU-2'], Capabilities: [['gpu']] }],
        StorageOpt: { size: '20G' },
      },
    });
  });

  test('asks for no GPUs and no disk size if the workload has neither', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    await engine.create({ ...SHAPE, gpu_uuids: [], disk_gb: null });
    const { HostConfig } = bodyOf('POST /containers/create') as { HostConfig: object };
    expect(HostConfig).not.toHaveProperty('DeviceRequests');
    expect(HostConfig).not.toHaveProperty('StorageOpt');
  });

  test.each([
    [true, false],
    [false, true],
  ])('of an image with a volume uses a copy without it, loaded once (it is there: %s)', async (isThere, isLoaded) => {
    const copy = 'GET /images/svc-without-volumes:1/json';
    answer('GET /images/app/json', { body: { ...IMAGE, Config: { Volumes: { '/data': {}, '/there': {} } } } });
    let asks = 0;
    script.answers.set(copy, () => ({ status: isThere || (asks += 1) > 1 ? 200 : 404, body: {} }));
    answer('HEAD /containers/c-new/archive', { status: 404 });
    await engine.create(SHAPE);
    expect(bodyOf('POST /containers/create')).toMatchObject({ Image: 'svc-without-volumes:1' });
    expect(script.lines().includes('POST /images/load')).toBe(isLoaded);
    const made = script.asked.filter(({ line }) => line === 'PUT /containers/c-new/archive');
    expect(made.map(({ query }) => query['path'])).toEqual(['/', '/']);
  });

  test('keeps the folder of a volume of its image, and needs a copy of the image that the engine takes', async () => {
    answer('GET /images/app/json', { body: { ...IMAGE, Config: { Volumes: { '/data': {} } } } });
    answer('GET /images/svc-without-volumes:1/json', { body: {} });
    await engine.create(SHAPE);
    expect(script.lines()).not.toContain('PUT /containers/c-new/archive');
    answer('GET /images/svc-without-volumes:1/json', { status: 404 });
    answer('POST /images/load', { body: 'no space' });
    await expect(engine.create(SHAPE)).rejects.toThrow('does not take the image without its volumes: no space');
  });

  test('that fails leaves its network to the next one, and a network that fails is made at the start', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    answer('POST /containers/create', { status: 500, body: { message: 'no room' } });
    await expect(engine.create(SHAPE)).rejects.toThrow(/^no room$/);
    script.answers.delete('POST /containers/create');
    await engine.create(SHAPE);
    expect(script.lines().filter((line) => line === 'POST /networks/create')).toHaveLength(1);
    answer('POST /networks/create', { status: 500 });
    expect(await engine.create(SHAPE)).toBe('c-new');
  });

  test('of an image with a volume at a path that no archive can name is refused because of its image', async () => {
    const path = `/${'p'.repeat(120)}`;
    answer('GET /images/app/json', { body: { ...IMAGE, Config: { Volumes: { [path]: {} } } } });
    const refusal = await engine.create(SHAPE).then(() => '', messageOf);
    expect(imageFaultOf(refusal)).toBe(`the image cannot be run: the path of a VOLUME is too long: ${path}`);
    expect(script.lines()).not.toContain('POST /containers/create');
  });

  describe('whose folder the engine refuses', () => {
    const PUT = 'PUT /containers/c-new/archive';
    const REMOVAL = 'DELETE /containers/c-new';
    const REFUSED = /^a folder that the image declares as a VOLUME cannot be made: not a directory$/;
    /** The network of each container that was created, in order. */
    const chosen = (): string[] =>
      script.asked
        .filter(({ line }) => line === 'POST /containers/create')
        .map(({ body }) => (body as { HostConfig: { NetworkMode: string } }).HostConfig.NetworkMode);
    beforeEach(async () => {
      answer('GET /images/app/json', { body: { ...IMAGE, Config: { Volumes: { '/etc/passwd/x': {} } } } });
      answer('GET /images/svc-without-volumes:1/json', { body: {} });
      answer('HEAD /containers/c-new/archive', { status: 404 });
      answer(PUT, { status: 500, body: { message: 'not a directory' } });
    });

    test('is removed by force, with the reason of the refusal, and the next one may have its network', async () => {
      await expect(engine.create(SHAPE)).rejects.toThrow(REFUSED);
      expect(queryOf(REMOVAL)).toEqual({ force: 'true', v: 'true' });
      script.answers.delete(PUT);
      await engine.create(SHAPE);
      expect(new Set(chosen()).size).toBe(1);
    });

    test('is removed with a reason in words, although the engine refuses the question for the folder in none', async () => {
      answer('HEAD /containers/c-new/archive', { status: 500 });
      await expect(engine.create(SHAPE)).rejects.toThrow(/cannot be made: a file may be in the way/);
      expect(script.lines()).toContain(REMOVAL);
    });

    test('and that stays keeps its network: the next one gets another', async () => {
      answer(REMOVAL, { status: 500, body: { message: 'busy' } });
      script.answers.set('GET /containers/json', () => ({
        body: chosen().map((NetworkMode) => ({ ...OURS, HostConfig: { NetworkMode } })),
      }));
      await expect(engine.create(SHAPE)).rejects.toThrow(REFUSED);
      script.answers.delete(PUT);
      await engine.create(SHAPE);
      expect(new Set(chosen()).size).toBe(2);
    });

    test('leaves its network to nobody if the engine does not say which containers there are', async () => {
      answer('GET /containers/json', { status: 500 });
      await expect(engine.create(SHAPE)).rejects.toThrow(REFUSED);
      script.answers.delete(PUT);
      await engine.create(SHAPE);
      expect(new Set(chosen()).size).toBe(2);
    });

    test('is removed too if it belongs to a job', async () => {
      answer('GET /images/app/json', { body: IMAGE });
      await expect(engine.create({ ...SHAPE, network: 'none', folders: ['/job/out'] })).rejects.toThrow(
        /^not a directory$/,
      );
      expect(script.lines().at(-1)).toBe(REMOVAL);
    });
  });

  test('is found by the labels of this machine, and shown with its folders and GPUs', async () => {
    found(OURS, { ...OURS, Id: 'c-2', State: 'exited', Labels: {} });
    expect(await engine.list()).toEqual([
      {
        id: 'c-1',
        workload_id: 'w-1',
        running: true,
        started: true,
        mount_sources: ['/a'],
        gpu_uuids: ['GPU-1', 'GPU-2'],
      },
      { id: 'c-2', workload_id: '', running: false, started: true, mount_sources: ['/a'], gpu_uuids: [] },
    ]);
    await engine.remove('w-1');
    const filters = script.asked
      .filter(({ line }) => line === 'GET /containers/json')
      .map(({ query }) => [query['all'], (JSON.parse(query['filters'] ?? '') as { label: string[] }).label]);
    expect(filters).toEqual([
      ['true', ['svc.machine_id=m-1', 'svc.workload_id']],
      ['true', ['svc.machine_id=m-1', 'svc.workload_id=w-1']],
    ]);
  });
});

/** The engine's call, and the refusals that mean that it is done already. */
const TOLERANT: [call: string, line: string, done: number[]][] = [
  ['start', 'POST /containers/c-1/start', [304]],
  ['stopAndCut', 'POST /containers/c-1/stop', [304, 404]],
  ['stopAndCut', 'POST /networks/net-1/disconnect', [404, 500]],
  ['stopAndCut', 'DELETE /networks/net-1', [403, 404]],
  ['remove', 'DELETE /containers/c-1', [404]],
  ['remove', 'DELETE /networks/net-1', [403, 404]],
  ['removeImage', 'DELETE /images/svc-without-volumes:1', [404]],
  ['removeImage', 'DELETE /images/app', [404]],
];

test.each(TOLERANT)(
  '%s is done if %s succeeds or answers %j, and fails with anything else',
  async (call, line, done) => {
    found(OURS);
    answer('GET /images/app/json', { body: IMAGE });
    const calls: Record<string, () => Promise<void>> = {
      start: () => engine.start('c-1'),
      stopAndCut: () => engine.stopAndCut('w-1'),
      remove: () => engine.remove('w-1'),
      removeImage: () => engine.removeImage('app'),
    };
    await calls[call]?.();
    expect(script.lines()).toContain(line);
    for (const status of [304, 400, 403, 404, 409, 500, 501]) {
      answer(line, { status });
      const outcome = await calls[call]?.().then(
        () => 'done',
        () => 'failed',
      );
      expect([status, outcome]).toEqual([status, done.includes(status) ? 'done' : 'failed']);
    }
  },
);

describe('an end', () => {
  test('stops the container with ten seconds of notice, then takes its network away', async () => {
    found(OURS);
    await engine.stopAndCut('w-1');
    expect(script.lines().slice(1)).toEqual([
      'POST /containers/c-1/stop',
      'POST /networks/net-1/disconnect',
      'DELETE /networks/net-1',
    ]);
    expect(queryOf('POST /containers/c-1/stop')).toEqual({ t: '10' });
    expect(bodyOf('POST /networks/net-1/disconnect')).toEqual({ Container: 'c-1', Force: true });
  });

  test('removes the container by force, with its volumes and its network', async () => {
    found(OURS);
    await engine.remove('w-1');
    expect(script.lines().slice(1)).toEqual(['DELETE /containers/c-1', 'DELETE /networks/net-1']);
    expect(queryOf('DELETE /containers/c-1')).toEqual({ force: 'true', v: 'true' });
  });

  test('is not over while the engine is at an earlier removal, which may fail, and is over once the container is gone', async () => {
    found({ ...OURS, State: 'removing' });
    answer('DELETE /containers/c-1', { status: 409, body: { message: 'removal of c-1 is already in progress' } });
    answer('GET /containers/c-1/json', { body: { State: { Status: 'removing' } } });
    await expect(engine.remove('w-1')).rejects.toThrow(/^removal of c-1 is already in progress$/);
    expect(script.lines()).not.toContain('DELETE /networks/net-1');
    answer('GET /containers/c-1/json', { status: 404 });
    await engine.remove('w-1');
    expect(script.lines()).toContain('DELETE /networks/net-1');
  });

  test.each([
    [{ ExitCode: 3, Error: '', OOMKilled: false }, 'it ended with code 3'],
    [{ ExitCode: 137, Error: '', OOMKilled: true }, 'it ran out of memory'],
    [{ ExitCode: 127, Error: 'no such file', OOMKilled: true }, 'no such file'],
  ])('is explained: %j', async (State, reason) => {
    answer('GET /containers/c-1/json', { body: { State } });
    expect(Object.values(await engine.lastExit('c-1'))).toEqual([State.ExitCode, State.OOMKilled, reason, undefined]);
  });

  test.each([
    ['2026-01-01T00:00:00.5Z', '2026-01-01T00:00:02.123456789Z', 1_623],
    ['2026-01-01T00:00:00Z', '2026-01-01T00:00:00Z', 0],
    ['2026-01-01T00:00:00Z', '0001-01-01T00:00:00Z', undefined],
    ['never', '2026-01-01T00:00:00Z', undefined],
  ])('of a container that ran from %s to %s took %s ms', async (StartedAt, FinishedAt, ms) => {
    answer('GET /containers/c-1/json', { body: { State: { ExitCode: 0, StartedAt, FinishedAt } } });
    expect((await engine.lastExit('c-1')).ran_ms).toBe(ms);
  });
});

describe('a start', () => {
  const START = 'POST /containers/c-1/start';

  test('makes the network again if it is gone, and starts once more', async () => {
    let starts = 0;
    script.answers.set(START, () =>
      (starts += 1) > 1 ? {} : { status: 404, body: { message: 'network net-1 not found' } },
    );
    answer('GET /containers/c-1/json', { body: { HostConfig: { NetworkMode: 'net-1' } } });
    await engine.start('c-1');
    expect(script.lines()).toEqual([START, 'GET /containers/c-1/json', 'POST /networks/create', START]);
    expect(bodyOf('POST /networks/create')).toMatchObject({ Name: 'net-1' });
  });

  test('fails in the words of the engine', async () => {
    answer(START, { status: 500, body: { message: 'could not select device driver' } });
    await expect(engine.start('c-1')).rejects.toThrow(/^could not select device driver$/);
    expect(script.lines()).toEqual([START]);
  });
});

describe('networks', () => {
  const named = (...names: string[]): void =>
    answer('GET /networks', { body: names.map((Name) => ({ Name, Id: Name })) });
  const removed = (): string[] => script.lines().filter((line) => line.startsWith('DELETE /networks/'));

  test('that no container uses are removed, with those that somebody uses against us left alone', async () => {
    found(OURS);
    named('net-1', 'net-old', 'net-busy');
    answer('DELETE /networks/net-busy', { status: 403 });
    await engine.removeUnusedNetworks();
    expect(removed()).toEqual(['DELETE /networks/net-old', 'DELETE /networks/net-busy']);
    answer('DELETE /networks/net-busy', { status: 500 });
    await expect(engine.removeUnusedNetworks()).rejects.toThrow('no');
    expect(JSON.parse(String((queryOf('GET /networks') as { filters: string }).filters))).toEqual({
      label: ['svc.machine_id=m-1'],
    });
  });

  test('have one spare that the next container takes', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    await engine.keepSpareNetwork();
    const { Name: spare } = bodyOf('POST /networks/create') as { Name: string };
    named(spare);
    await engine.keepSpareNetwork();
    expect([removed(), script.lines().filter((line) => line === 'POST /networks/create')]).toEqual([
      [],
      ['POST /networks/create'],
    ]);
    await engine.create(SHAPE);
    expect(bodyOf('POST /containers/create')).toMatchObject({ HostConfig: { NetworkMode: spare } });
    await engine.removeUnusedNetworks();
    expect(removed()).toEqual([`DELETE /networks/${spare}`]);
  });

  test('have no second spare: of two containers that fail at once, one leaves its network and the other removes it', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    answer('POST /containers/create', { status: 500 });
    await Promise.allSettled([engine.create(SHAPE), engine.create(SHAPE)]);
    expect(script.lines().filter((line) => line === 'POST /networks/create')).toHaveLength(2);
    expect(removed()).toHaveLength(1);
  });

  test('that exist already are made, and any other refusal is an error', async () => {
    answer('GET /images/app/json', { body: IMAGE });
    answer('POST /networks/create', { status: 409 });
    await engine.keepSpareNetwork();
    await engine.create(SHAPE);
    answer('POST /networks/create', { status: 500 });
    await expect(engine.keepSpareNetwork()).rejects.toThrow('no');
  });

  test('have the bridge that we named, or the one that the engine chose', async () => {
    const ours = { Id: 'a'.repeat(64), Options: { 'com.docker.network.bridge.name': 'svcbr-1' } };
    answer('GET /networks', { body: [ours, { Id: 'b'.repeat(64), Options: null }] });
    expect(await engine.bridges()).toEqual(['svcbr-1', `br-${'b'.repeat(12)}`]);
    expect(JSON.parse(String((queryOf('GET /networks') as { filters: string }).filters))).toEqual({
      label: ['svc.machine_id'],
    });
  });
});

// The reconciler's loop: what it does and reports while steps are at work. The test plays the engine.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GPUS_DIFFER_CODE } from '../../../agent/gpus/visible.ts';
import { DISK } from '../../../agent/host/state.ts';
import { openDesired } from '../../../agent/runtime/desired.ts';
import type { Engine, LocalContainer } from '../../../agent/runtime/engine.ts';
import { PullEnded } from '../../../agent/runtime/pull-watch.ts';
import { openRecords } from '../../../agent/runtime/records.ts';
import { openRuntime, type Runtime } from '../../../agent/runtime/runtime.ts';
import type { Holders } from '../../../agent/runtime/steps.ts';
import { type Clock, systemClock } from '../../../shared/clock.ts';
import { createLog } from '../../../shared/log.ts';
import { eventually } from '../../kit/processes.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

const ID = 'wl_a';
const GPU = 'GPU-0';
let clock: Clock = systemClock();
const log = createLog('test', 'silent');
let dir: string;
let runtime: Runtime;
let phases: string[];
/** The exit of a container right after its start; undefined: it stays up. */
let lastExit = { code: 0, reason: '' };
let staysUp = true;
/** Whether the guest has connected, and whether it is connected now. */
let guest: () => boolean;
/** Why no container may start on this host; undefined: it may. */
let fenceFault: Error | undefined;
/** The engine creates no container before it resolves. */
let mayCreate: Promise<void>;
/** One entry for each inspection of the image: whether it is missing. After the last entry it is there. */
let absences: boolean[];
/** Why the next pulls fail, one each. */
let pullFaults: Error[];
/** Why the next starts of the holder fail, one each. */
let holderFaults: Error[];
/** Ends the holder of the workload. */
let loseHolder: () => void;
/** The images that each sweep was told to keep. */
let swept: string[][];
/** Calls that change something on the engine, in the order in which they begin. */
let calls: string[];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'runtime-'));
  phases = [];
  calls = [];
  swept = [];
  absences = [];
  pullFaults = [];
  holderFaults = [];
  staysUp = true;
  guest = () => staysUp;
  clock = systemClock();
  fenceFault = undefined;
  mayCreate = Promise.resolve();
  runtime = await open();
});
afterEach(async () => {
  await runtime.stop();
  rmSync(dir, { recursive: true });
});

async function open(): Promise<Runtime> {
  const say = (): void => {
    const phase = runtime.observed().workloads.find((workload) => workload.workload_id === ID)?.phase;
    if (phase !== undefined && phase !== phases.at(-1)) phases.push(phase);
  };
  return openRuntime(
    {
      clock,
      log,
      engine: slowEngine(),
      holders: openHolders(),
      jobs: { prepare: async () => [] },
      desired: await openDesired(dir, { files: DISK, log, clock, bootId: 'boot' }),
      records: await openRecords(dir, { files: DISK, log, now: clock.now }),
      etcFiles: async () => [],
      images: {
        use: async () => undefined,
        sweep: async (wanted) => void swept.push([...wanted]),
        makeRoom: async () => true,
      },
      machine: () => ({ cpu_cores: 2, ram_bytes: 2 ** 33, gpu_count: 1, limits: { memlock_bytes: -1, nofile: 1024 } }),
      gpus: () => ({ gpuUuids: new Set([GPU]), gpuFaults: new Map() }),
      assertFenced: async () => {
        if (fenceFault !== undefined) throw fenceFault;
      },
      quarantineMs: 0,
      pullLogin: async () => null,
    },
    say,
  );
}

/** Lists the containers as they were at the call, and answers some turns later. */
function slowEngine(): Engine {
  let containers: LocalContainer[] = [];
  let created: Pick<LocalContainer, 'workload_id' | 'gpu_uuids'> = { workload_id: ID, gpu_uuids: [] };
  const put = (running: boolean): void => {
    containers = [{ ...created, id: 'c', running, mount_sources: [], started: true }];
  };
  const image = {
    digest: 'sha256:0',
    entrypoint: ['run'],
    cmd: [],
    env: [],
    user: '',
    working_dir: '',
    stop_signal: '',
  };
  return {
    version: async () => '1',
    list: async () => {
      const then = containers;
      for (let turn = 0; turn < 5; turn += 1) await clock.nextTurn();
      return then;
    },
    bridges: async () => [],
    keepSpareNetwork: async () => void calls.push('spare'),
    removeUnusedNetworks: async () => undefined,
    inspectImage: async () => (absences.shift() === true ? undefined : image),
    pull: async () => {
      calls.push('pull');
      const fault = pullFaults.shift();
      if (fault !== undefined) throw fault;
    },
    disk: async () => undefined,
    removeImage: async () => undefined,
    create: async ({ workload_id, gpu_uuids }) => {
      calls.push('create');
      await mayCreate;
      created = { workload_id, gpu_uuids };
      put(false);
      return 'c';
    },
    start: async () => {
      calls.push('start');
      put(staysUp);
    },
    stopAndCut: async () => {
      calls.push('stop');
      put(false);
    },
    remove: async () => {
      containers = [];
    },
    runBare: async () => 0,
    logs: async () => Readable.from([]),
    stop: async () => undefined,
    fileIn: async () => undefined,
    lastExit: async () => lastExit,
  };
}

function openHolders(): Holders {
  const up = new Set<string>();
  loseHolder = () => up.clear();
  return {
    prepare: async () => ({ entrypoint: [], mounts: [] }),
    ensure: async (id) => {
      const fault = holderFaults.shift();
      if (fault !== undefined) throw fault;
      up.add(id);
    },
    statuses: () => new Map([...up].map((id) => [id, { up: true, guest: guest(), host_key: null, main_exit: null }])),
    end: async (id) => void up.delete(id),
  };
}

test('a container that the engine has not listed yet is never called missing', async () => {
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  await eventually('running workload', 5_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  expect(phases).toEqual(['pulling', 'creating', 'running']);
});

test('a container is created, but not started before the network fence stands', async () => {
  fenceFault = new Error('no fence');
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  await eventually('failed start', 5_000, async () => (phases.at(-1) === 'starting' ? true : undefined));
  expect(runtime.observed().workloads[0]).toMatchObject({ detail: 'no fence' });
  expect(calls.filter((call) => call !== 'spare')).toEqual(['create']);
  fenceFault = undefined;
  await eventually('running workload', 10_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  expect(calls.filter((call) => call !== 'spare')).toEqual(['create', 'start']);
});

test('a GPU is not free while a container is made for a workload that the desired state has lost meanwhile', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  mayCreate = promise;
  const take = (revision: number, id: string): Promise<void> => {
    const workloads = [desiredWorkload(id, 'image', { gpu_uuids: [GPU] })];
    return runtime.take({ type: 'desired', epoch: 1, revision, complete: true, now_ms: 0, workloads });
  };
  const next = (): unknown => runtime.observed().workloads.find(({ workload_id: id }) => id === 'wl_next');
  await take(1, ID);
  await eventually('creation', 5_000, async () => calls.includes('create') || undefined);
  await take(2, 'wl_next');
  await eventually('next workload', 5_000, async () => next() !== undefined || undefined);
  resolve();
  await expect.poll(next).toMatchObject({ phase: 'failed', failure_code: 'gpu_unavailable' });
  expect(calls.filter((call) => call !== 'spare')).toEqual(['create', 'start']);
});

test('an image that is removed from the host after its pull is pulled again', async () => {
  // The image is absent at the pull, at the creation of the container, and at the second pull.
  absences = [true, true, true];
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  await eventually('running workload', 10_000, async () => phases.at(-1) === 'running' || undefined);
  expect(calls.filter((call) => call !== 'spare')).toEqual(['pull', 'pull', 'create', 'start']);
});

test('an image whose pull has failed for one launch is pulled again for the next one', async () => {
  absences = [true, true];
  pullFaults = [new PullEnded('the registry sent too little', 'image')];
  const take = (revision: number, ids: string[]): Promise<void> =>
    runtime.take({
      type: 'desired',
      epoch: 1,
      revision,
      complete: true,
      now_ms: 0,
      workloads: ids.map((id) => desiredWorkload(id, 'image')),
    });
  const phaseOf = (id: string): string | undefined =>
    runtime.observed().workloads.find((workload) => workload.workload_id === id)?.phase;
  await take(1, ['wl_first']);
  await eventually('failed workload', 10_000, async () => phaseOf('wl_first') === 'failed' || undefined);
  await take(2, ['wl_first', ID]);
  await eventually('running workload', 10_000, async () => phaseOf(ID) === 'running' || undefined);
  expect(calls.filter((call) => call === 'pull')).toEqual(['pull', 'pull']);
});

test('the next network is made as soon as a launch is over', async () => {
  await runtime.stop();
  calls = [];
  // Time stands still, so no period of a loop passes.
  clock = virtualClock(1_000_000);
  runtime = await open();
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  const sinceStart = (): string[] => calls.slice(calls.indexOf('create'));
  await eventually('next network', 3_000, async () => (sinceStart().includes('spare') ? true : undefined));
  expect(sinceStart()).toEqual(['create', 'start', 'spare']);
});

test('a full disk does not prevent the removal of a workload', async () => {
  const message = { type: 'desired', epoch: 1, complete: true, now_ms: 0 } as const;
  const workload = desiredWorkload(ID, 'image');
  await runtime.take({ ...message, revision: 1, workloads: [workload] });
  await eventually('running workload', 5_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  await storedReachable();
  for (const file of ['desired.json', 'tombstones.json', `workloads/${ID}/record.json`])
    mkdirSync(join(dir, `${file}.new`));
  await runtime.take({ ...message, revision: 2, workloads: [{ ...workload, desired: 'removed' }] });
  await eventually('removed workload', 10_000, async () => (phases.at(-1) === 'removed' ? true : undefined));
  expect(phases.slice(-2)).toEqual(['stopped', 'removed']);
});

test('a container that does not see its GPUs fails at its second start with that reason', async () => {
  staysUp = false;
  lastExit = { code: GPUS_DIFFER_CODE, reason: '' };
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  await eventually('failed workload', 5_000, async () => (phases.at(-1) === 'failed' ? true : undefined));
  expect(runtime.observed().workloads[0]).toMatchObject({
    failure_code: 'gpu_unavailable',
    detail: expect.stringContaining('the container does not see exactly the GPUs'),
  });
});

test('a container whose guest has connected never fails because of its GPUs: the tenant has ended it', async () => {
  staysUp = false;
  lastExit = { code: GPUS_DIFFER_CODE, reason: '' };
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  await eventually('first start', 5_000, async () => calls.includes('start') || undefined);
  guest = () => true;
  runtime.holdersChanged();
  guest = () => false;
  // The host that believes the exit code fails the workload instead.
  await eventually(
    'second start',
    10_000,
    async () => calls.filter((call) => call === 'start').length > 1 || undefined,
  );
  expect(runtime.observed().workloads[0]).toMatchObject({ phase: 'starting', failure_code: null });
});

test('a container whose guest does not connect is stopped after two minutes, with its image as the cause', async () => {
  await runtime.stop();
  guest = () => false;
  const virtual = virtualClock(1_000_000);
  clock = virtual;
  runtime = await open();
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  const passSeconds = async (): Promise<boolean | undefined> => {
    virtual.jump(5_000);
    return phases.at(-1) === 'failed' || undefined;
  };
  await eventually('container', 5_000, async () => phases.at(-1) === 'starting' || undefined);
  const startedMs = virtual.now();
  await eventually('failure', 20_000, passSeconds);
  expect(virtual.now() - startedMs).toBeGreaterThanOrEqual(120_000);
  expect(runtime.observed().workloads[0]).toMatchObject({ failure_code: 'guest_silent' });
  expect(calls).toContain('stop');
});

test('a holder that has worked is started again after a second, however often it failed before', async () => {
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  clock = virtual;
  runtime = await open();
  const failTwice = [new Error('no holder'), new Error('no holder')];
  holderFaults = [...failTwice];
  const workloads = [desiredWorkload(ID, 'image')];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  const passSeconds = async (): Promise<boolean | undefined> => {
    virtual.jump(1_000);
    return phases.at(-1) === 'running' || undefined;
  };
  await eventually('running workload', 5_000, passSeconds);
  await storedReachable();
  loseHolder();
  holderFaults = [...failTwice];
  runtime.holdersChanged();
  const leftAfter = async (count: number): Promise<number> => {
    await eventually('start of the holder', 5_000, async () => {
      virtual.jump(50);
      return holderFaults.length === count || undefined;
    });
    return virtual.now();
  };
  const firstMs = await leftAfter(1);
  // The third failure in a row would wait for four seconds.
  expect((await leftAfter(0)) - firstMs).toBeLessThan(4_000);
});

test('the time of a stop is recorded by the clock of the control plane', async () => {
  const message = { type: 'desired', epoch: 1, complete: true, now_ms: 0 } as const;
  const workload = desiredWorkload(ID, 'image');
  await runtime.take({ ...message, revision: 1, workloads: [workload] });
  await eventually('running workload', 5_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  await runtime.take({ ...message, revision: 2, workloads: [{ ...workload, desired: 'removed' }] });
  await eventually('removed workload', 10_000, async () => (phases.at(-1) === 'removed' ? true : undefined));
  const [tombstone] = JSON.parse(readFileSync(join(dir, 'tombstones.json'), 'utf8')) as { stopped_ms: number }[];
  expect(tombstone?.stopped_ms).toBeLessThan(60_000);
});

test('a runtime tells which containers run with which GPUs, which revision it holds, and how its loops are', async () => {
  expect([runtime.held(), runtime.containerIds(), runtime.running()]).toEqual([null, [], []]);
  const workloads = [
    desiredWorkload(ID, 'image', { gpu_uuids: [] }),
    desiredWorkload('wl_b', 'b', { desired: 'removed' }),
  ];
  await runtime.take({ type: 'desired', epoch: 3, revision: 7, complete: true, now_ms: 0, workloads });
  await eventually('running workload', 5_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  expect(runtime.held()).toEqual({ epoch: 3, revision: 7 });
  expect(runtime.observed().held).toEqual({ epoch: 3, revision: 7 });
  expect(runtime.containerIds()).toEqual(['c']);
  expect(runtime.running()).toEqual([{ container_id: 'c', workload_id: ID, gpu_uuids: [] }]);
  expect(runtime.status().map(({ name }) => name)).toEqual(['runtime', 'spare-network', 'images']);
  // A list that does not name the workload any more says nothing about its GPUs.
  await runtime.take({ type: 'desired', epoch: 3, revision: 8, complete: true, now_ms: 0, workloads: [] });
  expect([runtime.containerIds(), runtime.running()]).toEqual([['c'], []]);
});

test('images that no workload needs are swept every minute, and those of wanted workloads are kept', async () => {
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  clock = virtual;
  runtime = await open();
  const workloads = [desiredWorkload(ID, 'image'), desiredWorkload('wl_b', 'old', { desired: 'removed' })];
  await runtime.take({ type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0, workloads });
  swept = [];
  await virtual.advance(59_999);
  expect(swept).toEqual([]);
  await virtual.advance(1);
  expect(swept).toEqual([['image']]);
});

/** Resolves when the record says that the workload has been reachable. */
async function storedReachable(): Promise<void> {
  // A write that is under way has a file of that name for a moment.
  const record = join(dir, 'workloads', ID, 'record.json');
  await eventually('stored record', 5_000, async () => {
    const { ever_running: isStored } = JSON.parse(readFileSync(record, 'utf8')) as { ever_running: boolean };
    return isStored || undefined;
  });
}

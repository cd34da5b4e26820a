// The reconciler's loop: what it does and reports while steps are at work. The test plays the engine.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GPUS_DIFFER_CODE } from '../../../agent/gpus/visible.ts';
import { DISK } from '../../../agent/host/state.ts';
import { openDesired } from '../../../agent/runtime/desired.ts';
import type { HolderStatus } from '../../../agent/runtime/observe.ts';
import { PullEnded } from '../../../agent/runtime/pull-watch.ts';
import { openRecords } from '../../../agent/runtime/records.ts';
import { openRuntime, type Runtime } from '../../../agent/runtime/runtime.ts';
import type { Holders } from '../../../agent/runtime/steps.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredWorkload } from '../../../shared/protocol/workload.ts';
import { eventually } from '../../kit/processes.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { type EngineScript, newScript, openSlowEngine } from './slow-engine.ts';

const ID = 'wl_a';
const GPU = 'GPU-0';
const log = createLog('test', 'silent');
let dir: string;
let runtime: Runtime;
let phases: string[];
let script: EngineScript;
/** Whether the guest has connected, and whether it is connected now. */
let guest: () => boolean;
/** Why no container may start on this host; undefined: it may. */
let fenceFault: Error | undefined;
/** Why the next starts of the holder fail, one each. */
let holderFaults: Error[];
/** The workloads with a holder. */
let holdersUp: Set<string>;
/** The images that each sweep was told to keep. */
let swept: string[][];

beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), 'runtime-'));
  script = newScript();
  swept = [];
  holderFaults = [];
  guest = () => script.staysUp;
  fenceFault = undefined;
  runtime = await open();
  // Timers of the runtime of the test before may have caused a report until now.
  phases = [];
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
  const { clock } = script;
  return openRuntime(
    {
      clock,
      log,
      engine: openSlowEngine(script),
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
      onGpusRefused: () => undefined,
      quarantineMs: 0,
      pullLogin: async () => null,
    },
    say,
  );
}

function openHolders(): Holders {
  const up = (holdersUp = new Set<string>());
  const known = new Set<string>();
  return {
    prepare: async () => ({ entrypoint: [], mounts: [] }),
    ensure: async (id) => {
      const fault = holderFaults.shift();
      if (fault !== undefined) throw fault;
      up.add(id);
      known.add(id);
    },
    statuses: () => new Map([...known].map((id) => [id, statusOf(up.has(id))])),
    pause: async (id) => void up.delete(id),
    end: async (id) => void (up.delete(id), known.delete(id)),
  };
}

const statusOf = (isUp: boolean): HolderStatus => ({
  up: isUp,
  guest: isUp && guest(),
  host_key: null,
  main_exit: null,
});

function want(workloads: DesiredWorkload[], revision = 1): Promise<void> {
  return runtime.take({ type: 'desired', epoch: 1, revision, complete: true, now_ms: 0, workloads });
}

async function untilRunning(): Promise<void> {
  await eventually('running workload', 5_000, async () => (phases.at(-1) === 'running' ? true : undefined));
}

test('a container that the engine has not listed yet is never called missing', async () => {
  await want([desiredWorkload(ID, 'image')]);
  await untilRunning();
  expect(phases).toEqual(['pulling', 'creating', 'running']);
});

test('a container is created, but not started before the network fence stands', async () => {
  fenceFault = new Error('no fence');
  await want([desiredWorkload(ID, 'image')]);
  await eventually('failed start', 5_000, async () => (phases.at(-1) === 'starting' ? true : undefined));
  expect(runtime.observed().workloads[0]).toMatchObject({ detail: 'no fence' });
  expect(script.calls.filter((call) => call !== 'spare')).toEqual(['create']);
  fenceFault = undefined;
  await eventually('running workload', 10_000, async () => (phases.at(-1) === 'running' ? true : undefined));
  expect(script.calls.filter((call) => call !== 'spare')).toEqual(['create', 'start']);
});

test('a GPU is not free while a container is made for a workload that the desired state has lost meanwhile', async () => {
  const { promise, resolve } = Promise.withResolvers<void>();
  script.mayCreate = promise;
  const take = (revision: number, id: string): Promise<void> => {
    const workloads = [desiredWorkload(id, 'image', { gpu_uuids: [GPU] })];
    return runtime.take({ type: 'desired', epoch: 1, revision, complete: true, now_ms: 0, workloads });
  };
  const next = (): unknown => runtime.observed().workloads.find(({ workload_id: id }) => id === 'wl_next');
  await take(1, ID);
  await eventually('creation', 5_000, async () => script.calls.includes('create') || undefined);
  await take(2, 'wl_next');
  await eventually('next workload', 5_000, async () => next() !== undefined || undefined);
  resolve();
  await expect.poll(next).toMatchObject({ phase: 'failed', failure_code: 'gpu_unavailable' });
  expect(script.calls.filter((call) => call !== 'spare')).toEqual(['create', 'start']);
});

test('an image that is removed from the host after its pull is pulled again', async () => {
  // The image is absent at the pull, at the creation of the container, and at the second pull.
  script.absences = [true, true, true];
  await want([desiredWorkload(ID, 'image')]);
  await eventually('running workload', 10_000, async () => phases.at(-1) === 'running' || undefined);
  expect(script.calls.filter((call) => call !== 'spare')).toEqual(['pull', 'pull', 'create', 'start']);
});

test('an image whose pull has failed for one launch is pulled again for the next one', async () => {
  script.absences = [true, true];
  script.pullFaults = [new PullEnded('the registry sent too little', 'image')];
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
  expect(script.calls.filter((call) => call === 'pull')).toEqual(['pull', 'pull']);
});

test('the next network is made as soon as a launch is over', async () => {
  await runtime.stop();
  script.calls = [];
  // Time stands still, so no period of a loop passes.
  script.clock = virtualClock(1_000_000);
  runtime = await open();
  await want([desiredWorkload(ID, 'image')]);
  const sinceStart = (): string[] => script.calls.slice(script.calls.indexOf('create'));
  await eventually('next network', 3_000, async () => (sinceStart().includes('spare') ? true : undefined));
  expect(sinceStart()).toEqual(['create', 'start', 'spare']);
});

test('a full disk does not prevent the removal of a workload', async () => {
  const message = { type: 'desired', epoch: 1, complete: true, now_ms: 0 } as const;
  const workload = desiredWorkload(ID, 'image');
  await runtime.take({ ...message, revision: 1, workloads: [workload] });
  await untilRunning();
  await storedReachable();
  for (const file of ['desired.json', 'tombstones.json', `workloads/${ID}/record.json`])
    mkdirSync(join(dir, `${file}.new`));
  await runtime.take({ ...message, revision: 2, workloads: [{ ...workload, desired: 'removed' }] });
  await eventually('removed workload', 10_000, async () => (phases.at(-1) === 'removed' ? true : undefined));
  expect(phases.slice(-2)).toEqual(['stopped', 'removed']);
});

test('a container that does not see its GPUs fails at its second start with that reason', async () => {
  script.staysUp = false;
  script.lastExit = { code: GPUS_DIFFER_CODE, out_of_memory: false, reason: '', ran_ms: undefined };
  await want([desiredWorkload(ID, 'image')]);
  await eventually('failed workload', 5_000, async () => (phases.at(-1) === 'failed' ? true : undefined));
  expect(runtime.observed().workloads[0]).toMatchObject({
    failure_code: 'gpu_unavailable',
    detail: expect.stringContaining('the container does not see exactly the GPUs'),
  });
});

test('a container whose guest has connected never fails because of its GPUs: the tenant has ended it', async () => {
  script.staysUp = false;
  script.lastExit = { code: GPUS_DIFFER_CODE, out_of_memory: false, reason: '', ran_ms: undefined };
  await want([desiredWorkload(ID, 'image')]);
  await eventually('first start', 5_000, async () => script.calls.includes('start') || undefined);
  guest = () => true;
  runtime.holdersChanged();
  guest = () => false;
  // The host that believes the exit code fails the workload instead.
  await eventually(
    'second start',
    10_000,
    async () => script.calls.filter((call) => call === 'start').length > 1 || undefined,
  );
  expect(runtime.observed().workloads[0]).toMatchObject({ phase: 'starting', failure_code: null });
});

test('a container whose guest does not connect is stopped after two minutes, with its image as the cause', async () => {
  await runtime.stop();
  guest = () => false;
  const virtual = virtualClock(1_000_000);
  script.clock = virtual;
  runtime = await open();
  await want([desiredWorkload(ID, 'image')]);
  const passSeconds = async (): Promise<boolean | undefined> => {
    virtual.jump(5_000);
    return phases.at(-1) === 'failed' || undefined;
  };
  await eventually('container', 5_000, async () => phases.at(-1) === 'starting' || undefined);
  const startedMs = virtual.now();
  await eventually('failure', 20_000, passSeconds);
  expect(virtual.now() - startedMs).toBeGreaterThanOrEqual(120_000);
  expect(runtime.observed().workloads[0]).toMatchObject({ failure_code: 'guest_silent' });
  expect(script.calls).toContain('stop');
});

test('a holder that has worked is started again after a second, however often it failed before', async () => {
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  script.clock = virtual;
  runtime = await open();
  const failTwice = [new Error('no holder'), new Error('no holder')];
  holderFaults = [...failTwice];
  await want([desiredWorkload(ID, 'image')]);
  const passSeconds = async (): Promise<boolean | undefined> => {
    virtual.jump(1_000);
    return phases.at(-1) === 'running' || undefined;
  };
  await eventually('running workload', 5_000, passSeconds);
  await storedReachable();
  holdersUp.clear();
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

test('nobody is let in after a container that has worked was dead for two minutes, until it runs again', async () => {
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  script.clock = virtual;
  runtime = await open();
  await want([desiredWorkload(ID, 'image')]);
  const after = async (what: string, is: () => boolean): Promise<void> => {
    await eventually(what, 20_000, async () => (virtual.jump(5_000), is() || undefined));
  };
  await after('running workload', () => phases.at(-1) === 'running');
  await storedReachable();
  script.staysUp = false;
  script.loseContainer();
  const deadMs = virtual.now();
  await after('end of the holder', () => !holdersUp.has(ID));
  expect(virtual.now() - deadMs).toBeGreaterThanOrEqual(120_000);
  expect(runtime.observed().workloads).toMatchObject([{ phase: 'starting' }]);
  script.staysUp = true;
  await after('running workload', () => phases.at(-1) === 'running' && holdersUp.has(ID));
});

test('an engine that lists nothing after a boot is believed after ten minutes: its disk may be mounted late', async () => {
  await want([desiredWorkload(ID, 'image')]);
  await untilRunning();
  await storedReachable();
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  script = { ...newScript(), clock: virtual };
  runtime = await open();
  // Timers of the runtime before may have caused a report until now.
  phases = [];
  await virtual.advance(595_000);
  expect(phases).toEqual([]);
  await eventually('report', 5_000, async () => (await virtual.advance(5_000), phases.length > 0 || undefined));
  expect(phases).toEqual(['missing']);
});

test('an engine that lists nothing any more is believed after ten minutes, and a container that comes back then goes on', async () => {
  await runtime.stop();
  const virtual = virtualClock(1_000_000);
  script.clock = virtual;
  runtime = await open();
  await want([desiredWorkload(ID, 'image')]);
  await untilRunning();
  await storedReachable();
  script.removeContainer();
  await virtual.advance(600_000);
  expect(phases.at(-1)).toBe('running');
  const until = (phase: string): Promise<unknown> =>
    eventually(phase, 5_000, async () => (await virtual.advance(5_000), phases.at(-1) === phase || undefined));
  await until('missing');
  script.loseContainer();
  await until('running');
});

test('the time of a stop is recorded by the script.clock of the control plane', async () => {
  const message = { type: 'desired', epoch: 1, complete: true, now_ms: 0 } as const;
  const workload = desiredWorkload(ID, 'image');
  await runtime.take({ ...message, revision: 1, workloads: [workload] });
  await untilRunning();
  await runtime.take({ ...message, revision: 2, workloads: [{ ...workload, desired: 'removed' }] });
  await eventually('removed workload', 10_000, async () => (phases.at(-1) === 'removed' ? true : undefined));
  // The report comes before the write.
  await runtime.stop();
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
  await untilRunning();
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
  script.clock = virtual;
  runtime = await open();
  const workloads = [desiredWorkload(ID, 'image'), desiredWorkload('wl_b', 'old', { desired: 'removed' })];
  await want(workloads);
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

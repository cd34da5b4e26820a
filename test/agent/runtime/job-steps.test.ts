// The steps that only jobs have: a job is recorded before its only start, stopped at its limit, and its end is kept.
import { beforeEach, describe, expect, test } from 'vitest';
import type { ContainerShape, LastExit, LocalContainer, LocalImage } from '../../../agent/runtime/engine.ts';
import type { Step } from '../../../agent/runtime/plan.ts';
import { type JobRecord, newJobRecord, type WorkloadRecord } from '../../../agent/runtime/records.ts';
import { createSteps, type StepsDeps } from '../../../agent/runtime/steps.ts';
import { JOB_RAN_MS_MAX } from '../../../shared/limits.ts';
import { createLog } from '../../../shared/log.ts';
import type { DesiredWorkload } from '../../../shared/protocol/workload.ts';
import { desiredWorkload } from '../desired-workload.ts';

const NOW_MS = 777;
const IMAGE: LocalImage = {
  digest: 'sha256:1',
  entrypoint: ['train'],
  cmd: ['--all'],
  env: ['PATH=/image'],
  user: '',
  working_dir: '',
  stop_signal: '',
};
const JOB = desiredWorkload('w', 'trainer', {
  env: { SEED: '1' },
  gpu_uuids: ['GPU-1'],
  job: { inputs: [], config: '{}', run_ms_max: 5_000 },
});
const STARTED = newJobRecord(NOW_MS);

let calls: string[];
let record: Partial<WorkloadRecord>;
let shape: ContainerShape | undefined;
let exit: LastExit;
let held: DesiredWorkload[];
/** Why the next starts fail; undefined: they succeed. */
let startFault: string | undefined;
/** The containers that the engine lists; undefined: it does not answer. */
let listed: Pick<LocalContainer, 'workload_id' | 'started'>[] | undefined;
/** What happens while the inputs come. */
let meanwhile: () => void;
let nowMs: number;
/** False after a reboot, before the first message. */
let knowsTime: boolean;
beforeEach(() => {
  [startFault, listed, nowMs, knowsTime] = [undefined, [], NOW_MS, true];
  [calls, record, shape, held] = [[], {}, undefined, [desiredWorkload('other', 'app'), JOB]];
  meanwhile = () => undefined;
  exit = { code: 0, out_of_memory: false, reason: 'it ended with code 0', ran_ms: undefined };
});

function perform(step: Step, attempt = 1): Promise<void> {
  const deps = {
    desired: { serverNowMs: () => nowMs, knowsTime: () => knowsTime, held: () => ({ workloads: held }) },
    log: createLog('test', 'silent'),
    engine: {
      inspectImage: async () => IMAGE,
      create: async (made: ContainerShape) => {
        calls.push('create');
        shape = made;
        return 'c-new';
      },
      start: async (id: string) => {
        calls.push(`start ${id}`);
        if (startFault !== undefined) throw new Error(startFault);
      },
      list: async () => {
        if (listed === undefined) throw new Error('no answer');
        return listed;
      },
      stop: async (id: string, graceMs: number) => void calls.push(`stop ${id} within ${graceMs}`),
      lastExit: async () => exit,
    },
    jobs: {
      prepare: async ({ workload_id: id }: DesiredWorkload) => {
        calls.push(`fetch for ${id}`);
        meanwhile();
        return [{ source: '/files', target: '/job/in' }];
      },
    },
    records: {
      all: () => new Map(Object.keys(record).length === 0 ? [] : [['w', record]]),
      change: async (_id: string, patch: Partial<WorkloadRecord>) => {
        calls.push(`note ${Object.keys(patch).join(' ')}`);
        record = { ...record, ...patch };
      },
    },
    machine: () => ({ cpu_cores: 8, ram_bytes: 2 ** 34, gpu_count: 1, limits: { memlock_bytes: -1, nofile: 9 } }),
    assertFenced: async () => undefined,
    onGpusRefused: () => undefined,
  };
  return createSteps(deps as unknown as StepsDeps).perform(step, attempt);
}

describe('a job', () => {
  test('is created from its inputs, and recorded as started before it starts', async () => {
    await perform({ kind: 'create', workload_id: 'w', workload: JOB });
    expect(calls).toEqual([
      'fetch for w',
      'create',
      'note container_id image_digest made_ms',
      'note ever_running job',
      'start c-new',
    ]);
    expect(record).toEqual({
      container_id: 'c-new',
      image_digest: 'sha256:1',
      made_ms: expect.any(Number),
      ever_running: true,
      job: STARTED,
    });
  });

  test.each([1, 3])(
    'that is cancelled while its inputs come gets no container, and does not fail (try %d)',
    async (attempt) => {
      meanwhile = () => void (held = [{ ...JOB, desired: 'removed' }]);
      await perform({ kind: 'create', workload_id: 'w', workload: JOB }, attempt);
      meanwhile = () => {
        throw new Error('the job is not wanted here any more');
      };
      await perform({ kind: 'create', workload_id: 'w', workload: JOB }, attempt);
      expect(calls).toEqual(['fetch for w', 'fetch for w']);
      expect(record).toEqual({});
    },
  );

  test('runs the program of its image, without a network, with folders for its results and its own variables only', async () => {
    await perform({ kind: 'create', workload_id: 'w', workload: JOB });
    expect(shape).toMatchObject({
      entrypoint: ['train', '--all'],
      network: 'none',
      folders: ['/job/out', '/job/ckpt'],
      mounts: [{ source: '/files', target: '/job/in' }],
      // A name without a value unsets the variable of the image.
      env: ['SEED=1', 'NVIDIA_VISIBLE_DEVICES'],
    });
    await perform({ kind: 'create', workload_id: 'w', workload: { ...JOB, gpu_uuids: [] } });
    expect(shape?.env).toEqual(['SEED=1', 'NVIDIA_VISIBLE_DEVICES=void']);
  });

  test('that a crash has kept from its start is recorded at that start; another workload is not', async () => {
    record = { container_id: 'c' };
    await perform({ kind: 'start', workload_id: 'w', container_id: 'c', gpu_uuids: [] });
    expect(calls).toEqual(['note ever_running job', 'start c']);
    [calls, record, held] = [[], { container_id: 'c' }, [desiredWorkload('w', 'app')]];
    await perform({ kind: 'start', workload_id: 'w', container_id: 'c', gpu_uuids: [] });
    expect(calls).toEqual(['start c']);
  });

  describe('whose start fails at the third attempt', () => {
    const CREATE: Step = { kind: 'create', workload_id: 'w', workload: JOB };
    const START: Step = { kind: 'start', workload_id: 'w', container_id: 'c', gpu_uuids: [] };
    const other = { workload_id: 'other', started: true };
    beforeEach(() => {
      startFault = 'could not select device driver';
      listed = [other, { workload_id: 'w', started: false }];
    });

    test.each([CREATE, START])(
      'fails with the reason if it was never started, so that another host is tried',
      async (step) => {
        await expect(perform(step, 1)).rejects.toThrow(startFault);
        await expect(perform(step, 2)).rejects.toThrow(startFault);
        expect(record).toMatchObject({ ever_running: true });
        expect(record.failure).toBeUndefined();
        await perform(step, 3);
        expect(record.failure).toEqual({ code: 'gpu_unavailable', detail: startFault });
      },
    );

    test.each([
      ['the answer to its start was lost', [other, { workload_id: 'w', started: true }]],
      ['its container is gone', [other]],
      ['the engine does not answer', undefined],
    ])('does not fail if %s', async (_why, containers) => {
      listed = containers;
      await expect(perform(START, 3)).rejects.toThrow(startFault);
      expect(record.failure).toBeUndefined();
    });
  });

  test('is told to end at its limit, with a minute to write a checkpoint, and its record keeps that', async () => {
    record = { job: STARTED };
    await perform({ kind: 'limit', workload_id: 'w' });
    expect(calls).toEqual(['note job', 'stop w within 60000']);
    expect(record.job).toEqual({ ...STARTED, stopped_at_limit: true });
  });

  test('that was never recorded is stopped all the same', async () => {
    await perform({ kind: 'limit', workload_id: 'w' });
    expect(calls).toEqual(['stop w within 60000']);
  });

  test.each<[number, string, JobRecord['detail']]>([
    [0, 'it ended with code 0', 'a line was skipped'],
    [137, 'it ran out of memory', 'it ran out of memory'],
  ])('that ends with %d keeps its code and run time, and the reason of a failure', async (code, reason, detail) => {
    record = { job: { ...STARTED, detail: 'a line was skipped' } };
    [exit, nowMs] = [{ code, out_of_memory: false, reason, ran_ms: undefined }, NOW_MS + 5_000];
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(record.job).toEqual({ ...STARTED, exit_code: code, detail, ran_ms: 5_000 });
  });

  test.each([
    [4_000, 4_000],
    [6_000, 5_000],
  ])('that ran for %d ms by the engine, and is seen after 5,000, ran for %d', async (byEngineMs, expected) => {
    record = { job: STARTED };
    [exit, nowMs] = [{ ...exit, ran_ms: byEngineMs }, NOW_MS + 5_000];
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(record.job?.ran_ms).toBe(expected);
  });

  test('that ended with a reboot keeps no run time, because the time of the control plane is not known yet', async () => {
    record = { job: STARTED };
    [nowMs, knowsTime] = [NOW_MS + 30_000, false];
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(record.job).toEqual({ ...STARTED, exit_code: 0 });
  });

  test.each([-1, JOB_RAN_MS_MAX + 1])('that seems to have run for %d ms keeps no run time', async (ms) => {
    record = { job: STARTED };
    nowMs = NOW_MS + ms;
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(record.job).toEqual({ ...STARTED, exit_code: 0 });
  });

  test('that was never recorded has no end to record', async () => {
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(calls).toEqual([]);
  });
});

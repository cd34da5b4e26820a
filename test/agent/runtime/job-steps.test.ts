// The steps that only jobs have: a job is recorded before its only start, stopped at its limit, and its end is kept.
import { beforeEach, describe, expect, test } from 'vitest';
import type { ContainerShape, LastExit, LocalImage } from '../../../agent/runtime/engine.ts';
import type { Step } from '../../../agent/runtime/plan.ts';
import type { JobRecord, WorkloadRecord } from '../../../agent/runtime/records.ts';
import { createSteps, type StepsDeps } from '../../../agent/runtime/steps.ts';
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
const STARTED: JobRecord = {
  started_ms: NOW_MS,
  exit_code: null,
  stopped_at_limit: false,
  checkpoint: null,
  finished: false,
  results: null,
  detail: null,
  skipped_lines: 0,
  read_to: 0,
};

let calls: string[];
let record: Partial<WorkloadRecord>;
let shape: ContainerShape | undefined;
let exit: LastExit;
let held: DesiredWorkload[];
beforeEach(() => {
  [calls, record, shape, held] = [[], {}, undefined, [desiredWorkload('other', 'app'), JOB]];
  exit = { code: 0, reason: 'it ended with code 0' };
});

function perform(step: Step): Promise<void> {
  const deps = {
    desired: { serverNowMs: () => NOW_MS, held: () => ({ workloads: held }) },
    log: createLog('test', 'silent'),
    engine: {
      inspectImage: async () => IMAGE,
      create: async (made: ContainerShape) => {
        calls.push('create');
        shape = made;
        return 'c-new';
      },
      start: async (id: string) => void calls.push(`start ${id}`),
      stop: async (id: string, graceMs: number) => void calls.push(`stop ${id} within ${graceMs}`),
      lastExit: async () => exit,
    },
    jobs: {
      prepare: async ({ workload_id: id }: DesiredWorkload) => {
        calls.push(`fetch for ${id}`);
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
  };
  return createSteps(deps as unknown as StepsDeps).perform(step, 1);
}

describe('a job', () => {
  test('is created from its inputs, and recorded as started before it starts', async () => {
    await perform({ kind: 'create', workload_id: 'w', workload: JOB });
    expect(calls).toEqual([
      'fetch for w',
      'create',
      'note container_id image_digest',
      'note ever_running job',
      'start c-new',
    ]);
    expect(record).toEqual({
      container_id: 'c-new',
      image_digest: 'sha256:1',
      ever_running: true,
      job: STARTED,
    });
  });

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

  test.each<[LastExit, JobRecord['detail']]>([
    [{ code: 0, reason: 'it ended with code 0' }, 'a line was skipped'],
    [{ code: 137, reason: 'it ran out of memory' }, 'it ran out of memory'],
  ])('that ends with %j keeps its code, and the reason of a failure', async (ending, detail) => {
    record = { job: { ...STARTED, detail: 'a line was skipped' } };
    exit = ending;
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(record.job).toEqual({ ...STARTED, exit_code: ending.code, detail });
  });

  test('that was never recorded has no end to record', async () => {
    await perform({ kind: 'exited', workload_id: 'w', container_id: 'c' });
    expect(calls).toEqual([]);
  });
});

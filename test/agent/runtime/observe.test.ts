// What the control plane is sent about each workload: one row for each phase, and the fields that belong to it.
import { describe, expect, test } from 'vitest';
import { observe, type ObservedFacts } from '../../../agent/runtime/observe.ts';
import type { PullStatus } from '../../../agent/runtime/pulls.ts';
import { newJobRecord, type WorkloadRecord } from '../../../agent/runtime/records.ts';
import { WORKLOADS_PER_MACHINE_MAX } from '../../../shared/limits.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { calmFacts } from './calm-facts.ts';

const RECORD: WorkloadRecord = {
  workload_id: 'w',
  container_id: 'c',
  image_digest: 'sha256:1',
  ever_running: false,
  failure: null,
  removing: false,
  stopped_ms: null,
  gone: false,
  changed_ms: 0,
};
const ENDED = { ...newJobRecord(0), exit_code: 0 };
const EXIT = { code: 3, signal: null, at_ms: 5 };

interface Given {
  record?: Partial<WorkloadRecord> | null;
  /** Undefined: there is no container. Null: the engine does not answer. */
  running?: boolean | null;
  holder?: { up?: boolean; guest?: boolean } | null;
  desired?: 'running' | 'removed' | null;
  pull?: PullStatus;
  busy?: boolean;
  error?: string;
}

function factsOf({ record, running, holder, desired = 'running', pull, busy, error }: Given): ObservedFacts {
  const container = {
    id: 'c',
    workload_id: 'w',
    running: running === true,
    mount_sources: [],
    gpu_uuids: [],
    started: true,
  };
  const status = { up: true, guest: true, host_key: 'key', main_exit: EXIT as never, ...holder };
  const facts = calmFacts({
    desired: desired === null ? [] : [desiredWorkload('w', 'image', { desired })],
    records: new Map(record === null || record === undefined ? [] : [['w', { ...RECORD, ...record }]]),
    containers: running === null ? null : running === undefined ? [] : [container],
    pulls: () => pull ?? { state: 'none' },
    busy: new Map(busy === true ? [['w', []]] : []),
  });
  const holders = new Map(holder === undefined || holder === null ? [] : [['w', status]]);
  return { ...facts, holders, startErrors: new Map(error === undefined ? [] : [['w', error]]) };
}
const seen = (given: Given): ReturnType<typeof observe>['workloads'][number] | undefined =>
  observe(factsOf(given)).workloads[0];

describe('the phase of a workload', () => {
  test.each<[string, Given, string | undefined]>([
    ['without an image', {}, 'pulling'],
    ['whose image is being pulled', { pull: { state: 'pulling', progress: null } }, 'pulling'],
    ['whose image is there', { pull: { state: 'ready' } }, 'creating'],
    ['that should go and has left nothing', { desired: 'removed' }, undefined],
    ['that nobody wants and that has left nothing', { desired: null, record: { container_id: null } }, undefined],
    ['while the engine has never answered', { running: null }, undefined],
    ['with a container that does not run', { running: false, record: {} }, 'starting'],
    ['without a holder', { running: true, record: {} }, 'starting'],
    ['whose holder does not answer', { running: true, record: {}, holder: { up: false } }, 'starting'],
    ['whose guest has not connected yet', { running: true, record: {}, holder: { guest: false } }, 'starting'],
    ['whose guest is connected', { running: true, record: {}, holder: {} }, 'running'],
    [
      'whose guest was connected before',
      { running: true, record: { ever_running: true }, holder: { guest: false } },
      'running',
    ],
    [
      'whose guest was connected before, without its holder',
      { running: true, record: { ever_running: true }, holder: { up: false, guest: false } },
      'starting',
    ],
    ['whose container is not known to the engine any more', { record: {} }, 'missing'],
    ['whose container may be on its way', { record: {}, busy: true }, 'pulling'],
    ['that never had a container', { record: { container_id: null } }, 'pulling'],
    ['that has failed', { record: { failure: { code: 'start_failed', detail: 'x' } }, running: true }, 'failed'],
    [
      'that has failed and is being removed',
      { record: { failure: { code: 'start_failed', detail: 'x' }, removing: true }, running: true },
      'starting',
    ],
    ['that was stopped', { record: { stopped_ms: 0, removing: true }, running: false }, 'stopped'],
    ['that was stopped and whose container is gone', { record: { stopped_ms: 0, removing: true } }, 'stopped'],
    ['that was stopped and runs again', { record: { stopped_ms: 0 }, running: true, holder: {} }, 'running'],
    ['that is gone', { record: { gone: true, stopped_ms: 0 }, running: true }, 'removed'],
    ['that is a job whose files are still in its container', { record: { job: ENDED }, running: false }, 'finishing'],
    [
      'that is a job that has ended, without an answer of the engine',
      { record: { job: ENDED }, running: null },
      'finishing',
    ],
    ['that is a job whose container is gone before its files were uploaded', { record: { job: ENDED } }, 'missing'],
    ['that is a job whose files are uploaded', { record: { job: { ...ENDED, finished: true } } }, 'finished'],
  ])('%s', (_what, given, phase) => {
    expect(seen(given)?.phase).toBe(phase);
  });
});

describe('a report', () => {
  test('has what its holder and its record know', () => {
    expect(seen({ running: true, record: {}, holder: {} })).toEqual({
      workload_id: 'w',
      phase: 'running',
      pull: null,
      image_digest: 'sha256:1',
      host_key: 'key',
      main_exit: EXIT,
      failure_code: null,
      detail: null,
    });
    expect(seen({})).toMatchObject({ image_digest: null, host_key: null, main_exit: null, pull: null, detail: null });
  });

  test('has what came of a job while it is wanted, and afterwards as long as its record is there', () => {
    const job = { exit_code: 3, stopped_at_limit: true } as never;
    const result = { exit_code: 3, stopped_at_limit: true, results: null };
    expect(seen({ record: { job } })?.job).toMatchObject(result);
    expect(seen({ desired: null, record: { job }, running: false })?.job).toMatchObject(result);
    const wanted = factsOf({ pull: { state: 'ready' } });
    const desired = wanted.desired.map((each) => ({ ...each, job: {} as never }));
    expect(observe({ ...wanted, desired }).workloads[0]?.job).toMatchObject({ exit_code: null, results: null });
    expect(seen({ record: {}, running: true })).not.toHaveProperty('job');
    const results = [{ name: 'adapter', bytes: 1, sha256: '0'.repeat(64) }];
    const done = { ...(job as object), exit_code: 0, finished: true, results } as never;
    expect(seen({ record: { job: done }, running: false })).toMatchObject({ phase: 'finished', job: { results } });
    // A day of removed jobs with many files each would make a report that the link refuses.
    expect(seen({ record: { job: done, gone: true } })).toMatchObject({ phase: 'removed', job: { results: null } });
    const long = { ...(job as object), detail: 'x'.repeat(513) } as never;
    // The link refuses a longer one.
    expect(seen({ record: { job: long } })?.job?.detail).toBe('x'.repeat(512));
  });

  test('has the progress of a pull while it is under way', () => {
    const progress = { done_bytes: 1, total_bytes: 2 };
    expect(seen({ pull: { state: 'pulling', progress } })?.pull).toEqual(progress);
    expect(seen({ running: false, record: {}, pull: { state: 'pulling', progress } })?.pull).toBeNull();
    expect(seen({ desired: null, record: {}, running: false })?.pull).toBeNull();
  });

  test('explains a failure, a start that fails, and a guest that does not answer, in at most 2048 characters', () => {
    const long = 'x'.repeat(3_000);
    const failed = seen({ record: { failure: { code: 'no_command', detail: long } }, running: false, error: 'other' });
    expect([failed?.failure_code, failed?.detail]).toEqual(['no_command', 'x'.repeat(2_048)]);
    expect(seen({ record: {}, running: false, error: long })?.detail).toBe('x'.repeat(2_048));
    expect(seen({ running: true, record: {}, holder: {}, error: 'old' })?.detail).toBeNull();
    const mute = seen({ running: true, record: { ever_running: true }, holder: { guest: false } });
    expect(mute?.detail).toBe('the helper inside the container does not answer');
  });

  test('has what is still here also after a day of many removals, so that a restored control plane finds it', () => {
    const gone = Array.from({ length: WORKLOADS_PER_MACHINE_MAX }, (_, i) => ({
      ...RECORD,
      workload_id: `gone-${i}`,
      gone: true,
    }));
    const facts = factsOf({ desired: null, running: true, holder: {} });
    const records = new Map([...gone, RECORD].map((record) => [record.workload_id, record]));
    const { workloads } = observe({ ...facts, records });
    expect(workloads).toHaveLength(WORKLOADS_PER_MACHINE_MAX);
    expect(workloads).toContainEqual(expect.objectContaining({ workload_id: 'w', phase: 'running' }));
  });

  test('names containers that nobody knows once, and at most as many as a machine may have', () => {
    const facts = factsOf({});
    const container = (id: string) => ({
      id,
      workload_id: id,
      running: true,
      mount_sources: [],
      gpu_uuids: [],
      started: true,
    });
    expect(observe({ ...facts, containers: ['w', 'x', 'x'].map(container) }).unknown_workload_ids).toEqual(['x']);
    const many = Array.from({ length: WORKLOADS_PER_MACHINE_MAX + 1 }, (_, i) => `x-${i}`);
    expect(observe({ ...facts, containers: many.map(container) }).unknown_workload_ids).toHaveLength(
      WORKLOADS_PER_MACHINE_MAX,
    );
    const desired = many.map((id) => desiredWorkload(id, 'image'));
    expect(observe({ ...facts, desired }).workloads).toHaveLength(WORKLOADS_PER_MACHINE_MAX);
    expect(observe({ ...facts, containers: null }).unknown_workload_ids).toEqual([]);
  });
});

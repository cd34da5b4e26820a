// The plan of a job: started once, stopped at its limit, never started again; and what the host reports about it.
import { describe, expect, test } from 'vitest';
import { observe, type ObservedFacts } from '../../../agent/runtime/observe.ts';
import { type Facts, plan } from '../../../agent/runtime/plan.ts';
import { type JobRecord, newJobRecord, type WorkloadRecord } from '../../../agent/runtime/records.ts';
import { AgentMessage, forVersion } from '../../../shared/protocol/link.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { calmFacts } from './calm-facts.ts';

const STARTED_MS = 1_000;
const JOB = desiredWorkload('wl_job', 'trainer', { job: { inputs: [], config: '{}', run_ms_max: 5_000 } });

const jobRecord = (patch: Partial<JobRecord> = {}): JobRecord => ({ ...newJobRecord(STARTED_MS), ...patch });
const record = (job: JobRecord | undefined): WorkloadRecord => ({
  workload_id: 'wl_job',
  container_id: 'c',
  image_digest: null,
  ever_running: job !== undefined,
  failure: null,
  removing: false,
  stopped_ms: null,
  gone: false,
  changed_ms: 0,
  ...(job === undefined ? {} : { job }),
});
const facts = (
  job: JobRecord | undefined,
  container: { running: boolean; started: boolean },
  patch: Partial<Facts> = {},
): ObservedFacts => ({
  ...calmFacts({
    desired: [JOB],
    records: new Map([['wl_job', record(job)]]),
    containers: [{ id: 'c', workload_id: 'wl_job', mount_sources: [], gpu_uuids: [], ...container }],
    nowMs: 2_000,
    serverNowMs: 2_000,
    ...patch,
  }),
  holders: new Map(),
  startErrors: new Map(),
});
const kinds = (all: Facts): string[] => plan(all).map(({ kind }) => kind);
const RUNNING = { running: true, started: true };
const ENDED = { running: false, started: true };

describe('a job', () => {
  test('is started although no holder is up, and gets none', () => {
    expect(kinds(facts(undefined, { running: false, started: false }))).toEqual(['start']);
    expect(kinds(facts(undefined, RUNNING, { containers: [], records: new Map() }))).toEqual(['create']);
  });

  test('is left alone while it runs, also if nothing in it answers', () => {
    expect(kinds(facts(jobRecord(), RUNNING, { silentMs: new Map([['wl_job', 1e9]]) }))).toEqual([]);
  });

  test('is stopped at its limit, by the clock of the control plane', () => {
    expect(kinds(facts(jobRecord(), RUNNING, { serverNowMs: 5_999 }))).toEqual([]);
    expect(kinds(facts(jobRecord(), RUNNING, { serverNowMs: 6_000 }))).toEqual(['limit']);
  });

  test('is not started again after its end', () => {
    expect(kinds(facts(jobRecord(), ENDED))).toEqual(['exited']);
    expect(kinds(facts(jobRecord({ exit_code: 137 }), ENDED))).toEqual([]);
    expect(kinds(facts(jobRecord({ exit_code: 0, finished: true }), ENDED))).toEqual([]);
  });

  test('is removed in two phases like every workload', () => {
    const removed = { desired: [{ ...JOB, desired: 'removed' as const }] };
    expect(kinds(facts(jobRecord(), RUNNING, removed))).toEqual(['stop']);
  });
});

describe('the report on a job', () => {
  const reported = (job: JobRecord | undefined, container: { running: boolean; started: boolean }) =>
    observe(facts(job, container)).workloads[0];

  test('goes from running to finishing to finished', () => {
    expect(reported(undefined, { running: false, started: false })).toMatchObject({ phase: 'starting' });
    expect(reported(jobRecord(), RUNNING)).toMatchObject({ phase: 'running', job: { exit_code: null } });
    expect(reported(jobRecord(), ENDED)).toMatchObject({ phase: 'running' });
    expect(reported(jobRecord({ exit_code: 0 }), ENDED)).toMatchObject({ phase: 'finishing', job: { exit_code: 0 } });
    const results = [{ name: 'a', bytes: 1, sha256: '0'.repeat(64) }];
    expect(reported(jobRecord({ exit_code: 0, finished: true, results }), ENDED)).toMatchObject({
      phase: 'finished',
      job: { exit_code: 0, results },
    });
  });

  test('has the run time of the program once it has ended, if the record has it', () => {
    expect(reported(jobRecord(), RUNNING)?.job).not.toHaveProperty('ran_ms');
    expect(reported(jobRecord({ exit_code: 0 }), ENDED)?.job).not.toHaveProperty('ran_ms');
    expect(reported(jobRecord({ exit_code: 0, ran_ms: 7 }), ENDED)?.job).toMatchObject({ exit_code: 0, ran_ms: 7 });
  });

  test('has no run time for a control plane of version 3, which refuses unknown members', () => {
    const ended = observe(facts(jobRecord({ exit_code: 0, ran_ms: 7 }), ENDED));
    const observed = { type: 'observed' as const, held: null, ...ended };
    expect(forVersion(observed, 4)).toEqual(observed);
    const without = observe(facts(jobRecord({ exit_code: 0 }), ENDED));
    for (const version of [2, 3]) expect(forVersion(observed, version).workloads).toEqual(without.workloads);
    expect(AgentMessage.safeParse(observed).success).toBe(true);
    expect(AgentMessage.safeParse(forVersion(observed, 3)).success).toBe(true);
  });

  test('is not sent to a control plane of version 1, and neither is a job to an agent of version 1', () => {
    const observed = {
      type: 'observed' as const,
      held: null,
      ...observe(facts(jobRecord({ exit_code: 0 }), ENDED)),
    };
    expect(forVersion(observed, 1).workloads).toEqual([]);
    expect(forVersion(observed, 2).workloads).toHaveLength(1);
    const plain = desiredWorkload('wl_plain', 'app');
    const desired = {
      type: 'desired' as const,
      epoch: 1,
      revision: 1,
      complete: true as const,
      now_ms: 0,
      workloads: [JOB, plain],
    };
    expect(forVersion(desired, 1).workloads).toEqual([plain]);
    expect(forVersion(desired, 2).workloads).toEqual([JOB, plain]);
  });
});

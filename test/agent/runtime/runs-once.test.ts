// A workload that runs its program once (a batch job): a container that dies is reported, and not started again.
import { describe, expect, test } from 'vitest';
import { observe } from '../../../agent/runtime/observe.ts';
import { type Facts, plan } from '../../../agent/runtime/plan.ts';
import type { WorkloadRecord } from '../../../agent/runtime/records.ts';
import { AgentMessage, ServerMessage, forVersion } from '../../../shared/protocol/link.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { calmFacts } from './calm-facts.ts';

const ONCE = desiredWorkload('w', 'app', { runs_once: true });
const AGAIN = desiredWorkload('w', 'app');
const RECORD: WorkloadRecord = {
  workload_id: 'w',
  container_id: 'c',
  image_digest: null,
  ever_running: true,
  failure: null,
  removing: false,
  stopped_ms: null,
  gone: false,
  changed_ms: 0,
};
const facts = (desired: Facts['desired'], record: Partial<WorkloadRecord> = {}, running = false): Facts =>
  calmFacts({
    desired,
    records: new Map([['w', { ...RECORD, ...record }]]),
    containers: [{ id: 'c', workload_id: 'w', running, started: true, gpu_uuids: [], mount_sources: [] }],
    holdersUp: new Set(['w']),
  });
const kinds = (...given: Parameters<typeof facts>): string[] => plan(facts(...given)).map(({ kind }) => kind);

describe('a container that has died', () => {
  test('is not started again if its program runs once', () => {
    expect(plan(facts([ONCE]))).toEqual([{ kind: 'died', workload_id: 'w', container_id: 'c' }]);
  });

  test('is started again if its program may run again', () => {
    expect(kinds([AGAIN])).toEqual(['start']);
  });

  test('is started again if its guest never came, because the program starts only after that', () => {
    expect(kinds([ONCE], { ever_running: false })).toEqual(['start']);
  });

  test('is left alone once that is recorded, and reported with what has killed it', () => {
    const failure = { code: 'out_of_memory' as const, detail: 'it ran out of memory' };
    expect(kinds([ONCE], { failure })).toEqual([]);
    const observed = observe({ ...facts([ONCE], { failure }), holders: new Map(), startErrors: new Map() });
    expect(observed.workloads[0]).toMatchObject({ phase: 'failed', failure_code: 'out_of_memory' });
  });
});

test('a container that runs is left alone', () => {
  expect(kinds([ONCE], {}, true)).toEqual([]);
});

describe('a peer of version 4', () => {
  test('is not told that a program runs once, because it refuses unknown members', () => {
    const desired = { type: 'desired', epoch: 1, revision: 1, complete: true, now_ms: 0 } as const;
    const message = { ...desired, workloads: [ONCE, AGAIN] };
    expect(forVersion(message, 5)).toBe(message);
    expect(forVersion(message, 4).workloads).toEqual([AGAIN, AGAIN]);
    expect(ServerMessage.safeParse(message).success).toBe(true);
  });

  test.each(['out_of_memory', 'container_died'] as const)('reads %s as a container that did not start', (code) => {
    const failure = { code, detail: 'x' };
    const { workloads } = observe({ ...facts([ONCE], { failure }), holders: new Map(), startErrors: new Map() });
    const message = { type: 'observed' as const, held: null, workloads, unknown_workload_ids: [] };
    expect(AgentMessage.safeParse(message).success).toBe(true);
    expect(forVersion(message, 5)).toBe(message);
    expect(forVersion(message, 4).workloads[0]).toMatchObject({ phase: 'failed', failure_code: 'start_failed' });
  });
});

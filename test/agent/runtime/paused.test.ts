// A container that somebody has paused by hand on the host: it has not ended, and it goes on at the next tick.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { type Facts, plan } from '../../../agent/runtime/plan.ts';
import { newJobRecord, type WorkloadRecord } from '../../../agent/runtime/records.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';
import { calmFacts } from './calm-facts.ts';
import { GPU, openOneGpuHost } from './one-gpu-host.ts';
import { newScript, openSlowEngine } from './slow-engine.ts';
import { openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';

const GPUS = { gpu_uuids: ['GPU-1'] };
const RENTAL = desiredWorkload('w', 'app', GPUS);
const JOB = desiredWorkload('w', 'app', { ...GPUS, job: { inputs: [], config: '{}', run_ms_max: 5_000 } });
const PAUSED = {
  Id: 'c-1',
  State: 'paused',
  Labels: { 'svc.workload_id': 'w', 'svc.gpu_uuids': 'GPU-1' },
  Mounts: [],
  HostConfig: { NetworkMode: 'none' },
};
const RECORD: Partial<WorkloadRecord> = { container_id: 'c-1', ever_running: true };

let script: ScriptedEngine;
let engine: Engine;
beforeEach(async () => {
  script = await openScriptedEngine();
  engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
  script.answers.set('GET /containers/json', { body: [PAUSED] });
});
afterEach(() => script.close());

const stepsFor = async (more: Partial<Facts> = {}): Promise<string[]> => {
  const facts = calmFacts({
    desired: [RENTAL],
    records: new Map([['w', RECORD as WorkloadRecord]]),
    containers: await engine.list(),
    holdersUp: new Set(['w']),
    gpuUuids: new Set(['GPU-1']),
    ...more,
  });
  return plan(facts).map(({ kind, workload_id }) => `${kind} ${workload_id}`);
};

test.each([
  ['rental', RENTAL, RECORD],
  ['job', JOB, { ...RECORD, job: newJobRecord(0) }],
])('a %s that is paused is neither started again nor over, but resumed', async (_what, workload, record) => {
  const records = new Map([['w', record as WorkloadRecord]]);
  expect(await stepsFor({ desired: [workload], records })).toEqual(['resume w']);
});

test('a rental that is paused keeps its GPU from others, and is stopped if it is over', async () => {
  const next = { ...RENTAL, workload_id: 'x' };
  expect(await stepsFor({ desired: [next] })).toContain('fail x');
  expect(await stepsFor({ desired: [{ ...RENTAL, desired: 'removed' }] })).toEqual(['stop w']);
});

test('a rental that is paused goes on at the next tick, and counts as running', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'paused-'));
  const clock = virtualClock(1_000_000);
  const slow = { ...newScript(), clock };
  const options = { stateDir: dir, clock, script: slow, quarantineMs: 0, guest: true };
  const host = await openOneGpuHost({ ...options, engine: openSlowEngine(slow) });
  await host.want(desiredWorkload('wl_a', 'app', { gpu_uuids: [GPU] }));
  await host.until('guest', () => host.seen('wl_a')?.phase === 'running');
  slow.calls = [];
  slow.pauseContainer();
  await host.until('resumption', () => host.called().length > 0);
  await clock.advance(10_000);
  expect([host.called(), host.seen('wl_a')?.phase]).toEqual([['resume'], 'running']);
  await host.runtime.stop();
  rmSync(dir, { recursive: true });
});

test('the engine resumes a container by its id', async () => {
  await engine.resume('c-1');
  expect(script.lines()).toEqual(['POST /containers/c-1/unpause']);
});

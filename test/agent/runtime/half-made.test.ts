// Containers whose creation was interrupted: they are never started as they are, but created again, and a container with data never is.
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { openDocker } from '../../../agent/runtime/docker.ts';
import type { Engine } from '../../../agent/runtime/engine.ts';
import { type Facts, plan } from '../../../agent/runtime/plan.ts';
import type { WorkloadRecord } from '../../../agent/runtime/records.ts';
import { containerShape } from '../container-shape.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { type EngineAnswer, openScriptedEngine, type ScriptedEngine } from './scripted-engine.ts';
import { calmFacts } from './calm-facts.ts';

describe.each([
  ['a rental', desiredWorkload('w', 'app', { gpu_uuids: ['GPU-1'] })],
  [
    'a job',
    desiredWorkload('w', 'app', { gpu_uuids: ['GPU-1'], job: { inputs: [], config: '{}', run_ms_max: 5_000 } }),
  ],
])('the plan for %s', (_what, workload) => {
  const steps = (
    record: Partial<WorkloadRecord> | undefined,
    started: boolean,
    more: Partial<Facts> = {},
  ): string[] => {
    const facts = calmFacts({
      desired: [workload],
      records: new Map(record === undefined ? [] : [['w', record as WorkloadRecord]]),
      containers: [{ id: 'c', workload_id: 'w', running: false, started, mount_sources: [], gpu_uuids: ['GPU-1'] }],
      holdersUp: new Set(['w']),
      gpuUuids: new Set(['GPU-1']),
      ...more,
    });
    return plan(facts).map(({ kind }) => kind);
  };

  test.each([undefined, { container_id: null }])(
    'creates again what was never started, with the record %j',
    (record) => {
      expect(steps(record, false)).toEqual(['create']);
    },
  );

  test('starts a container whose creation was recorded, and so was complete', () => {
    expect(steps({ container_id: 'c' }, false)).toEqual(['start']);
  });

  test('never creates again what was started once, although its record is lost', () => {
    expect(steps(undefined, true)).not.toContain('create');
  });

  test('leaves it alone while a step is at work, which may just be creating it', () => {
    expect(steps(undefined, false, { busy: new Map([['w', ['GPU-1']]]) })).toEqual([]);
  });
});

describe('a creation while the engine has a container of the workload', () => {
  const CREATION = 'POST /containers/create';
  const REMOVAL = 'DELETE /containers/svc-w-1';
  const SHAPE = containerShape('w-1', { entrypoint: ['/train'], mounts: [], folders: ['/job/out'] });
  let script: ScriptedEngine;
  let engine: Engine;
  /** The container that the engine has under the name of the workload. */
  let earlier: EngineAnswer;
  let isRemoved: boolean;
  beforeEach(async () => {
    script = await openScriptedEngine();
    engine = openDocker({ socketPath: script.socketPath, machineId: 'm-1' });
    earlier = { body: { State: { Status: 'created' } } };
    isRemoved = false;
    script.answers.set('GET /images/empty:1/json', { body: { Id: 'sha256:1', Config: {} } });
    script.answers.set('GET /containers/svc-w-1/json', () => earlier);
    script.answers.set(CREATION, () => (isRemoved ? {} : { status: 409, body: { message: 'the name is in use' } }));
    script.answers.set(REMOVAL, () => {
      isRemoved = true;
      return {};
    });
  });
  afterEach(() => script.close());
  const isAsked = (line: string): boolean => script.lines().includes(line);

  test('replaces one that was never started, and the new one gets its folders', async () => {
    expect(await engine.create(SHAPE)).toBe('c-new');
    const removal = script.asked.find(({ line }) => line === REMOVAL);
    // Without force, because the container may have been started in the meantime.
    expect(removal?.query).toEqual({ v: 'true' });
    expect(isAsked('PUT /containers/c-new/archive')).toBe(true);
  });

  test.each(['running', 'exited', 'removing'])('fails and changes nothing if that one is %s', async (Status) => {
    earlier = { body: { State: { Status } } };
    await expect(engine.create(SHAPE)).rejects.toThrow(/^the name is in use$/);
    expect(isAsked(REMOVAL)).toBe(false);
  });

  test('fails while the engine is still at an earlier creation', async () => {
    earlier = { status: 404 };
    await expect(engine.create(SHAPE)).rejects.toThrow(/^the name is in use$/);
    expect(isAsked(REMOVAL)).toBe(false);
  });

  test('fails if that one was started in the meantime', async () => {
    script.answers.set(REMOVAL, { status: 409, body: { message: 'it is running' } });
    await expect(engine.create(SHAPE)).rejects.toThrow(/^it is running$/);
    expect(script.lines().filter((line) => line === CREATION)).toHaveLength(1);
  });

  test('asks for no other container if it fails for another reason', async () => {
    script.answers.set(CREATION, { status: 500, body: { message: 'no room' } });
    await expect(engine.create(SHAPE)).rejects.toThrow(/^no room$/);
    expect(isAsked('GET /containers/svc-w-1/json')).toBe(false);
  });
});

// The plan's promises, over every mixture of facts: nothing but an order to remove ends a workload.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { gpusOf, isQuarantineOver, keyOf, plan, type Facts, type Step } from '../../../agent/runtime/plan.ts';
import type { PullStatus } from '../../../agent/runtime/pulls.ts';
import { AUTO_TERMINATE_GRACE_MS } from '../../../shared/limits.ts';
import type { WorkloadRecord } from '../../../agent/runtime/records.ts';
import { observe } from '../../../agent/runtime/observe.ts';
import type { DesiredWorkload } from '../../../shared/protocol/workload.ts';
import { desiredWorkload } from '../desired-workload.ts';
import { calmFacts } from './calm-facts.ts';

const IDS = ['wl_a', 'wl_b', 'wl_c'];
const GPU = 'GPU-0';

function workload(id: string, desired: 'running' | 'removed' = 'running'): DesiredWorkload {
  return desiredWorkload(id, 'image', { desired, gpu_uuids: [GPU] });
}

function record(id: string, patch: Partial<WorkloadRecord> = {}): WorkloadRecord {
  return {
    workload_id: id,
    container_id: null,
    image_digest: null,
    ever_running: false,
    failure: null,
    removing: false,
    stopped_ms: null,
    gone: false,
    changed_ms: 0,
    ...patch,
  };
}

function facts(patch: Partial<Facts> = {}): Facts {
  return calmFacts({ holdersUp: new Set(IDS), pulls: () => ({ state: 'none' }), gpuUuids: new Set([GPU]), ...patch });
}

const anyRecord = fc.record({
  container_id: fc.constantFrom(null, 'c1'),
  ever_running: fc.boolean(),
  failure: fc.constantFrom(null, { code: 'start_failed' as const, detail: 'no' }),
  removing: fc.boolean(),
  stopped_ms: fc.constantFrom(null, 0, 900),
  gone: fc.boolean(),
});
const anyFacts = fc
  .record({
    desired: fc.array(fc.tuple(fc.constantFrom(...IDS), fc.constantFrom('running' as const, 'removed' as const))),
    records: fc.array(fc.tuple(fc.constantFrom(...IDS), anyRecord)),
    containers: fc.option(fc.uniqueArray(fc.tuple(fc.constantFrom(...IDS), fc.boolean()), { selector: ([id]) => id })),
    busy: fc.subarray(IDS),
    holdersUp: fc.subarray(IDS),
    dead: fc.subarray(IDS),
    pull: fc.constantFrom('none' as const, 'pulling' as const, 'ready' as const, 'failed' as const),
  })
  .map((drawn) =>
    facts({
      desired: [...new Map(drawn.desired.map(([id, desired]) => [id, workload(id, desired)])).values()],
      // What is gone was ordered to be removed before.
      records: new Map(
        drawn.records.map(([id, { removing, ...patch }]) => [
          id,
          record(id, { ...patch, removing: removing || patch.gone }),
        ]),
      ),
      containers:
        drawn.containers?.map(([id, running]) => ({
          id: `c-${id}`,
          workload_id: id,
          running,
          mount_sources: [],
          gpu_uuids: [GPU],
          started: true,
        })) ?? null,
      busy: new Map(drawn.busy.map((id) => [id, [GPU]])),
      holdersUp: new Set(drawn.holdersUp),
      deadMs: new Map(drawn.dead.map((id) => [id, 120_000])),
      pulls: () => ({ state: drawn.pull, detail: 'no', fault: 'image', progress: null }),
    }),
  );

const ends = (step: Step): boolean => step.kind === 'stop' || step.kind === 'remove';
const isOfHolder = ({ kind }: Step): boolean => kind === 'holder' || kind === 'end-holder';
const orderedGone = (all: Facts, id: string): boolean =>
  all.records.get(id)?.removing === true ||
  all.desired.some((one) => one.workload_id === id && one.desired === 'removed');

describe('a runtime limit', () => {
  const END_MS = 500_000;
  const running = (serverNowMs: number): Facts =>
    facts({
      desired: [{ ...workload('wl_a', 'running'), ends_at_ms: END_MS }],
      records: new Map([['wl_a', record('wl_a', { container_id: 'c' })]]),
      containers: [{ id: 'c', workload_id: 'wl_a', running: true, mount_sources: [], gpu_uuids: [], started: true }],
      holdersUp: new Set(['wl_a']),
      serverNowMs,
    });

  test('ends the rental by the clock of the control plane', () => {
    const lastMs = END_MS + AUTO_TERMINATE_GRACE_MS;
    expect(plan(running(lastMs - 1))).toEqual([]);
    expect(plan(running(lastMs))).toEqual([{ kind: 'stop', workload_id: 'wl_a' }]);
  });

  test('that there is none ends no rental, however late it is', () => {
    expect(plan({ ...running(1e15), desired: [workload('wl_a')] })).toEqual([]);
  });
});

describe('a GPU that another container has', () => {
  const other = { id: 'c1', workload_id: 'wl_b', running: true, mount_sources: [], gpu_uuids: [GPU], started: true };
  const ready = { pulls: (): PullStatus => ({ state: 'ready' }), desired: [workload('wl_a')] };

  test('fails a new workload, so that another host is tried', () => {
    const detail = `${GPU} is in use by the container of wl_b, which still runs`;
    const [step] = plan(facts({ ...ready, containers: [other] }));
    expect(step).toMatchObject({ kind: 'fail', workload_id: 'wl_a', code: 'gpu_unavailable', detail });
    expect(plan(facts({ ...ready, containers: [{ ...other, gpu_uuids: ['GPU-1'] }] }))).toMatchObject([
      { kind: 'create' },
    ]);
    expect(plan(facts({ ...ready, containers: [{ ...other, running: false }] }))).toMatchObject([{ kind: 'create' }]);
  });

  test('keeps a container waiting that has run before', () => {
    const own = { ...other, id: 'c2', workload_id: 'wl_a', running: false };
    expect(plan(facts({ ...ready, containers: [own, other] }))).toEqual([]);
    expect(plan(facts({ ...ready, containers: [own] }))).toMatchObject([{ kind: 'start', container_id: 'c2' }]);
  });

  test('keeps a workload waiting while a step for the other is at work', () => {
    const both = { ...ready, desired: [workload('wl_a'), workload('wl_b')] };
    expect(plan(facts({ ...both, busy: new Map([['wl_b', []]]) }))).toEqual([]);
    expect(plan(facts(both)).map((step) => [step.kind, step.workload_id])).toEqual([['create', 'wl_a']]);
  });

  test('keeps a workload waiting while the other starts, also if the desired state has lost the other meanwhile', () => {
    const stopped = { ...other, running: false };
    const starting = facts({ ...ready, containers: [stopped], busy: new Map([['wl_b', [GPU]]]) });
    expect(plan(starting)).toEqual([]);
    expect(plan({ ...starting, busy: new Map([['wl_b', ['GPU-1']]]) })).toMatchObject([{ kind: 'create' }]);
  });

  test('is known of a step that starts a container, and of no other', () => {
    const own = { ...other, id: 'c2', workload_id: 'wl_a', running: false };
    expect(plan(facts({ ...ready, containers: [own] })).map(gpusOf)).toEqual([[GPU]]);
    expect(plan(facts(ready)).map(gpusOf)).toEqual([[GPU]]);
    expect(gpusOf({ kind: 'stop', workload_id: 'wl_a' })).toEqual([]);
  });
});

describe('for every mixture of facts', () => {
  test('only an order to remove stops or removes anything', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        for (const step of plan(all).filter(ends)) expect(orderedGone(all, step.workload_id)).toBe(true);
      }),
    );
  });

  test('no container is created or started on a GPU that another container has, or gets at the same time', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        const comers = plan(all).filter(({ kind }) => kind === 'create' || kind === 'start');
        const users = new Set(all.containers?.filter(({ running }) => running).map(({ workload_id: id }) => id));
        const ids = new Set([...users, ...all.busy.keys(), ...comers.map(({ workload_id: id }) => id)]);
        // All workloads here have the one GPU of this machine.
        expect(comers.length === 0 || ids.size === 1).toBe(true);
      }),
    );
  });

  test('an engine that does not answer leads to no step on a container', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        const steps = plan({ ...all, containers: null });
        expect(steps.filter((step) => !isOfHolder(step))).toEqual([]);
      }),
    );
  });

  test('at most one step and one holder per workload, none on a busy one, and never a second container', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        const steps = plan(all);
        const keys = steps.map((step) => `${isOfHolder(step)} ${step.workload_id}`);
        expect(new Set(keys).size).toBe(keys.length);
        for (const step of steps.filter((one) => !isOfHolder(one))) expect(all.busy.has(step.workload_id)).toBe(false);
        for (const step of steps.filter((one) => one.kind === 'create')) {
          expect(all.containers?.some((one) => one.workload_id === step.workload_id)).toBe(false);
          expect(all.records.get(step.workload_id)?.container_id ?? null).toBeNull();
        }
      }),
    );
  });

  test.each([
    ['set ahead', { nowMs: 9_999_999, serverNowMs: 1_399 }, []],
    ['set back', { nowMs: 0, serverNowMs: 1_400 }, [{ kind: 'remove', workload_id: 'wl_a' }]],
  ])('a clock of the host that is %s changes no quarantine', (_how, times, steps) => {
    const records = new Map([['wl_a', record('wl_a', { removing: true, stopped_ms: 900 })]]);
    const containers = [
      { id: 'c1', workload_id: 'wl_a', running: false, mount_sources: [], gpu_uuids: [], started: true },
    ];
    expect(plan(facts({ records, containers, ...times }))).toEqual(steps);
  });

  test.each([
    ['was made by an older agent', undefined, 1_400],
    ['existed for longer than a quarantine', 399, 1_400],
    ['existed for as long as a quarantine', 400, 1_400],
    ['existed for a moment', 890, 910],
    ['was made by a clock that was set back later', 901, 900],
  ])('a disk that %s is kept for the quarantine, and no longer than it existed', (_how, made_ms, untilMs) => {
    const over = (serverNowMs: number): boolean =>
      isQuarantineOver({ stopped_ms: 900, made_ms }, { quarantineMs: 500, serverNowMs });
    expect([over(untilMs - 1), over(untilMs)]).toEqual([false, true]);
    expect(isQuarantineOver({ stopped_ms: null, made_ms }, { quarantineMs: 0, serverNowMs: 9_999 })).toBe(false);
  });

  test('a disk is removed only after the quarantine', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        const withDisk = plan(all).filter(
          (step) => step.kind === 'remove' && all.containers?.some((one) => one.workload_id === step.workload_id),
        );
        for (const step of withDisk) {
          const stoppedMs = all.records.get(step.workload_id)?.stopped_ms ?? Infinity;
          expect(stoppedMs + all.quarantineMs).toBeLessThanOrEqual(all.serverNowMs);
        }
      }),
    );
  });

  test('every desired or recorded workload is observed at most once, and no other is', () => {
    fc.assert(
      fc.property(anyFacts, (all) => {
        const { workloads } = observe({ ...all, holders: new Map(), startErrors: new Map() });
        const ids = workloads.map((one) => one.workload_id);
        expect(new Set(ids).size).toBe(ids.length);
      }),
    );
  });
});

const failedBy = (fault: 'image' | 'host'): PullStatus => ({ state: 'failed', detail: 'no', fault });

test('an image that does not fit on this host can be tried on another one; an image that its registry refuses cannot', () => {
  const codes = (['image', 'host'] as const).map((fault) =>
    plan(facts({ desired: [workload('wl_a')], pulls: () => failedBy(fault) })),
  );
  expect(codes).toMatchObject([[{ code: 'image_pull_failed' }], [{ code: 'start_failed' }]]);
});

describe('a workload on its way', () => {
  const wanted = { desired: [workload('wl_a')] };
  const running = { id: 'c1', workload_id: 'wl_a', running: true, mount_sources: [], gpu_uuids: [], started: true };
  const late = { ...running, running: false, started: false };
  const BURIED = new Map([['wl_a', record('wl_a', { gone: true, removing: true })]]);
  const stopped = (stopped_ms: number): Facts['records'] =>
    new Map([['wl_a', record('wl_a', { gone: true, removing: true, stopped_ms })]]);
  const AT_WORK = new Map([['wl_a', []]]);
  const DEAD = new Map([['wl_a', 120_000]]);

  test.each([
    ['nothing there', {}, 'pull'],
    ['image there', { pulls: () => ({ state: 'ready' as const }) }, 'create'],
    ['image cannot be had', { pulls: () => failedBy('image') }, 'fail'],
    ['GPU not there', { gpuUuids: new Set<string>() }, 'fail'],
    ['GPU not fit', { gpuFaults: new Map([[GPU, 'Xid 79: it has fallen off the bus']]) }, 'fail'],
    ['GPU of others not fit', { gpuFaults: new Map([['GPU-1', 'lost']]) }, 'pull'],
    ['container not started', { containers: [{ ...running, running: false }] }, 'start'],
    ['running', { containers: [running] }, undefined],
    ['running without a holder', { containers: [running], holdersUp: new Set<string>() }, 'holder'],
    ['dead for less than two minutes', { containers: null, deadMs: new Map([['wl_a', 119_999]]) }, undefined],
    ['dead for two minutes', { containers: null, deadMs: DEAD }, 'end-holder'],
    ['dead without a holder', { containers: null, deadMs: DEAD, holdersUp: new Set<string>() }, undefined],
    ['dead, its holder at work', { containers: null, deadMs: DEAD, busy: new Map([['holder wl_a', []]]) }, undefined],
    [
      'failed before',
      { records: new Map([['wl_a', record('wl_a', { failure: { code: 'start_failed', detail: '' } })]]) },
      undefined,
    ],
    ['vanished', { records: new Map([['wl_a', record('wl_a', { container_id: 'c1' })]]) }, undefined],
    ['not due yet', { retryAtMs: new Map([['wl_a', 1001]]) }, undefined],
    ['ordered gone', { desired: [workload('wl_a', 'removed')], containers: [running] }, 'stop'],
    ['ordered gone, never here', { desired: [workload('wl_a', 'removed')] }, 'remove'],
    ['buried', { records: BURIED }, undefined],
    ['buried, and made late by the engine', { records: BURIED, containers: [late] }, 'remove'],
    ['buried, made late, with a step at work', { records: BURIED, containers: [late], busy: AT_WORK }, undefined],
    ['buried, and runs', { records: BURIED, containers: [running] }, 'stop'],
    ['buried, and has run', { records: BURIED, containers: [{ ...late, started: true }] }, 'stop'],
    ['buried, in its quarantine', { records: stopped(501), containers: [{ ...late, started: true }] }, undefined],
    ['buried, after its quarantine', { records: stopped(500), containers: [{ ...late, started: true }] }, 'remove'],
    ['buried, and runs with a step at work', { records: BURIED, containers: [running], busy: AT_WORK }, undefined],
    ['buried, and the engine is away', { records: BURIED, containers: null }, undefined],
    [
      'named by no list any more',
      { desired: [], containers: [running], records: new Map([['wl_a', record('wl_a')]]) },
      undefined,
    ],
  ])('%s', (_name, patch, kind) => {
    expect(plan(facts({ ...wanted, ...patch })).map((step) => step.kind)).toEqual(kind === undefined ? [] : [kind]);
  });
});

describe('a container whose guest has never connected', () => {
  const silent = (ms: number, patch: Partial<WorkloadRecord> = {}): Step[] =>
    plan(
      facts({
        desired: [workload('wl_a')],
        records: new Map([['wl_a', record('wl_a', { container_id: 'c1', ...patch })]]),
        containers: [{ id: 'c1', workload_id: 'wl_a', running: true, mount_sources: [], gpu_uuids: [], started: true }],
        silentMs: new Map([['wl_a', ms]]),
      }),
    );

  test('fails after two minutes, with its image as the cause', () => {
    expect(silent(119_999)).toEqual([]);
    const detail =
      'nothing inside the container has answered within 2 minutes of its start: the image keeps it from starting';
    expect(silent(120_000)).toMatchObject([{ kind: 'fail', workload_id: 'wl_a', code: 'guest_silent', detail }]);
  });

  test('goes on if its guest has connected before: then the tenant may have ended the guest', () => {
    expect(silent(120_000, { ever_running: true })).toEqual([]);
  });
});

describe('an engine that does not answer', () => {
  const away = (engineAwayMs: number, patch: Partial<WorkloadRecord> = {}): Step[] =>
    plan(
      facts({
        desired: [workload('wl_a')],
        records: new Map([['wl_a', record('wl_a', patch)]]),
        containers: null,
        engineAwayMs,
        pulls: () => ({ state: 'pulling', progress: null }),
      }),
    );

  test('for two minutes fails workloads that have never run, so that another host can be tried', () => {
    expect(away(119_999)).toEqual([]);
    const detail = 'the container engine of the host has not answered for 2 minutes';
    expect(away(120_000)).toMatchObject([{ kind: 'fail', workload_id: 'wl_a', code: 'engine_unavailable', detail }]);
    expect(away(120_000, { container_id: 'c1' })).toHaveLength(1);
  });

  test('fails also a workload whose step hangs, and that failure has a key of its own', () => {
    const busy = new Map([['wl_a', [GPU]]]);
    const steps = plan(facts({ desired: [workload('wl_a')], containers: null, engineAwayMs: 120_000, busy }));
    expect(steps.map((step) => [step.kind, keyOf(step)])).toEqual([['fail', 'fail wl_a']]);
    const others = plan(facts({ desired: [workload('wl_a')], holdersUp: new Set(), gpuUuids: new Set() }));
    expect(others.map((step) => [step.kind, keyOf(step)])).toEqual([
      ['fail', 'wl_a'],
      ['holder', 'holder wl_a'],
    ]);
  });

  test('fails no workload that has run, and fails the others only once', () => {
    expect(away(1e9, { container_id: 'c1', ever_running: true })).toEqual([]);
    expect(away(1e9, { failure: { code: 'engine_unavailable', detail: '' } })).toEqual([]);
  });
});

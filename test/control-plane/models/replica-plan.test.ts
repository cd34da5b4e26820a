// The plan of a pool and of a replica, without any database.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  failuresWith,
  type PlannedReplica,
  planPool,
  planReplica,
  type PoolFacts,
  type ReplicaFacts,
} from '../../../control-plane/models/replicas/plan.ts';

const NOW_MS = 1_000_000_000;
const IDLE_MS = 600_000;
const WANTED = { min: 0, max: 3, perReplica: 4, idleMs: IDLE_MS };

function replicas(...states: (PlannedReplica['state'] | [PlannedReplica['state'], number])[]): PlannedReplica[] {
  return states.map((given, index) => {
    const [state, open] = Array.isArray(given) ? given : [given, 0];
    return { id: `r${index}`, state, open, isOutdated: false, createdMs: index };
  });
}

function plan(patch: Partial<PoolFacts>): ReturnType<typeof planPool> {
  const requests = { waiting: 0, lastRequestMs: 0, isLoadKnown: true };
  return planPool({ wanted: WANTED, replicas: [], ...requests, busyMs: NOW_MS, retryMs: 0, ...patch }, NOW_MS);
}

describe('a pool starts', () => {
  test('nothing without requests and without a minimum', () => {
    expect(plan({})).toMatchObject({ start: 0, drain: undefined });
  });

  test('its minimum', () => {
    expect(plan({ wanted: { ...WANTED, min: 2 } }).start).toBe(2);
    expect(plan({ wanted: { ...WANTED, min: 2 }, replicas: replicas('starting', 'ready') }).start).toBe(0);
  });

  test.each([
    [1, 1],
    [4, 1],
    [5, 2],
    [8, 2],
    [9, 3],
    [100, 3],
  ])('for %i waiting requests %i replicas at once, and never more than its maximum', (waiting, start) => {
    expect(plan({ waiting }).start).toBe(start);
  });

  test('no second replica while the first one starts, and one more if its replicas are full', () => {
    expect(plan({ waiting: 4, replicas: replicas('starting') }).start).toBe(0);
    expect(plan({ waiting: 1, replicas: replicas(['ready', 4]) }).start).toBe(1);
    expect(plan({ waiting: 0, replicas: replicas(['ready', 4]) }).start).toBe(0);
  });

  test('nothing before the time of a retry', () => {
    expect(plan({ waiting: 1, retryMs: NOW_MS + 1 }).start).toBe(0);
    expect(plan({ waiting: 1, retryMs: NOW_MS }).start).toBe(1);
  });

  test('nothing beyond its maximum while another one drains', () => {
    const wanted = { ...WANTED, max: 1 };
    expect(plan({ wanted, waiting: 1, replicas: replicas(['draining', 1]) }).start).toBe(0);
    expect(plan({ wanted: { ...WANTED, max: 2 }, waiting: 1, replicas: replicas(['draining', 1]) }).start).toBe(1);
  });
});

describe('a pool drains', () => {
  const idle = { busyMs: NOW_MS - IDLE_MS, lastRequestMs: NOW_MS - IDLE_MS };

  test('its last replica after the idle time, counted from its last request', () => {
    expect(plan({ replicas: replicas('ready'), ...idle }).drain).toBe('r0');
    expect(plan({ replicas: replicas('ready'), ...idle, lastRequestMs: NOW_MS - IDLE_MS + 1 }).drain).toBeUndefined();
    expect(plan({ replicas: replicas(['ready', 1]), ...idle }).drain).toBeUndefined();
    expect(plan({ replicas: replicas('ready'), ...idle, isLoadKnown: false }).drain).toBeUndefined();
  });

  test('none that its minimum needs', () => {
    expect(plan({ wanted: { ...WANTED, min: 1 }, replicas: replicas('ready'), ...idle }).drain).toBeUndefined();
  });

  test('none that its minimum needs while its replacement still starts', () => {
    const [old, fresh] = replicas('ready', 'starting');
    if (old === undefined || fresh === undefined) throw new Error('two were made');
    const wanted = { ...WANTED, min: 1, max: 2 };
    expect(plan({ wanted, replicas: [{ ...old, isOutdated: true }, fresh], ...idle }).drain).toBeUndefined();
    expect(plan({ wanted, replicas: [old, fresh], ...idle }).drain).toBeUndefined();
    expect(plan({ wanted, replicas: [old, { ...fresh, state: 'ready' }], ...idle }).drain).toBe('r1');
  });

  test('one at a time: the one with the fewest requests, among equals the newest', () => {
    expect(plan({ replicas: replicas(['ready', 1], ['ready', 0], ['ready', 0]), ...idle })).toEqual({
      start: 0,
      drain: 'r2',
      busyMs: NOW_MS,
    });
    expect(plan({ replicas: replicas(['ready', 1], 'ready', 'draining'), ...idle }).drain).toBeUndefined();
  });

  test('none that starts', () => {
    expect(plan({ replicas: replicas('starting'), ...idle }).drain).toBeUndefined();
  });

  test('all of them if the file has no deployment any more, or fewer than today', () => {
    expect(plan({ wanted: undefined, replicas: replicas(['ready', 2]) })).toMatchObject({ start: 0, drain: 'r0' });
    expect(plan({ wanted: { ...WANTED, max: 1 }, replicas: replicas(['ready', 2], ['ready', 1]) }).drain).toBe('r1');
  });

  test('an outdated one once a new one is ready, or at once if there is no room for both', () => {
    const [old, fresh] = replicas(['ready', 1], 'starting');
    if (old === undefined || fresh === undefined) throw new Error('two were made');
    const outdated = { ...old, isOutdated: true };
    const wanted = { ...WANTED, min: 1 };
    expect(plan({ wanted, replicas: [outdated] })).toMatchObject({ start: 1, drain: undefined });
    expect(plan({ wanted, replicas: [outdated, fresh] })).toMatchObject({ start: 0, drain: undefined });
    expect(plan({ wanted, replicas: [outdated, { ...fresh, state: 'ready' }] }).drain).toBe('r0');
    expect(plan({ wanted: { ...wanted, max: 2 }, replicas: [outdated, fresh] })).toMatchObject({ drain: undefined });
    expect(plan({ wanted: { ...wanted, max: 1 }, replicas: [outdated] })).toMatchObject({ start: 0, drain: 'r0' });
  });
});

test('whatever the facts, a pool never exceeds its maximum, drains one at most, and drains only what is ready', () => {
  const state = fc.constantFrom<PlannedReplica['state']>('starting', 'ready', 'draining');
  const replica = fc.record({ state, open: fc.nat(9), isOutdated: fc.boolean(), createdMs: fc.nat(5) });
  const facts = fc.record({
    min: fc.nat(3),
    more: fc.nat(3),
    rows: fc.array(replica, { maxLength: 6 }),
    waiting: fc.nat(20),
    busyAgoMs: fc.nat(2 * IDLE_MS),
  });
  fc.assert(
    fc.property(facts, ({ min, more, rows, waiting, busyAgoMs }) => {
      const max = Math.max(1, min + more);
      const all = rows.map((row, index) => ({ ...row, id: `r${index}` }));
      const step = plan({ wanted: { ...WANTED, min, max }, replicas: all, waiting, busyMs: NOW_MS - busyAgoMs });
      expect(step.start === 0 || all.length + step.start <= max).toBe(true);
      const drained = all.find(({ id }) => id === step.drain);
      expect(step.drain === undefined || drained?.state === 'ready').toBe(true);
      expect(step.drain === undefined || all.every((row) => row.state !== 'draining')).toBe(true);
    }),
  );
});

describe('a replica', () => {
  const RUNNING = { status: 'running', reason: null } as const;
  const step = (patch: Partial<ReplicaFacts>): ReturnType<typeof planReplica> =>
    planReplica(
      {
        state: 'starting',
        instance: RUNNING,
        createdMs: NOW_MS - 1_000,
        enteredMs: NOW_MS - 1_000,
        startDeadlineMs: 120_000,
        unreadyBecause: null,
        healthFailures: 0,
        isUnused: false,
        quiet: { fromMs: 0, untilMs: 0 },
        ...patch,
      },
      NOW_MS,
    );

  test('is launched, waits for its instance, and is then asked for an answer', () => {
    expect(step({ instance: undefined })).toEqual({ do: 'launch' });
    expect(step({ instance: { status: 'starting', reason: null } })).toMatchObject({ do: 'wait' });
    expect(step({})).toEqual({ do: 'ask' });
  });

  test('fails with the reason of its instance, or after its deadline with the last reason of its server', () => {
    expect(step({ instance: { status: 'error', reason: 'the image has no command' } })).toEqual({
      do: 'fail',
      reason: 'the image has no command',
    });
    const late = { createdMs: NOW_MS - 120_000 };
    expect(step({ ...late, createdMs: NOW_MS - 119_999 })).toEqual({ do: 'ask' });
    expect(step({ ...late, unreadyBecause: 'its server answers 503 to GET /health' })).toEqual({
      do: 'fail',
      reason: 'it was not ready after 120 s: its server answers 503 to GET /health',
    });
    expect(step({ ...late, instance: { status: 'starting', reason: null } })).toEqual({
      do: 'fail',
      reason: 'it was not ready after 120 s: its instance is still starting',
    });
  });

  test('that started before the control plane is judged only after agents had the time to reconnect', () => {
    const quiet = { fromMs: NOW_MS - 1_000, untilMs: NOW_MS + 1 };
    const before = { createdMs: NOW_MS - 300_000, enteredMs: NOW_MS - 200_000 };
    expect(step({ ...before, quiet })).toEqual({ do: 'ask' });
    expect(step({ ...before, quiet: { ...quiet, untilMs: NOW_MS } })).toMatchObject({ do: 'fail' });
    expect(step({ ...before, quiet, state: 'ready', healthFailures: 3 })).toEqual({ do: 'check' });
    const after = { createdMs: NOW_MS - 1_000, enteredMs: NOW_MS - 1_000 };
    expect(step({ ...after, quiet, state: 'ready', healthFailures: 3 })).toMatchObject({ do: 'fail' });
  });

  test('that is ready is checked, and fails with its instance or after three bad checks in a row', () => {
    expect(step({ state: 'ready' })).toEqual({ do: 'check' });
    expect(step({ state: 'ready', healthFailures: 2 })).toEqual({ do: 'check' });
    expect(step({ state: 'ready', healthFailures: 3 })).toMatchObject({ do: 'fail' });
    expect(step({ state: 'ready', instance: { status: 'unreachable', reason: null } })).toEqual({
      do: 'fail',
      reason: 'its instance is unreachable',
    });
    expect(step({ state: 'ready', instance: undefined })).toMatchObject({ do: 'fail' });
  });

  test('that drains ends when it is unused for certain, or after the longest stream', () => {
    const draining = { state: 'draining', enteredMs: NOW_MS - 3_000 } as const;
    expect(step({ ...draining, isUnused: true })).toEqual({ do: 'end' });
    expect(step({ ...draining, isUnused: true, enteredMs: NOW_MS - 2_999 })).toMatchObject({ do: 'wait' });
    expect(step({ ...draining, enteredMs: NOW_MS - 31 * 60_000 + 1 })).toMatchObject({ do: 'wait' });
    expect(step({ ...draining, enteredMs: NOW_MS - 31 * 60_000 })).toEqual({ do: 'end' });
  });

  test('that has ended gives its machine back', () => {
    expect(step({ state: 'ended' })).toEqual({ do: 'release' });
  });

  test('is tried again at once, then after longer and longer waits', () => {
    const waits = [0, 1, 2, 3, 4, 50].map((failures) => {
      const after = failuresWith('starting', { failures, retryMs: NOW_MS, nowMs: NOW_MS });
      expect(after.failures).toBe(failures + 1);
      return after.retryMs - NOW_MS;
    });
    expect(waits).toEqual([0, 5_000, 15_000, 60_000, 300_000, 300_000]);
  });

  test('that was ready counts as no failed start, and neither does a start that fails before the next one may be', () => {
    const known = { failures: 2, retryMs: NOW_MS + 1 };
    expect(failuresWith('starting', { ...known, nowMs: NOW_MS })).toEqual(known);
    expect(failuresWith('starting', { ...known, nowMs: NOW_MS + 1 })).toMatchObject({ failures: 3 });
    for (const state of ['ready', 'draining'] as const)
      expect(failuresWith(state, { failures: 1, retryMs: 0, nowMs: NOW_MS })).toEqual({ failures: 1, retryMs: 0 });
  });
});

// The plan of an instance, for any facts: its steps are moves that the table allows, and no passing state waits for ever.
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type Facts, latestEnd, plan } from '../../../control-plane/rental/instances/plan.ts';
import { type ObservedWorkload, WORKLOAD_PHASES } from '../../../shared/protocol/workload.ts';
import type { ErrorCode } from '../../../shared/errors.ts';
import { INSTANCE_STATES, type InstanceState, mayMove } from '../../../shared/states.ts';
import { NOTHING, RUNNING } from './running-facts.ts';

const STATES = Object.keys(INSTANCE_STATES) as InstanceState[];
const observed = fc.record({
  workload_id: fc.constant('wl'),
  phase: fc.constantFrom(...WORKLOAD_PHASES),
  pull: fc.constant(null),
  image_digest: fc.constant(null),
  host_key: fc.constantFrom(null, 'ssh-ed25519 AAAA'),
  main_exit: fc.constant(null),
  failure_code: fc.constantFrom(
    null,
    'image_pull_failed' as const,
    'no_command' as const,
    'guest_silent' as const,
    'start_failed' as const,
    'out_of_memory' as const,
    'container_died' as const,
  ),
  detail: fc.constantFrom(null, 'because'),
});
const facts: fc.Arbitrary<Facts> = fc.record({
  status: fc.constantFrom(...STATES),
  enteredMs: fc.integer({ min: 0, max: 10_000_000 }),
  placedMs: fc.option(fc.integer({ min: 0, max: 10_000_000 })),
  startingMs: fc.option(fc.integer({ min: 0, max: 10_000_000 })),
  reachedMs: fc.option(fc.integer({ min: 0, max: 10_000_000 })),
  exitedMs: fc.option(fc.integer({ min: 0, max: 10_000_000 })),
  endsByItself: fc.boolean(),
  ownImage: fc.boolean(),
  triedMachines: fc.integer({ min: 0, max: 5 }),
  autoTerminateMs: fc.option(fc.integer({ min: 0, max: 20_000_000 })),
  observed: fc.option(observed),
  quiet: fc.record({
    fromMs: fc.integer({ min: 0, max: 10_000_000 }),
    untilMs: fc.integer({ min: 10_000_000, max: 20_000_000 }),
  }),
});

/** The status after each step; a `place` from `starting` goes back to `allocating`. */
const LEADS_TO: Partial<Record<ReturnType<typeof plan>['do'], InstanceState>> = {
  fail: 'error',
  start: 'starting',
  probe: 'running',
  run: 'running',
  lose: 'error',
  stop: 'stopped',
  expire: 'terminated',
  exit: 'terminated',
  finish: 'terminated',
};

describe('a launch', () => {
  const allocating: Facts = { ...RUNNING, status: 'allocating', placedMs: 500_000 };

  test('gives each host a minute to answer, however long earlier hosts took', () => {
    expect(plan(allocating, 559_999)).toEqual({ do: 'wait', untilMs: 560_000 });
    expect(plan(allocating, 560_000)).toEqual({ do: 'place', because: 'the host did not answer' });
    expect(plan({ ...allocating, triedMachines: 3 }, 560_000)).toMatchObject({ do: 'fail', code: 'operation_failed' });
    expect(plan({ ...allocating, observed: { ...NOTHING, phase: 'pulling' } }, 560_000)).toEqual({ do: 'start' });
  });

  // Specification 3.1: A container that is gone before it runs is started elsewhere at once.
  test.each(['stopped', 'removed', 'missing'] as const)(
    'goes elsewhere at once where its container is %s before it runs',
    (phase) => {
      const starting: Facts = { ...RUNNING, status: 'starting', observed: { ...NOTHING, phase } };
      expect(plan(starting, 1)).toMatchObject({ do: 'place', because: expect.stringContaining('the host') });
    },
  );
});

describe('a container that starts', () => {
  const starting: Facts = { ...RUNNING, status: 'starting', observed: { ...NOTHING, phase: 'starting' } };
  const moves = { do: 'place', because: 'the instance did not start in time' };

  test('is given up half a minute after its host should have reported it silent, however long the pull has taken', () => {
    const since: Facts = { ...starting, startingMs: 1_000_000 };
    expect(plan(since, 1_149_999)).toMatchObject({ do: 'note', untilMs: 1_150_000 });
    expect(plan(since, 1_150_000)).toEqual(moves);
    expect(plan({ ...since, observed: { ...NOTHING, phase: 'pulling' } }, 1_150_000)).toMatchObject({ do: 'note' });
  });

  test('has no more time than any start', () => {
    expect(plan({ ...starting, startingMs: 1_499_000 }, 1_500_000)).toEqual(moves);
  });

  test('that stayed silent failed by its image: an image of the customer is not tried on another host', () => {
    const silent = {
      ...NOTHING,
      phase: 'failed',
      failure_code: 'guest_silent',
      detail: 'nothing inside spoke',
    } as const;
    const facts: Facts = { ...starting, observed: silent };
    expect(plan(facts, 1)).toEqual({ do: 'fail', code: 'image_unavailable', detail: 'nothing inside spoke' });
    expect(plan({ ...facts, ownImage: false }, 1)).toEqual({ do: 'place', because: 'the container did not answer' });
  });
});

describe('an early probe', () => {
  const starting: Facts = { ...RUNNING, status: 'starting', enteredMs: 1_000, placedMs: 1_000 };
  const at = (phase: ObservedWorkload['phase'], host_key: string | null): Pick<Facts, 'observed'> => ({
    observed: { ...NOTHING, phase, host_key },
  });

  test.each(['creating', 'starting'] as const)(
    'is made once while the host is %s the container, if it has a host key',
    (phase) => {
      expect(plan({ ...starting, ...at(phase, 'key') }, 2_000)).toMatchObject({ do: 'probe-early' });
      expect(plan({ ...starting, ...at(phase, null) }, 2_000)).toMatchObject({ do: 'note' });
      expect(plan({ ...starting, ...at(phase, 'key'), reachedMs: 1_001 }, 2_000)).toMatchObject({ do: 'note' });
    },
  );

  test('is not made while an image is pulled, which may take any time', () => {
    expect(plan({ ...starting, ...at('pulling', 'key') }, 2_000)).toMatchObject({ do: 'note' });
  });

  test('is not repeated when the container runs within ten seconds', () => {
    const running = { ...starting, ...at('running', 'key'), reachedMs: 2_000 };
    expect(plan(running, 12_000)).toEqual({ do: 'run' });
    expect(plan(running, 12_001)).toMatchObject({ do: 'probe' });
  });

  test('of an earlier host does not count for this one', () => {
    const running = { ...starting, ...at('running', 'key') };
    expect(plan({ ...running, reachedMs: 1_000 }, 2_000)).toMatchObject({ do: 'probe' });
    expect(plan({ ...running, reachedMs: 1_001 }, 2_000)).toEqual({ do: 'run' });
  });
});

describe('a rental that runs', () => {
  test.each(['stopped', 'removed', 'missing'] as const)(
    "and whose container is %s ends as a stop from the supplier's side, also while it cannot be reached",
    (phase) => {
      for (const status of ['running', 'unreachable'] as const) {
        expect(plan({ ...RUNNING, status, observed: { ...NOTHING, phase } }, 1)).toMatchObject({ do: 'stop' });
      }
    },
  );

  test('and whose container has failed ends in error, with the reason of the host', () => {
    const observed = { ...NOTHING, phase: 'failed' as const, detail: 'out of memory' };
    expect(plan({ ...RUNNING, observed }, 1)).toEqual({ do: 'lose', reason: 'out of memory' });
  });
});

describe('an image of the operator', () => {
  const starting: Facts = {
    ...RUNNING,
    status: 'starting',
    ownImage: false,
    observed: { ...NOTHING, phase: 'failed', failure_code: 'image_pull_failed', detail: 'no such image: secret/app' },
  };

  test('that cannot be pulled is tried elsewhere, and never named', () => {
    expect(plan(starting, 1)).toEqual({ do: 'place', because: 'its image could not be pulled' });
    expect(plan({ ...starting, triedMachines: 3 }, 1)).toMatchObject({ do: 'fail', code: 'operation_failed' });
    expect(JSON.stringify(plan({ ...starting, triedMachines: 3 }, 1))).not.toContain('secret/app');
    expect(plan({ ...starting, status: 'running' }, 1)).toEqual({ do: 'lose', reason: 'the container failed' });
  });
});

describe('a container that failed', () => {
  const UNAVAILABLE = 'image_unavailable';
  /** The two ends of each failure code: the error of a launch with the customer's own image, and the reason for an operator's image. */
  type Failure = Exclude<ObservedWorkload['failure_code'], 'out_of_memory' | 'container_died' | null>;
  const FAILURES: Record<Failure, [ErrorCode | undefined, string]> = {
    image_pull_failed: [UNAVAILABLE, 'its image could not be pulled'],
    image_unusable: [UNAVAILABLE, 'its image cannot be run'],
    no_command: [UNAVAILABLE, 'its image has nothing to run'],
    guest_silent: [UNAVAILABLE, 'the container did not answer'],
    start_failed: [undefined, 'the container could not be started'],
    gpu_unavailable: [undefined, 'a GPU was not there'],
    engine_unavailable: [undefined, 'the container engine of the host did not answer'],
  };
  const failed = (failure_code: ObservedWorkload['failure_code'], detail: string | null): Facts => ({
    ...RUNNING,
    status: 'starting',
    observed: { ...NOTHING, phase: 'failed', failure_code, detail },
  });

  test.each(Object.entries(FAILURES) as [keyof typeof FAILURES, [ErrorCode | undefined, string]][])(
    'with %s is tried on another host, unless the own image of the customer is to blame',
    (code, [own, reason]) => {
      const facts = failed(code, 'the words of the host');
      expect(plan(facts, 1)).toEqual(
        own === undefined
          ? { do: 'place', because: 'the words of the host' }
          : { do: 'fail', code: own, detail: 'the words of the host' },
      );
      expect(plan({ ...facts, ownImage: false }, 1)).toEqual({ do: 'place', because: reason });
      const last = plan({ ...facts, ownImage: false, triedMachines: 3 }, 1);
      const detail = `Tried 3 hosts; on the last one, ${reason}.`;
      expect(last).toEqual({ do: 'fail', code: 'operation_failed', detail });
    },
  );

  test.each([true, false])('for no reason that is known is tried on another host, own image or not: %s', (ownImage) => {
    const because = 'the container could not be started';
    expect(plan({ ...failed(null, null), ownImage }, 1)).toEqual({ do: 'place', because });
  });
});

describe('for any facts', () => {
  test('every step leads where the table allows', () => {
    fc.assert(
      fc.property(facts, fc.integer({ min: 0, max: 20_000_000 }), (given, nowMs) => {
        const target = LEADS_TO[plan(given, nowMs).do];
        expect(target === undefined || mayMove(INSTANCE_STATES, given.status, target)).toBe(true);
      }),
    );
  });

  test('a passing state always has a time for its next run of the engine', () => {
    const passing = fc.constantFrom<InstanceState>('allocating', 'starting', 'stopping');
    fc.assert(
      fc.property(facts, passing, fc.integer({ min: 0, max: 20_000_000 }), (given, status, nowMs) => {
        const step = plan({ ...given, status }, nowMs);
        const untilMs = 'untilMs' in step ? step.untilMs : Infinity;
        expect(untilMs).toBeGreaterThan(nowMs);
      }),
    );
  });

  test('what has ended is left alone', () => {
    const ended = fc.constantFrom<InstanceState>('stopped', 'terminated', 'error');
    fc.assert(
      fc.property(facts, ended, (given, status) => {
        expect(plan({ ...given, status }, 0)).toEqual({ do: 'wait', untilMs: null });
      }),
    );
  });
});

describe('an instance without a host', () => {
  test('is placed, and waits a minute for the first report of the host', () => {
    const waiting: Facts = { ...RUNNING, status: 'allocating', placedMs: null };
    expect(plan(waiting, 1)).toEqual({ do: 'place', because: null });
    expect(plan({ ...waiting, placedMs: 5 }, 60_004)).toEqual({ do: 'wait', untilMs: 60_005 });
  });

  test('goes to a third host and not to a fourth', () => {
    const silent: Facts = { ...RUNNING, status: 'allocating', placedMs: 0 };
    expect(plan({ ...silent, triedMachines: 2 }, 60_000)).toMatchObject({ do: 'place' });
    expect(plan({ ...silent, triedMachines: 3 }, 60_000)).toEqual({
      do: 'fail',
      code: 'operation_failed',
      detail: 'Tried 3 hosts; on the last one, the host did not answer.',
    });
  });
});

describe('a start', () => {
  const MINUTE_MS = 60_000;
  const starting: Facts = { ...RUNNING, status: 'starting', enteredMs: 10 * MINUTE_MS, placedMs: 7 * MINUTE_MS };

  test('has 25 minutes, and with a runtime limit 26 minutes from its placement', () => {
    expect(plan(starting, 1)).toEqual({ do: 'wait', untilMs: 35 * MINUTE_MS });
    expect(plan(starting, 35 * MINUTE_MS)).toEqual({ do: 'place', because: 'the instance did not start in time' });
    const limited: Facts = { ...starting, endsByItself: true };
    expect(plan(limited, 1)).toEqual({ do: 'wait', untilMs: 33 * MINUTE_MS });
    expect(plan({ ...limited, placedMs: 9.5 * MINUTE_MS }, 1)).toEqual({ do: 'wait', untilMs: 35 * MINUTE_MS });
    expect(plan({ ...limited, placedMs: null }, 1)).toEqual({ do: 'wait', untilMs: 35 * MINUTE_MS });
    // Acknowledgement, start, run and stop.
    expect(latestEnd(5, 2)).toBe(5 + (1 + 25 + 2 * 60 + 5) * MINUTE_MS);
  });

  test.each<[Partial<ObservedWorkload>, string]>([
    [{ phase: 'creating' }, 'creating the container'],
    [{ phase: 'starting' }, 'starting the container'],
    [{ phase: 'pulling' }, 'pulling the image'],
    [{ phase: 'pulling', pull: { done_bytes: 0, total_bytes: 0 } }, 'pulling the image'],
    [
      { phase: 'pulling', pull: { done_bytes: 1_572_864, total_bytes: 1024 ** 3 } },
      'pulling the image: 1.5 of 1024.0 MiB',
    ],
  ])('with the report %j shows the progress %j', (report, progress) => {
    const observed = { ...NOTHING, phase: 'pulling' as const, ...report };
    expect(plan({ ...starting, observed }, 1)).toEqual({ do: 'note', progress, untilMs: 35 * MINUTE_MS });
  });

  test('on a host whose GPU breaks goes elsewhere, also if it could run', () => {
    const gpuGrace = { untilMs: 99 * MINUTE_MS, fault: 'Xid 79', endsMs: null };
    const observed = { ...NOTHING, phase: 'running' as const };
    const because = 'the host found a GPU broken: Xid 79';
    expect(plan({ ...starting, observed, gpuGrace }, 1)).toEqual({ do: 'place', because });
  });

  test('is probed again a second after a failed probe', () => {
    const observed = { ...NOTHING, phase: 'running' as const };
    expect(plan({ ...starting, observed }, 11 * MINUTE_MS)).toEqual({ do: 'probe', againMs: 1_000 });
  });
});

describe('a broken GPU', () => {
  const gpuGrace = { untilMs: 500, fault: 'Xid 79', endsMs: null };

  test('ends a rental when its grace is over, or at its runtime limit if that comes first', () => {
    expect(plan({ ...RUNNING, gpuGrace }, 499)).toEqual({ do: 'wait', untilMs: 500 });
    expect(plan({ ...RUNNING, gpuGrace }, 500)).toMatchObject({
      do: 'lose',
      reason: 'A GPU of this instance broke and was not mended in time: Xid 79. That time was not charged.',
    });
    expect(plan({ ...RUNNING, gpuGrace, autoTerminateMs: 400 }, 1)).toEqual({ do: 'wait', untilMs: 400 });
    expect(plan({ ...RUNNING, gpuGrace, autoTerminateMs: 600 }, 1)).toEqual({ do: 'wait', untilMs: 500 });
    expect(plan({ ...RUNNING, gpuGrace, autoTerminateMs: 400 }, 400)).toEqual({ do: 'expire' });
  });

  test('that was mended soon is whole when its fault has counted for long enough, unless the rental ends first', () => {
    const mended = { ...gpuGrace, endsMs: 60 };
    expect(plan({ ...RUNNING, gpuGrace: mended }, 59)).toEqual({ do: 'wait', untilMs: 60 });
    expect(plan({ ...RUNNING, gpuGrace: mended }, 60)).toEqual({ do: 'mend' });
    expect(plan({ ...RUNNING, gpuGrace: mended, autoTerminateMs: 50 }, 1)).toEqual({ do: 'wait', untilMs: 50 });
    expect(plan({ ...RUNNING, gpuGrace: mended, autoTerminateMs: 60 }, 60)).toEqual({ do: 'expire' });
  });
});

describe('after a start of the control plane', () => {
  const quiet = { fromMs: 2_000_000, untilMs: 2_120_000 };

  test('a host that had to answer while the control plane was away has time to reconnect', () => {
    const before: Facts = { ...RUNNING, status: 'allocating', placedMs: 1_999_999, quiet };
    expect(plan({ ...before, placedMs: 1_000_000 }, 2_119_999)).toEqual({ do: 'wait', untilMs: 2_120_000 });
    expect(plan(before, 2_120_000)).toMatchObject({ do: 'place' });
    expect(plan({ ...before, placedMs: 2_000_000 }, 2_059_999)).toEqual({ do: 'wait', untilMs: 2_060_000 });
  });

  test('so has a host that had to start a container, unless a contract needs the GPUs after the runtime limit', () => {
    const starting: Facts = { ...RUNNING, status: 'starting', enteredMs: 400_000, placedMs: 350_000, quiet };
    const observed = { ...NOTHING, phase: 'starting' as const };
    expect(plan(starting, 2_119_999)).toEqual({ do: 'wait', untilMs: 2_120_000 });
    expect(plan({ ...starting, observed, startingMs: 1_000_000 }, 2_119_999)).toMatchObject({ untilMs: 2_120_000 });
    expect(plan({ ...starting, endsByItself: true }, 2_000_000)).toMatchObject({ do: 'place' });
  });

  test('so has a host that has mended a GPU', () => {
    const broken: Facts = { ...RUNNING, gpuGrace: { untilMs: 1_900_000, fault: 'Xid 79', endsMs: null }, quiet };
    expect(plan(broken, 2_119_999)).toEqual({ do: 'wait', untilMs: 2_120_000 });
    expect(plan(broken, 2_120_000)).toMatchObject({ do: 'lose' });
  });
});

describe('an instance that stops', () => {
  const stopping: Facts = { ...RUNNING, status: 'stopping', enteredMs: 1_000 };

  test('has ended when its container is gone, or after five minutes', () => {
    for (const phase of ['stopped', 'removed', 'missing'] as const) {
      expect(plan({ ...stopping, observed: { ...NOTHING, phase } }, 1_000)).toEqual({ do: 'finish' });
    }
    const observed = { ...NOTHING, phase: 'running' as const };
    expect(plan({ ...stopping, observed }, 300_999)).toEqual({ do: 'wait', untilMs: 301_000 });
    expect(plan({ ...stopping, observed }, 301_000)).toEqual({ do: 'finish' });
  });
});

// The plan of an instance that ends by itself: at its runtime limit, or with its program.
import { describe, expect, test } from 'vitest';
import { type Facts, plan } from '../../../control-plane/rental/instances/plan.ts';
import { NOTHING, RUNNING as INSTANCE } from './running-facts.ts';

const RUNNING: Facts = { ...INSTANCE, observed: { ...NOTHING, phase: 'running' } };

describe('a runtime limit', () => {
  const running: Facts = { ...RUNNING, autoTerminateMs: 3_600_000 };

  // Specification 3.1: A runtime limit ends a rental that is unreachable too.
  test.each(['running', 'unreachable'] as const)(
    'ends a rental that is %s at that very moment, not before',
    (status) => {
      expect(plan({ ...running, status }, 3_599_999)).toEqual({ do: 'wait', untilMs: 3_600_000 });
      expect(plan({ ...running, status }, 3_600_000)).toEqual({ do: 'expire' });
    },
  );

  test('is the reason of an end even if the host has ended the container first', () => {
    const observed = { ...NOTHING, phase: 'stopped' as const };
    expect(plan({ ...running, observed }, 3_600_000)).toEqual({ do: 'expire' });
  });
});

describe('a program with which the instance ends', () => {
  const exited: Facts = { ...RUNNING, exitedMs: 5_000 };

  test.each(['running', 'unreachable'] as const)('ends one that is %s when its log has arrived', (status) => {
    expect(plan({ ...exited, status }, 5_999)).toEqual({ do: 'wait', untilMs: 6_000 });
    expect(plan({ ...exited, status }, 6_000)).toEqual({ do: 'exit' });
  });

  test('ends it no later than its runtime limit', () => {
    expect(plan({ ...exited, autoTerminateMs: 5_500 }, 5_400)).toEqual({ do: 'wait', untilMs: 5_500 });
    expect(plan({ ...exited, autoTerminateMs: 5_500 }, 5_500)).toEqual({ do: 'expire' });
  });

  test('ends it while a GPU is broken, and does not wait for the GPU', () => {
    const gpuGrace = { fault: 'Xid 79', untilMs: 9_000_000, endsMs: null };
    expect(plan({ ...exited, gpuGrace }, 6_000)).toEqual({ do: 'exit' });
  });

  test('waits for the login that shows that the instance runs, and ends it if that does not come', () => {
    const starting: Facts = { ...exited, status: 'starting' };
    expect(plan(starting, 6_000)).toMatchObject({ do: 'probe' });
    expect(plan(starting, 1_500_000)).toEqual({ do: 'exit' });
  });

  test('is not hidden by a container that dies after it', () => {
    const observed = { ...NOTHING, phase: 'failed' as const, failure_code: 'container_died' as const };
    expect(plan({ ...exited, observed }, 6_000)).toEqual({ do: 'exit' });
    expect(plan({ ...exited, observed, status: 'starting' }, 5_000)).toEqual({ do: 'exit' });
  });
});

describe('a container that dies before its program has ended', () => {
  const died = (code: 'out_of_memory' | 'container_died'): Facts['observed'] => ({
    ...NOTHING,
    phase: 'failed',
    failure_code: code,
    detail: 'it ended with code 137',
  });
  test.each([
    ['out_of_memory', 'The container was killed, because it needed more memory than the host gives it.'],
    ['container_died', 'The container died on its host, and the program with it.'],
  ] as const)('ends the instance: %s', (code, words) => {
    const reason = `${words} The program was not started again.`;
    const observed = died(code);
    expect(plan({ ...RUNNING, observed }, 1)).toEqual({ do: 'lose', reason });
    expect(plan({ ...RUNNING, observed, ownImage: false }, 1)).toEqual({ do: 'lose', reason });
    const fail = { do: 'fail', code: 'operation_failed', detail: reason };
    expect(plan({ ...RUNNING, observed, status: 'starting' }, 1)).toEqual(fail);
    expect(plan({ ...RUNNING, observed, status: 'starting', ownImage: false }, 1)).toEqual(fail);
  });
});

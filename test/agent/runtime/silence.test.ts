// How long containers run without their guest: only time that this process has observed counts, and a restart does not reset it.
import { beforeEach, describe, expect, test } from 'vitest';
import type { LocalContainer } from '../../../agent/runtime/engine.ts';
import { createSilence, type Silence } from '../../../agent/runtime/silence.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';

let clock: VirtualClock;
let silence: Silence;
/** The holder, and what answers behind it. */
let isUp: boolean;
let guest: boolean;
let hasHolder: boolean;
let hasRun: boolean;
beforeEach(() => {
  clock = virtualClock(1_000_000);
  isUp = true;
  guest = false;
  hasHolder = true;
  hasRun = true;
  silence = createSilence(
    clock,
    { statuses: () => new Map(hasHolder ? [['wl_a', { up: isUp, guest, host_key: null, main_exit: null }]] : []) },
    () => hasRun,
  );
});

const container = (running: boolean): LocalContainer[] => [
  { id: 'c', workload_id: 'wl_a', running, mount_sources: [], gpu_uuids: [], started: true },
];
/** Notes it now and again every 5 s. */
function pass(seconds: number, containers: LocalContainer[] | null): void {
  silence.note(containers);
  for (let passed = 0; passed < seconds; passed += 5) {
    clock.jump(5_000);
    silence.note(containers);
  }
}

describe('a container is silent', () => {
  test('as long as it runs without a connected guest, also over several starts', () => {
    pass(60, container(true));
    pass(30, container(false));
    pass(60, container(true));
    expect(silence.ms.get('wl_a')).toBe(120_000);
  });

  test('not while its holder is closed', () => {
    isUp = false;
    pass(60, container(true));
    expect(silence.ms.get('wl_a')).toBeUndefined();
  });

  test('never again once its guest has connected, even for an instant', () => {
    guest = true;
    silence.listen();
    guest = false;
    pass(60, container(true));
    expect(silence.ms.get('wl_a')).toBeUndefined();
    expect([...silence.spoken]).toEqual(['wl_a']);
  });

  test('not while the engine does not answer', () => {
    pass(10, container(true));
    pass(300, null);
    pass(10, container(true));
    expect(silence.ms.get('wl_a')).toBe(20_000);
  });

  test('for no more than a moment while this host stood still', () => {
    silence.note(container(true));
    clock.jump(3_600_000);
    silence.note(container(true));
    expect(silence.ms.get('wl_a')).toBe(15_000);
  });

  test('and the time counts from zero for a new container that follows a removed one', () => {
    pass(60, container(true));
    silence.note([]);
    pass(10, container(true));
    expect(silence.ms.get('wl_a')).toBe(10_000);
  });
});

describe('that a guest has spoken', () => {
  const heard = (): boolean => silence.spoken.has('wl_a');
  beforeEach(() => {
    hasHolder = true;
    guest = true;
    silence.listen();
  });

  test('is known while the engine has the container or a holder is open for it, and forgotten after both', () => {
    silence.note(container(false));
    hasHolder = false;
    silence.note(container(false));
    expect(heard()).toBe(true);
    [hasHolder, guest] = [true, false];
    silence.note([]);
    expect(heard()).toBe(true);
    hasHolder = false;
    silence.note([]);
    expect(heard()).toBe(false);
  });

  test('is heard at each tick, also if nobody has told of the holder', () => {
    silence = createSilence(
      clock,
      { statuses: () => new Map([['wl_a', { up: true, guest, host_key: null, main_exit: null }]]) },
      () => true,
    );
    expect(heard()).toBe(false);
    silence.note(container(true));
    expect(heard()).toBe(true);
  });

  test('is not forgotten while the engine does not answer', () => {
    hasHolder = false;
    silence.note(null);
    expect(heard()).toBe(true);
  });
});

describe('a container that has run is dead', () => {
  test.each([
    ['the engine says that it does not run', container(false)],
    ['the engine does not answer', null],
    ['the engine does not know it', []],
  ])('while its guest is gone and %s, with and without a holder', (_why, containers) => {
    pass(60, containers);
    isUp = false;
    pass(60, containers);
    expect(silence.deadMs.get('wl_a')).toBe(120_000);
  });

  test.each<[string, () => void]>([
    ['its guest answers', () => (guest = true)],
    ['it has no holder, and never had one', () => (hasHolder = false)],
    ['it has never worked', () => (hasRun = false)],
  ])('but not if %s', (_why, change) => {
    change();
    pass(60, container(false));
    expect(silence.deadMs.has('wl_a')).toBe(false);
  });

  test('but not while it runs: only the tenant can have ended the guest then', () => {
    pass(60, container(true));
    expect(silence.deadMs.has('wl_a')).toBe(false);
  });

  test('until it runs again, and then the time begins anew', () => {
    pass(60, null);
    pass(5, container(true));
    expect(silence.deadMs.has('wl_a')).toBe(false);
    pass(10, null);
    expect(silence.deadMs.get('wl_a')).toBe(10_000);
  });
});

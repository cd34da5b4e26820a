// When the fence is installed, attacked and reported. The test plays the kernel, the engine and the attack.
import { expect, test } from 'vitest';
import { openFence, openNoFence, type Fence, type FenceDeps } from '../../../agent/runtime/fence.ts';
import { createLog } from '../../../shared/log.ts';
import { virtualClock, type VirtualClock } from '../../kit/virtual-clock.ts';

interface Played {
  fence: Fence;
  clock: VirtualClock;
  /** What the kernel holds; undefined after somebody flushed it. */
  table: { rules: string | undefined };
  attacks: number;
  logged: string[];
  changes: number;
  /** The loop's next periods, one after another. */
  periods(count: number): Promise<void>;
}

const PERIOD_MS = 5000;

async function play(
  more: { bridges?: FenceDeps['engine']['bridges']; attack?: FenceDeps['attack']; hold?: () => void } = {},
): Promise<Played> {
  const clock = virtualClock(1_000_000);
  const log = createLog('agent', 'silent');
  const played: Omit<Played, 'fence'> = {
    clock,
    table: { rules: undefined },
    attacks: 0,
    logged: [],
    changes: 0,
    periods: async (count) => {
      for (let i = 0; i < count; i += 1) {
        clock.jump(PERIOD_MS);
        await settle(clock);
      }
    },
  };
  log.info = log.warn = log.error = (...words: unknown[]) => played.logged.push(String(words.at(-1)));
  const engine = { bridges: more.bridges ?? (async () => []) };
  const nftables = {
    hold: async (rules: string) => {
      more.hold?.();
      if (played.table.rules === rules) return false;
      played.table.rules = rules;
      return true;
    },
    refused: async () => 0,
  };
  const attack = async (): Promise<void> => {
    played.attacks += 1;
    await more.attack?.();
  };
  const deps = {
    clock,
    log,
    engine,
    nftables,
    resolvers: async () => [],
    networks: () => [],
    attack,
  } as unknown as FenceDeps;
  const fence = openFence(deps, () => (played.changes += 1));
  await settle(clock);
  return Object.assign(played, { fence });
}

async function settle(clock: VirtualClock): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await clock.nextTurn();
}

test('the fence is installed and attacked once; after that it is only checked', async () => {
  const played = await play();
  await played.periods(3);
  await played.fence.assertStands();
  expect(played.attacks).toBe(1);
  expect(played.logged).toEqual(['the network fence stands']);
  expect(played.fence.finding()).toEqual({ network_fence: 'nftables', fence_error: '' });
  expect(played.changes).toBe(1);
});

test('a flushed fence is back within a period without a new attack; repeated changes by another program are logged once', async () => {
  const played = await play();
  for (let round = 0; round < 3; round += 1) {
    played.table.rules = undefined;
    await played.periods(1);
    expect(played.table.rules).toContain('table inet svc_fence');
  }
  expect(played.logged.filter((line) => line.includes('installed again'))).toHaveLength(1);
  await played.periods(1);
  played.table.rules = undefined;
  await played.periods(1);
  expect(played.logged.filter((line) => line.includes('installed again'))).toHaveLength(2);
  expect(played.attacks).toBe(1);
});

test('a container that starts right after a flush starts behind the fence', async () => {
  const played = await play();
  played.table.rules = undefined;
  await played.fence.assertStands();
  expect(played.table.rules).toContain('table inet svc_fence');
});

test('bridges of earlier agents are fenced by name; while the engine is away, its last known bridges count', async () => {
  let away = false;
  const bridges = async (): Promise<string[]> => {
    if (away) throw new Error('connect ENOENT');
    return ['svcbr-0123456789', 'br-old'];
  };
  const played = await play({ bridges });
  expect(played.table.rules).toContain('"br-old"');
  expect(played.table.rules).not.toContain('svcbr-0');
  away = true;
  played.table.rules = undefined;
  await played.periods(1);
  expect(played.table.rules).toContain('"br-old"');
});

test('before the first answer of the engine, nothing is changed, no error is reported, and nothing starts', async () => {
  let away = true;
  const bridges = async (): Promise<string[]> => {
    if (away) throw new Error('connect ENOENT');
    return [];
  };
  const played = await play({ bridges });
  expect(played.table.rules).toBeUndefined();
  expect(played.fence.finding().fence_error).toBe('');
  await expect(played.fence.assertStands()).rejects.toThrow('the container engine does not answer');
  away = false;
  await played.periods(1);
  await played.fence.assertStands();
  expect(played.attacks).toBe(1);
});

test('a fence that cannot be installed is reported and keeps containers from starting, until it stands', async () => {
  let missing = true;
  const hold = (): void => {
    if (missing) throw new Error('the program nft is missing: install the package nftables');
  };
  const played = await play({ hold });
  await played.periods(2);
  expect(played.fence.finding().fence_error).toBe('the program nft is missing: install the package nftables');
  await expect(played.fence.assertStands()).rejects.toThrow(/does not stand: the program nft is missing/);
  expect(played.logged).toHaveLength(1);
  expect(played.attacks).toBe(0);
  missing = false;
  await played.fence.assertStands();
  expect(played.fence.finding().fence_error).toBe('');
  expect(played.changes).toBe(2);
});

test('a failed attack is reported and tried again, later each time', async () => {
  let broken = true;
  const played = await play({
    attack: async () => {
      if (broken) throw new Error('a container reached this host');
    },
  });
  await expect(played.fence.assertStands()).rejects.toThrow('a container reached this host');
  expect(played.attacks).toBe(1);
  await played.periods(60);
  // 1, 2, 4, 8, 16, 32 s after the attack before, and then every minute, each at the next check: at 0, 5, 10, 15, 25, 45, 80, 140, 200, 260 s.
  expect(played.attacks).toBe(10);
  broken = false;
  await played.periods(12);
  await played.fence.assertStands();
  expect(played.fence.finding().fence_error).toBe('');
});

test('a long reason is reported by its first 400 characters, and a host without a fence reports none', async () => {
  const played = await play({
    attack: async () => {
      throw new Error('x'.repeat(401));
    },
  });
  expect(played.fence.finding().fence_error).toBe('x'.repeat(400));
  expect(played.fence.status().map(({ name }) => name)).toEqual(['fence']);
  const none = openNoFence(createLog('agent', 'silent'));
  expect([none.finding(), none.status()]).toEqual([{ network_fence: 'none', fence_error: '' }, []]);
  await none.assertStands();
  await none.stop();
});

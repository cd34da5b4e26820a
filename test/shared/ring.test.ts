// Things that come and go: their order, and that nothing of those that have left stays in memory.
import { expect, test } from 'vitest';
import { openRing } from '../../shared/ring.ts';
import { grownOldBytes } from '../kit/garbage.ts';

test('things are kept in the order in which they came', () => {
  const ring = openRing<{ name: string }>();
  const names = (): string =>
    ring
      .list()
      .map(({ name }) => name)
      .join('');
  const seen = (): unknown[] => [names(), ring.oldest()?.name, ring.size];
  expect(seen()).toEqual(['', undefined, 0]);
  const [leaveA, leaveB, leaveC, leaveD] = ['a', 'b', 'c', 'd'].map((name) => ring.add({ name }));
  expect(seen()).toEqual(['abcd', 'a', 4]);
  leaveB?.();
  expect(seen()).toEqual(['acd', 'a', 3]);
  leaveA?.();
  expect(seen()).toEqual(['cd', 'c', 2]);
  leaveD?.();
  expect(seen()).toEqual(['c', 'c', 1]);
  leaveC?.();
  expect(seen()).toEqual(['', undefined, 0]);
  ring.add({ name: 'e' });
  expect(seen()).toEqual(['e', 'e', 1]);
});

test('a thing leaves once, also if the same thing came again', () => {
  const ring = openRing<object>();
  const thing = {};
  const leave = ring.add(thing);
  leave();
  const leaveAgain = ring.add(thing);
  leave();
  expect(ring.list()).toEqual([thing]);
  leaveAgain();
  expect(ring.size).toBe(0);
});

test('things that have left are freed with the young objects', async () => {
  const ring = openRing<object>();
  const leaves: (() => void)[] = [];
  const comeAndGo = (count: number): void => {
    for (let i = 0; i < count; i += 1) {
      leaves.push(ring.add({ data: Array.from({ length: 100 }, (_, j) => ({ j })) }));
      if (leaves.length > 100) leaves.shift()?.();
    }
  };
  await grownOldBytes(10, () => comeAndGo(10));
  // A quiet time, in which all that is in the ring becomes old.
  await grownOldBytes(3, () => undefined);
  // These are 6,000 things of 3 kB, and each of them leaves within two collections.
  expect(await grownOldBytes(30, () => comeAndGo(200))).toBeLessThan(2_000_000);
});

// How a contract is distributed over machines.
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fewestMachines } from '../../../control-plane/fleet/placement/placement.ts';

const room = (sizes: readonly number[]): { machine_id: string; gpu_free: number }[] =>
  sizes.map((size, i) => ({ machine_id: `m${i}`, gpu_free: size }));
const sizesOf = (sizes: readonly number[], count: number): number[] | undefined =>
  fewestMachines(room(sizes), count)?.map((part) => part.count);

test.each([
  [[8, 4, 2], 2, [2]],
  [[8, 4, 2], 3, [3]],
  [[8, 4, 2], 10, [8, 2]],
  [[8, 8, 1, 1], 16, [8, 8]],
  [[1, 1, 1], 3, [1, 1, 1]],
  [[1, 1], 3, undefined],
  [[], 1, undefined],
  [[4], 0, []],
])('on machines with %j free GPUs, %d are split into parts of %j', (sizes, count, parts) => {
  expect(sizesOf(sizes, count)).toEqual(parts);
});

test.each([3, 4])('the smallest machine that has enough for %d is taken, so that large ones stay whole', (count) => {
  expect(fewestMachines(room([8, 4, 2]), count)).toEqual([{ machineId: 'm1', count }]);
});

test('uses as few machines as possible, none beyond its free GPUs and none twice', () => {
  const sizes = fc.array(fc.integer({ min: 1, max: 16 }), { maxLength: 12 });
  fc.assert(
    fc.property(sizes, fc.integer({ min: 1, max: 120 }), (free, count) => {
      const total = free.reduce((sum, size) => sum + size, 0);
      const parts = fewestMachines(room(free), count);
      expect(parts === undefined).toBe(total < count);
      if (parts === undefined) return;
      const largest = free.toSorted((a, b) => b - a);
      let fewest = 0;
      for (let got = 0; got < count; fewest += 1) got += largest[fewest] ?? 0;
      expect(parts).toHaveLength(fewest);
      expect(new Set(parts.map(({ machineId }) => machineId)).size).toBe(fewest);
      expect(parts.reduce((sum, part) => sum + part.count, 0)).toBe(count);
      expect(parts.every((part) => part.count <= (free[Number(part.machineId.slice(1))] ?? 0))).toBe(true);
    }),
    { seed: 22 },
  );
});

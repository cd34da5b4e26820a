// Bytes in pieces: all of them are there in order, and small pieces are kept together.
import { expect, test } from 'vitest';
import { openPieces } from '../../shared/pieces.ts';

/** Pieces of these sizes, with bytes that count on. */
function filled(sizes: readonly number[]): { added: Buffer; pieces: ReturnType<typeof openPieces> } {
  const added = Buffer.from(Array.from({ length: sizes.reduce((sum, size) => sum + size, 0) }, (_, i) => i % 251));
  const pieces = openPieces();
  let at = 0;
  for (const size of sizes) pieces.add(added.subarray(at, (at += size)));
  return { added, pieces };
}
const times = (count: number, size: number): number[] => Array.from({ length: count }, () => size);

test.each([
  ['none', [], 0],
  ['an empty one', [0], 1],
  ['one', [10], 1],
  ['a block of small ones after the first', [1, ...times(8_192, 1)], 2],
  ['a byte more than a block', [1, ...times(8_193, 1)], 3],
  ['small ones that do not fill their blocks', [1, ...times(10, 2_047)], 4],
  ['large ones', times(3, 2_048), 3],
  ['small and large ones', [1, 1, 2_048, 1, 1, 2_048, 1], 6],
])('%s', (_, sizes, count) => {
  const { added, pieces } = filled(sizes);
  expect(Buffer.concat(pieces.list()).equals(added)).toBe(true);
  expect([pieces.bytes, pieces.list().length]).toEqual([added.length, count]);
});

test('the list does not change with what is added later', () => {
  const { added, pieces } = filled([1, 1]);
  const before = pieces.list();
  pieces.add(Buffer.from('later'));
  expect(Buffer.concat(before).equals(added)).toBe(true);
});

// What is accepted once: nothing twice, also if there is more of it than is remembered.
import { expect, test } from 'vitest';
import { openOnce } from '../../../control-plane/fleet/link/once.ts';

const AGE_MS_MAX = 60_000;
const KNOWN_MAX = 3;

test('what comes twice is refused the second time', () => {
  const accept = openOnce({ ageMsMax: AGE_MS_MAX, knownMax: KNOWN_MAX });
  expect([accept({ id: 'a', atMs: 5 }, 10), accept({ id: 'a', atMs: 5 }, 10)]).toEqual([true, false]);
  expect(accept({ id: 'b', atMs: 5 }, 10)).toBe(true);
});

test('what is too old does not count: room is left for others', () => {
  const accept = openOnce({ ageMsMax: AGE_MS_MAX, knownMax: KNOWN_MAX });
  for (const id of ['a', 'b', 'c']) expect(accept({ id, atMs: 5 }, 10)).toBe(true);
  const nowMs = 6 + AGE_MS_MAX;
  for (const id of ['d', 'e', 'f']) expect(accept({ id, atMs: 6 }, nowMs)).toBe(true);
  expect(accept({ id: 'd', atMs: 6 }, nowMs)).toBe(false);
});

test('if more comes than is remembered, what is forgotten is refused, and newer requests are not', () => {
  const accept = openOnce({ ageMsMax: AGE_MS_MAX, knownMax: KNOWN_MAX });
  for (let atMs = 1; atMs <= 5; atMs += 1) expect(accept({ id: `at ${atMs}`, atMs }, 10)).toBe(true);
  for (let atMs = 1; atMs <= 5; atMs += 1) expect(accept({ id: `at ${atMs}`, atMs }, 10)).toBe(false);
  expect(accept({ id: 'late', atMs: 2 }, 10)).toBe(false);
  expect(accept({ id: 'of now', atMs: 10 }, 10)).toBe(true);
});

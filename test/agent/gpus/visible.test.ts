// The GPUs that a container sees, with folders in place of its /dev and /proc: as the driver shows them, and with each possible fault.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { gpusDiffer } from '../../../agent/gpus/visible.ts';

const dir = mkdtempSync(join(tmpdir(), 'visible-'));
afterAll(() => rmSync(dir, { recursive: true }));
const A = 'GPU-aaaa0000-0000-4000-8000-000000000001';
const B = 'GPU-bbbb0000-0000-4000-8000-000000000002';

/** A root with these devices; `cards` are what the driver says: a UUID by its device number. */
function root(devices: string[], cards: Record<number, string>): string {
  const path = mkdtempSync(join(dir, 'root-'));
  mkdirSync(join(path, 'dev'));
  for (const name of devices) writeFileSync(join(path, 'dev', name), '');
  for (const [minor, uuid] of Object.entries(cards)) {
    const folder = join(path, `proc/driver/nvidia/gpus/0000:3${minor}:00.0`);
    mkdirSync(folder, { recursive: true });
    const text = `Model: \t\t NVIDIA H100 80GB HBM3\nGPU UUID: \t ${uuid}\nBus Type: \t PCIe\nDevice Minor: \t ${minor}\n`;
    writeFileSync(join(folder, 'information'), text);
  }
  return path;
}
const COMMON = ['nvidiactl', 'nvidia-uvm', 'nvidia-modeset', 'null'];

test.each([
  ['one of the cards', [A], ['nvidia3'], { 3: A }],
  ['both, in another order', [A, B], ['nvidia1', 'nvidia0'], { 0: B, 1: A }],
  [
    'its card where the driver also names those of others, as without its folder hidden',
    [B],
    ['nvidia1'],
    { 0: A, 1: B },
  ],
  ['as many devices as it was given, where the driver names none', [A], ['nvidia0'], {}],
  ['none where it was given none', [], [], {}],
])('nothing is wrong with %s', (_what, expected, devices, cards) => {
  expect(gpusDiffer(expected, root([...COMMON, ...devices], cards))).toBeUndefined();
});

const WRONG: [string, string[], { devices: string[]; cards: Record<number, string> }, string][] = [
  ['no device', [A], { devices: [], cards: { 0: A } }, `given ${A} and sees no GPU`],
  ['one too few', [A, B], { devices: ['nvidia0'], cards: { 0: A } }, `given ${A}, ${B} and sees ${A}`],
  ['one too many', [A], { devices: ['nvidia0', 'nvidia1'], cards: { 0: A, 1: B } }, `given ${A} and sees ${A}, ${B}`],
  ["somebody else's", [A], { devices: ['nvidia0'], cards: { 0: B } }, `given ${A} and sees ${B}`],
  ['one that the driver does not name', [A], { devices: ['nvidia1'], cards: { 0: A } }, 'sees /dev/nvidia1'],
  ['one where it was given none', [], { devices: ['nvidia0'], cards: { 0: A } }, `given no GPU and sees ${A}`],
];

test.each(WRONG)('%s is reported', (_what, expected, { devices, cards }, words) => {
  expect(gpusDiffer(expected, root([...COMMON, ...devices], cards))).toContain(words);
});

test('a card whose device cannot be opened is reported', () => {
  const path = root(COMMON, { 0: A });
  symlinkSync('/nowhere/at/all', join(path, 'dev/nvidia0'));
  expect(gpusDiffer([A], path)).toBe(`${A} cannot be opened: ENOENT`);
});

// When the disk fills up, unused images are removed, the least recently used first, and never an image that the agent has not pulled.
import { beforeEach, describe, expect, test } from 'vitest';
import type { StateFiles } from '../../../agent/host/state.ts';
import { type Images, openImages } from '../../../agent/runtime/images.ts';
import { createLog } from '../../../shared/log.ts';

const GIB = 1024 ** 3;
const TOTAL = 100 * GIB;
let stored: Record<string, unknown>;
let sizes: Map<string, number>;
let inUse: Set<string>;
let removed: string[];
let nowMs: number;
let isFar: boolean;
/** Nothing can be stored while the disk has no byte free. */
let mayFill: boolean;
let images: Images;

const files: StateFiles = {
  read: async (file, schema) => (stored[file] === undefined ? undefined : schema.parse(stored[file])),
  write: async (file, value) => {
    if (mayFill && (await engine.disk())?.free_bytes === 0) throw new Error('ENOSPC: no space left on device, write');
    stored[file] = structuredClone(value);
  },
  list: async () => [],
  remove: async () => undefined,
};
const engine = {
  disk: async () => {
    const used = [...sizes.values()].reduce((sum, size) => sum + size, 0);
    return isFar ? undefined : { folder: '/d', free_bytes: TOTAL - used, total_bytes: TOTAL };
  },
  removeImage: async (image: string) => {
    if (inUse.has(image)) throw new Error('conflict: a container has it');
    removed.push(image);
    sizes.delete(image);
  },
};
const open = (): Promise<Images> =>
  openImages({
    engine,
    files,
    stateDir: '/s',
    log: createLog('test', 'silent'),
    now: () => nowMs,
    bounds: { high: 0.8, low: 0.7 },
  });

beforeEach(async () => {
  [stored, removed, nowMs, isFar, mayFill] = [{}, [], 0, false, false];
  sizes = new Map([['of others', 20 * GIB]]);
  inUse = new Set();
  images = await open();
});

async function pull(image: string, gib: number): Promise<void> {
  nowMs += 1_000;
  await images.use(image);
  sizes.set(image, gib * GIB);
}
const wanted = (...names: string[]): Set<string> => new Set(names);

describe('a sweep', () => {
  test('removes nothing below the bound', async () => {
    await pull('a', 60);
    await images.sweep(wanted());
    expect(removed).toEqual([]);
  });

  test('removes the least recently used images above the bound until enough is free, and no images of others', async () => {
    for (const [image, gib] of [
      ['a', 10],
      ['b', 10],
      ['c', 10],
      ['d', 31],
    ] as const)
      await pull(image, gib);
    nowMs += 1_000;
    await images.use('a');
    await images.sweep(wanted());
    expect(removed).toEqual(['b', 'c']);
    // What is gone is not removed once more.
    await pull('e', 20);
    await images.sweep(wanted());
    expect(removed).toEqual(['b', 'c', 'd']);
  });

  test('leaves images that are wanted or that a container uses, however old', async () => {
    await pull('wanted', 20);
    await pull('in use', 20);
    await pull('new', 21);
    inUse.add('in use');
    await images.sweep(wanted('wanted'));
    expect(removed).toEqual(['new']);
    expect(sizes.has('wanted')).toBe(true);
    // It goes when it can.
    await pull('next', 21);
    inUse.clear();
    await images.sweep(wanted('wanted', 'next'));
    expect(removed).toEqual(['new', 'in use']);
  });

  test('counts as a use of the wanted images', async () => {
    await pull('a', 20);
    await pull('b', 20);
    nowMs += 1_000;
    await images.sweep(wanted('a'));
    await pull('c', 21);
    await images.sweep(wanted('c'));
    expect(removed).toEqual(['b']);
  });

  test('knows after a restart what an earlier process has pulled', async () => {
    await pull('a', 20);
    await pull('b', 41);
    images = await open();
    await images.sweep(wanted('b'));
    expect(removed).toEqual(['a']);
  });

  test('removes nothing if the disk is not one of this host', async () => {
    await pull('a', 70);
    isFar = true;
    await images.sweep(wanted());
    expect(removed).toEqual([]);
  });
});

describe('a disk without a free byte', () => {
  beforeEach(async () => {
    await pull('in use', 20);
    await pull('empty', 0);
    await pull('unused', 30);
    await pull('wanted', 30);
    inUse.add('in use');
    mayFill = true;
  });

  test('gets its images removed, although one is in use and the record cannot be stored at first', async () => {
    await images.sweep(wanted('wanted'));
    expect(removed).toEqual(['empty', 'unused']);
    expect(Object.keys(stored['/s/images.json'] as object)).toEqual(['in use', 'wanted']);
  });

  test('has room for a pull then', async () => {
    expect(await images.makeRoom(GIB, wanted('wanted'))).toBe(true);
    expect(removed).toEqual(['empty', 'unused']);
  });
});

describe('space for a pull', () => {
  test('is freed by removing unused images, and no more than necessary', async () => {
    await pull('a', 10);
    await pull('b', 10);
    await pull('c', 10);
    expect(await images.makeRoom(60 * GIB, wanted('c'))).toBe(true);
    expect(removed).toEqual(['a', 'b']);
    expect(await images.makeRoom(69 * GIB, wanted('c'))).toBe(true);
    expect(await images.makeRoom(69.5 * GIB, wanted('c'))).toBe(false);
  });

  test('removes nothing for an image that is larger than the disk beside its reserve', async () => {
    sizes.delete('of others');
    await pull('a', 10);
    expect(await images.makeRoom(TOTAL - GIB + 1, wanted())).toBe(false);
    expect(removed).toEqual([]);
    expect(await images.makeRoom(TOTAL - GIB, wanted())).toBe(true);
    expect(removed).toEqual(['a']);
  });
});

test.each([
  [true, 1],
  [false, 0],
])('a full disk on which an image is in use: %s is reported in the log %d times', async (isInUse, times) => {
  const lines: string[] = [];
  const log = createLog('test', 'warn', { write: (line: string) => void lines.push(line) });
  const bounds = { high: 0.8, low: 0.7 };
  images = await openImages({ engine, files, stateDir: '/s', log, now: () => nowMs, bounds });
  await pull('a', 70);
  if (isInUse) inUse.add('a');
  await images.sweep(wanted());
  expect(lines.filter((line) => line.includes('no image can be removed'))).toHaveLength(times);
});

// What only the blob store on the local disk does: file modes, the space of the disk, and its incomplete files.
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, statfsSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openDiskBlobs } from '../../../../control-plane/base/blobs/local-disk.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import {
  AMPLE,
  blobs,
  clock,
  codeOf,
  contentOf,
  directory,
  filesOnDisk,
  NO_URLS,
  openStoreForEachTest,
  pieces,
} from './store.ts';

const never = new AbortController().signal;

openStoreForEachTest();

test('the disk is measured before the first write makes the folder, and its reserve is a whole number of bytes', async () => {
  const store = openDiskBlobs(join(directory, 'not', 'made'), {
    clock,
    ids: createIds(clock, systemRng()),
    log: createLog('test', 'silent'),
    reserve: { share: 0.1, bytes: 1 },
    presignedUrls: NO_URLS,
  });
  const { blocks, bsize } = statfsSync(tmpdir());
  const reserveBytes = Math.ceil(0.1 * blocks * bsize);
  expect(await store.disk()).toMatchObject({
    bytes: blocks * bsize,
    freeBytes: expect.any(Number) as number,
    reserveBytes,
  });
});

describe('a write', () => {
  test('that does not fit on the disk is storage_full and leaves nothing', async () => {
    const small = mkdtempSync(join(tmpdir(), 'small-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', small]);
    try {
      const store = openDiskBlobs(join(small, 'blobs'), {
        clock,
        ids: createIds(clock, systemRng()),
        log: createLog('test', 'silent'),
        reserve: { share: 0, bytes: 0 },
        presignedUrls: NO_URLS,
      });
      const key = store.newKey('files');
      expect(await codeOf(store.write(key, pieces('x'.repeat(400_000)), AMPLE))).toBe('storage_full');
      expect(await store.open(key)).toBeUndefined();
      expect(await store.write(key, pieces('y'.repeat(100_000)), AMPLE)).toMatchObject({ bytes: 100_000 });
    } finally {
      execFileSync('umount', [small]);
      rmSync(small, { recursive: true });
    }
  });

  test('is readable for this user only', async () => {
    const key = blobs.newKey('files');
    await blobs.write(key, pieces('secret'), AMPLE);
    const modes = ['whole', filesOnDisk()[0] ?? ''].map((path) => statSync(join(directory, path)).mode & 0o777);
    expect(modes).toEqual([0o700, 0o600]);
  });

  test('has its own place below two hexadecimal digits', async () => {
    const key = blobs.newKey('files');
    await blobs.write(key, pieces('x'), AMPLE);
    expect(filesOnDisk()).toEqual([expect.stringMatching(new RegExp(`^whole/files/[0-9a-f]{2}/${key}$`))]);
  });
});

describe('a blob', () => {
  test('that is removed is gone, but an open reader can read it to its end', async () => {
    const key = blobs.newKey('files');
    await blobs.write(key, pieces('to be read'), AMPLE);
    const reading = await blobs.open(key);
    await blobs.remove(key);
    await blobs.remove(key);
    expect(await blobs.open(key)).toBeUndefined();
    const read: Buffer[] = [];
    for await (const piece of reading?.stream({ first: 3, last: 4 }) ?? []) read.push(piece as Buffer);
    expect(Buffer.concat(read).toString()).toBe('be');
  });
});

describe('the sweep', () => {
  test('removes incomplete files of a dead process at once, and leaves those that are being written', async () => {
    mkdirSync(join(directory, 'halves'));
    writeFileSync(join(directory, 'halves', 'of-a-dead-process'), 'half');
    const key = blobs.newKey('files');
    async function* swept(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('first');
      expect(await blobs.sweep({}, never)).toBe(1);
      yield Buffer.from('last');
    }
    await blobs.write(key, swept(), AMPLE);
    expect(await contentOf(key)).toBe('firstlast');
    expect(filesOnDisk()).toHaveLength(1);
  });

  // NFS keeps a removed file that somebody still reads as `.nfs...`, and an interrupted rsync leaves a file with a dot and a suffix.
  test('leaves files that are no blobs, and goes on past them', async () => {
    const keys: string[] = [];
    for (let i = 0; i < 40; i += 1) keys.push((await blobs.write(blobs.newKey('files'), pieces('x'), AMPLE)).key);
    const folders = new Set(filesOnDisk().map((path) => join(directory, path, '..')));
    const strays = [...folders].flatMap((folder) => ['.nfs00000002', `.${keys[0]}.Ab12Cd`].map((n) => join(folder, n)));
    strays.push(join(directory, 'whole', 'files', 'notes.txt'));
    for (const stray of strays) writeFileSync(stray, 'x');
    for (const path of filesOnDisk()) utimesSync(join(directory, path), 0, 0);
    const asked: string[] = [];
    const files = async (old: readonly string[]): Promise<string[]> => {
      asked.push(...old);
      return [];
    };
    expect(await blobs.sweep({ files }, never)).toBe(40);
    expect(asked.toSorted()).toEqual(keys.toSorted());
    expect(filesOnDisk()).toHaveLength(strays.length);
  });

  test('uses the time at which a blob was complete, on the clock of the service', async () => {
    const startedMs = clock.now();
    async function* slow(): AsyncGenerator<Buffer> {
      yield Buffer.from('x');
      await clock.advance(70 * 60_000);
    }
    await blobs.write(blobs.newKey('files'), slow(), AMPLE);
    const [path = ''] = filesOnDisk();
    expect(clock.now()).toBe(startedMs + 70 * 60_000);
    expect(statSync(join(directory, path)).mtimeMs).toBe(clock.now());
    utimesSync(join(directory, path), 0, 0);
    expect(await blobs.sweep({ files: async () => [] }, never)).toBe(1);
  });
});

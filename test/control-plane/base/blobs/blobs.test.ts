// Blobs are complete or absent, written once, limited and durable, and leftovers of a dead process are removed.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { openBlobs } from '../../../../control-plane/base/blobs/blobs.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import {
  AMPLE,
  blobs,
  clock,
  contentOf,
  directory,
  filesOnDisk,
  openStoreForEachTest,
  pieces,
  reopened,
} from './store.ts';

const HOUR_MS = 3_600_000;
const never = new AbortController().signal;

openStoreForEachTest();

const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'done',
    (error: unknown) => (error instanceof ServiceError ? error.code : String(error)),
  );

describe('a write', () => {
  test('stores the content, returns its length and SHA-256, and the next process finds it', async () => {
    const key = blobs.newKey('files');
    const stored = await blobs.write(key, pieces('hello ', '', 'world'), AMPLE);
    const sha256 = createHash('sha256').update('hello world').digest('hex');
    expect(stored).toEqual({ key, bytes: 11, sha256 });
    const found = await reopened().open(key);
    expect(found?.bytes).toBe(11);
    await found?.close();
    expect(await contentOf(key)).toBe('hello world');
    expect(filesOnDisk()).toEqual([expect.stringMatching(new RegExp(`^whole/files/[0-9a-f]{2}/${key}$`))]);
  });

  test('may be empty', async () => {
    const key = blobs.newKey('files');
    expect(await blobs.write(key, pieces(), AMPLE)).toMatchObject({ bytes: 0 });
    expect(await contentOf(key)).toBe('');
  });

  test('accepts as many bytes as allowed; one more is refused and leaves nothing', async () => {
    const exact = blobs.newKey('files');
    expect(await blobs.write(exact, pieces('1234', '5678'), { ...AMPLE, bytesMax: 8 })).toMatchObject({ bytes: 8 });
    await blobs.remove(exact);
    const over = blobs.newKey('files');
    expect(await codeOf(blobs.write(over, pieces('1234', '56789'), { ...AMPLE, bytesMax: 8 }))).toBe('body_too_large');
    expect(filesOnDisk()).toEqual([]);
    expect(await blobs.open(over)).toBeUndefined();
  });

  test('stops reading its source at the limit', async () => {
    let read = 0;
    async function* endless(): AsyncGenerator<Uint8Array> {
      for (;;) {
        read += 1;
        yield Buffer.alloc(1000);
      }
    }
    expect(await codeOf(blobs.write(blobs.newKey('files'), endless(), { ...AMPLE, bytesMax: 5_000 }))).toBe(
      'body_too_large',
    );
    expect(read).toBe(6);
  });

  test('whose source fails, or that is aborted, leaves nothing', async () => {
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('half');
      throw new Error('the caller is gone');
    }
    expect(await codeOf(blobs.write(blobs.newKey('files'), broken(), AMPLE))).toContain('the caller is gone');
    const giveUp = new AbortController();
    async function* aborting(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('half');
      giveUp.abort(new Error('given up'));
    }
    const given = blobs.write(blobs.newKey('files'), aborting(), { ...AMPLE, signal: giveUp.signal });
    expect(await codeOf(given)).toContain('given up');
    expect(filesOnDisk()).toEqual([]);
  });

  test('is invisible before it is complete', async () => {
    const key = blobs.newKey('files');
    async function* watched(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('first');
      expect(await blobs.open(key)).toBeUndefined();
      yield Buffer.from('last');
    }
    await blobs.write(key, watched(), AMPLE);
    expect(await contentOf(key)).toBe('firstlast');
  });

  test('never replaces a blob, even if two writes run at the same time', async () => {
    const key = blobs.newKey('files');
    const both = await Promise.all([
      codeOf(blobs.write(key, pieces('one'), AMPLE)),
      codeOf(blobs.write(key, pieces('two'), AMPLE)),
    ]);
    expect(both.toSorted()).toEqual(['conflict', 'done']);
    const kept = await contentOf(key);
    expect(await codeOf(blobs.write(key, pieces('three'), AMPLE))).toBe('conflict');
    expect(await contentOf(key)).toBe(kept);
    expect(filesOnDisk()).toHaveLength(1);
  });

  test('that does not fit on the disk is storage_full and leaves nothing', async () => {
    const small = mkdtempSync(join(tmpdir(), 'small-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=256k', 'tmpfs', small]);
    try {
      const store = openBlobs(join(small, 'blobs'), {
        clock,
        ids: createIds(clock, systemRng()),
        log: createLog('test', 'silent'),
        reserve: { share: 0, bytes: 0 },
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

  test.each(['../../etc/passwd', 'files-blob_../x', 'files', '', 'files-blob_A', 'FILES-blob_a', 'files-blob_a\n'])(
    'cannot have the key %j, which would be a path from the caller',
    async (key) => {
      await expect(async () => blobs.open(key)).rejects.toThrow('is not the key of a blob');
    },
  );
});

describe('the sweep', () => {
  const written = async (): Promise<string> => (await blobs.write(blobs.newKey('files'), pieces('x'), AMPLE)).key;

  test('removes a blob without a row once it is an hour old, and no sooner', async () => {
    const [named, orphan] = [await written(), await written()];
    const asked: string[][] = [];
    const claims = { files: async (keys: readonly string[]) => (asked.push([...keys]), [named]) };
    await clock.advance(HOUR_MS - 1);
    expect(await blobs.sweep(claims, never)).toBe(0);
    await clock.advance(1);
    expect(await blobs.sweep(claims, never)).toBe(1);
    expect(asked.flat().toSorted()).toEqual([named, orphan].toSorted());
    expect(await blobs.open(orphan)).toBeUndefined();
    expect(await contentOf(named)).toBe('x');
  });

  test('leaves blobs of an owner without a function, and all blobs if that function fails', async () => {
    const key = await written();
    await clock.advance(2 * HOUR_MS);
    expect(await blobs.sweep({ videos: async () => [] }, never)).toBe(0);
    const failing = { files: () => Promise.reject(new Error('the database is away')) };
    await expect(blobs.sweep(failing, never)).rejects.toThrow('the database is away');
    expect(await contentOf(key)).toBe('x');
  });

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

  test('does nothing if nothing was ever written', async () => {
    expect(await blobs.sweep({ files: async () => [] }, never)).toBe(0);
  });

  test('uses the time at which a blob was complete, on the clock of the service', async () => {
    await written();
    const [path = ''] = filesOnDisk();
    expect(statSync(join(directory, path)).mtimeMs).toBe(clock.now());
    utimesSync(join(directory, path), 0, 0);
    expect(await blobs.sweep({ files: async () => [] }, never)).toBe(1);
  });
});

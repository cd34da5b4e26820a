// The contract of every blob store: blobs are complete or absent, written once and limited, and leftovers of a dead process are removed.
import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import {
  AMPLE,
  BACKENDS,
  blobs,
  clock,
  codeOf,
  contentOf,
  everything,
  openStoreForEachTest,
  ORPHAN_MS,
  pieces,
  readAll,
  reopened,
} from './store.ts';

const MIB = 1024 ** 2;
const never = new AbortController().signal;
const sha256Of = (content: Buffer): string => createHash('sha256').update(content).digest('hex');
async function* inPieces(content: Buffer, bytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < content.length; at += bytes) yield content.subarray(at, at + bytes);
}

describe.each(BACKENDS)('on %s', (backend) => {
  openStoreForEachTest(backend);

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
      expect(everything()).toEqual([expect.stringMatching(new RegExp(`${key}$`))]);
    });

    test('of 20 MiB in pieces of any size is stored byte by byte, and any range of it can be read', async () => {
      const content = randomBytes(20 * MIB + 12_345);
      const key = blobs.newKey('files');
      const stored = await blobs.write(key, inPieces(content, 300_001), AMPLE);
      expect(stored).toEqual({ key, bytes: content.length, sha256: sha256Of(content) });
      const found = await blobs.open(key);
      expect(sha256Of(await readAll(found?.stream() ?? []))).toBe(stored.sha256);
      for (const [first, last] of [
        [0, 0],
        [8 * MIB - 1, 8 * MIB],
        [content.length - 1, content.length - 1],
      ] as const) {
        const range = await readAll((await blobs.open(key))?.stream({ first, last }) ?? []);
        expect(range.equals(content.subarray(first, last + 1))).toBe(true);
      }
    });

    test.each([8 * MIB - 1, 8 * MIB, 8 * MIB + 1, 16 * MIB])(
      'of %i bytes, at the edges of parts, is whole',
      async (bytes) => {
        const content = Buffer.alloc(bytes, 'abcdefg');
        const { key } = await blobs.write(blobs.newKey('files'), inPieces(content, MIB), { ...AMPLE, bytesMax: bytes });
        expect(sha256Of(await readAll((await blobs.open(key))?.stream() ?? []))).toBe(sha256Of(content));
        const over = blobs.write(blobs.newKey('files'), inPieces(content, MIB), { ...AMPLE, bytesMax: bytes - 1 });
        expect(await codeOf(over)).toBe('body_too_large');
        expect(everything()).toHaveLength(1);
      },
    );

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
      expect(await codeOf(blobs.write(over, pieces('1234', '56789'), { ...AMPLE, bytesMax: 8 }))).toBe(
        'body_too_large',
      );
      expect(everything()).toEqual([]);
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

    test('of several parts whose source fails leaves nothing', async () => {
      async function* broken(): AsyncGenerator<Uint8Array> {
        for (let i = 0; i < 17; i += 1) yield Buffer.alloc(MIB, i);
        throw new Error('the caller is gone');
      }
      expect(await codeOf(blobs.write(blobs.newKey('files'), broken(), AMPLE))).toContain('the caller is gone');
      expect(everything()).toEqual([]);
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
      expect(everything()).toEqual([]);
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
      expect(everything()).toHaveLength(1);
    });
  });

  describe('a blob', () => {
    test('that is removed is gone, and removing it again does nothing', async () => {
      const key = blobs.newKey('files');
      await blobs.write(key, pieces('x'), AMPLE);
      await blobs.remove(key);
      await blobs.remove(key);
      expect(await blobs.open(key)).toBeUndefined();
      expect(everything()).toEqual([]);
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

    test('removes a blob without a row once it is old enough, and no sooner', async () => {
      const named = await written();
      const orphan = await written();
      const asked: string[][] = [];
      const claims = {
        files: async (keys: readonly string[]) => {
          asked.push([...keys]);
          return [named];
        },
      };
      await clock.advance(ORPHAN_MS[backend] - 1);
      expect(await blobs.sweep(claims, never)).toBe(0);
      await clock.advance(1);
      expect(await blobs.sweep(claims, never)).toBe(1);
      expect(asked.flat().toSorted()).toEqual([named, orphan].toSorted());
      expect(await blobs.open(orphan)).toBeUndefined();
      expect(await contentOf(named)).toBe('x');
    });

    test('leaves blobs of an owner without a function, and all blobs if that function fails', async () => {
      const key = await written();
      await clock.advance(2 * ORPHAN_MS[backend]);
      expect(await blobs.sweep({ videos: async () => [] }, never)).toBe(0);
      const failing = { files: () => Promise.reject(new Error('the database is away')) };
      await expect(blobs.sweep(failing, never)).rejects.toThrow('the database is away');
      expect(await contentOf(key)).toBe('x');
    });

    test('does nothing if nothing was ever written', async () => {
      expect(await blobs.sweep({ files: async () => [] }, never)).toBe(0);
    });
  });
});

// What only the blob store in S3 does: parts, repeated requests, broken answers, and errors that say what to do.
import { describe, expect, test } from 'vitest';
import { openS3Blobs } from '../../../../control-plane/base/blobs/s3.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { startS3Server } from '../../../kit/s3-server.ts';
import {
  AMPLE,
  blobs,
  clock,
  codeOf,
  contentOf,
  everything,
  openStoreForEachTest,
  pieces,
  s3,
  waitedFor,
} from './store.ts';

const MIB = 1024 ** 2;
const HOUR_MS = 3_600_000;
const never = new AbortController().signal;

openStoreForEachTest('S3');

async function* mebibytes(count: number): AsyncGenerator<Uint8Array> {
  for (let i = 0; i < count; i += 1) yield Buffer.alloc(MIB, i);
}
const written = async (): Promise<string> =>
  (await blobs.write(blobs.newKey('files'), pieces('0123456789'), AMPLE)).key;

describe('a write', () => {
  test('of one part is one request, and a larger one has parts of 8 MiB', async () => {
    await written();
    expect(s3.calls).toHaveLength(1);
    s3.calls.length = 0;
    await blobs.write(blobs.newKey('files'), mebibytes(17), AMPLE);
    expect(s3.calls.map((call) => call.replace(/files\/\S*\?(\w+).*/, '$1'))).toEqual([
      'POST uploads',
      'PUT partNumber',
      'PUT partNumber',
      'PUT partNumber',
      'POST uploadId',
    ]);
  });

  test('reads no more of its source than two parts before the store has taken the first', async () => {
    const arrived = Promise.withResolvers<void>();
    let read = 0;
    async function* counted(): AsyncGenerator<Uint8Array> {
      for await (const piece of mebibytes(40)) {
        read += 1;
        yield piece;
      }
    }
    s3.fault = ({ query }) =>
      query.get('partNumber') === '1' ? (arrived.resolve(), { status: 503, code: 'SlowDown' }) : undefined;
    const writing = blobs.write(blobs.newKey('files'), counted(), AMPLE);
    await arrived.promise;
    for (let i = 0; i < 100; i += 1) await clock.nextTurn();
    expect(read).toBe(16);
    s3.fault = () => undefined;
    expect(await waitedFor(writing)).toMatchObject({ bytes: 40 * MIB });
  });

  test.each(['PUT', 'POST'])('goes on after a %s that the store could not answer', async (method) => {
    const failed = new Set<string>();
    s3.fault = (call) => {
      const what = `${call.method} ${[...call.query.keys()].join()} ${call.query.get('partNumber')}`;
      if (call.method !== method || failed.has(what)) return undefined;
      failed.add(what);
      return { status: 503, code: 'SlowDown' };
    };
    const { key } = await waitedFor(blobs.write(blobs.newKey('files'), mebibytes(9), AMPLE));
    expect(failed.size).toBe(2);
    expect((await blobs.open(key))?.bytes).toBe(9 * MIB);
  });

  test('is not made by an answer that begins with 200 and has an error inside, as S3 may send', async () => {
    let failed = 0;
    s3.fault = ({ method, query }) =>
      method === 'POST' && query.has('uploadId') && (failed += 1) === 1
        ? { status: 200, code: 'InternalError' }
        : undefined;
    const { key } = await waitedFor(blobs.write(blobs.newKey('files'), mebibytes(9), AMPLE));
    expect(failed).toBe(2);
    expect(everything()).toEqual([`files/${key}`]);
  });

  test.each([1, 9])('of %i MiB whose last answer was lost has succeeded once, not twice', async (count) => {
    let isLost = false;
    s3.fault = ({ headers }) => {
      if (headers['if-none-match'] === undefined || isLost) return undefined;
      isLost = true;
      return 'lost';
    };
    const key = blobs.newKey('files');
    expect(await waitedFor(blobs.write(key, mebibytes(count), AMPLE))).toMatchObject({ bytes: count * MIB });
    expect(isLost).toBe(true);
    expect(everything()).toEqual([`files/${key}`]);
  });

  test('of several parts never replaces a blob', async () => {
    const key = blobs.newKey('files');
    await blobs.write(key, pieces('first'), AMPLE);
    expect(await codeOf(blobs.write(key, mebibytes(9), AMPLE))).toBe('conflict');
    expect(await contentOf(key)).toBe('first');
    expect(everything()).toHaveLength(1);
  });

  test('fails if the store refuses for good, and leaves nothing', async () => {
    s3.fault = ({ query }) => (query.get('partNumber') === '2' ? { status: 503, code: 'SlowDown' } : undefined);
    expect(await waitedFor(codeOf(blobs.write(blobs.newKey('files'), mebibytes(17), AMPLE)))).toBe('unavailable');
    expect(everything()).toEqual([]);
  });

  test('goes on after half a minute in which the store was silent', async () => {
    let isSilent = true;
    s3.fault = () => {
      const fault = isSilent ? ('silent' as const) : undefined;
      isSilent = false;
      return fault;
    };
    const startMs = clock.now();
    expect(await waitedFor(blobs.write(blobs.newKey('files'), pieces('x'), AMPLE))).toMatchObject({ bytes: 1 });
    expect(clock.now() - startMs).toBeGreaterThanOrEqual(30_000);
  });

  test('ends while the store is silent if its caller leaves', async () => {
    const gone = new AbortController();
    s3.fault = () => {
      gone.abort(new Error('the caller is gone'));
      return 'silent';
    };
    const writing = blobs.write(blobs.newKey('files'), pieces('x'), { ...AMPLE, signal: gone.signal });
    expect(await codeOf(writing)).toContain('the caller is gone');
  });
});

describe('a read', () => {
  test('that breaks off in the middle goes on at the byte where it broke', async () => {
    const key = await written();
    s3.calls.length = 0;
    let cuts = 0;
    s3.fault = ({ method }) => (method === 'GET' && (cuts += 1) < 6 ? { cutAfter: 1 } : undefined);
    expect(await waitedFor(contentOf(key))).toBe('0123456789');
    expect(s3.calls.map((call) => call.split(' ')[0])).toEqual(['HEAD', ...Array<string>(6).fill('GET')]);
  });

  test('never goes on with the bytes of another object', async () => {
    const key = await written();
    s3.fault = ({ method, object }) => {
      const found = s3.objects.get(object);
      if (method !== 'GET' || found === undefined) return undefined;
      queueMicrotask(() => s3.objects.set(object, { ...found, etag: '"other"', body: Buffer.from('abcdefghij') }));
      return { cutAfter: 3 };
    };
    expect(await waitedFor(codeOf(contentOf(key)))).toBe('unavailable');
  });

  test('fails if the store breaks every answer off without a byte', async () => {
    const key = await written();
    s3.fault = ({ method }) => (method === 'GET' ? { cutAfter: 0 } : undefined);
    expect(await waitedFor(codeOf(contentOf(key)))).toBe('unavailable');
  });
});

describe('the sweep', () => {
  test('removes parts of a blob that was never made after a day, page by page, and no sooner', async () => {
    s3.fault = ({ method }) => (method === 'DELETE' ? { status: 403, code: 'AccessDenied' } : undefined);
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield* mebibytes(8);
      throw new Error('the process is killed');
    }
    for (let i = 0; i < 3; i += 1) await codeOf(blobs.write(blobs.newKey('files'), broken(), AMPLE));
    s3.fault = () => undefined;
    expect(everything()).toHaveLength(3);
    await clock.advance(24 * HOUR_MS - 1);
    expect(await blobs.sweep({}, never)).toBe(0);
    await clock.advance(1);
    expect(await blobs.sweep({}, never)).toBe(3);
    expect(everything()).toEqual([]);
  });

  test('goes through all pages, and leaves what others have put into the bucket', async () => {
    const keys: string[] = [];
    for (let i = 0; i < 5; i += 1) keys.push(await written());
    const foreign = { body: Buffer.from('x'), etag: '"x"', meta: {}, modifiedMs: 0 };
    for (const object of ['files/notes.txt', 'backup/a', 'files-old']) s3.objects.set(object, foreign);
    await clock.advance(24 * HOUR_MS);
    expect(await blobs.sweep({ files: async () => keys.slice(0, 2) }, never)).toBe(3);
    expect(everything().toSorted()).toEqual(
      ['backup/a', 'files-old', 'files/notes.txt', ...keys.slice(0, 2).map((key) => `files/${key}`)].toSorted(),
    );
  });
});

describe('a store that refuses', () => {
  const lines: string[] = [];
  const log = createLog('test', 'info', { write: (line) => void lines.push(line) });
  const open = (own: Partial<typeof s3.settings>) =>
    openS3Blobs({ ...s3.settings, ...own }, { clock, ids: createIds(clock, systemRng()), log });

  test.each<[string, () => Partial<typeof s3.settings>, string]>([
    ['an unknown key', () => ({ accessKey: 'OTHER' }), 'access_key_file'],
    ['a wrong secret', () => ({ secretKey: 'other' }), 'secret_key_file'],
    ['a bucket that is not there', () => ({ bucket: 'other' }), 'make this bucket'],
    ['the wrong region', () => ({ region: 'other' }), 'region of blobs_s3'],
    ['no server', () => ({ endpoint: 'http://127.0.0.1:1' }), 'check that the store runs'],
  ])(
    'because of %s is 503 for who writes or reads, and the log tells the operator what to do',
    async (_what, own, remedy) => {
      const store = open(own());
      const key = store.newKey('files');
      for (const work of [() => store.write(key, pieces('x'), AMPLE), () => store.open(key), () => store.remove(key)]) {
        lines.length = 0;
        expect(await waitedFor(codeOf(work()))).toBe('unavailable');
        expect(lines.join('')).toContain(remedy);
        expect(lines.join('')).not.toContain(s3.settings.secretKey);
      }
    },
  );

  test.each([
    [501, 'NotImplemented', 'conditional writes'],
    [307, 'TemporaryRedirect', 'endpoint and region of blobs_s3'],
  ])('a write with %i %s is 503, and the log tells the operator what to do', async (status, code, remedy) => {
    lines.length = 0;
    s3.fault = ({ method }) => (method === 'PUT' ? { status, code } : undefined);
    expect(await waitedFor(codeOf(open({}).write(blobs.newKey('files'), pieces('x'), AMPLE)))).toBe('unavailable');
    expect(lines.join('')).toContain(remedy);
  });

  test('because the clock is wrong says so', async () => {
    const other = await startS3Server({ now: () => clock.now() + HOUR_MS });
    const store = open(other.settings);
    expect(await waitedFor(codeOf(store.write(store.newKey('files'), pieces('x'), AMPLE)))).toBe('unavailable');
    expect(lines.join('')).toContain('set the clock');
    await other.close();
  });

  test.each(['QuotaExceeded', 'XMinioStorageFull'])(
    'because it is full (%s) is storage_full and leaves nothing',
    async (code) => {
      lines.length = 0;
      s3.fault = ({ method }) => (method === 'PUT' ? { status: 507, code } : undefined);
      for (const source of [pieces('x'), mebibytes(17)])
        expect(await waitedFor(codeOf(open({}).write(blobs.newKey('files'), source, AMPLE)))).toBe('storage_full');
      expect(everything()).toEqual([]);
      expect(lines.join('')).toContain('make room in the store');
    },
  );

  test('to open or remove a blob is 503 too, and never looks like a blob that is gone', async () => {
    const key = await written();
    s3.fault = () => ({ status: 403, code: 'AccessDenied' });
    expect(await waitedFor(codeOf(blobs.open(key)))).toBe('unavailable');
    expect(await waitedFor(codeOf(blobs.remove(key)))).toBe('unavailable');
  });
});

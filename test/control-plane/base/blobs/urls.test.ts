// Presigned URLs over the wire: what they allow, for how long, and that no part of one can be changed.
import { once } from 'node:events';
import { connect } from 'node:net';
import { Readable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { OpenBlob, Permission } from '../../../../control-plane/base/blobs/blobs.ts';
import { type PresignedUrls, openPresignedUrls } from '../../../../control-plane/base/blobs/presigned-urls.ts';
import type { UrlKeys } from '../../../../control-plane/base/blobs/url-keys.ts';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { blobRoutes } from '../../../../control-plane/base/blobs/routes.ts';
import { type Bench, openBench } from '../http/fixture.ts';
import { AMPLE, blobs, clock, contentOf, filesOnDisk, openKeys, openStoreForEachTest, pieces } from './store.ts';

const SECRET = new Uint8Array(32).fill(9);
const TEXT = '0123456789';

openStoreForEachTest();
let bench: Bench;
let db: Db;
let keys: UrlKeys;
let presignedUrls: PresignedUrls;
let port: number;
let key: string;

const openUrls = (secret: Uint8Array): PresignedUrls =>
  openPresignedUrls({ secret, baseUrl: `http://127.0.0.1:${port}/v1`, keys });

beforeEach(async () => {
  ({ db, keys } = await openKeys());
  bench = await openBench({ clock, routes: () => blobRoutes({ blobs, presignedUrls: openUrls(SECRET), clock }) });
  ({ port } = await bench.http.listen({ host: '127.0.0.1', port: 0 }));
  presignedUrls = openUrls(SECRET);
  key = blobs.newKey('files');
});
afterEach(async () => {
  const closing = bench.close();
  // A connection whose response was just sent is not idle yet.
  await clock.advance(10_000);
  await closing;
  await db.close();
});

const inTenSeconds = (): number => clock.now() / 1000 + 10;
const readable = async (more: Partial<Permission> = {}): Promise<string> =>
  (await presignedUrls.signer())({ method: 'GET', key, expiresS: inTenSeconds(), ...more });
const writable = async (more: Partial<Permission> = {}): Promise<string> =>
  (await presignedUrls.signer())({ method: 'PUT', key, expiresS: inTenSeconds(), bytes: 10, ...more });
const put = (url: string, body: string, headers = {}): Promise<Response> =>
  fetch(url, { method: 'PUT', body, headers });
/** Reads the response to its end: the server closes only after all readers are done. */
const statusOf = async (url: string | URL): Promise<number> => {
  const response = await fetch(url);
  await response.text();
  return response.status;
};
const refusal = async (response: Response): Promise<[number, string]> => [
  response.status,
  ((await response.json()) as { code: string }).code,
];

describe('a URL to read', () => {
  beforeEach(() => blobs.write(key, pieces(TEXT), AMPLE));

  test('returns the content without an API key, under the signed name', async () => {
    const response = await fetch(await readable({ filename: 'a b.jsonl' }));
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '10',
      'accept-ranges': 'bytes',
      'content-disposition': "attachment; filename*=UTF-8''a%20b.jsonl",
      'cache-control': 'private, no-store',
      'x-content-type-options': 'nosniff',
    });
    expect(await response.text()).toBe(TEXT);
  });

  test.each([
    ['bytes=0-3', 206, '0123', 'bytes 0-3/10'],
    ['bytes=4-4', 206, '4', 'bytes 4-4/10'],
    ['bytes=7-', 206, '789', 'bytes 7-9/10'],
    ['bytes=9-', 206, '9', 'bytes 9-9/10'],
    ['bytes=8-100', 206, '89', 'bytes 8-9/10'],
    ['bytes=-3', 206, '789', 'bytes 7-9/10'],
    ['bytes=-100', 206, TEXT, 'bytes 0-9/10'],
    ['bytes=5-4', 200, TEXT, null],
    ['bytes=-', 200, TEXT, null],
    ['bytes=0-1,3-4', 200, TEXT, null],
    ['lines=0-1', 200, TEXT, null],
  ])('with the range %s is answered with %i and %s', async (range, status, text, contentRange) => {
    const response = await fetch(await readable(), { headers: { range } });
    expect(response.status).toBe(status);
    expect(response.headers.get('content-range')).toBe(contentRange);
    expect(response.headers.get('content-length')).toBe(String(text.length));
    expect(await response.text()).toBe(text);
  });

  test.each(['bytes=10-', 'bytes=10-12', 'bytes=-0'])('with the range %s is answered 416', async (range) => {
    expect(await refusal(await fetch(await readable(), { headers: { range } }))).toEqual([
      416,
      'range_not_satisfiable',
    ]);
  });

  test('answers a HEAD request without reading the blob', async () => {
    const { open } = blobs;
    const streams: Readable[] = [];
    blobs.open = async (asked) => {
      const blob = await open(asked);
      const stream: OpenBlob['stream'] = (range) => {
        const made = blob?.stream(range) ?? new Readable();
        streams.push(made);
        return made;
      };
      return blob === undefined ? undefined : { ...blob, stream };
    };
    const response = await fetch(await readable(), { method: 'HEAD' });
    expect([response.status, response.headers.get('content-length'), await response.text()]).toEqual([200, '10', '']);
    expect(streams.map((stream) => [stream.destroyed, stream.readableDidRead])).toEqual([[true, false]]);
  });

  test('of an empty blob is answered, and no range of it exists', async () => {
    key = blobs.newKey('files');
    await blobs.write(key, pieces(), AMPLE);
    const response = await fetch(await readable());
    expect([response.status, response.headers.get('content-length'), await response.text()]).toEqual([200, '0', '']);
    for (const range of ['bytes=0-', 'bytes=-1']) {
      expect((await fetch(await readable(), { headers: { range } })).status).toBe(416);
    }
  });

  test('is valid until its time and no longer', async () => {
    const url = await readable();
    await clock.advance(9_999);
    expect(await statusOf(url)).toBe(200);
    await clock.advance(1);
    const [status, code] = await refusal(await fetch(url));
    expect([status, code]).toEqual([403, 'url_invalid']);
  });

  test('of a removed blob is answered with 404', async () => {
    await blobs.remove(key);
    expect(await refusal(await fetch(await readable()))).toEqual([404, 'not_found']);
  });
});

/** The first character may be any of base64url. */
function withAnotherFirst(text: string): string {
  return `${text.startsWith('A') ? 'B' : 'A'}${text.slice(1)}`;
}

describe('no part of a URL can be changed', () => {
  beforeEach(() => blobs.write(key, pieces(TEXT), AMPLE));

  test.each<[string, (url: URL) => unknown]>([
    ['its time', (url) => url.searchParams.set('exp', String(inTenSeconds() + 1))],
    ['its name', (url) => url.searchParams.set('name', 'b')],
    ['a length that is added', (url) => url.searchParams.set('bytes', '1')],
    ['its key id', (url) => url.searchParams.set('kid', 'urlkey_1')],
    ['its signature', (url) => url.searchParams.set('sig', withAnotherFirst(url.searchParams.get('sig') ?? ''))],
    ['its signature, cut short', (url) => url.searchParams.set('sig', url.searchParams.get('sig')?.slice(2) ?? '')],
    ['its signature, left empty', (url) => url.searchParams.set('sig', '')],
    ['its key', (url) => (url.pathname = url.pathname.replace(key, blobs.newKey('files')))],
    ['its key, to a path', (url) => (url.pathname = url.pathname.replace(key, '..%2F..%2Fsecret'))],
  ])('%s', async (_what, change) => {
    const url = new URL(await readable({ filename: 'a' }));
    expect(await statusOf(url)).toBe(200);
    change(url);
    expect(await refusal(await fetch(url))).toEqual([403, 'url_invalid']);
  });

  test('a missing or malformed parameter is answered with 422', async () => {
    const url = new URL(await readable());
    url.searchParams.delete('sig');
    expect(await statusOf(url)).toBe(422);
  });

  test('a URL to read does not write, and a URL to write does not read', async () => {
    expect(await refusal(await put(await readable(), 'x'))).toEqual([403, 'url_invalid']);
    expect(await refusal(await fetch(await writable()))).toEqual([403, 'url_invalid']);
    expect(await contentOf(key)).toBe(TEXT);
  });

  test('a URL that was signed with another secret is refused', async () => {
    const foreign = openUrls(new Uint8Array(32).fill(8));
    const url = (await foreign.signer())({ method: 'GET', key, expiresS: inTenSeconds() });
    expect(await refusal(await fetch(url))).toEqual([403, 'url_invalid']);
  });
});

describe('a URL to write', () => {
  test('stores the body once, whatever its content type, and returns its length and SHA-256', async () => {
    const response = await put(await writable({ bytes: 7 }), '{"a":1}', { 'content-type': 'application/json' });
    expect(response.status).toBe(201);
    expect(await response.json()).toEqual({
      bytes: 7,
      sha256: '015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862',
    });
    expect(await refusal(await put(await writable({ bytes: 5 }), 'other'))).toEqual([409, 'conflict']);
    expect(await contentOf(key)).toBe('{"a":1}');
  });

  test('accepts as many bytes as signed; one more is answered with 413, one less with 400, declared or counted', async () => {
    const chunked = (text: string): RequestInit & { duplex: 'half' } => ({
      method: 'PUT',
      body: new Blob([text]).stream(),
      duplex: 'half',
    });
    expect(await refusal(await put(await writable(), `${TEXT}!`))).toEqual([413, 'body_too_large']);
    expect(await refusal(await fetch(await writable(), chunked(`${TEXT}!`)))).toEqual([413, 'body_too_large']);
    expect(await refusal(await put(await writable(), TEXT.slice(1)))).toEqual([400, 'invalid_request']);
    expect(await refusal(await fetch(await writable(), chunked(TEXT.slice(1))))).toEqual([400, 'invalid_request']);
    expect(filesOnDisk()).toEqual([]);
    expect((await fetch(await writable(), chunked(TEXT))).status).toBe(201);
    expect((await put(await writable({ key: blobs.newKey('files') }), TEXT)).status).toBe(201);
  });

  test('is valid until its time and no longer', async () => {
    const url = await writable();
    await clock.advance(10_000);
    expect(await refusal(await put(url, 'x'))).toEqual([403, 'url_invalid']);
    expect(filesOnDisk()).toEqual([]);
  });

  test('stores nothing if the caller disconnects in between', async () => {
    const { pathname, search } = new URL(await writable());
    const socket = connect(port, '127.0.0.1');
    socket.write(`PUT ${pathname}${search} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n01234`);
    await expect.poll(() => filesOnDisk()).toEqual([expect.stringMatching(/^halves\//)]);
    socket.destroy();
    await expect.poll(() => filesOnDisk()).toEqual([]);
    expect((await put(await writable(), TEXT)).status).toBe(201);
  });
});

describe('a slow body', () => {
  const upload = async (): Promise<{ send(text: string): Promise<void>; answer: Promise<string> }> => {
    const { pathname, search } = new URL(await writable({ expiresS: clock.now() / 1000 + 1_000 }));
    const socket = connect(port, '127.0.0.1');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    const answer = once(socket, 'close').then(() => Buffer.concat(chunks).toString());
    socket.write(`PUT ${pathname}${search} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\nConnection: close\r\n\r\n`);
    await expect.poll(() => filesOnDisk()).toHaveLength(1);
    return {
      answer,
      send: async (text) => {
        socket.write(text);
        // The server must have received it; this cannot be observed from outside.
        await new Promise((resolve) => setTimeout(resolve, 20));
      },
    };
  };

  test('is awaited as long as a part of it arrives each minute', async () => {
    const { send, answer } = await upload();
    for (const digit of TEXT) {
      await clock.advance(59_999);
      await send(digit);
      await clock.advance(1);
    }
    expect(await answer).toMatch(/^HTTP\/1\.1 201 /);
  });

  test('is cut off five seconds after its refusal if it keeps coming', async () => {
    const { pathname, search } = new URL(await writable());
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    const closed = once(socket, 'close');
    const chunks: Buffer[] = [];
    socket.on('data', (chunk: Buffer) => chunks.push(chunk));
    socket.write(`PUT ${pathname}${search} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n0`);
    await expect.poll(() => Buffer.concat(chunks).toString()).toContain(' 413 ');
    await clock.advance(4_999);
    expect(socket.destroyed).toBe(false);
    await clock.advance(1);
    await closed;
  });

  test('is answered with 408 after a minute without a byte, and leaves nothing', async () => {
    const { send, answer } = await upload();
    await send('0');
    await clock.advance(60_000);
    await clock.advance(60_000);
    expect(await answer).toMatch(/^HTTP\/1\.1 408 [^]*"code":"request_timeout"/);
    await expect.poll(() => filesOnDisk()).toEqual([]);
  });
});

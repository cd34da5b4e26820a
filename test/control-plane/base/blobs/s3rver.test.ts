// The blob store against a second S3 server, which others have written: a program from npm, in its own process and on real time.
// It verifies no signature, and knows neither conditional writes nor the list of unfinished uploads. The strict server of the kit does.
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Blobs } from '../../../../control-plane/base/blobs/blobs.ts';
import { openS3Blobs } from '../../../../control-plane/base/blobs/s3.ts';
import { systemClock } from '../../../../shared/clock.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { freePort } from '../../../kit/ports.ts';
import { type Program, startHttpProgram } from '../../../kit/processes.ts';
import { AMPLE, readAll } from './store.ts';

const PROGRAM = new URL('../../../../node_modules/s3rver/bin/s3rver.js', import.meta.url).pathname;
const MIB = 1024 ** 2;
const clock = systemClock();
const core = { clock, ids: createIds(clock, systemRng()), log: createLog('test', 'silent') };

let directory: string;
let server: Program;
let blobs: Blobs;

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 's3rver-'));
  const port = await freePort();
  const endpoint = `http://127.0.0.1:${port}`;
  const args = ['-d', directory, '-a', '127.0.0.1', '-p', String(port), '--configure-bucket', 'blobs'];
  server = await startHttpProgram({ command: process.execPath, args: [PROGRAM, ...args] }, endpoint);
  const settings = {
    endpoint,
    region: 'us-east-1',
    bucket: 'blobs',
    pathStyle: true,
    accessKey: 'S3RVER',
    secretKey: 'S3RVER',
  };
  blobs = openS3Blobs(settings, core);
});
afterAll(async () => {
  await server.stop();
  rmSync(directory, { recursive: true });
});

test.each([0, 1, 9 * MIB, 25 * MIB + 1])(
  'a blob of %i bytes is written, read whole and in part, and removed',
  async (bytes) => {
    const content = randomBytes(bytes);
    const sha256 = createHash('sha256').update(content).digest('hex');
    async function* source(): AsyncGenerator<Uint8Array> {
      for (let at = 0; at < bytes; at += 100_000) yield content.subarray(at, at + 100_000);
    }
    const key = blobs.newKey('files');
    expect(await blobs.write(key, source(), AMPLE)).toEqual({ key, bytes, sha256 });
    const read = async (range?: { first: number; last: number }): Promise<Buffer> =>
      readAll((await blobs.open(key))?.stream(range) ?? []);
    expect((await read()).equals(content)).toBe(true);
    const range = { first: Math.floor(bytes / 2), last: bytes - 1 };
    expect((await read(range)).equals(content.subarray(range.first))).toBe(true);
    await blobs.remove(key);
    expect(await blobs.open(key)).toBeUndefined();
  },
);

test('presigned URLs write and read a blob', async () => {
  const key = blobs.newKey('files');
  const expiresS = Math.floor(clock.now() / 1000) + 60;
  const allowed = await blobs.presign({ method: 'PUT', key, expiresS, bytes: 10 });
  const send = (url: string): Promise<Response> => fetch(url, { ...allowed, body: '0123456789' });
  expect((await send(allowed.url)).status).toBe(200);
  const { url } = await blobs.presign({ method: 'GET', key, expiresS, filename: 'größe (1).txt' });
  const response = await fetch(url);
  expect(await response.text()).toBe('0123456789');
  expect(response.headers.get('content-disposition')).toBe(
    "attachment; filename*=UTF-8''gr%C3%B6%C3%9Fe%20%281%29.txt",
  );
});

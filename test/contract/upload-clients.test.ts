// Files in parts by the official client, as it comes, in three majors, over a network, with both blob stores.
import { createHash } from 'node:crypto';
import OpenAI, { toFile } from 'openai';
import OpenAI4 from 'openai4';
import OpenAI5 from 'openai5';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { openS3Blobs } from '../../control-plane/base/blobs/s3.ts';
import { UPLOAD_PART_BYTES_MAX } from '../../shared/limits.ts';
import { type S3Server, startS3Server } from '../kit/s3-server.ts';
import type { Api } from './api.ts';
import { api, openApiForEachTest, owner } from './api-of-test.ts';
import { trainingLines } from './forms.ts';

const MIB = 1024 ** 2;
const CLIENTS: [string, typeof OpenAI][] = [
  ['openai 7', OpenAI],
  ['openai 5', OpenAI5 as unknown as typeof OpenAI],
  ['openai 4', OpenAI4 as unknown as typeof OpenAI],
];
/** 13 MiB. The check of a file takes longer for many short examples than for few long ones. */
const CONTENT = Buffer.from(trainingLines(5_000, 184));
const MD5 = createHash('md5').update(CONTENT).digest('hex');
const WANTED = { filename: 'train.jsonl', mime_type: 'text/jsonl', purpose: 'fine-tune' } as const;

let s3: S3Server;
beforeAll(async () => {
  s3 = await startS3Server({ now: () => api.world.clock.now() });
});
afterAll(() => s3.close());

const sizes = { fileBytesMax: 100 * MIB, fileBytesPerOrg: 300 * MIB };

describe.each([
  ['the local disk', () => ({ settings: sizes })],
  [
    'S3',
    () => ({ settings: sizes, blobs: (core: Parameters<typeof openS3Blobs>[1]) => openS3Blobs(s3.settings, core) }),
  ],
])('on %s', (_backend, outside) => {
  openApiForEachTest(outside);
  let baseURL: string;
  beforeEach(async () => {
    baseURL = await listening(api);
  });
  const listening = async ({ http }: Api): Promise<string> => {
    const { port } = await http.listen({ host: '127.0.0.1', port: 0 });
    return `http://127.0.0.1:${port}/v1`;
  };
  const third = Math.ceil(CONTENT.length / 3);
  const partOf = (i: number): Promise<File> => toFile(CONTENT.subarray(i * third, (i + 1) * third), `part-${i}`);

  test.each(CLIENTS)('%s sends a file in three parts side by side, and reads it back', async (_name, Client) => {
    const client = new Client({ apiKey: owner.key, baseURL, maxRetries: 0 });
    const { id, status } = await client.uploads.create({ ...WANTED, bytes: CONTENT.length });
    expect(status).toBe('pending');
    const parts = await Promise.all(
      [0, 1, 2].map(async (i) => client.uploads.parts.create(id, { data: await partOf(i) })),
    );
    const upload = await client.uploads.complete(id, { part_ids: parts.map((part) => part.id), md5: MD5 });
    expect(upload).toMatchObject({ status: 'completed', file: { bytes: CONTENT.length, status: 'processed' } });
    const fileId = upload.file?.id ?? '';
    const content = Buffer.from(await (await client.files.content(fileId)).arrayBuffer());
    expect(createHash('md5').update(content).digest('hex')).toBe(MD5);
    expect((await client.files.list()).data.map((file) => file.id)).toEqual([fileId]);
  });

  test('another control plane takes the rest of the parts and completes the file', async () => {
    const first = new OpenAI({ apiKey: owner.key, baseURL });
    const { id } = await first.uploads.create({ ...WANTED, bytes: CONTENT.length });
    const [one, two] = [
      await first.uploads.parts.create(id, { data: await partOf(0) }),
      await first.uploads.parts.create(id, { data: await partOf(1) }),
    ];
    const next = await api.restart();
    const second = new OpenAI({ apiKey: owner.key, baseURL: await listening(next) });
    const three = await second.uploads.parts.create(id, { data: await partOf(2) });
    const upload = await second.uploads.complete(id, { part_ids: [one.id, two.id, three.id], md5: MD5 });
    expect(upload.status).toBe('completed');
    await next.http.close();
  });

  test('refusals are errors of the client, with their field', async () => {
    const client = new OpenAI({ apiKey: owner.key, baseURL });
    const { id } = await client.uploads.create({ ...WANTED, bytes: 10 });
    const part = await client.uploads.parts.create(id, { data: await toFile(Buffer.from('12345'), 'a') });
    const refusal = (work: Promise<unknown>): Promise<unknown> =>
      work.then(
        () => 'done',
        (error: InstanceType<typeof OpenAI.APIError>) => [error.status, error.code, error.param],
      );
    expect(await refusal(client.uploads.complete(id, { part_ids: [part.id] }))).toEqual([
      422,
      'validation_failed',
      'part_ids',
    ]);
    expect((await client.uploads.cancel(id)).status).toBe('cancelled');
    const late = client.uploads.parts.create(id, { data: await toFile(Buffer.from('x'), 'a') });
    expect(await refusal(late)).toEqual([409, 'conflict', null]);
  });

  test('a part may have 64 MiB and no byte more', async () => {
    const client = new OpenAI({ apiKey: owner.key, baseURL, maxRetries: 0 });
    const { id } = await client.uploads.create({ ...WANTED, bytes: 90 * MIB });
    const part = (bytes: number): Promise<unknown> =>
      toFile(Buffer.alloc(bytes), 'a').then((data) => client.uploads.parts.create(id, { data }));
    await expect(part(UPLOAD_PART_BYTES_MAX + 1)).rejects.toMatchObject({ status: 413, code: 'request_too_large' });
    expect(await part(UPLOAD_PART_BYTES_MAX)).toMatchObject({ upload_id: id });
  });
});

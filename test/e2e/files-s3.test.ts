// A real control plane whose files are in S3: uploads in parts over a kill -9, what is left in the store, and what the log shows.
import { createHash } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { toFile } from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { systemClock } from '../../shared/clock.ts';
import { trainingLines } from '../contract/forms.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { eventually } from '../kit/processes.ts';
import { type S3Server, startS3Server } from '../kit/s3-server.ts';
import { openAccount } from '../kit/stack.ts';

const dir = mkdtempSync(join(tmpdir(), 'files-s3-'));
const CONTENT = Buffer.from(trainingLines(5_000, 170));
const HALF = Math.ceil(CONTENT.length / 2);
let s3: S3Server;
let controlPlane: ControlPlane;
let client: OpenAI;

beforeAll(async () => {
  s3 = await startS3Server(systemClock());
  const { endpoint, region, bucket, accessKey, secretKey } = s3.settings;
  const [keyFile, secretFile] = [join(dir, 's3.key'), join(dir, 's3.secret')];
  writeFileSync(keyFile, `${accessKey}\n`);
  writeFileSync(secretFile, `${secretKey}\n`);
  const store = { endpoint, region, bucket, access_key_file: keyFile, secret_key_file: secretFile };
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings: { blobs_s3: store } };
  controlPlane = await startControlPlane(join(dir, 'cp'), around);
  const { key } = await openAccount(controlPlane, 'trainer', 'all');
  client = new OpenAI({ apiKey: key, baseURL: controlPlane.baseUrl, maxRetries: 0 });
});
afterAll(async () => {
  await controlPlane.daemon.stop();
  await s3.close();
  rmSync(dir, { recursive: true });
});

const half = (i: number): Promise<File> => toFile(CONTENT.subarray(i * HALF, (i + 1) * HALF), 'half');

test('a file in parts survives kill -9 between and during its parts, and is whole afterwards', async () => {
  const wanted = { filename: 'a.jsonl', mime_type: 'text/jsonl', purpose: 'fine-tune' } as const;
  const { id } = await client.uploads.create({ ...wanted, bytes: CONTENT.length });
  const first = await client.uploads.parts.create(id, { data: await half(0) });
  // The store does not answer, so the part is on its way when the process is killed.
  s3.fault = ({ method }) => (method === 'PUT' ? 'silent' : undefined);
  const before = s3.calls.length;
  const cut = client.uploads.parts.create(id, { data: await half(1) }).catch(() => 'cut');
  await eventually('the part is on its way', 10_000, async () => (s3.calls.length > before ? true : undefined));
  await controlPlane.daemon.stop('SIGKILL');
  expect(await cut).toBe('cut');
  s3.fault = () => undefined;
  await controlPlane.daemon.start();
  const second = await client.uploads.parts.create(id, { data: await half(1) });
  const upload = await client.uploads.complete(id, {
    part_ids: [first.id, second.id],
    md5: createHash('md5').update(CONTENT).digest('hex'),
  });
  expect(upload).toMatchObject({ status: 'completed', file: { bytes: CONTENT.length, status: 'processed' } });
  const content = Buffer.from(await (await client.files.content(upload.file?.id ?? '')).arrayBuffer());
  expect(content.equals(CONTENT)).toBe(true);
  await client.files.delete(upload.file?.id ?? '');
});

test('a store that is away is 503 with Retry-After while the rest goes on, and the log says what to do without the secret', async () => {
  s3.fault = () => ({ status: 403, code: 'AccessDenied' });
  const file = await toFile(Buffer.from(trainingLines(10)), 'a.jsonl');
  await expect(client.files.create({ file, purpose: 'fine-tune' })).rejects.toMatchObject({ status: 503 });
  expect((await client.files.list()).data).toEqual([]);
  s3.fault = () => undefined;
  expect((await client.files.create({ file, purpose: 'fine-tune' })).status).toBe('processed');
  const log = readFileSync(controlPlane.daemon.logPath, 'utf8');
  expect(log).toContain('the key of blobs_s3 needs the permissions');
  expect(log).not.toContain(s3.settings.secretKey);
});

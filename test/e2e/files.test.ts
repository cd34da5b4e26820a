// Training files, uploaded by the official client and by curl to a real control plane that is killed meanwhile.
import { randomBytes } from 'node:crypto';
import {
  appendFileSync,
  createReadStream,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { APIError, toFile } from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { trainingLines } from '../contract/forms.ts';
import { capture } from '../kit/capture.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { eventually } from '../kit/processes.ts';
import { openAccount } from '../kit/stack.ts';

const MIB = 1024 ** 2;
const LARGEST_BYTES = 32 * MIB;
const dir = mkdtempSync(join(tmpdir(), 'files-'));
const blobsDirectory = join(dir, 'cp', 'blobs');
let controlPlane: ControlPlane;
let client: OpenAI;
let key: string;

beforeAll(async () => {
  const settings = { files: { file_mib_max: LARGEST_BYTES / MIB, mib_per_org: 200 } };
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings };
  controlPlane = await startControlPlane(join(dir, 'cp'), around);
  ({ key } = await openAccount(controlPlane, 'trainer', 'all'));
  client = new OpenAI({ apiKey: key, baseURL: controlPlane.baseUrl, maxRetries: 0 });
});
afterAll(async () => {
  await controlPlane.daemon.stop();
  rmSync(dir, { recursive: true });
});

const filesBelow = (folder: string): string[] =>
  existsSync(join(blobsDirectory, folder))
    ? readdirSync(join(blobsDirectory, folder), { recursive: true, withFileTypes: true })
        .filter((entry) => entry.isFile())
        .map(({ name }) => name)
    : [];

test('the official client uploads, lists, reads, downloads and deletes', async () => {
  const path = join(dir, 'train.jsonl');
  writeFileSync(path, trainingLines(50));
  const file = await client.files.create({ file: createReadStream(path), purpose: 'fine-tune' });
  expect(file).toMatchObject({ object: 'file', filename: 'train.jsonl', purpose: 'fine-tune', status: 'processed' });
  const more = ['a', 'b', 'c'].map(async (name) =>
    client.files.create({ file: await toFile(Buffer.from(trainingLines(10)), `${name}.jsonl`), purpose: 'fine-tune' }),
  );
  const ids = new Set([file, ...(await Promise.all(more))].map(({ id }) => id));
  const listed: string[] = [];
  for await (const { id } of client.files.list({ limit: 2 })) listed.push(id);
  expect(listed).toHaveLength(4);
  expect(new Set(listed)).toEqual(ids);
  expect(await client.files.retrieve(file.id)).toEqual(file);
  expect(await client.files.waitForProcessing(file.id)).toEqual(file);
  expect(await (await client.files.content(file.id)).text()).toBe(trainingLines(50));
  for (const id of ids) expect(await client.files.delete(id)).toEqual({ id, object: 'file', deleted: true });
  const gone: unknown = await client.files.retrieve(file.id).catch((error: unknown) => error);
  expect(gone).toBeInstanceOf(APIError);
  expect(gone).toMatchObject({ status: 404, code: 'not_found' });
});

test('the official client gets the reason of a refusal, before and after the upload', async () => {
  const upload = async (content: string, purpose: 'fine-tune' | 'assistants'): Promise<OpenAI.FileObject> =>
    client.files.create({ file: await toFile(Buffer.from(content), 'x.jsonl'), purpose });
  const refused: unknown = await upload(trainingLines(10), 'assistants').catch((error: unknown) => error);
  expect(refused).toMatchObject({ status: 422, code: 'validation_failed', param: 'purpose' });
  const bad = await upload('{"prompt": "a"}\n', 'fine-tune');
  expect(bad).toMatchObject({ status: 'error', status_details: expect.stringContaining('Line 1: ') as string });
  expect(await client.get(`/files/${bad.id}/report`)).toMatchObject({
    valid: false,
    problems: [
      { line: 1, rule: 'missing_messages' },
      { line: null, rule: 'too_few_examples' },
    ],
  });
  await client.files.delete(bad.id);
});

test('curl uploads the largest file and gets the same back, in parts too; a byte more is 413', async () => {
  const path = join(dir, 'large.jsonl');
  // Empty lines at the end are no harm, and no line is longer than a mebibyte.
  const spaces = Buffer.alloc(LARGEST_BYTES, `${' '.repeat(MIB - 1)}\n`);
  const content = Buffer.concat([Buffer.from(trainingLines(100_000)), spaces]).subarray(0, LARGEST_BYTES);
  writeFileSync(path, content);
  const auth = ['-H', `Authorization: Bearer ${key}`];
  const post = async (): Promise<unknown> => {
    const form = ['-F', 'purpose=fine-tune', '-F', `file=@${path}`];
    return JSON.parse(
      (await capture(['curl', '-sS', ...auth, ...form, `${controlPlane.baseUrl}/files`])).stdout.toString(),
    );
  };
  const { id, ...file } = (await post()) as { id: string };
  expect(file).toMatchObject({ bytes: LARGEST_BYTES, status: 'processed' });
  const get = async (...argv: string[]): Promise<Buffer> =>
    (await capture(['curl', '-sS', ...auth, ...argv, `${controlPlane.baseUrl}/files/${id}/content`])).stdout;
  const out = join(dir, 'back');
  await get('-o', out);
  expect(readFileSync(out).equals(content)).toBe(true);
  expect((await get('-r', '1000-1099')).equals(content.subarray(1_000, 1_100))).toBe(true);
  appendFileSync(path, ' ');
  expect(await post()).toMatchObject({ error: { code: 'request_too_large' } });
  await client.files.delete(id);
  expect([filesBelow('halves'), filesBelow('whole')]).toEqual([[], []]);
});

test('kill -9 during an upload: the next process removes the part at its start, has no such file, and accepts it anew', async () => {
  const sending = request(`${controlPlane.baseUrl}/files`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'multipart/form-data; boundary=x' },
  });
  const cut = new Promise((resolve) => sending.once('close', resolve));
  sending.on('error', () => undefined);
  sending.write('--x\r\nContent-Disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n');
  sending.write(randomBytes(MIB));
  await eventually('a half is there', 10_000, async () => (filesBelow('halves').length === 1 ? true : undefined));
  await controlPlane.daemon.stop('SIGKILL');
  await cut;
  expect(filesBelow('halves')).toHaveLength(1);
  await controlPlane.daemon.start();
  await eventually('the half is gone', 10_000, async () => (filesBelow('halves').length === 0 ? true : undefined));
  expect((await client.files.list()).data).toEqual([]);
  expect(filesBelow('whole')).toEqual([]);
  const again = await client.files.create({
    file: await toFile(Buffer.from(trainingLines(10)), 'a.jsonl'),
    purpose: 'fine-tune',
  });
  await controlPlane.daemon.stop('SIGKILL');
  await controlPlane.daemon.start();
  expect(await (await client.files.content(again.id)).text()).toBe(trainingLines(10));
});

test('the operator makes a new key for presigned URLs, and revokes the old ones', async () => {
  const made = await controlPlane.operator('admin', 'url-key', 'rotate');
  expect(made).toMatchObject({ id: expect.stringMatching(/^urlkey_/) as string, signs: true, urls_end_at: null });
  const revoked = await controlPlane.operator('admin', 'url-key', 'rotate', '--revoke');
  expect(await controlPlane.operator('admin', 'url-key', 'list')).toEqual({ data: [revoked] });
});

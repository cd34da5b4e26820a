// Videos, made by the official client and by curl on a real control plane that is killed meanwhile.
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { APIError } from 'openai';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { VideoJob } from '../../shared/api/videos.ts';
import { type ApiClient, openApiClient } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { videoModelsFile } from '../kit/models.ts';
import { eventually } from '../kit/processes.ts';
import { openAccount, verifyLedger } from '../kit/stack.ts';
import { mp4, openVideoServer, type VideoServer } from '../kit/video-server.ts';

const FILE = Buffer.concat([mp4(), randomBytes(3 * 1024 ** 2)]);
const MODEL = 'acme/director';

const dir = mkdtempSync(join(tmpdir(), 'vid-'));
let server: VideoServer;
let controlPlane: ControlPlane;
let client: OpenAI;
let api: ApiClient;
let key: string;

beforeAll(async () => {
  server = await openVideoServer();
  const models_file = join(dir, 'models.yaml');
  writeFileSync(models_file, videoModelsFile([{ base_url: server.baseUrl, engine: 'vllm_omni' }]));
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings: { models_file } };
  controlPlane = await startControlPlane(join(dir, 'cp'), around);
  const account = await openAccount(controlPlane, 'director', 'all');
  ({ key } = account);
  await controlPlane.operator('admin', 'balance', 'add', '--org', account.orgId, '--usd', '1', '--reference', 'first');
  client = new OpenAI({ apiKey: key, baseURL: controlPlane.baseUrl });
  api = openApiClient(controlPlane.baseUrl, key);
});
beforeEach(() => {
  server.script = () => undefined;
  server.usual = { status: 'in_progress', progress: 10 };
});
afterAll(async () => {
  await verifyLedger(controlPlane);
  await controlPlane.daemon.stop();
  await server.close();
  rmSync(dir, { recursive: true });
});

const balance = (): Promise<Balance> => api.get('/balance', Balance);
const finish = (): void => server.jobs.forEach((job) => Object.assign(job, { status: 'completed', file: FILE }));
const taken = (count: number): Promise<true> =>
  eventually('taken by the server', 20_000, async () => (server.jobs.length === count ? true : undefined));
const idle = (): Promise<true> =>
  eventually('let go of by the server', 20_000, async () => (server.jobs.length === 0 ? true : undefined));
const completed = (id: string): Promise<VideoJob> =>
  eventually('completed', 30_000, async () => {
    const job = await api.get(`/videos/${id}`, VideoJob);
    return job.status === 'completed' ? job : undefined;
  });
/** The client declares `seconds` as text. Its form makes a text of any value. */
const create = (seconds: '4' | '8' = '4'): Promise<OpenAI.Video> =>
  client.videos.create({ model: MODEL as OpenAI.VideoModel, prompt: 'a cat', seconds });

test('the official client makes a video, follows it, downloads it whole, and deletes it', async () => {
  const made = await create('8');
  expect(made).toMatchObject({ object: 'video', status: 'queued', model: MODEL, seconds: 8 });
  await taken(1);
  expect(server.jobs[0]?.fields).toMatchObject({ prompt: 'a cat', seconds: '8' });
  await eventually('in progress', 20_000, async () =>
    (await client.videos.retrieve(made.id)).status === 'in_progress' ? true : undefined,
  );
  finish();
  const done = await completed(made.id);
  expect(done).toMatchObject({ cost: '0.08', cost_cents: 8 });
  const answer = await client.videos.downloadContent(made.id);
  expect(answer.headers.get('content-type')).toBe('video/mp4');
  expect(Buffer.from(await answer.arrayBuffer()).equals(FILE)).toBe(true);
  await idle();
  expect(await client.videos.delete(made.id)).toMatchObject({ id: made.id, deleted: true });
  expect(await client.videos.retrieve(made.id).catch((error: APIError) => error.status)).toBe(404);
});

test('the official client pages through its list by itself, and cancels', async () => {
  const made = [];
  for (let i = 0; i < 5; i += 1) made.push((await create()).id);
  const listed = [];
  for await (const { id } of client.videos.list({ limit: 2 })) listed.push(id);
  expect(listed).toEqual(made.toReversed());
  const oldest = [];
  for await (const { id } of client.videos.list({ limit: 2, order: 'asc' })) oldest.push(id);
  expect(oldest).toEqual(made);
  for (const id of made) expect(await client.post(`/videos/${id}/cancel`)).toMatchObject({ id, status: 'cancelled' });
  await idle();
  expect((await balance()).held_cents).toBe(0);
});

test('the official client understands what is refused, and does not ask for a file again that is not there yet', async () => {
  const refused: unknown = await client.videos
    .create({ model: MODEL as OpenAI.VideoModel, prompt: 'a cat', input_reference: new File(['x'], 'x.png') })
    .catch((error: unknown) => error);
  expect(refused).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'input_reference' });
  const { id } = await create();
  let requests = 0;
  const counting: typeof fetch = (input, init) => {
    requests += 1;
    return fetch(input, init);
  };
  const counted = client.withOptions({ fetch: counting });
  const early: unknown = await counted.videos.downloadContent(id).catch((error: unknown) => error);
  expect(early).toBeInstanceOf(APIError);
  expect(early).toMatchObject({ status: 409, code: 'conflict' });
  expect(requests).toBe(1);
  await client.post(`/videos/${id}/cancel`);
  await idle();
});

test('curl submits JSON, and downloads a range and the whole', async () => {
  const curl = (...args: string[]): Promise<{ stdout: Buffer }> =>
    capture(['curl', '-sS', '-H', `Authorization: Bearer ${key}`, ...args]);
  const body = JSON.stringify({ model: MODEL, prompt: 'a cat', seconds: 2 });
  const headers = ['-H', 'content-type: application/json', '-H', 'Idempotency-Key: by-curl'];
  const submit = (): Promise<{ stdout: Buffer }> => curl(...headers, '-d', body, `${controlPlane.baseUrl}/videos`);
  const { stdout } = await submit();
  const { id } = VideoJob.parse(JSON.parse(stdout.toString()));
  expect((await submit()).stdout.equals(stdout)).toBe(true);
  await taken(1);
  finish();
  await completed(id);
  await idle();
  const url = `${controlPlane.baseUrl}/videos/${id}/content`;
  expect((await curl('-r', '4-11', url)).stdout.toString()).toBe('ftypisom');
  const path = join(dir, 'curl.mp4');
  await curl('-o', path, url);
  expect(readFileSync(path).equals(FILE)).toBe(true);
});

test('kill -9 while a file comes in: the next process fetches it again, keeps one file, and charges once', async () => {
  const before = await balance();
  const files = (): string[] =>
    readdirSync(join(dir, 'cp', 'blobs'), { recursive: true, withFileTypes: true })
      .filter((each) => each.isFile())
      .map(({ name }) => name);
  const kept = files().length;
  const half = { body: FILE.subarray(0, FILE.length / 2), headers: { 'content-length': String(FILE.length) } };
  server.script = (what) => (what.endsWith('/content') ? { ...half, ending: 'stall' } : undefined);
  const { id } = await create();
  await taken(1);
  finish();
  await eventually('a half of the file', 20_000, async () => (files().length === kept + 1 ? true : undefined));
  await controlPlane.daemon.stop('SIGKILL');
  server.script = () => undefined;
  await controlPlane.daemon.start();
  expect(await completed(id)).toMatchObject({ cost: '0.04' });
  const after = await balance();
  expect(after.held_cents).toBe(0);
  expect(Number(before.balance) - Number(after.balance)).toBeCloseTo(0.04, 9);
  await eventually('the half is gone', 20_000, async () => (files().length === kept + 1 ? true : undefined));
  await idle();
  const answer = await client.videos.downloadContent(id);
  expect(Buffer.from(await answer.arrayBuffer()).equals(FILE)).toBe(true);
});

test('kill -9 while a server is asked to take a job: it is asked again, and the customer pays once', async () => {
  const before = await balance();
  const asked = server.asked.length;
  server.script = (what) => (what.startsWith('POST') ? { takes: true, ending: 'stall', body: '{' } : undefined);
  const { id } = await create();
  await server.came(asked + 1);
  await controlPlane.daemon.stop('SIGKILL');
  server.script = () => undefined;
  await controlPlane.daemon.start();
  await taken(2);
  finish();
  await completed(id);
  expect(Number(before.balance) - Number((await balance()).balance)).toBeCloseTo(0.04, 9);
});

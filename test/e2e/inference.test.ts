// Calls to models, by the official client and by curl, on a real control plane that is killed meanwhile.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import OpenAI, { APIError, NotFoundError } from 'openai';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Balance } from '../../shared/api/billing.ts';
import { openApiClient } from '../kit/api-client.ts';
import { capture } from '../kit/capture.ts';
import { type ControlPlane, startControlPlane } from '../kit/control-plane.ts';
import { type FakeUpstream, openFakeUpstream } from '../kit/fake-upstream.ts';
import { modelsFile } from '../kit/models.ts';
import { eventually } from '../kit/processes.ts';
import { openAccount, verifyLedger } from '../kit/stack.ts';
import { BEGIN, HELLO_EVENTS, say } from '../kit/stream-chunks.ts';

/** The prices are so high that a request holds more than a cent. */
const PRICING = { input_per_1m_tokens_cents: 1_000, output_per_1m_tokens_cents: 10_000 };
const HI = [{ role: 'user' as const, content: 'hi' }];

const dir = mkdtempSync(join(tmpdir(), 'inf-'));
let upstream: FakeUpstream;
let controlPlane: ControlPlane;
let client: OpenAI;
let key: string;

beforeAll(async () => {
  upstream = await openFakeUpstream();
  upstream.usual = ({ body }) => (body['stream'] === true ? { events: HELLO_EVENTS } : {});
  const models_file = join(dir, 'models.yaml');
  writeFileSync(models_file, modelsFile(upstream.baseUrl, { pricing: PRICING }));
  const settings = { models_file };
  const around = { postgresUrl: undefined, registries: [], authority: undefined, settings };
  controlPlane = await startControlPlane(join(dir, 'cp'), around);
  const account = await openAccount(controlPlane, 'caller', 'all');
  ({ key } = account);
  const funds = ['--org', account.orgId, '--usd', '1', '--reference', 'first'];
  await controlPlane.operator('admin', 'balance', 'add', ...funds);
  client = new OpenAI({ apiKey: key, baseURL: controlPlane.baseUrl });
});
afterAll(async () => {
  await verifyLedger(controlPlane);
  await controlPlane.daemon.stop();
  await upstream.close();
  rmSync(dir, { recursive: true });
});

const balance = (): Promise<Balance> => openApiClient(controlPlane.baseUrl, key).get('/balance', Balance);
const nothingHeld = (): Promise<true> =>
  eventually('nothing is held', 10_000, async () => ((await balance()).held_cents === 0 ? true : undefined));

test('the official client lists and reads models, and completes chats whole and as streams', async () => {
  const listed = (await client.models.list()).data.map(({ id }) => id);
  expect(listed).toContain('acme/small-chat');
  expect(await client.models.retrieve('acme/small-chat')).toMatchObject({ id: 'acme/small-chat', object: 'model' });
  const { data: whole, response } = await client.chat.completions
    .create({ model: 'small', messages: HI })
    .withResponse();
  expect(response.headers.get('x-ratelimit-limit-requests')).toBe('40');
  expect(response.headers.get('x-ratelimit-remaining-requests')).toBe('39');
  expect(whole).toMatchObject({ model: 'acme/small-chat', choices: [{ message: { content: 'Hello there.' } }] });
  const stream = await client.chat.completions.create({
    model: 'small',
    messages: HI,
    stream: true,
    stream_options: { include_usage: true },
  });
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? JSON.stringify(chunk.usage ?? '');
  expect(text).toBe('Hello there.""{"prompt_tokens":6,"completion_tokens":3,"total_tokens":9}');
});

test('the official client makes embeddings with the right setting, and its default is refused with the name of that setting', async () => {
  const body = { model: 'acme/embedder', input: ['a', 'b'] };
  const refused: unknown = await client.embeddings.create(body).catch((error: unknown) => error);
  expect(refused).toMatchObject({
    code: 'unsupported_parameter',
    message: expect.stringContaining('pass encoding_format: "float"') as string,
  });
  const data = [1, 0].map((index) => ({ index, embedding: [index, 0.5] }));
  upstream.next({ body: { data, usage: { prompt_tokens: 2 } } });
  const made = await client.embeddings.create({ ...body, encoding_format: 'float' });
  expect(made.data.map(({ embedding }) => embedding)).toEqual([
    [0, 0.5],
    [1, 0.5],
  ]);
});

test('the official client understands what is refused, and what breaks on the way', async () => {
  const failing = async (asking: Promise<unknown>): Promise<APIError> => {
    const error = await asking.catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(APIError);
    return error as APIError;
  };
  const missing = await failing(client.chat.completions.create({ model: 'nobody/knows', messages: HI }));
  expect(missing).toBeInstanceOf(NotFoundError);
  expect(missing).toMatchObject({
    status: 404,
    code: 'model_not_found',
    param: 'model',
    requestID: expect.stringMatching(/^req_/) as string,
  });
  const tools = [{ type: 'function' as const, function: { name: 'x' } }];
  const refused = await failing(client.chat.completions.create({ model: 'small', messages: HI, tools }));
  expect(refused).toMatchObject({ status: 400, code: 'unsupported_parameter', param: 'tools' });
  upstream.next({ events: [BEGIN, say('Hel')], ending: 'cut' });
  const stream = await client.chat.completions.create({ model: 'small', messages: HI, stream: true });
  const read = async (): Promise<void> => {
    for await (const _chunk of stream);
  };
  expect(await failing(read())).toMatchObject({ code: 'upstream_error', type: 'server_error' });
});

test('a client that stops reading ends the work of the server', async () => {
  const before = upstream.left();
  upstream.next({ events: [BEGIN, say('Hel')], ending: 'stall' });
  const stream = await client.chat.completions.create({ model: 'small', messages: HI, stream: true });
  for await (const chunk of stream) if (chunk.choices[0]?.delta.content === 'Hel') break;
  await upstream.wereLeft(before + 1);
  await nothingHeld();
});

test('curl sees the events as they are', async () => {
  const { stdout } = await capture([
    'curl',
    '-sSN',
    `${controlPlane.baseUrl}/chat/completions`,
    '-H',
    `Authorization: Bearer ${key}`,
    '-H',
    'content-type: application/json',
    '-d',
    JSON.stringify({
      model: 'small',
      messages: HI,
      stream: true,
    }),
  ]);
  const lines = stdout.toString().split('\n\n');
  expect(lines).toHaveLength(6);
  expect(lines[1]).toMatch(
    /^data: \{"id":"chatcmpl-.*"delta":\{"content":"Hello"\},"logprobs":null,"finish_reason":null\}\]\}$/,
  );
  expect(lines.slice(-2)).toEqual(['data: [DONE]', '']);
});

test('kill -9 within a chat: the next process gives back what was held, charges nothing, and answers', async () => {
  const already = upstream.asked.length;
  upstream.next({ ending: 'stall' });
  const asking = client.chat.completions.create({ model: 'small', messages: HI }, { maxRetries: 0 }).catch(() => 'cut');
  await upstream.came(already + 1);
  const before = await balance();
  expect(before.held_cents).toBe(10);
  await controlPlane.daemon.stop('SIGKILL');
  expect(await asking).toBe('cut');
  await controlPlane.daemon.start();
  await nothingHeld();
  expect((await balance()).balance).toBe(before.balance);
  expect((await client.chat.completions.create({ model: 'small', messages: HI })).choices).toHaveLength(1);
});

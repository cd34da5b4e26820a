// A real llama.cpp whose caller leaves, that dies within its answer, or that still loads its model: what it computes, and what is charged.
import OpenAI from 'openai';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { api, owner } from '../../contract/api-of-test.ts';
import { TEXT } from '../../kit/gguf-model.ts';
import { type LlamaServer, startLlamaServer } from '../../kit/llama-server.ts';
import { dataOf } from '../../kit/stream-chunks.ts';
import {
  chat,
  chatModel,
  closedReceipts,
  heldCents,
  listen,
  openChat,
  openEngineForEachTest,
  priced,
} from './engine-of-test.ts';

/** `hi` and the template. */
const PROMPT = 6;
/** An answer takes eight seconds, and its caller leaves long before. */
const MOST = 400;
const SLOTS = 4;
const LONG = { contextLength: 1_024, tokenMs: 20, slots: SLOTS };
const never = new AbortController().signal;

let endless: LlamaServer;
beforeAll(async () => {
  endless = await startLlamaServer({ kind: 'endless', ...LONG });
});
afterAll(() => endless.stop());

const LIMITS = { context_length: 1_024, max_output_tokens: MOST };

/** Reads a stream until the given number of words has arrived, or else to its end. */
async function read(reader: ReadableStreamDefaultReader<Uint8Array>, words: number): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return text;
    text += decoder.decode(value, { stream: true });
    if (text.split('"delta":{"content":" ').length > words) return text;
  }
}

describe('a caller who leaves', () => {
  openEngineForEachTest(() => [chatModel(endless, LIMITS)]);

  test('a stream stops the engine, and pays what was generated until then', async () => {
    const before = await endless.predictedTokens();
    const leave = new AbortController();
    const { body } = await openChat(await listen(), { stream: true }, leave.signal);
    if (body === null) throw new Error('no stream');
    await read(body.getReader(), 3);
    leave.abort();
    const [receipt] = await closedReceipts();
    await endless.idle();
    const predicted = (await endless.predictedTokens()) - before;
    expect(predicted).toBeGreaterThanOrEqual(4);
    expect(predicted).toBeLessThan(MOST);
    const completion = receipt?.completion_tokens ?? 0;
    expect(completion).toBeGreaterThanOrEqual(4);
    expect(completion).toBeLessThanOrEqual(predicted);
    expect(receipt).toMatchObject({ ending: 'client_left', counted_by: 'running', ...priced(PROMPT, completion) });
    expect(await heldCents()).toBe(0);
  });

  test('a whole answer stops the engine too, and pays the same', async () => {
    const before = await endless.predictedTokens();
    const leave = new AbortController();
    const answering = openChat(await listen(), {}, leave.signal).catch((error: unknown) => error);
    await endless.predicts(before + 5);
    leave.abort();
    expect(await answering).toMatchObject({ name: 'AbortError' });
    const [receipt] = await closedReceipts();
    await endless.idle();
    const predicted = (await endless.predictedTokens()) - before;
    expect(predicted).toBeLessThan(MOST);
    const completion = receipt?.completion_tokens ?? 0;
    expect(completion).toBeGreaterThan(0);
    expect(completion).toBeLessThanOrEqual(predicted);
    expect(receipt).toMatchObject({ ending: 'client_left', counted_by: 'running', ...priced(PROMPT, completion) });
  });

  test('stops the engine if it leaves the loop over a stream of the official client', async () => {
    const before = await endless.predictedTokens();
    const client = new OpenAI({ apiKey: owner.key, baseURL: await listen(), maxRetries: 0 });
    const messages = [{ role: 'user' as const, content: 'hi' }];
    for await (const chunk of await client.chat.completions.create({ model: 'acme/tiny', messages, stream: true })) {
      if (chunk.choices[0]?.delta.content === ' answer') break;
    }
    expect(await closedReceipts()).toMatchObject([{ ending: 'client_left', prompt_tokens: PROMPT }]);
    await endless.idle();
    expect((await endless.predictedTokens()) - before).toBeLessThan(MOST);
  });

  test('while its request waits for a slot pays nothing, and the request is forgotten', async () => {
    const baseUrl = await listen();
    const leave = new AbortController();
    const streams = Array.from({ length: SLOTS }, () => openChat(baseUrl, { stream: true }, leave.signal));
    const readers = (await Promise.all(streams)).flatMap(({ body }) => body?.getReader() ?? []);
    const late = new AbortController();
    const waiting = openChat(baseUrl, { stream: true }, late.signal).catch((error: unknown) => error);
    await endless.waits(1);
    late.abort();
    expect(await waiting).toMatchObject({ name: 'AbortError' });
    for (const reader of readers) await read(reader, 1);
    leave.abort();
    const receipts = await closedReceipts();
    expect(receipts).toHaveLength(SLOTS + 1);
    const free = receipts.filter(({ cost }) => Number(cost) === 0);
    expect(free).toMatchObject([{ ending: 'client_left', state: 'released' }]);
    await endless.idle();
  });

  test('leaves the slots to others: as many as there are slots, and then one more', async () => {
    const baseUrl = await listen();
    const leave = new AbortController();
    const streams = Array.from({ length: SLOTS }, () => openChat(baseUrl, { stream: true }, leave.signal));
    for (const { body } of await Promise.all(streams)) if (body !== null) await read(body.getReader(), 1);
    leave.abort();
    expect((await chat({ max_tokens: 2 })).json).toMatchObject({ usage: { completion_tokens: 2 } });
    const left = (await closedReceipts()).filter(({ ending }) => ending === 'client_left');
    expect(left).toHaveLength(SLOTS);
  });
});

describe('a server that is killed', () => {
  let mortal: LlamaServer;
  beforeEach(async () => {
    mortal = await startLlamaServer({ kind: 'endless', ...LONG });
  });
  afterEach(() => mortal.stop());
  openEngineForEachTest(() => [chatModel(mortal, LIMITS)]);

  test('within a stream ends it with an error and [DONE], and nothing is charged', async () => {
    const { body } = await openChat(await listen(), { stream: true }, never);
    if (body === null) throw new Error('no stream');
    const reader = body.getReader();
    const begun = await read(reader, 3);
    expect(begun).toContain('"Hello"');
    await mortal.kill();
    const [error, done, ...more] = dataOf(begun + (await read(reader, Infinity))).slice(-2);
    expect(error).toMatchObject({ error: { code: 'upstream_error', type: 'server_error' } });
    expect([done, ...more]).toEqual(['[DONE]']);
    const [receipt] = await closedReceipts();
    expect(receipt).toMatchObject({ state: 'released', ending: 'upstream_failed', prompt_tokens: null });
    expect(Number(receipt?.cost)).toBe(0);
    expect(await heldCents()).toBe(0);
    const answer = await chat();
    expect(answer).toMatchObject({ status: 503, json: { error: { code: 'upstream_unavailable' } } });
    expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
  });

  test('answers the first request after its start, although its connections are gone', async () => {
    const port = Number(new URL(mortal.baseUrl).port);
    // Two at once, so that two connections are kept.
    await Promise.all([true, false].map((stream) => chat({ stream, max_tokens: 2 })));
    await mortal.kill();
    mortal = await startLlamaServer({ port });
    expect((await chat()).json).toMatchObject({ choices: [{ message: { content: TEXT } }] });
    expect((await chat({ stream: true })).status).toBe(200);
  });
});

describe('a server that loads its model', () => {
  let loading: LlamaServer;
  beforeAll(async () => {
    loading = await startLlamaServer({ loadsWhenTold: true });
  });
  afterAll(() => loading.stop());
  openEngineForEachTest(() => [chatModel(loading)]);

  test('is 503 with Retry-After, which is no failure: it answers as soon as it is loaded', async () => {
    const other = await api.account();
    for (let i = 0; i < 12; i += 1) {
      const { key } = i % 2 === 0 ? owner : other;
      const body = { model: 'acme/tiny', messages: [{ role: 'user', content: 'hi' }], stream: i % 3 === 0 };
      const answer = await api.call('POST', '/v1/chat/completions', { key, body });
      expect(answer).toMatchObject({ status: 503, json: { error: { code: 'upstream_unavailable' } } });
      expect(Number(answer.headers['retry-after'])).toBeGreaterThanOrEqual(1);
    }
    const [receipt] = await closedReceipts();
    expect(receipt).toMatchObject({ state: 'released', attempts: [{ server: 1, outcome: 'busy' }] });
    await loading.load();
    const { json } = await chat();
    expect(json).toMatchObject({ choices: [{ message: { content: TEXT } }] });
  });
});

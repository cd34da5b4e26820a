// The kit's model server, asked directly: its wire is that of llama.cpp's own server, and its tiny model knows its own text.
import { afterAll, beforeAll, expect, test } from 'vitest';
import { TEXT } from './gguf-model.ts';
import { type LlamaServer, startLlamaServer } from './llama-server.ts';
import { dataOf } from './stream-chunks.ts';

let server: LlamaServer;
beforeAll(async () => {
  server = await startLlamaServer({ contextLength: 256 });
});
afterAll(() => server.stop());

const HI = [{ role: 'user', content: 'hi' }];

async function post(path: string, body: object | string): Promise<{ status: number; text: string }> {
  const payload = typeof body === 'string' ? body : JSON.stringify(body);
  const response = await fetch(new URL(path, server.baseUrl), { method: 'POST', body: payload });
  return { status: response.status, text: await response.text() };
}

test('a stream has the role with the first token, timings if they are asked for, the reason, the usage, and [DONE]', async () => {
  const asked = { messages: HI, stream: true, max_tokens: 2 };
  const { text } = await post('/v1/chat/completions', {
    ...asked,
    stream_options: { include_usage: true },
    timings_per_token: true,
  });
  const facts = {
    created: expect.any(Number) as number,
    model: 'tiny.gguf',
    system_fingerprint: expect.any(String) as string,
    object: 'chat.completion.chunk',
    id: expect.stringMatching(/^chatcmpl-/) as string,
  };
  const chunk = (delta: object, reason: string | null = null): object => ({
    choices: [{ finish_reason: reason, index: 0, delta }],
    ...facts,
  });
  const timings = (predicted: number): object => ({
    timings: { cache_n: 0, prompt_n: 6, predicted_n: predicted },
  });
  const usage = {
    completion_tokens: 2,
    prompt_tokens: 6,
    total_tokens: 8,
    prompt_tokens_details: { cached_tokens: 0 },
  };
  expect(dataOf(text)).toEqual([
    chunk({ role: 'assistant', content: null }),
    { ...chunk({ content: 'Hello' }), ...timings(1) },
    { ...chunk({ content: ' there.' }), ...timings(2) },
    chunk({}, 'length'),
    { choices: [], ...facts, usage, ...timings(2) },
    '[DONE]',
  ]);
  const { text: plain } = await post('/v1/chat/completions', asked);
  // The same prompt again: the slot computes its last token alone.
  const last = { ...chunk({}, 'length'), timings: { cache_n: 5, prompt_n: 1, predicted_n: 2 } };
  expect(dataOf(plain).slice(1)).toEqual([chunk({ content: 'Hello' }), chunk({ content: ' there.' }), last, '[DONE]']);
});

test('a whole answer is computed to its end, although its caller has left', async () => {
  const slow = await startLlamaServer({ kind: 'endless', tokenMs: 2 });
  const leave = new AbortController();
  const body = JSON.stringify({ messages: HI, max_tokens: 50 });
  const url = `${slow.baseUrl}/chat/completions`;
  const answering = fetch(url, { method: 'POST', body, signal: leave.signal }).catch((error: unknown) => error);
  await slow.predicts(3);
  leave.abort();
  await answering;
  await slow.idle();
  expect(await slow.predictedTokens()).toBe(50);
  await slow.stop();
});

test('each word of the text is a token of its own, also in a text that somebody sends', async () => {
  const words = TEXT.split(/(?= )/);
  for (const count of [1, 2, words.length]) {
    const { text } = await post('/tokenize', { content: words.slice(0, count).join('') });
    expect((JSON.parse(text) as { tokens: number[] }).tokens).toHaveLength(count);
  }
  const { text } = await post('/apply-template', { messages: HI });
  expect(text).toBe('{"prompt":"<|user|>hi<|end|><|assistant|>"}');
  const special = await post('/tokenize', { content: '<|user|>', add_special: true, parse_special: true });
  expect((JSON.parse(special.text) as { tokens: number[] }).tokens).toHaveLength(2);
});

interface ServerError {
  code: number;
  type: string;
  n_prompt_tokens?: number;
  n_ctx?: number;
}

test.each<[string, string, object | string, ServerError]>([
  ['an unknown path', '/v1/nothing', {}, { code: 404, type: 'not_found_error' }],
  ['broken JSON', '/v1/chat/completions', '{"messages": ', { code: 500, type: 'server_error' }],
  ['half a surrogate pair', '/tokenize', { content: '\ud83d' }, { code: 500, type: 'server_error' }],
  ['no messages', '/v1/chat/completions', {}, { code: 400, type: 'invalid_request_error' }],
  [
    'a prompt that is too long',
    '/v1/chat/completions',
    { messages: [{ role: 'user', content: 'x'.repeat(252) }] },
    { code: 400, type: 'exceed_context_size_error', n_prompt_tokens: 256, n_ctx: 256 },
  ],
])('%s is refused with a type and a code', async (_what, path, body, error) => {
  const answer = await post(path, body);
  expect(answer.status).toBe(error.code);
  expect(JSON.parse(answer.text)).toMatchObject({ error });
});

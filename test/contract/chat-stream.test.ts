// POST /v1/chat/completions with stream: true (specification 2.11, 4.8, 6.5): the events, chunk by chunk, and what is no event yet.
import { beforeEach, describe, expect, test } from 'vitest';
import { ChatCompletionChunk } from '../../shared/api/chat.ts';
import type { FakeUpstream } from '../kit/fake-upstream.ts';
import { someModels } from '../kit/models.ts';
import { BEGIN, dataOf, DONE, HELLO_EVENTS, say, stop, usage } from '../kit/stream-chunks.ts';
import { type Answer, openApi } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, receiptOf, upstream } from './models-of-test.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/chat/completions';
const HI = [{ role: 'user', content: 'hi' }];

openModelsForEachTest();
beforeEach(() => {
  upstream.usual = () => ({ events: HELLO_EVENTS });
});

const ask = (body: object = {}): Promise<Answer> =>
  api.call('POST', PATH, { key: owner.key, body: { model: 'small', messages: HI, stream: true, ...body } });
/** All chunks, which must be followed by [DONE] and nothing else. */
const chunksOf = ({ body }: Answer): ChatCompletionChunk[] => {
  const data = dataOf(body);
  expect(data.at(-1)).toBe('[DONE]');
  return data.slice(0, -1).map((each) => ChatCompletionChunk.parse(each));
};
const textOf = (chunks: ChatCompletionChunk[]): string =>
  chunks.map(({ choices }) => choices[0]?.delta.content ?? '').join('');

describe('a stream', () => {
  // Specification 4.8: stream true gives server-sent events, framed and ended by [DONE].
  test('sends the role, the text, the finish reason and [DONE], all of one completion', async () => {
    const answer = await ask();
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
      'x-accel-buffering': 'no',
      'x-receipt-id': expect.stringMatching(/^rcp_/) as string,
    });
    const facts = {
      id: expect.stringMatching(/^chatcmpl-[0-9a-z]{26}$/) as string,
      object: 'chat.completion.chunk',
      created: Math.floor(api.world.clock.now() / 1000),
      model: 'acme/small-chat',
    };
    const chunk = (delta: object, finish_reason: string | null = null): object => ({
      ...facts,
      choices: [{ index: 0, delta, logprobs: null, finish_reason }],
    });
    const chunks = chunksOf(answer);
    expect(chunks).toEqual([
      chunk({ role: 'assistant', content: '', refusal: null }),
      chunk({ content: 'Hello' }),
      chunk({ content: ' there.' }),
      chunk({}, 'stop'),
    ]);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    expect(answer.body).not.toMatch(/secret|cmpl-of|^id:/m);
  });

  test('sends the usage in a last chunk without choices if the request asks for it, and null before', async () => {
    const chunks = chunksOf(await ask({ stream_options: { include_usage: true } }));
    expect(chunks.map((chunk) => chunk.usage)).toEqual([
      null,
      null,
      null,
      null,
      { prompt_tokens: 6, completion_tokens: 3, total_tokens: 9 },
    ]);
    expect(chunks.at(-1)).toMatchObject({ choices: [], object: 'chat.completion.chunk', model: 'acme/small-chat' });
  });

  test.each([{}, { stream_options: {} }, { stream_options: { include_usage: false } }])(
    'has no chunk without choices if the request does not ask for the usage: %j',
    async (options) => {
      for (const chunk of chunksOf(await ask(options))) {
        expect(chunk.choices).toHaveLength(1);
        expect(Object.keys(chunk)).not.toContain('usage');
      }
    },
  );

  test('has the same text however the connection splits its bytes', async () => {
    const text = 'Grüße, 世界 \u{1f600} "quoted"\nand\r\nlines';
    const events = [BEGIN, say(text), stop(), usage(1, 1)];
    for (const [end, gap, member] of [
      ['\n', 1, 'data: '],
      ['\r\n', 3, 'data: '],
      // The space is free to be there.
      ['\r\n', 7, 'data:'],
    ] as const) {
      const whole = events.map((event) => `${member}${JSON.stringify(event)}`);
      const bytes = Buffer.from([...whole, ': comment', 'data:[DONE]'].map((line) => `${line}${end}${end}`).join(''));
      const pieces = Array.from({ length: Math.ceil(bytes.length / gap) }, (_, i) =>
        bytes.subarray(i * gap, (i + 1) * gap),
      );
      upstream.next({ pieces });
      expect(textOf(chunksOf(await ask()))).toBe(text);
    }
  });

  test('costs as much as the same answer without a stream', async () => {
    const answer = await ask();
    expect(await receiptOf(answer)).toMatchObject({
      state: 'settled',
      ending: 'completed',
      charged_ucents: 270n,
      prompt_tokens: 6,
      completion_tokens: 3,
      counted_by: 'upstream',
    });
  });

  test.each([
    ['other', { stream_options: { include_usage: true } }],
    ['vllm', { stream_options: { include_usage: true, continuous_usage_stats: true } }],
    ['sglang', { stream_options: { include_usage: true, continuous_usage_stats: true } }],
    ['llama_cpp', { stream_options: { include_usage: true }, timings_per_token: true }],
  ])('is requested from %s with the options that make it count tokens', async (engine, members) => {
    const upstreams = [{ base_url: upstream.baseUrl, model: 'm', engine }];
    const other = await openApi({ settings: { models: someModels(undefined, { upstreams }) } });
    const { key } = await other.account();
    await other.call('POST', PATH, { key, body: { model: 'small', messages: HI, stream: true } });
    await other.close();
    expect(upstream.asked[0]?.body).toEqual({ model: 'm', messages: HI, max_tokens: 1_024, stream: true, ...members });
  });
});

describe('a failure before the first event has its own status', () => {
  test.each([
    ['the server refuses', { status: 503, body: 'no' }, 'upstream_unavailable'],
    ['the server fails', { status: 500, body: 'no' }, 'upstream_error'],
    ['the server begins with an error', { events: [{ error: { message: 'secret' } }] }, 'upstream_error'],
    ['the server begins with no chunk', { events: ['data: hello\n\n'] }, 'upstream_error'],
    ['the server says nothing', { events: [] }, 'upstream_error'],
    ['the server says only that it is done', { events: [DONE] }, 'upstream_error'],
    ['the server cuts the connection', { events: [], ending: 'cut' }, 'upstream_error'],
    ['an event has no end', { events: [`data: ${'x'.repeat(1_100_000)}`] }, 'upstream_error'],
  ] as const)('if %s', async (_what, answer, code) => {
    upstream.next(answer as Parameters<FakeUpstream['next']>[0]);
    expectRefused(PATH, await ask(), code);
  });

  test('if the request is refused', async () => {
    expectRefused(PATH, await ask({ tools: [{}] }), 'unsupported_parameter');
    expectRefused(PATH, await ask({ stream_options: { include_obfuscation: true } }), 'unsupported_parameter');
    expectRefused(PATH, await ask({ max_tokens: 100_000 }), 'validation_failed');
    expect((await ask({ stream_options: { include_obfuscation: false } })).status).toBe(200);
  });

  // Specification 4.8: A model_not_found during streaming is the final SSE error event before [DONE].
  test('but an unknown model is the final event before [DONE]', async () => {
    const answer = await ask({ model: 'nobody/knows' });
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe('text/event-stream; charset=utf-8');
    expect(dataOf(answer.body)).toEqual([
      {
        error: {
          message: 'There is no model "nobody/knows". GET /v1/models lists those that there are.',
          type: 'invalid_request_error',
          param: 'model',
          code: 'model_not_found',
        },
      },
      '[DONE]',
    ]);
  });
});

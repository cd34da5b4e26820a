// Chats with a real llama.cpp whose answers are known: text, usage and charge are exact, whole and streamed, called directly and by
// official clients.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { generateText, streamText } from 'ai';
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { JsonObject } from '../../contract/api.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import { TEMPLATE_TOKENS, TEXT } from '../../kit/gguf-model.ts';
import { type LlamaServer, startLlamaServer } from '../../kit/llama-server.ts';
import { dataOf } from '../../kit/stream-chunks.ts';
import { chat, chatModel, listen, openEngineForEachTest, priced, receiptOf, user } from './engine-of-test.ts';

/** `hi` has two tokens. */
const PROMPT = TEMPLATE_TOKENS + 2;
/** Each word is a token, and so is the end. */
const ANSWER = TEXT.split(' ').length + 1;
const USAGE = { prompt_tokens: PROMPT, completion_tokens: ANSWER, total_tokens: PROMPT + ANSWER };

let sentence: LlamaServer;
let random: LlamaServer;
beforeAll(async () => {
  [sentence, random] = await Promise.all([startLlamaServer(), startLlamaServer({ kind: 'random' })]);
});
afterAll(() => Promise.all([sentence.stop(), random.stop()]));
openEngineForEachTest(() => [
  chatModel(sentence),
  chatModel(sentence, { id: 'acme/overrated', context_length: 8_192, max_output_tokens: 1_024 }),
  chatModel(sentence, { id: 'acme/short', context_length: 100, max_output_tokens: 50 }),
  chatModel(random, { id: 'acme/random' }),
]);

interface Said {
  text: string;
  reason: unknown;
  usage: unknown;
}

const choiceOf = ({ choices }: JsonObject): { message: { content: string }; finish_reason: string } =>
  (choices as [{ message: { content: string }; finish_reason: string }])[0];

async function whole(body: object = {}): Promise<Said> {
  const answer = await chat(body);
  expect(answer.status).toBe(200);
  const { message, finish_reason: reason } = choiceOf(answer.json);
  return { text: message.content, reason, usage: answer.json['usage'] };
}

interface StreamedChunk {
  choices: { delta: { content?: string }; finish_reason: string | null }[];
  usage?: unknown;
}

async function streamed(body: object = {}): Promise<Said> {
  const answer = await chat({ ...body, stream: true, stream_options: { include_usage: true } });
  const data = dataOf(answer.body);
  expect(data.pop()).toBe('[DONE]');
  const chunks = data as StreamedChunk[];
  const choices = chunks.flatMap((chunk) => chunk.choices);
  return {
    text: choices.map(({ delta }) => delta.content ?? '').join(''),
    reason: choices.at(-1)?.finish_reason,
    usage: chunks.at(-1)?.usage,
  };
}

describe('an answer', () => {
  test('is the text of the model, and is charged by its tokens', async () => {
    const answer = await chat();
    expect(answer.json).toMatchObject({ model: 'acme/tiny', usage: USAGE });
    expect(choiceOf(answer.json)).toMatchObject({ message: { content: TEXT }, finish_reason: 'stop' });
    expect(await receiptOf(answer)).toMatchObject({
      ending: 'completed',
      counted_by: 'upstream',
      ...priced(PROMPT, ANSWER),
    });
  });

  test('is the same as a stream, word by word', async () => {
    const answer = await chat({ stream: true, stream_options: { include_usage: true } });
    expect(await streamed()).toEqual({ text: TEXT, reason: 'stop', usage: USAGE });
    const words = dataOf(answer.body).flatMap((data) => (data as Partial<StreamedChunk>).choices ?? []);
    expect(words.map(({ delta }) => delta.content)).toEqual(['', ...TEXT.split(/(?= )/), undefined]);
    expect(await receiptOf(answer)).toMatchObject({
      ending: 'completed',
      counted_by: 'upstream',
      ...priced(PROMPT, ANSWER),
    });
  });

  test('has no usage as a stream unless the caller asks for it', async () => {
    const { body } = await chat({ stream: true });
    expect(body).not.toContain('usage');
    expect(body).not.toContain('timings');
  });

  test('does not reveal that another organisation has sent the same text', async () => {
    const body = { model: 'acme/tiny', ...user('a secret that somebody else might have written') };
    const other = await api.account();
    await api.call('POST', '/v1/chat/completions', { key: other.key, body });
    const { json } = await api.call('POST', '/v1/chat/completions', { key: owner.key, body });
    expect(Object.keys(json['usage'] as object)).toEqual(['prompt_tokens', 'completion_tokens', 'total_tokens']);
  });

  interface Ending {
    text: string;
    reason: 'stop' | 'length';
    tokens: number;
  }
  const WHOLE: Ending = { text: TEXT, reason: 'stop', tokens: ANSWER };
  const endings: [string, object, Ending][] = [
    ['ends at max_tokens', { max_tokens: 3 }, { text: 'Hello there. This', reason: 'length', tokens: 3 }],
    ['ends one token too early', { max_tokens: ANSWER - 1 }, { text: TEXT, reason: 'length', tokens: ANSWER - 1 }],
    ['ends by itself at exactly max_tokens', { max_tokens: ANSWER }, WHOLE],
    ['ends before a stop string', { stop: ' comes' }, { text: 'Hello there. This answer', reason: 'stop', tokens: 5 }],
    [
      'ends before a stop string of several words',
      { stop: ['from a tiny'] },
      { text: 'Hello there. This answer comes ', reason: 'stop', tokens: 8 },
    ],
    ['ends within a word', { stop: ['x', 'swer'] }, { text: 'Hello there. This an', reason: 'stop', tokens: 4 }],
    ['is whole if a stop string only begins in it', { stop: ['tiny modem', 'before. And'] }, WHOLE],
    ['is the same at the highest temperature', { temperature: 2, top_p: 1 }, WHOLE],
    ['is the same at temperature 0', { temperature: 0, presence_penalty: 2 }, WHOLE],
  ];
  test.each(endings)('%s', async (_what, body, { text, reason, tokens }) => {
    const usage = { prompt_tokens: PROMPT, completion_tokens: tokens, total_tokens: PROMPT + tokens };
    expect(await whole(body)).toEqual({ text, reason, usage });
    expect(await streamed(body)).toEqual({ text, reason, usage });
  });

  test('depends on the seed', async () => {
    const from = async (seed: number): Promise<string> =>
      (await whole({ model: 'acme/random', temperature: 2, max_tokens: 40, seed })).text;
    const [first, again, other] = [await from(1), await from(1), await from(2)];
    expect(again).toBe(first);
    expect(other).not.toBe(first);
  });

  test('is never lost, although the server closes each connection after 100 requests', async () => {
    const tokens = { max_tokens: 1 };
    for (let i = 0; i < 110; i += 1) {
      expect((await Promise.all([whole(tokens), streamed(tokens)])).map(({ text }) => text)).toEqual([
        'Hello',
        'Hello',
      ]);
    }
  });

  test('is the same for many callers at once, more than the server computes at a time', async () => {
    const answers = await Promise.all(Array.from({ length: 12 }, (_, i) => (i % 2 === 0 ? whole() : streamed())));
    for (const answer of answers) expect(answer).toEqual({ text: TEXT, reason: 'stop', usage: USAGE });
  });
});

describe('a prompt', () => {
  /** A byte is a token. */
  const long = (tokens: number): object => user('x'.repeat(tokens - TEMPLATE_TOKENS));

  test.each([false, true])('that leaves room for one token gets one, as a stream %s', async (stream) => {
    const said = await (stream ? streamed : whole)(long(511));
    const usage = { prompt_tokens: 511, completion_tokens: 1, total_tokens: 512 };
    expect(said).toEqual({ text: 'Hello', reason: 'length', usage });
  });

  test.each([
    ['counted by the tokenizer before it is sent', 'acme/tiny', 512],
    ['counted so, if the server would take it', 'acme/short', 100],
    ['refused by the server', 'acme/overrated', 512],
  ])('without room is too long: %s', async (_what, model, tokens) => {
    for (const stream of [false, true]) {
      const answer = await chat({ model, ...long(tokens), stream });
      expect(answer.status).toBe(400);
      expect(answer.json['error']).toMatchObject({
        code: 'context_length_exceeded',
        message: expect.stringContaining(`What was sent has ${tokens} tokens`) as string,
      });
    }
    expect(api.world.rooms.gateway.servers().every(({ isOut }) => !isOut)).toBe(true);
  });

  test('with half an emoji is the mistake of its caller, and takes the server from nobody', async () => {
    const { key: second } = await api.account();
    for (let i = 0; i < 12; i += 1) {
      const body = { model: 'acme/tiny', ...user('cut \ud83d') };
      const answer = await api.call('POST', '/v1/chat/completions', { key: i % 2 === 0 ? owner.key : second, body });
      expect(answer.status).toBe(422);
      expect(answer.json['error']).toMatchObject({ code: 'validation_failed', param: 'messages[0].content' });
    }
    expect(await whole()).toMatchObject({ text: TEXT });
  });

  test('that ends with the beginning of an answer gets the rest of it', async () => {
    const messages = [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'Hello there.' },
    ];
    const [begun, rest] = [2, ANSWER - 2];
    const usage = { prompt_tokens: PROMPT + begun, completion_tokens: rest, total_tokens: PROMPT + ANSWER };
    const said = { text: TEXT.replace('Hello there.', ''), reason: 'stop', usage };
    expect(await whole({ messages })).toEqual(said);
    expect(await streamed({ messages })).toEqual(said);
  });

  test('that the template of the model refuses is refused, and the server stays', async () => {
    const messages = [
      { role: 'assistant', content: 'hi' },
      { role: 'user', content: 'hi' },
    ];
    for (let i = 0; i < 10; i += 1) {
      const answer = await chat({ messages, stream: i % 2 === 0 });
      expect(answer).toMatchObject({ status: 400, json: { error: { code: 'invalid_request_error' } } });
    }
    expect(await whole()).toMatchObject({ text: TEXT });
  });
});

describe('an official client', () => {
  const messages = [{ role: 'user' as const, content: 'hi' }];

  test('openai is answered whole and as a stream', async () => {
    const client = new OpenAI({ apiKey: owner.key, baseURL: await listen(), maxRetries: 0 });
    const { choices, usage } = await client.chat.completions.create({ model: 'acme/tiny', messages });
    expect(choices[0]?.message.content).toBe(TEXT);
    expect(usage).toEqual(USAGE);
    const said: { text: string; usage: unknown } = { text: '', usage: undefined };
    const options = { stream: true, stream_options: { include_usage: true } } as const;
    for await (const chunk of await client.chat.completions.create({ model: 'acme/tiny', messages, ...options })) {
      said.text += chunk.choices[0]?.delta.content ?? '';
      said.usage = chunk.usage ?? said.usage;
    }
    expect(said).toEqual({ text: TEXT, usage: USAGE });
  });

  test('the AI SDK is answered whole and as a stream, and goes on with the answer', async () => {
    const provider = createOpenAICompatible({
      name: 'svc',
      apiKey: owner.key,
      baseURL: await listen(),
      includeUsage: true,
    });
    const model = provider('acme/tiny');
    const first = await generateText({ model, messages, maxRetries: 0 });
    expect(first).toMatchObject({ text: TEXT, finishReason: 'stop', usage: { totalTokens: PROMPT + ANSWER } });
    const more = [...messages, ...first.response.messages, { role: 'user' as const, content: 'and?' }];
    const second = streamText({ model, messages: more, maxRetries: 0 });
    expect(await second.text).toBe(TEXT);
    // The answer comes back as the tokens that it was made of.
    const prompt = PROMPT + (ANSWER - 1) + TEMPLATE_TOKENS + 'and?'.length;
    expect(await second.usage).toMatchObject({ inputTokens: prompt, outputTokens: ANSWER });
  });
});

// Chats by clients that customers use, each as it comes, against a server that listens: three majors of the official one, the AI SDK, LangChain.
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { type AIMessageChunk, HumanMessage, SystemMessage, type UsageMetadata } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { generateText, type ModelMessage, streamText } from 'ai';
import OpenAI from 'openai';
import OpenAI4 from 'openai4';
import OpenAI5 from 'openai5';
import { beforeEach, expect, test } from 'vitest';
import { HELLO } from '../kit/fake-upstream.ts';
import { HELLO_EVENTS } from '../kit/stream-chunks.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, upstream } from './models-of-test.ts';

const MODEL = 'acme/small-chat';
const [SYSTEM, FIRST, SECOND] = ['be brief', 'hi', 'and more?'];

openModelsForEachTest();
let baseURL: string;
beforeEach(async () => {
  upstream.usual = ({ body }) => (body['stream'] === true ? { events: HELLO_EVENTS } : { body: HELLO });
  const { port } = await api.http.listen({ host: '127.0.0.1', port: 0 });
  baseURL = `http://127.0.0.1:${port}/v1`;
});

interface Said {
  text: string | null | undefined;
  tokens: number | undefined;
}

interface Client {
  /** Two turns: the second sends the answer of the first back as the client keeps it. */
  whole(): Promise<Said>;
  stream(): Promise<Said>;
}

/** The calls have the same form in all majors. */
function official(Major: typeof OpenAI): Client {
  const client = new Major({ apiKey: owner.key, baseURL });
  const asked = {
    model: MODEL,
    max_completion_tokens: 50,
    n: 1,
    top_p: 1,
    store: false,
    user: 'ann',
    prompt_cache_key: 'key-1',
    safety_identifier: 'sha-1',
    metadata: { team: 'a' },
    response_format: { type: 'text' as const },
  };
  const parts = [{ type: 'text' as const, text: FIRST }];
  const messages: OpenAI.ChatCompletionMessageParam[] = [
    { role: 'developer', content: SYSTEM },
    { role: 'user', name: 'ann', content: parts },
  ];
  return {
    whole: async () => {
      const first = await client.chat.completions.create({ ...asked, messages });
      const { choices, usage } = await client.chat.completions.create({
        ...asked,
        messages: [...messages, ...first.choices.map(({ message }) => message), { role: 'user', content: SECOND }],
      });
      return { text: choices[0]?.message.content, tokens: usage?.total_tokens };
    },
    stream: async () => {
      const options = { stream: true, stream_options: { include_usage: true } } as const;
      const said: Said = { text: '', tokens: undefined };
      for await (const { choices, usage } of await client.chat.completions.create({ ...asked, ...options, messages })) {
        said.text += choices[0]?.delta.content ?? '';
        said.tokens = usage?.total_tokens ?? said.tokens;
      }
      return said;
    },
  };
}

function aiSdk(): Client {
  const provider = createOpenAICompatible({ name: 'svc', apiKey: owner.key, baseURL, includeUsage: true });
  const model = provider(MODEL);
  const messages: ModelMessage[] = [{ role: 'user', content: FIRST }];
  return {
    whole: async () => {
      const first = await generateText({ model, instructions: SYSTEM, messages, maxOutputTokens: 50 });
      const more: ModelMessage[] = [...messages, ...first.response.messages, { role: 'user', content: SECOND }];
      const { text, usage } = await generateText({ model, instructions: SYSTEM, messages: more });
      return { text, tokens: usage.totalTokens };
    },
    stream: async () => {
      const { text, usage } = streamText({ model, instructions: SYSTEM, messages });
      return { text: await text, tokens: (await usage).totalTokens };
    },
  };
}

function langChain(): Client {
  const model = new ChatOpenAI({ model: MODEL, apiKey: owner.key, configuration: { baseURL }, maxTokens: 50 });
  const messages = [new SystemMessage(SYSTEM), new HumanMessage(FIRST)];
  const said = ({
    text,
    usage_metadata: usage,
  }: {
    text: string;
    usage_metadata?: UsageMetadata | undefined;
  }): Said => ({
    text,
    tokens: usage?.total_tokens,
  });
  return {
    whole: async () => {
      const first = await model.invoke(messages);
      return said(await model.invoke([...messages, first, new HumanMessage(SECOND)]));
    },
    stream: async () => {
      let all: AIMessageChunk | undefined;
      for await (const chunk of await model.stream(messages)) all = all?.concat(chunk) ?? chunk;
      if (all === undefined) throw new Error('the stream was empty');
      return said(all);
    },
  };
}

test.each([
  ['openai 4', () => official(OpenAI4 as unknown as typeof OpenAI)],
  ['openai 5', () => official(OpenAI5 as unknown as typeof OpenAI)],
  ['openai 7', () => official(OpenAI)],
  ['the AI SDK', aiSdk],
  ['LangChain', langChain],
])('%s is answered whole and as a stream, also with its own answers in the conversation', async (_name, open) => {
  const client = open();
  const hello = { text: 'Hello there.', tokens: 9 };
  expect(await client.whole()).toEqual(hello);
  expect(await client.stream()).toEqual(hello);
  const turn = [{ role: 'system', content: SYSTEM }, expect.objectContaining({ role: 'user', content: FIRST })];
  const said = { role: 'assistant', content: 'Hello there.' };
  expect(upstream.asked.map(({ body }) => body['messages'])).toEqual([
    turn,
    [...turn, said, { role: 'user', content: SECOND }],
    turn,
  ]);
});

test('the receipt of a chat by the official client has its user and metadata', async () => {
  await official(OpenAI).stream();
  const { json } = await api.call('GET', '/v1/receipts?user=ann', { key: owner.key });
  expect(json.data).toMatchObject([
    { user: 'ann', metadata: { team: 'a' }, ending: 'completed', completion_tokens: 3 },
  ]);
});

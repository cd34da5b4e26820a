// Tokens that a real llama.cpp counts: of an answer that its server has not counted, and of texts that are embedded.
import OpenAI from 'openai';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { embed } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import type { Answer } from '../../contract/api.ts';
import { api, owner } from '../../contract/api-of-test.ts';
import { TEXT } from '../../kit/gguf-model.ts';
import { type LlamaServer, startLlamaServer } from '../../kit/llama-server.ts';
import {
  chat,
  chatModel,
  closedReceipts,
  listen,
  openEngineForEachTest,
  priced,
  receiptOf,
  user,
} from './engine-of-test.ts';

let silent: LlamaServer;
let embedder: LlamaServer;
beforeAll(async () => {
  [silent, embedder] = await Promise.all([
    startLlamaServer({ counts: false }),
    startLlamaServer({ kind: 'random', embeds: true, contextLength: 256 }),
  ]);
});
afterAll(() => Promise.all([silent.stop(), embedder.stop()]));

describe('an answer of a server that does not count', () => {
  openEngineForEachTest(() => [
    chatModel(silent),
    chatModel(silent, { id: 'acme/other', upstreams: [{ base_url: silent.baseUrl, model: 'tiny' }] }),
  ]);
  /** The words; the end of the answer has no text that could be counted. */
  const WORDS = TEXT.split(' ').length;

  test.each([false, true])('is counted by its tokenizer, as a stream %s', async (stream) => {
    const answer = await chat({ ...user('how-are-you?'), stream });
    expect(await receiptOf(answer)).toMatchObject({
      ending: 'completed',
      counted_by: 'tokenizer',
      ...priced(4 + 'how-are-you?'.length, WORDS),
    });
  });

  test('that ends at max_tokens is counted up to there', async () => {
    const { usage } = (await chat({ max_tokens: 3 })).json;
    expect(usage).toEqual({ prompt_tokens: 6, completion_tokens: 3, total_tokens: 9 });
  });

  test('is estimated if nobody knows its tokenizer', async () => {
    const answer = await chat({ model: 'acme/other' });
    const estimated = priced(1, Math.ceil(TEXT.length / 4));
    expect(await receiptOf(answer)).toMatchObject({ counted_by: 'estimate', ...estimated });
  });
});

describe('embeddings', () => {
  const DIMENSIONS = 64;
  const model = {
    id: 'acme/embedder',
    modality: 'embedding',
    owned_by: 'acme',
    pricing: { input_per_1m_tokens_cents: 60_000 },
    context_length: 256,
  };
  openEngineForEachTest(() => [
    { ...model, upstreams: [{ base_url: embedder.baseUrl, model: 'tiny', engine: 'llama_cpp', max_inputs: 3 }] },
  ]);
  const embeddings = (input: string | string[], account = owner): Promise<Answer> =>
    api.call('POST', '/v1/embeddings', {
      key: account.key,
      body: { model: 'acme/embedder', input, encoding_format: 'float' },
    });
  const direct = async (input: string[]): Promise<number[][]> => {
    const response = await fetch(`${embedder.baseUrl}/embeddings`, { method: 'POST', body: JSON.stringify({ input }) });
    const { data } = (await response.json()) as { data: { embedding: number[] }[] };
    return data.map(({ embedding }) => embedding);
  };
  const vectorsOf = ({ json }: Answer): unknown[] => (json.data ?? []).map(({ embedding }) => embedding);

  test('are those of the server in the order of the texts, in several batches with one charge', async () => {
    const texts = ['hi', 'you', 'hi', 'another-text', 'b', 'hi', 'last'];
    const answer = await embeddings(texts);
    const vectors = vectorsOf(answer);
    expect(vectors).toEqual(await direct(texts));
    expect(vectors[0]).toHaveLength(DIMENSIONS);
    expect(vectors[2]).toEqual(vectors[0]);
    expect(vectors[1]).not.toEqual(vectors[0]);
    // A token for each byte, and one at the beginning of each text.
    const tokens = texts.reduce((sum, text) => sum + text.length + 1, 0);
    expect(answer.json['usage']).toEqual({ prompt_tokens: tokens, total_tokens: tokens });
    const receipts = await closedReceipts();
    // The cost is in whole cents, rounded up.
    expect(receipts).toMatchObject([{ counted_by: 'upstream', prompt_tokens: tokens, cost: '0.02' }]);
    expect(receipts[0]?.attempts).toHaveLength(3);
  });

  test('answer 400 to a text that is too long, however often one caller or several ask, and others are served', async () => {
    const other = await api.account();
    for (let i = 0; i < 12; i += 1) {
      const answer = await embeddings('w'.repeat(300), i % 2 === 0 ? owner : other);
      expect(answer).toMatchObject({ status: 400, json: { error: { code: 'context_length_exceeded' } } });
    }
    expect((await embeddings('hi')).status).toBe(200);
  });

  test('are made for official clients', async () => {
    const [vector] = await direct(['hi']);
    const baseURL = await listen();
    const client = new OpenAI({ apiKey: owner.key, baseURL, maxRetries: 0 });
    const made = await client.embeddings.create({ model: 'acme/embedder', input: 'hi', encoding_format: 'float' });
    expect(made.data[0]?.embedding).toEqual(vector);
    const provider = createOpenAICompatible({ name: 'svc', apiKey: owner.key, baseURL });
    const { embedding, usage } = await embed({ model: provider.embeddingModel('acme/embedder'), value: 'hi' });
    expect(embedding).toEqual(vector);
    expect(usage.tokens).toBe(3);
  });
});

// The figures of the gateway, at their edges: what a request may cost at most and what it costs, its outcome, and what was read.
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import { streamMembers } from '../../../control-plane/models/catalog/model-servers.ts';
import { readChunk, readCompletion } from '../../../control-plane/models/gateway/chat-wire.ts';
import { assertFits, type PlannedChat } from '../../../control-plane/models/gateway/chat-plan.ts';
import { noteContext } from '../../../control-plane/models/gateway/tokenize.ts';
import { openCounts } from '../../../control-plane/models/gateway/counts.ts';
import { failedOutcome } from '../../../control-plane/models/gateway/states.ts';
import {
  chatBound,
  chatUcents,
  embeddingsBound,
  embeddingsUcents,
  estimatedTokens,
  estimatedUsage,
  imagesUcents,
} from '../../../control-plane/models/gateway/price.ts';
import { readText } from '../../../control-plane/base/outbound/outbound.ts';
import { besideV1, headersFor } from '../../../control-plane/models/catalog/model-servers.ts';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { type ErrorCode, ServiceError } from '../../../shared/errors.ts';
import { createLog } from '../../../shared/log.ts';

const said = (content: string) => ({ role: 'user' as const, content });

test('a prompt that fills the context fits, and one token more is refused', () => {
  const planned = { callable: { model: { id: 'm', context_length: 100 } }, contextLength: 100 } as PlannedChat;
  expect(() => assertFits(100, planned)).not.toThrow();
  expect(() => assertFits(101, planned)).toThrow(expect.objectContaining({ code: 'context_length_exceeded' }));
});

describe('the bound of a chat', () => {
  const limits = { contextLength: 1_000, maxOutputTokens: 300 };
  const bound = (bytes: number, maxTokens?: number, messages = 1) =>
    chatBound([said('x'.repeat(bytes)), ...Array.from({ length: messages - 1 }, () => said(''))], maxTokens, limits);

  test('has a token for each byte, 16 around each message and 256 around all, and no more than the context', () => {
    expect(bound(100).promptTokens).toBe(100 + 16 + 256);
    expect(bound(100, undefined, 3).promptTokens).toBe(100 + 3 * 16 + 256);
    expect(chatBound([said('ä')], undefined, limits).promptTokens).toBe(2 + 16 + 256);
    expect([bound(728).promptTokens, bound(729).promptTokens]).toEqual([1_000, 1_000]);
  });

  test('has the answer that the caller or the model allows, and less for a long prompt, but never less than a quarter', () => {
    expect([bound(100, 7).maxTokens, bound(100).maxTokens]).toEqual([7, 300]);
    expect([bound(1_400).maxTokens, bound(1_401).maxTokens, bound(1_403).maxTokens]).toEqual([300, 299, 298]);
    expect([bound(1_500).maxTokens, bound(9_000).maxTokens]).toEqual([250, 250]);
  });

  test('is sure to fit exactly up to the context', () => {
    expect([bound(28, 700).isSureToFit, bound(29, 700).isSureToFit]).toEqual([true, false]);
  });
});

describe('a cost', () => {
  test('is exact for tokens', () => {
    const usage = { prompt_tokens: 7, completion_tokens: 5 };
    expect(chatUcents(usage, { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 })).toBe(405n);
    expect(chatUcents(usage, {})).toBe(0n);
  });

  test('is in whole cents for texts, and at least a cent', () => {
    const price = { input_per_1m_tokens_cents: 2 };
    expect([0, 500_000, 500_001, 1_000_000].map((tokens) => embeddingsUcents(tokens, price))).toEqual([
      1_000_000n,
      1_000_000n,
      2_000_000n,
      2_000_000n,
    ]);
    expect(embeddingsBound(['ä', 'abc'])).toBe(2 + 3 + 2 * 16);
  });

  test('is exact for a price per image, and rounded up to a microcent for a price per megapixel', () => {
    const image = { count: 3, size: '512x512' };
    expect(imagesUcents(image, { per_image_microcents: 7 })).toBe(21n);
    expect(imagesUcents(image, {})).toBe(0n);
    expect(imagesUcents({ count: 1, size: '1000x1000' }, { per_mpxl_microcents: 5 })).toBe(5n);
    expect(imagesUcents({ count: 2, size: '1000x1000' }, { per_mpxl_microcents: 5 })).toBe(10n);
    // 0.786432 megapixels.
    expect(imagesUcents(image, { per_mpxl_microcents: 100 })).toBe(79n);
  });

  test('that nobody counts is estimated by four bytes for a token', () => {
    expect(estimatedTokens(['abcd', 'abcde', ''])).toBe(3);
    expect(estimatedUsage([said('abcde'), said('abc')], 'ä-xy')).toEqual({
      prompt_tokens: 2,
      completion_tokens: 2,
      total_tokens: 4,
    });
  });
});

describe('the outcome of a request that failed', () => {
  const failed = (code: ErrorCode): unknown =>
    failedOutcome(new ServiceError(code, { detail: 'x' }), new AbortController().signal);

  test.each<[ErrorCode, string]>([
    ['context_length_exceeded', 'refused'],
    ['invalid_request', 'refused'],
    ['internal_error', 'upstream_failed'],
    ['upstream_error', 'upstream_failed'],
    ['upstream_unavailable', 'upstream_failed'],
  ])('with %s is free and %s', (code, ending) => {
    expect(failed(code)).toEqual({
      charged_ucents: 0n,
      ending,
      prompt_tokens: null,
      completion_tokens: null,
      images: null,
      counted_by: null,
      upstream: null,
    });
  });

  test('is the end of the process or of the caller if either has ended it, and otherwise a failure of the server', () => {
    const error = new ServiceError('invalid_request', { detail: 'x' });
    expect(failedOutcome(error, AbortSignal.abort()).ending).toBe('client_left');
    const stop = new ServiceError('unavailable', { detail: 'x' });
    expect(failedOutcome(error, AbortSignal.abort(stop)).ending).toBe('process_ended');
    expect(failedOutcome(new Error('bug'), new AbortController().signal).ending).toBe('upstream_failed');
  });
});

test('the counters add up by model, ending and server', () => {
  const counts = openCounts();
  for (const model of ['a', 'a', 'b']) counts.ended(model, 'completed');
  counts.ended('a', 'refused');
  for (const server of ['s', 't', 's']) counts.failed(server);
  for (const model of ['a', 'a', 'a']) counts.beyondContext(model);
  expect(counts.endings()).toEqual([
    { model: 'a', ending: 'completed', count: 2 },
    { model: 'a', ending: 'refused', count: 1 },
    { model: 'b', ending: 'completed', count: 1 },
  ]);
  expect(counts.failures()).toEqual([
    { upstream: 's', count: 2 },
    { upstream: 't', count: 1 },
  ]);
  expect(counts.beyondContexts()).toEqual([{ model: 'a', count: 3 }]);
});

test.each([
  [60, 40, 0],
  [60, 41, 1],
  [101, 0, 1],
])('a server that counts %d and %d tokens in a context of 100 is noted %d times', (prompt, completion, times) => {
  const counts = openCounts();
  const lines: string[] = [];
  const log = createLog('test', 'warn', { write: (line: string) => void lines.push(line) });
  const planned = { contextLength: 100, callable: { model: { id: 'm' } } } as PlannedChat;
  const upstream = { base_url: 'http://a/v1' } as Upstream;
  const told = { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
  noteContext(told, { planned, upstream }, { counts, log });
  noteContext(undefined, { planned, upstream }, { counts, log });
  expect([counts.beyondContexts().length, lines.length]).toEqual([times, times]);
});

test('a body is read up to its limit, and what comes after is left unread', async () => {
  let pieces = 0;
  async function* body(): AsyncGenerator<Buffer> {
    for (; pieces < 9; pieces += 1) yield Buffer.from('abcd');
  }
  expect(await readText(body(), 8)).toBe('abcdabcd');
  expect(pieces).toBe(1);
  expect(await readText(Readable.from([Buffer.from('abcd')]), 3)).toBe('abc');
  expect(await readText(Readable.from([]), 3)).toBe('');
});

describe('the wire', () => {
  const server = (patch: Partial<Upstream>): Upstream => ({ base_url: 'http://a/v1', ...patch }) as Upstream;

  test('asks each engine for the counts that it has', () => {
    const members = (engine: Upstream['engine']): object => streamMembers(server({ engine }));
    const plain = { stream: true, stream_options: { include_usage: true } };
    const running = { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } };
    expect([members('vllm'), members('sglang')]).toEqual([running, running]);
    expect(members('llama_cpp')).toEqual({ ...plain, timings_per_token: true });
    expect(members('other')).toEqual(plain);
  });

  test('names itself, and has a key if the server requires one', () => {
    const plain = { 'content-type': 'application/json', 'user-agent': 'svc-control-plane' };
    expect(headersFor(server({}))).toEqual(plain);
    expect(headersFor(server({ apiKey: 'k' }))).toEqual({ ...plain, authorization: 'Bearer k' });
    expect(besideV1(server({}), '/health')).toBe('http://a/health');
    expect(besideV1(server({ base_url: 'http://a/v1/x' }), '/health')).toBe('http://a/v1/x/health');
  });

  test('reads a chunk with what it has, and takes an error for none', () => {
    const read = (chunk: object): unknown => readChunk(JSON.stringify(chunk));
    const nothing = { content: '', thought: '', finishReason: undefined, usage: undefined };
    expect([read({}), read({ choices: [] }), read({ choices: [{}] })]).toEqual([nothing, nothing, nothing]);
    expect(read({ choices: [{ delta: { content: 'a' }, finish_reason: 'stop' }] })).toEqual({
      ...nothing,
      content: 'a',
      finishReason: 'stop',
    });
    expect(read({ timings: { prompt_n: 2, cache_n: 3, predicted_n: 4 } })).toEqual({
      ...nothing,
      usage: { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9 },
    });
    const usage = { prompt_tokens: 1, completion_tokens: 2, completion_tokens_details: { reasoning_tokens: 1 } };
    expect(read({ usage, timings: { prompt_n: 2, predicted_n: 4 } })).toEqual({
      ...nothing,
      usage: { ...usage, total_tokens: 3 },
    });
    expect(read({ usage: { prompt_tokens: 3 } })).toEqual({
      ...nothing,
      usage: { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 },
    });
    expect(read({ usage: { prompt_tokens: -1 } })).toEqual(nothing);
    expect([read({ error: null }), readChunk('{'), read({ choices: 1 })]).toEqual([undefined, undefined, undefined]);
  });

  test('reads a whole answer, and nothing else', () => {
    const choice = { message: { content: 'a' }, finish_reason: 'stop' };
    expect(readCompletion(JSON.stringify({ choices: [choice] }))).toEqual({
      content: 'a',
      thought: '',
      finishReason: 'stop',
      usage: undefined,
    });
    expect([readCompletion('{"choices":[]}'), readCompletion('{}'), readCompletion('')]).toEqual([
      undefined,
      undefined,
      undefined,
    ]);
  });
});

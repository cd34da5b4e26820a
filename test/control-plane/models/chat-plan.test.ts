// The plan of a chat at its edges: the limit of the answer, the parameters that are passed on, and the room that a long prompt leaves.
import { Readable } from 'node:stream';
import { describe, expect, test } from 'vitest';
import type { Catalog } from '../../../control-plane/models/catalog/catalog.ts';
import type { Upstream } from '../../../control-plane/models/catalog/models.ts';
import { roomFor } from '../../../control-plane/models/gateway/chat.ts';
import { boundedUsage, type PlannedChat, planChat } from '../../../control-plane/models/gateway/chat-plan.ts';
import type { ChatRequest } from '../../../shared/api/chat.ts';
import { createLog } from '../../../shared/log.ts';
import { someModels } from '../../kit/models.ts';
import { virtualClock } from '../../kit/virtual-clock.ts';

/** Context 8,192, answers up to 1,024, top_p and stop; 15 and 60 cents for a million tokens. */
const [model] = someModels();
const catalogue = (patch: object = {}): Catalog =>
  ({ callable: () => ({ model: { ...model, ...patch }, pricing: model?.pricing }) }) as unknown as Catalog;
const HI: ChatRequest = { model: 'small', messages: [{ role: 'user', content: 'hi' }] } as ChatRequest;
const planned = (body: Partial<ChatRequest> = {}, patch: object = {}): PlannedChat =>
  planChat({ ...HI, ...body }, catalogue(patch));
const refusal = (body: Partial<ChatRequest>, patch: object = {}): unknown => {
  try {
    planned(body, patch);
  } catch (error) {
    const { code, details } = error as { code: string; details: { errors?: { field: string }[] } };
    return [code, details.errors?.[0]?.field];
  }
  return 'none';
};

describe('the limit of an answer', () => {
  test.each<[Partial<ChatRequest>, number | undefined, number]>([
    [{}, undefined, 1_024],
    [{ max_tokens: 7 }, 7, 7],
    [{ max_completion_tokens: 7 }, 7, 7],
    [{ max_completion_tokens: 9, max_tokens: 8 }, 8, 8],
    [{ max_completion_tokens: 1_024 }, 1_024, 1_024],
  ])('with %j is %s of the caller, and %d in all', (body, limitTokens, maxTokens) => {
    expect(planned(body)).toMatchObject({ limitTokens, maxTokens, contextLength: 8_192 });
  });

  test('is refused by the smaller of the two fields if that is above the limit of the model', () => {
    expect(refusal({ max_tokens: 1_025 })).toEqual(['validation_failed', 'max_tokens']);
    expect(refusal({ max_completion_tokens: 1_025, max_tokens: 1_026 })).toEqual([
      'validation_failed',
      'max_completion_tokens',
    ]);
    expect(refusal({ max_completion_tokens: 5_000, max_tokens: 9 })).toBe('none');
  });

  test('is the context if the model has no limit of its own, and a model without a context is a mistake of ours', () => {
    expect(planned({ max_tokens: 8_192 }, { max_output_tokens: undefined })).toMatchObject({ maxTokens: 8_192 });
    expect(() => planned({}, { context_length: undefined })).toThrow('without context_length');
  });

  test('is held with the bytes of the prompt at the prices of the model', () => {
    const { promptTokens, boundUcents } = planned({ max_tokens: 10 });
    expect([promptTokens, boundUcents]).toEqual([2 + 16 + 256, BigInt(274 * 15 + 10 * 60)]);
  });
});

describe('a parameter', () => {
  test('is passed on if it is set and the model has it, and temperature always', () => {
    const { parameters } = planned({ temperature: 0, top_p: 0.5, stop: ['x'] });
    expect(parameters).toEqual({ temperature: 0, top_p: 0.5, stop: ['x'] });
    expect(planned().parameters).toEqual({});
    const nothing = { temperature: null, top_p: null, seed: null } as unknown as Partial<ChatRequest>;
    expect(planned(nothing).parameters).toEqual({});
  });

  test('that the model lacks is refused, unless its value changes nothing', () => {
    for (const name of ['seed', 'presence_penalty', 'frequency_penalty'] as const)
      expect(refusal({ [name]: 2 })).toEqual(['unsupported_parameter', name]);
    expect(refusal({ presence_penalty: 0, frequency_penalty: 0 })).toBe('none');
    expect(planned({ presence_penalty: 0 }).parameters).toEqual({});
    expect(refusal({ top_p: 1 }, { supported_parameters: [] })).toBe('none');
    expect(refusal({ top_p: 0.9 }, { supported_parameters: [] })).toEqual(['unsupported_parameter', 'top_p']);
  });

  test('of a stream needs a stream', () => {
    const stream_options = { include_usage: true };
    expect(refusal({ stream_options })).toEqual(['invalid_request', 'stream_options']);
    expect(refusal({ stream_options, stream: false })).toEqual(['invalid_request', 'stream_options']);
    expect(refusal({ stream_options, stream: true })).toBe('none');
  });
});

test('the tokens of a receipt are at most those that were held', () => {
  const plan = { promptTokens: 10, maxTokens: 5 } as PlannedChat;
  const usage = (prompt: number, completion: number) =>
    boundedUsage({ prompt_tokens: prompt, completion_tokens: completion, total_tokens: -1 }, plan);
  expect(usage(10, 5)).toEqual({ prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 });
  expect(usage(11, 6)).toEqual({ prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 });
  expect(usage(1, 2)).toEqual({ prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 });
});

describe('the room for an answer', () => {
  const server = { base_url: 'http://a/v1', model: 'm', engine: 'vllm' } as Upstream;
  /** The tokenizer of the server counts `count` tokens in the prompt. */
  const room = (count: number, patch: Partial<PlannedChat> = {}, upstream = server): Promise<number> => {
    const exchanges = {
      open: async () => ({
        status: 200,
        body: Readable.from([Buffer.from(JSON.stringify({ count }))]),
        end: () => undefined,
      }),
    };
    const plan = { ...planned(), contextLength: 100, maxTokens: 50, isSureToFit: false, ...patch };
    const deps = { exchanges, clock: virtualClock(), log: createLog('test', 'silent') };
    return roomFor(upstream, { body: HI, planned: plan }, deps as never);
  };

  test('is what the prompt leaves of the context, and not more than was planned', async () => {
    expect([await room(49), await room(50), await room(51), await room(99)]).toEqual([50, 50, 49, 1]);
  });

  test('must be as large as the caller wants it, and at least one token', async () => {
    await expect(room(100)).rejects.toMatchObject({ code: 'context_length_exceeded' });
    expect(await room(60, { limitTokens: 40 })).toBe(40);
    await expect(room(61, { limitTokens: 40 })).rejects.toMatchObject({ code: 'context_length_exceeded' });
  });

  test('is as planned if it is sure to fit, or if nobody can count', async () => {
    expect(await room(100, { isSureToFit: true })).toBe(50);
    expect(await room(100, {}, { ...server, engine: 'other' })).toBe(50);
  });
});

// POST /v1/embeddings (specification 2.14, 4.8, 7.3, 8): batches, order, the charge in whole cents, and what is refused.
import fc from 'fast-check';
import { beforeEach, describe, expect, test } from 'vitest';
import { embeddingsUcents } from '../../control-plane/models/gateway/price.ts';
import { EmbeddingsResponse } from '../../shared/api/embeddings.ts';
import type { Asked } from '../kit/fake-upstream.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, receiptOf, upstream } from './models-of-test.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/embeddings';

openModelsForEachTest();
beforeEach(() => {
  upstream.usual = (asked) => ({ body: vectorsOf(asked) });
});

const inputsOf = ({ body }: Asked): string[] => body['input'] as string[];
/** The vector of a text tells the text: its length and its first character. Backwards, as a server may answer. */
function vectorsOf(asked: Asked): Record<string, unknown> {
  const data = inputsOf(asked).map((text, index) => ({
    object: 'embedding',
    index,
    embedding: [text.length, text.charCodeAt(0), -0.5],
  }));
  const tokens = inputsOf(asked).length * 10;
  return {
    object: 'list',
    model: 'secret',
    data: data.toReversed(),
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}
const ask = (body: object = {}): Promise<Answer> =>
  api.call('POST', PATH, { key: owner.key, body: { model: 'acme/embedder', input: 'hi', ...body } });
const texts = (count: number): string[] => Array.from({ length: count }, (_, i) => `${i}`);

describe('embeddings', () => {
  // Specification 2.14: EmbeddingsResponse has object, data, model and usage; total_tokens equals prompt_tokens.
  test('of one text have the members of the specification', async () => {
    const answer = await ask({ model: 'embedder', encoding_format: 'float', user: 'me' });
    expect(answer.status).toBe(200);
    expect(EmbeddingsResponse.parse(answer.json)).toEqual({
      object: 'list',
      data: [{ object: 'embedding', embedding: [2, 104, -0.5], index: 0 }],
      model: 'acme/embedder',
      usage: { prompt_tokens: 10, total_tokens: 10 },
    });
    expect(answer.body).not.toContain('secret');
    expect(upstream.asked).toMatchObject([{ path: '/v1/embeddings' }]);
    expect(upstream.asked[0]?.body).toEqual({ model: 'upstream/secret-name', input: ['hi'], encoding_format: 'float' });
  });

  // Specification 2.14: An Embedding has object, embedding and index, its position in the input.
  // Specification 4.8: One vector per input in request order.
  test('of many texts come in order, in batches as large as the server takes, and are one charge', async () => {
    const input = ['a', 'bb', 'ccc', 'dddd', 'eeeee', 'f', 'gg'];
    const answer = await ask({ input });
    const { data, usage } = EmbeddingsResponse.parse(answer.json);
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(data.map(({ embedding }) => embedding[0])).toEqual(input.map((text) => text.length));
    expect(upstream.asked.map(inputsOf)).toEqual([input.slice(0, 3), input.slice(3, 6), input.slice(6)]);
    expect(usage).toEqual({ prompt_tokens: 70, total_tokens: 70 });
    expect(await receiptOf(answer)).toMatchObject({
      prompt_tokens: 70,
      completion_tokens: 0,
      charged_ucents: 1_000_000n,
    });
  });

  // Specification 8: Embeddings input: at most 2048 strings.
  // Specification 7.3: An oversized embeddings batch is 400 invalid_request_error; the message states the limit.
  // Specification 4.8: POST /v1/embeddings: input is one string or an array of up to 2048.
  test('are made of up to 2048 texts; more are refused with the limit', async () => {
    expect(EmbeddingsResponse.parse((await ask({ input: texts(2_048) })).json).data).toHaveLength(2_048);
    const refused = expectRefused(PATH, await ask({ input: texts(2_049) }), 'invalid_request');
    expect(refused).toMatchObject({ code: 'invalid_request_error', fields: ['input'] });
    expect(refused.text).toContain('at most 2048');
  });

  // Specification 4.8: dimensions for models that support them; user is an opaque string.
  test('have the requested number of dimensions if the model supports it', async () => {
    expect((await ask({ dimensions: 3 })).status).toBe(200);
    expect(upstream.asked[0]?.body['dimensions']).toBe(3);
    // The server makes three.
    expectRefused(PATH, await ask({ dimensions: 4 }), 'upstream_error');
    expectRefused(PATH, await ask({ dimensions: 0 }), 'validation_failed');
  });

  // Specification 8: Embeddings minimum charge: 1 cent per request.
  // Specification 4.8: Embeddings are billed up to the next whole cent per request, one cent at least.
  test('cost a cent at least, and otherwise whole cents, rounded up', async () => {
    const priced = { input_per_1m_tokens_cents: 2 };
    expect(
      [0, 1, 499_999, 500_000, 500_001, 1_000_000, 1_000_001].map(
        (tokens) => embeddingsUcents(tokens, priced) / 1_000_000n,
      ),
    ).toEqual([1n, 1n, 1n, 1n, 2n, 2n, 3n]);
    fc.assert(
      fc.property(fc.nat(), fc.nat({ max: 100_000 }), (tokens, cents) => {
        const charged = embeddingsUcents(tokens, { input_per_1m_tokens_cents: cents });
        const exact = BigInt(tokens) * BigInt(cents);
        expect(charged % 1_000_000n).toBe(0n);
        expect(charged >= exact && (charged === 1_000_000n || charged - exact < 1_000_000n)).toBe(true);
      }),
      { seed: 31 },
    );
    expect(await receiptOf(await ask())).toMatchObject({ charged_ucents: 1_000_000n, counted_by: 'upstream' });
  });

  test('have an estimated usage if the server counts no tokens', async () => {
    upstream.next({ body: { data: [{ index: 0, embedding: [1] }] } });
    const answer = await ask({ input: 'nine char' });
    expect(answer.json['usage']).toEqual({ prompt_tokens: 3, total_tokens: 3 });
    expect(await receiptOf(answer)).toMatchObject({ counted_by: 'estimate', prompt_tokens: 3 });
  });
});

describe('a request is refused', () => {
  // Specification 4.8: encoding_format is float, the default; base64 is rejected with unsupported_parameter.
  test('for base64, with the setting that the official client needs', async () => {
    const refused = expectRefused(PATH, await ask({ encoding_format: 'base64' }), 'unsupported_parameter');
    expect(refused.fields).toEqual(['encoding_format']);
    expect(refused.text).toContain('pass encoding_format: "float"');
  });

  // Specification 4.8: A chat model id in embeddings is 404 model_not_found.
  test.each(['acme/small-chat', 'small', 'acme/vectors', 'nobody/knows', 'embedder:economy'])(
    'for the model %s: 404 model_not_found',
    async (model) => {
      expectRefused(PATH, await ask({ model }), 'model_not_found');
    },
  );

  // Specification 4.8: Token-id arrays are unsupported as input.
  test.each([
    [{ input: [] }, 'input'],
    [{ input: '' }, 'input'],
    [{ input: ['a', ''] }, 'input[1]'],
    [{ input: [1, 2, 3] }, 'input[0]'],
    [{ input: [[1, 2]] }, 'input[0]'],
    [{ encoding_format: 'hex' }, 'encoding_format'],
    [{ user: 5 }, 'user'],
  ])('for an invalid value: %j', async (body, field) => {
    expect(expectRefused(PATH, await ask(body), 'validation_failed').fields).toEqual([field]);
    expect(upstream.asked).toEqual([]);
  });
});

test('a text that is too long for the model is 400 context_length_exceeded', async () => {
  upstream.next({
    status: 413,
    body: { error: '`inputs` must have less than 512 tokens. Given: 600', error_type: 'Validation' },
  });
  const refused = expectRefused(PATH, await ask(), 'context_length_exceeded');
  expect(refused.fields).toEqual(['input']);
  expect(refused.text).toBe(
    'A text does not fit into the 512 tokens of acme/embedder. Shorten it, or send it in parts.',
  );
});

describe('a wrong answer of the server is 502 upstream_error and costs nothing', () => {
  const vector = (index: number, embedding: unknown = [1, 2]): object => ({ index, embedding });
  // Specification 7.3: upstream_error is 502: a misaligned response.
  test.each([
    ['too few vectors', [vector(0)]],
    ['too many vectors', [vector(0), vector(1), vector(2)]],
    ['the same position twice', [vector(0), vector(0)]],
    ['a position beyond', [vector(0), vector(2)]],
    ['vectors of two lengths', [vector(0), vector(1, [1])]],
    ['a vector of nothing', [vector(0, []), vector(1, [])]],
    ['a vector of texts', [vector(0, ['1', '2']), vector(1)]],
    ['a vector as base64', [vector(0, 'AAAA'), vector(1)]],
  ])('%s', async (_what, data) => {
    upstream.next({ body: { data, usage: { prompt_tokens: 5 } } });
    expectRefused(PATH, await ask({ input: ['a', 'b'] }), 'upstream_error');
    const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(json).toMatchObject({ balance_cents: 1_000_000, held_cents: 0 });
  });

  test('a failed batch after one that succeeded', async () => {
    upstream.next(
      { body: { data: [0, 1, 2].map((i) => vector(i)), usage: { prompt_tokens: 5 } } },
      { status: 500, body: 'no' },
    );
    expectRefused(PATH, await ask({ input: texts(4) }), 'upstream_error');
    expect((await api.call('GET', '/v1/balance', { key: owner.key })).json['balance_cents']).toBe(1_000_000);
  });
});

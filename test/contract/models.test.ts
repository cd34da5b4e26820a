// GET /v1/models and GET /v1/models/{id} (specification 2.10, 4.8), and what inference paths refuse (7.1, 7.3).
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ModelList } from '../../shared/api/model.ts';
import { someModels } from '../kit/models.ts';
import { type Api, openApi } from './api.ts';
import { expectRefused } from './refusals.ts';

let api: Api;
let key: string;
beforeAll(async () => {
  api = await openApi({ settings: { models: someModels() } });
  ({ key } = await api.account(['serverless:read']));
});
afterAll(() => api.close());

const ids = (json: unknown): string[] => ModelList.parse(json).data.map(({ id }) => id);

describe('the list of models', () => {
  // Specification 2.10: category mirrors modality.
  // Specification 2.10: A model list is {object: list, data}.
  test('has all models on one page, by id, and shows nothing of their servers', async () => {
    const { status, json, body } = await api.call('GET', '/v1/models', { key });
    expect(status).toBe(200);
    expect(Object.keys(json)).toEqual(['object', 'data']);
    expect(ids(json)).toEqual(
      someModels()
        .map(({ id }) => id)
        .toSorted(),
    );
    expect(ids(json)).toHaveLength(8);
    for (const { modality, category } of json.data ?? []) expect(category).toBe(modality);
    expect(body).not.toMatch(/secret-name|127\.0\.0\.1|upstream/);
  });

  // Specification 4.8: GET /v1/models takes modality.
  test.each([
    ['chat', ['acme/small-chat']],
    ['image', ['acme/artist', 'acme/miniaturist', 'acme/muralist', 'acme/painter']],
    ['video', ['acme/filmer']],
    ['embedding', ['acme/embedder', 'acme/vectors']],
  ])('can be limited to the modality %s', async (modality, expected) => {
    const { json } = await api.call('GET', `/v1/models?modality=${modality}`, { key });
    expect(ids(json)).toEqual(expected);
  });

  test.each([
    ['modality=sound', 'modality'],
    ['modality=', 'modality'],
    ['limit=1', 'limit'],
    ['cursor=x', 'cursor'],
  ])('is refused with %s, and the parameter is named', async (query, field) => {
    const answer = await api.call('GET', `/v1/models?${query}`, { key });
    expect(expectRefused('/v1/models', answer, 'validation_failed').fields).toEqual([field]);
  });
});

describe('a model', () => {
  // Specification 2.10: pricing of a chat model: currency, input_per_1m_tokens_cents and output_per_1m_tokens_cents.
  // Specification 2.10: aliases, author, category, context_length, created and supported_parameters are there if they are known.
  // Specification 2.10: A model has id, object, owned_by, modality, status and pricing, and the optional members that are known of it.
  // Specification 2.10: fine_tunable and fine_tune_base_model: absent or false means that no job can fine-tune it.
  test('has the members of the specification', async () => {
    const { json } = await api.call('GET', '/v1/models/acme/small-chat', { key });
    expect(json).toEqual({
      id: 'acme/small-chat',
      object: 'model',
      owned_by: 'acme',
      modality: 'chat',
      status: 'active',
      pricing: {
        currency: 'USD',
        input_per_1m_tokens_cents: 15,
        output_per_1m_tokens_cents: 60,
        economy_input_per_1m_tokens_cents: 5,
        economy_output_per_1m_tokens_cents: 20,
      },
      aliases: ['small', 'acme/tiny'],
      author: 'Acme Labs',
      category: 'chat',
      context_length: 8_192,
      max_output_tokens: 1_024,
      created: 1_764_547_200,
      fine_tunable: false,
      supported_parameters: ['max_tokens', 'stop', 'stream', 'stream_options', 'temperature', 'top_p'],
    });
  });

  // Specification 2.10: parameters of image and video models; per_video_second_microcents is exact, per_video_second_cents rounds down.
  // Specification 2.10: per_image_microcents is exact, per_image_cents rounds sub-cent prices to 0.
  test('shows exact prices, and whole cents rounded down beside them', async () => {
    const { json: image } = await api.call('GET', '/v1/models/acme/painter', { key });
    expect(image['pricing']).toEqual({ currency: 'USD', per_image_microcents: 2_500_001, per_image_cents: 2 });
    expect(image['parameters']).toEqual([
      { name: 'size', type: 'enum', default: '512x512', enum: ['512x512', '1024x1024'] },
    ]);
    const { json: embedding } = await api.call('GET', '/v1/models/acme/embedder', { key });
    expect(embedding['pricing']).toEqual({ currency: 'USD', input_per_1m_tokens_cents: 2, min_charge_cents: 1 });
    const { json: video } = await api.call('GET', '/v1/models/acme/filmer', { key });
    expect(video).toMatchObject({
      status: 'coming_soon',
      pricing: { per_video_second_microcents: 999_999, per_video_second_cents: 0 },
    });
  });

  // Specification 4.8: GET /v1/models/{id} finds a model by its id or an alias, the slash written either way.
  test.each(['acme/small-chat', 'acme%2Fsmall-chat', 'acme%2fsmall-chat', 'small', 'acme/tiny', 'acme%2Ftiny'])(
    'is found as %s',
    async (path) => {
      const { status, json } = await api.call('GET', `/v1/models/${path}`, { key });
      expect([status, json['id']]).toEqual([200, 'acme/small-chat']);
    },
  );

  // Specification 2.10: pricing tells what an economy tier costs, and <id>:economy is found with its prices.
  test('lists what its economy tier costs, and answers for that tier alone by its name', async () => {
    const { json } = await api.call('GET', '/v1/models/acme/small-chat', { key });
    for (const path of ['acme/small-chat:economy', 'acme%2Fsmall-chat%3Aeconomy', 'small:economy']) {
      const { status, json: economy } = await api.call('GET', `/v1/models/${path}`, { key });
      expect(status).toBe(200);
      expect(economy).toEqual({
        ...json,
        id: 'acme/small-chat:economy',
        aliases: ['small:economy', 'acme/tiny:economy'],
        pricing: { currency: 'USD', input_per_1m_tokens_cents: 5, output_per_1m_tokens_cents: 20 },
      });
    }
    const { json: list } = await api.call('GET', '/v1/models', { key });
    const [withTier, ...without] = (list.data ?? []).toSorted((a) => (a['id'] === 'acme/small-chat' ? -1 : 1));
    expect(withTier?.['pricing']).toEqual(json['pricing']);
    expect(JSON.stringify(without)).not.toContain('economy');
  });

  // Specification 7.3: model_not_found is 404.
  test.each(['acme', 'acme/none', 'acme/small-chat/x', 'ACME/small-chat', 'acme/embedder:economy', '%20'])(
    'is not found as %s',
    async (path) => {
      const answer = await api.call('GET', `/v1/models/${path}`, { key });
      expect(expectRefused('/v1/models/x', answer, 'model_not_found').text).toContain('GET /v1/models lists');
    },
  );

  test('is not found if it does not exist, however long its id is', async () => {
    for (const length of [256, 257, 4_000]) {
      const answer = await api.call('GET', `/v1/models/${'x'.repeat(length)}`, { key });
      expect(expectRefused('/v1/models/x', answer, 'model_not_found').text.length).toBeLessThan(250);
    }
  });
});

describe('a refusal of an inference path is the envelope', () => {
  // Specification 7.1: Unknown inference paths are the envelope.
  test.each(['/v1/chat/nothing', '/v1/images/edits', '/v1/fine_tuning/nothing'])(
    'for an unknown path: %s',
    async (path) => {
      for (const method of ['GET', 'POST'] as const) {
        expectRefused(path, await api.call(method, path, { key, body: {} }), 'not_found');
      }
    },
  );

  test.each([
    ['/v1/responses', '/v1/chat/completions'],
    ['/v1/responses/resp_1', '/v1/chat/completions'],
    ['/v1/completions', '/v1/chat/completions'],
    ['/v1/moderations', '/v1/chat/completions'],
    ['/v1/batches', 'POST /v1/embeddings'],
    ['/v1/assistants', '/v1/chat/completions'],
    ['/v1/threads/thread_1/runs', '/v1/chat/completions'],
    ['/v1/vector_stores', '/v1/embeddings'],
    ['/v1/rerank', '/v1/embeddings'],
    ['/v1/audio/speech', 'GET /v1/models'],
    ['/v1/audio/transcriptions', 'GET /v1/models'],
    ['/v1/realtime', 'stream: true'],
    ['/v1/realtime/sessions', 'stream: true'],
  ])('for a path that clients call in vain, with what to use instead: %s', async (path, instead) => {
    for (const method of ['GET', 'POST', 'DELETE'] as const) {
      const refused = expectRefused(path, await api.call(method, path, { key, body: {} }), 'not_found');
      expect(refused.text).toContain(`There is nothing at ${path}. `);
      expect(refused.text).toContain(instead);
    }
  });

  test('for such a path, whatever the type and the size of the body are', async () => {
    for (const [type, bytes] of [
      ['multipart/form-data; boundary=x', 10],
      ['audio/wav', 10],
      ['application/json', 3_000_000],
    ] as const) {
      const headers = { 'content-type': type };
      const request = { method: 'POST', url: '/v1/audio/transcriptions', headers, payload: 'x'.repeat(bytes) } as const;
      expect((await api.http.inject(request)).status).toBe(404);
    }
  });

  test('for a method that the path does not take', async () => {
    for (const path of ['/v1/models', '/v1/models/acme/small-chat', '/v1/models/']) {
      const answer = await api.call('DELETE', path, { key });
      expectRefused(path, answer, 'method_not_allowed');
      expect(answer.headers['allow']).toBe('GET');
    }
  });

  test('for a path with a broken percent-encoding', async () => {
    expectRefused('/v1/models/x', await api.call('GET', '/v1/models/%', { key }), 'invalid_request');
  });

  // Specification 7.1: Fine-tuning is a family of inference by its errors, deposits one of the platform.
  test('and a refusal of a platform path is a problem document, also if the path looks alike', async () => {
    for (const path of [
      '/v1/modelsx',
      '/v1/chats',
      '/v1/nothing',
      '/v1/responsesx',
      '/models',
      '/v1/depositsx',
      '/v1/fine_tuningx',
    ]) {
      expectRefused(path, await api.call('GET', path, { key }), 'not_found');
    }
  });
});

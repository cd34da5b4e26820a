// The largest answers of model servers that are passed on (specification 8). They do not depend on the database, and each costs seconds.
import { expect, test } from 'vitest';
import { EMBEDDINGS_ANSWER_BYTES_MAX, IMAGES_ANSWER_BYTES_MAX } from '../../shared/limits.ts';
import { api, owner } from './api-of-test.ts';
import type { Answer } from './api.ts';
import { openModelsForEachTest, upstream } from './models-of-test.ts';
import { expectRefused } from './refusals.ts';

openModelsForEachTest();

const IMAGES = '/v1/images/generations';
const EMBEDDINGS = '/v1/embeddings';
const ask = (path: string, body: object): Promise<Answer> => api.call('POST', path, { key: owner.key, body });

test('images: an answer of the maximum size is passed on; with one byte more it is an error of the server', async () => {
  const body = (bytes: number): string => {
    const around = '{"data":[{"b64_json":""}]}'.length;
    return `{"data":[{"b64_json":"${'A'.repeat(bytes - around)}"}]}`;
  };
  const askImage = (): Promise<Answer> => ask(IMAGES, { model: 'acme/artist', prompt: 'a cat' });
  upstream.next({ body: body(IMAGES_ANSWER_BYTES_MAX) }, { body: body(IMAGES_ANSWER_BYTES_MAX + 1) });
  expect((await askImage()).status).toBe(200);
  expectRefused(IMAGES, await askImage(), 'upstream_response_too_large');
});

// Specification 8: Embeddings response: at most 64 MiB.
test('vectors of up to 64 MiB over all batches are passed on; more are 502, which a client should not retry', async () => {
  const body = (bytes: number): string => {
    const head = '{"data":[{"index":0,"embedding":[1]},{"index":1,"embedding":[1]},{"index":2,"embedding":[1]}]';
    return `${head}${' '.repeat(bytes - head.length - 1)}}`;
  };
  const input = Array.from({ length: 6 }, (_, i) => `${i}`);
  const askVectors = (): Promise<Answer> => ask(EMBEDDINGS, { model: 'acme/embedder', input });
  const half = EMBEDDINGS_ANSWER_BYTES_MAX / 2;
  upstream.next({ body: body(half) }, { body: body(half) });
  expect((await askVectors()).status).toBe(200);
  upstream.next({ body: body(half) }, { body: body(half + 1) });
  const answer = await askVectors();
  expectRefused(EMBEDDINGS, answer, 'upstream_response_too_large');
  expect(answer.headers['x-should-retry']).toBe('false');
});

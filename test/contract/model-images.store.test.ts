// POST /v1/images/generations (specification 2.12, 4.8, 7.3): images as base64, their exact price, and what is refused.
import { beforeEach, describe, expect, test } from 'vitest';
import { ImagesResponse } from '../../shared/api/images.ts';
import type { Answer } from './api.ts';
import { api, owner } from './api-of-test.ts';
import { openModelsForEachTest, receiptOf, upstream } from './models-of-test.ts';
import { expectRefused } from './refusals.ts';

const PATH = '/v1/images/generations';
const PNG = Buffer.from('a picture').toString('base64');

openModelsForEachTest();
beforeEach(() => {
  upstream.usual = ({ body }) => ({ body: { created: 1, data: Array.from({ length: Number(body['n']) }, image) } });
});

const image = (): object => ({ b64_json: PNG, revised_prompt: 'secret', url: null });
const ask = (body: object = {}): Promise<Answer> =>
  api.call('POST', PATH, { key: owner.key, body: { model: 'acme/artist', prompt: 'a cat', ...body } });
const chargeOf = async (answer: Answer): Promise<bigint | undefined> => (await receiptOf(answer))?.charged_ucents;

describe('images', () => {
  // Specification 2.12: An image response is {created, data: [{b64_json}], usage: {image_count}}; image_count is the metered unit.
  test("have the members of the specification, and no member of the server's own", async () => {
    const answer = await ask({ model: 'artist', n: 2, response_format: 'b64_json' });
    expect(answer.status).toBe(200);
    expect(ImagesResponse.parse(answer.json)).toEqual({
      created: Math.floor(api.world.clock.now() / 1000),
      data: [{ b64_json: PNG }, { b64_json: PNG }],
      usage: { image_count: 2 },
    });
    expect(upstream.asked).toMatchObject([{ path: '/v1/images/generations' }]);
    expect(upstream.asked[0]?.body).toEqual({
      model: 'upstream/secret-name',
      prompt: 'a cat',
      n: 2,
      size: '512x512',
      response_format: 'b64_json',
    });
    const receipt = await receiptOf(answer);
    expect(receipt).toMatchObject({ images: 2, prompt_tokens: null, charged_ucents: 5_000_002n, ending: 'completed' });
  });

  // Specification 1: Billing is per image, or per megapixel of it.
  // Specification 4.8: POST /v1/images/generations: model and prompt are required, n defaults to 1, size is <W>x<H>.
  test.each([
    ['acme/artist', {}, 2_500_001n],
    ['acme/artist', { n: 3, size: '1024x768' }, 7_500_003n],
    // 262,144 and 786,432 pixels at 3,000,001 microcents a million, up to the next microcent.
    ['acme/muralist', {}, 786_433n],
    ['acme/muralist', { size: '1024x768', n: 2 }, 4_718_594n],
    ['acme/miniaturist', {}, 2_500_001n],
  ])('of %s with %j cost exactly %d microcents', async (model, more, expected) => {
    expect(await chargeOf(await ask({ model, ...more }))).toBe(expected);
  });

  test('are at most ten for one request', async () => {
    expect((await ask({ n: 10 })).status).toBe(200);
    expect(expectRefused(PATH, await ask({ n: 11 }), 'validation_failed').fields).toEqual(['n']);
    expect(expectRefused(PATH, await ask({ n: 0 }), 'validation_failed').fields).toEqual(['n']);
  });
});

describe('a request is refused', () => {
  test.each([
    ['512x512', 10],
    ['2048x1280', 6],
    ['4096x4096', 1],
  ])('for more images of %s than the largest answer has room for: %i', async (size, most) => {
    const murals = (n: number): Promise<Answer> => ask({ model: 'acme/muralist', size, n });
    expect((await murals(most)).status).toBe(200);
    expect(expectRefused(PATH, await murals(most + 1), 'validation_failed').fields).toEqual(['n']);
    expect(upstream.asked).toHaveLength(1);
  });

  // Specification 7.3: response_format url is 400 invalid_request_error.
  // Specification 4.8: response_format of images is b64_json, the default; url is rejected with invalid_request_error.
  test('if it asks for a URL', async () => {
    const refused = expectRefused(PATH, await ask({ response_format: 'url' }), 'invalid_request');
    expect(refused).toMatchObject({ code: 'invalid_request_error', fields: ['response_format'] });
  });

  test('for a size that the model does not declare, and for any size if it declares none', async () => {
    const refused = expectRefused(PATH, await ask({ size: '640x480' }), 'validation_failed');
    expect(refused.text).toBe('size must be one of 512x512, 1024x768 for acme/artist.');
    for (const size of ['large', '0x5', '1024x', '1024X768', '123456x1'])
      expect(expectRefused(PATH, await ask({ size }), 'validation_failed').fields).toEqual(['size']);
    const none = await ask({ model: 'acme/miniaturist', size: '512x512' });
    expect(expectRefused(PATH, none, 'unsupported_parameter').fields).toEqual(['size']);
  });

  test.each(['acme/small-chat', 'acme/painter', 'nobody/knows'])(
    'for the model %s: 404 model_not_found',
    async (model) => {
      expectRefused(PATH, await ask({ model }), 'model_not_found');
    },
  );

  test.each([
    [{ quality: 'hd' }, 'quality'],
    [{ metadata: {} }, 'metadata'],
  ])('for an unsupported parameter: %j', async (body, field) => {
    expect(expectRefused(PATH, await ask(body), 'unsupported_parameter').fields).toEqual([field]);
  });
});

describe('a wrong answer of the server is 502 and costs nothing', () => {
  test.each([
    ['too few images', [image()]],
    ['too many images', [image(), image(), image()]],
    ['an address in place of an image', [image(), { url: 'http://10.0.0.5/secret.png' }]],
    ['what is no base64', [image(), { b64_json: 'not base64!' }]],
    ['base64 with a space', [image(), { b64_json: 'AAAA AAAA' }]],
    ['base64 with too much at its end', [image(), { b64_json: 'A===' }]],
    ['an empty image', [image(), { b64_json: '' }]],
  ])('%s', async (_what, data) => {
    upstream.next({ body: { data } });
    expectRefused(PATH, await ask({ n: 2 }), 'upstream_error');
    const { json } = await api.call('GET', '/v1/balance', { key: owner.key });
    expect(json).toMatchObject({ balance_cents: 1_000_000, held_cents: 0 });
  });
});

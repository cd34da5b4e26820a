// The operator's file of models: valid entries, each mistake with its line, and how the name in a call is resolved.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { openCatalog } from '../../../control-plane/models/catalog/catalog.ts';
import { parseModels, readModels } from '../../../control-plane/models/catalog/models.ts';
import { ServiceError } from '../../../shared/errors.ts';
import { someModels } from '../../kit/models.ts';

const dir = mkdtempSync(join(tmpdir(), 'models-'));
afterAll(() => rmSync(dir, { recursive: true }));

const CHAT = `
  - id: acme/chat
    modality: chat
    owned_by: acme
    context_length: 8192
    pricing: { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 }
    upstreams:
      - { base_url: 'http://10.0.0.5:8000/v1', model: m }`;

const chat = (...changes: [from: string, to: string][]): string =>
  `models:${changes.reduce((text, [from, to]) => text.replace(from, to), CHAT)}\n`;
const complaint = (text: string): string => {
  try {
    parseModels(text, 'models.yaml');
    return 'none';
  } catch (error) {
    return error instanceof Error ? error.message : '';
  }
};

const SOUND_DEPLOYMENT = {
  image: 'ghcr.io/acme/llama:1',
  port: 8000,
  model: 'm',
  gpu_type: 'H100_SXM',
  max_price_per_hour: 5,
  min_replicas: 0,
  max_replicas: 2,
};
describe('the file', () => {
  test('needs little for a chat model', () => {
    expect(parseModels(chat(), 'models.yaml')).toMatchObject([
      {
        id: 'acme/chat',
        status: 'active',
        aliases: [],
        upstreams: [{ base_url: 'http://10.0.0.5:8000/v1', model: 'm', weight: 1, apiKey: undefined }],
        economy: undefined,
      },
    ]);
  });

  test('that is not named means no models; a missing file is reported with its setting', () => {
    expect(readModels(undefined)).toEqual([]);
    expect(() => readModels(join(dir, 'none.yaml'))).toThrow(/^models_file names .*none\.yaml, which does not exist$/);
  });

  test.each([
    ['an unknown key', ['owned_by: acme', 'owner: acme'], 'models.yaml:4: models[0].owner: is not a known field'],
    ['an id without a namespace', ['acme/chat', 'chat'], 'models[0].id: must be like acme/model-1'],
    ['an id with the suffix of a tier', ['acme/chat', 'acme/chat:economy'], 'models[0].id: must be letters'],
    ['an unknown modality', ['modality: chat', 'modality: sound'], 'models.yaml:3: models[0].modality: must be one of'],
    [
      'a price that is missing',
      [', output_per_1m_tokens_cents: 60', ''],
      'models.yaml:6: models[0].pricing: must have',
    ],
    ['a price of another kind', ['15,', '15, per_image_microcents: 1,'], 'and nothing else, for chat models'],
    ['half a cent', ['15,', '0.5,'], 'models[0].pricing.input_per_1m_tokens_cents: must be a whole number'],
    ['a negative price', ['15,', '-1,'], 'must be at least 0'],
    ['a price beyond reason', ['15,', '100000001,'], 'must be at most 100000000'],
    ['no context_length', ['    context_length: 8192\n', ''], 'models[0].context_length: is required for chat models'],
    [
      'an answer longer than the context',
      ['8192', '8192\n    max_output_tokens: 8193'],
      'models.yaml:6: models[0].max_output_tokens: must not be above context_length',
    ],
    [
      'an active model without a server',
      [/upstreams:[^]*/.exec(CHAT)?.[0] ?? '', ''],
      'models[0].upstreams: must have at least 1 entry',
    ],
    ['an address that is none', ['http://10.0.0.5:8000/v1', 'ftp://x'], 'base_url: must be a URL like'],
    ['an address that ends with a slash', ['/v1', '/v1/'], 'base_url: must not end with /'],
    ['a weight of 0', ['model: m', 'model: m, weight: 0'], 'weight: must be at least 1'],
    ['a weight of 1001', ['model: m', 'model: m, weight: 1001'], 'weight: must be at most 1000'],
    [
      'an unknown parameter',
      ['8192', '8192\n    supported_parameters: [tools]'],
      'supported_parameters[0]: must be one of',
    ],
    ['parameters of images', ['8192', '8192\n    parameters: [{ name: x, type: int }]'], 'is only for image and video'],
    [
      'more texts at once than a request has',
      ['model: m', 'model: m, max_inputs: 2049'],
      'max_inputs: must be at most 2048',
    ],
    [
      'a chat model at a server of videos',
      ['model: m', 'model: m, engine: vllm_omni'],
      'engine: must be another: vllm_omni makes videos',
    ],
  ] as [string, [string, string], string][])('with %s is refused', (_what, change, expected) => {
    expect(complaint(chat(change))).toContain(expected);
  });

  describe('with a deployment', () => {
    const deployment = (changes: object = {}, serverless = false): string => {
      const sound = { ...SOUND_DEPLOYMENT, ...changes };
      const pricing = { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 };
      const tier = serverless
        ? { upstreams: [], deployment: sound }
        : { upstreams: [{ base_url: 'http://10.0.0.5:8000/v1', model: 'm' }], economy: { pricing, deployment: sound } };
      const model = { id: 'acme/chat', modality: 'chat', owned_by: 'acme', context_length: 8192, pricing, ...tier };
      return JSON.stringify({ models: [model] });
    };

    test('needs little, and may be in place of upstreams', () => {
      const [model] = parseModels(deployment(), 'models.yaml');
      expect(model?.economy).toMatchObject({
        upstreams: [],
        deployment: {
          placement: 'trusted',
          gpu_count: 1,
          idle_minutes: 10,
          start_deadline_seconds: 120,
          engine: 'other',
        },
      });
      expect(complaint(deployment({ min_replicas: 1 }, true))).toBe('none');
    });

    test.each<[string, object, string]>([
      ['no image', { image: undefined }, 'economy.deployment.image: is required'],
      ['a port beyond the last', { port: 65_536 }, 'economy.deployment.port: must be at most 65535'],
      ['port 0', { port: 0 }, 'economy.deployment.port: must be at least 1'],
      ['nine GPUs', { gpu_count: 17 }, 'economy.deployment.gpu_count: must be at most'],
      ['no price', { max_price_per_hour: 0 }, 'economy.deployment.max_price_per_hour: must be'],
      [
        'fewer at most than at least',
        { min_replicas: 3 },
        'economy.deployment.max_replicas: must be at least min_replicas',
      ],
      ['no replica at most', { max_replicas: 0 }, 'economy.deployment.max_replicas: must be at least 1'],
      ['no idle time', { idle_minutes: 0 }, 'economy.deployment.idle_minutes: must be at least 1'],
      [
        'a day and a minute of idle time',
        { idle_minutes: 1_441 },
        'economy.deployment.idle_minutes: must be at most 1440',
      ],
      ['a short deadline', { start_deadline_seconds: 9 }, 'start_deadline_seconds: must be at least 10'],
      ['a long deadline', { start_deadline_seconds: 3_601 }, 'start_deadline_seconds: must be at most 3600'],
      ['a placement that is none', { placement: 'mine' }, 'economy.deployment.placement: must be one of'],
      ['a reserved variable', { env: { SVC_X: 'y' } }, 'economy.deployment.env.SVC_X: is a reserved name'],
      ['a price with too many digits', { max_price_per_hour: 10_001 }, 'max_price_per_hour: must be at most 10000'],
    ])('with %s is refused', (_what, changes, expected) => {
      expect(complaint(deployment(changes))).toContain(expected);
    });

    test('must keep one replica of the serverless tier, unless there are upstreams', () => {
      expect(complaint(deployment({}, true))).toContain(
        'deployment.min_replicas: must be at least 1 without upstreams',
      );
    });
  });

  test('with dimensions of an embedding model at a server that would ignore them is refused', () => {
    const embedding = (engine: string): string =>
      complaint(
        chat(
          ['modality: chat', 'modality: embedding'],
          [', output_per_1m_tokens_cents: 60', ''],
          ['8192', '8192\n    supported_parameters: [dimensions]'],
          ['model: m', `model: m, engine: ${engine}`],
        ),
      );
    expect(embedding('tei')).toBe('none');
    const replicas = JSON.stringify({ ...SOUND_DEPLOYMENT, min_replicas: 1, engine: 'llama_cpp' });
    const served = `id: acme/v, modality: embedding, owned_by: acme, context_length: 512, deployment: ${replicas}`;
    const priced = 'supported_parameters: [dimensions], pricing: { input_per_1m_tokens_cents: 1 }';
    expect(complaint(`models: [{ ${served}, ${priced} }]`)).toContain(
      'models[0].deployment.engine: must be another where dimensions are supported',
    );
    expect(embedding('llama_cpp')).toContain('upstreams[0].engine: must be another where dimensions are supported');
  });

  test('with a name used twice, as id or alias, is refused', () => {
    const text = `${chat()}${CHAT.replace('acme/chat', 'acme/other').replace('8192', '8192\n    aliases: [acme/chat]').slice(1)}`;
    expect(complaint(text)).toBe('models.yaml:13: models[1].aliases[0]: the name acme/chat is used twice');
  });

  test('with an economy tier of an embedding model, or one priced by the image, is refused', () => {
    const economy = (pricing: string): [string, string] => [
      '    upstreams:',
      `    economy: { pricing: ${pricing}, upstreams: [{ base_url: 'http://10.0.0.5:8000/v1', model: m }] }\n    upstreams:`,
    ];
    const tokens = '{ input_per_1m_tokens_cents: 1, output_per_1m_tokens_cents: 1 }';
    expect(complaint(chat(economy(tokens)))).toBe('none');
    expect(complaint(chat(economy('{ per_image_microcents: 1 }')))).toContain(
      'models[0].economy.pricing: must have input_per_1m_tokens_cents and output_per_1m_tokens_cents',
    );
    const embedding = chat(
      economy(tokens),
      ['modality: chat', 'modality: embedding'],
      [', output_per_1m_tokens_cents: 60', ''],
    );
    expect(complaint(embedding)).toContain('models[0].economy: is only for chat models');
  });

  // Specification 1: Economy is cheaper: never above the serverless price.
  test('with an economy price above the serverless one is refused', () => {
    const economy = (input: number, output: number): string =>
      complaint(
        chat([
          '    upstreams:',
          `    economy: { pricing: { input_per_1m_tokens_cents: ${input}, output_per_1m_tokens_cents: ${output} }, upstreams: [{ base_url: 'http://10.0.0.5:8000/v1', model: m }] }\n    upstreams:`,
        ]),
      );
    expect(economy(15, 60)).toBe('none');
    expect(economy(16, 60)).toContain('economy.pricing.input_per_1m_tokens_cents: must be at most 15, the price of');
    expect(economy(15, 61)).toContain('economy.pricing.output_per_1m_tokens_cents: must be at most 60, the price of');
  });

  test('may have parameters for a video model, but not for an embedding model', () => {
    const model = (modality: string, pricing: string): string =>
      complaint(`models:
  - id: acme/model
    modality: ${modality}
    status: coming_soon
    owned_by: acme
    pricing: { ${pricing}: 1 }
    parameters: [{ name: seconds, type: int, default: 4, min: 1, max: 8 }]
`);
    expect(model('video', 'per_video_second_microcents')).toBe('none');
    expect(model('embedding', 'input_per_1m_tokens_cents')).toContain('parameters: is only for image and video models');
  });

  test('is accepted at its bounds', () => {
    expect(complaint(chat(['15,', '100000000,'], ['8192', '8192\n    max_output_tokens: 8192']))).toBe('none');
    expect(complaint(chat(['15,', '0,'], ['model: m', 'model: m, weight: 1000']))).toBe('none');
  });

  test('names files with the keys of servers, which must hold one key', () => {
    const keyed = (file: string): string => chat(['model: m', `model: m, api_key_file: ${file}`]);
    const [good, bad] = [join(dir, 'good'), join(dir, 'bad')];
    writeFileSync(good, 'sk-upstream\n');
    writeFileSync(bad, 'two words\n');
    expect(parseModels(keyed(good), 'models.yaml')[0]?.upstreams[0]?.apiKey).toBe('sk-upstream');
    expect(complaint(keyed(bad))).toMatch(/^api_key_file names .*bad, which must hold one key/);
    expect(complaint(keyed(join(dir, 'none')))).toMatch(/^api_key_file names .*none, which does not exist$/);
    expect(complaint(keyed('relative'))).toContain('api_key_file: must be an absolute path');
  });
});

describe('an image model', () => {
  const image = (pricing: string, parameters: string): string =>
    complaint(`models:
  - id: acme/image
    modality: image
    owned_by: acme
    pricing: { ${pricing}: 5 }
    parameters: ${parameters}
    upstreams: [{ base_url: 'http://10.0.0.5:8000/v1', model: m }]
`);
  const size = (more: string): string => `[{ name: size, ${more} }]`;

  // Specification 2.10: per_mpxl_microcents excludes the fields per image.
  test.each([
    ['per_image_microcents', '[]', 'none'],
    ['per_image_microcents', size('type: enum, default: 1x1, enum: [1x1, 99999x2]'), 'none'],
    ['per_mpxl_microcents', size('type: enum, default: 1x1, enum: [1x1]'), 'none'],
    ['per_mpxl_microcents', '[]', 'must have size for a model that is priced by the megapixel'],
    ['per_image_microcents', '[{ name: steps, type: int }]', 'may only have size'],
    ['per_image_microcents', size('type: string'), 'must have an enum of sizes'],
    ['per_image_microcents', size('type: enum, default: 1x1, enum: [1x1, large]'), 'must have an enum of sizes'],
    ['per_image_microcents', size('type: enum, default: 1x1, enum: []'), 'must have an enum of sizes'],
    [
      'per_image_microcents',
      '[{ name: size, type: enum, default: 1x1, enum: [1x1] }, { name: steps, type: int }]',
      'may only have size',
    ],
    [
      'per_image_microcents',
      size('type: enum, default: 4096x4096, enum: [4096x4096, 4096x4097]'),
      'must have sizes of at most 16777216 pixels, unlike 4096x4097',
    ],
    ['per_image_microcents', size('type: enum, enum: [1x1]'), 'must have one of its sizes as default'],
    ['per_image_microcents', size('type: enum, default: 2x2, enum: [1x1]'), 'must have one of its sizes as default'],
  ])('priced %s with the parameters %s: %s', (pricing, parameters, expected) => {
    expect(image(pricing, parameters)).toContain(expected);
  });
});

describe('a video model', () => {
  const SECONDS = '{ name: seconds, type: int, default: 4, min: 1, max: 12 }';
  const video = (
    parameters: string,
    servers = "{ base_url: 'http://10.0.0.5:8000/v1', model: m, engine: sglang }",
    pricing = 'per_video_second_microcents: 5',
  ): string =>
    complaint(`models:
  - id: acme/v
    modality: video
    owned_by: acme
    pricing: { ${pricing} }
    parameters: [${parameters}]
    upstreams: [${servers}]
`);
  const seconds = (more: string): string => `{ name: seconds, ${more} }`;
  const WRONG_SECONDS =
    'must have seconds of the type int, with a default, a min of at least 1 and a max of at most 3600';

  test.each([
    [SECONDS, 'none'],
    [seconds('type: int, default: 3600, min: 1, max: 3600'), 'none'],
    [`${SECONDS}, { name: size, type: enum, enum: [1x1] }, { name: loud, type: bool, default: false }`, 'none'],
    ['', 'must have seconds for video models'],
    [seconds('type: int, default: 4, min: 1, max: 3601'), WRONG_SECONDS],
    [seconds('type: int, default: 4, min: 0, max: 12'), WRONG_SECONDS],
    [seconds('type: int, default: 4, max: 12'), WRONG_SECONDS],
    [seconds('type: int, default: 4, min: 1'), WRONG_SECONDS],
    [seconds('type: int, min: 1, max: 12'), WRONG_SECONDS],
    [seconds("type: string, default: '4'"), WRONG_SECONDS],
    [
      seconds('type: int, default: 13, min: 1, max: 12'),
      'has a default of seconds that breaks its own rule: it must be at most 12',
    ],
    [`${SECONDS}, ${SECONDS}`, 'must name each parameter once'],
    [`${SECONDS}, { name: Size, type: string }`, 'must have names of small letters, digits and underscores'],
    [`${SECONDS}, { name: prompt, type: string }`, 'must not have prompt, which every request has'],
    [`${SECONDS}, { name: size, type: enum }`, 'must have an enum for size exactly if that is its type'],
    [`${SECONDS}, { name: size, type: string, enum: [a] }`, 'must have an enum for size exactly if that is its type'],
    [`${SECONDS}, { name: size, type: string, max: 5 }`, 'must have min and max for size only as an int'],
    [`${SECONDS}, { name: size, type: enum, enum: [a], default: b }`, 'has a default of size that breaks its own rule'],
  ])('with the parameters %s: %s', (parameters, expected) => {
    expect(video(parameters)).toContain(expected);
  });

  // Specification 2.10: per_video_microcents is of a representative clip: shown beside the price per second, never billed.
  test('is priced by the second, and may show the price of a representative clip beside that, never alone', () => {
    const server = "{ base_url: 'http://10.0.0.5:8000/v1', model: m, engine: sglang }";
    const wrong = 'pricing: must have per_video_second_microcents, and nothing else, for video models';
    expect(video(SECONDS, server, 'per_video_second_microcents: 5, per_video_microcents: 20')).toBe('none');
    expect(video(SECONDS, server, 'per_video_microcents: 20')).toContain(wrong);
    expect(video(SECONDS, server, 'per_video_second_microcents: 5, per_image_microcents: 1')).toContain(wrong);
  });

  test('is made by vLLM-Omni or SGLang, each server with an address of its own', () => {
    const server = (port: number, engine: string): string =>
      `{ base_url: 'http://10.0.0.5:${port}/v1', model: m, engine: ${engine} }`;
    expect(video(SECONDS, `${server(1, 'vllm_omni')}, ${server(2, 'sglang')}`)).toBe('none');
    expect(video(SECONDS, server(1, 'vllm'))).toContain('engine: must be vllm_omni or sglang for video models');
    expect(video(SECONDS, `${server(1, 'sglang')}, ${server(1, 'sglang')}`)).toContain(
      'upstreams[1].base_url: must be another',
    );
  });
});

describe('a name in a call', () => {
  const catalog = openCatalog(someModels());
  const codeOf = (name: string, modality: 'chat' | 'embedding'): string => {
    try {
      return catalog.callable(name, modality).tier;
    } catch (error) {
      return error instanceof ServiceError ? `${error.code}: ${error.details.detail.split('.')[0]}` : 'a bug';
    }
  };

  // Specification 9: Model status coming_soon, deprecated and active describe the lifecycle of the catalog.
  // Specification 4.8: The suffix :economy selects the economy tier.
  // Specification 2.10: status coming_soon: the model is shown and cannot be called.
  test.each([
    ['acme/small-chat', 'chat', 'serverless'],
    ['small', 'chat', 'serverless'],
    ['acme/small-chat:economy', 'chat', 'economy'],
    ['small:economy', 'chat', 'economy'],
    ['nobody/knows', 'chat', 'model_not_found: There is no model "nobody/knows"'],
    ['', 'chat', 'model_not_found: There is no model ""'],
    [':economy', 'chat', 'model_not_found: There is no model ""'],
    ['small:economy:economy', 'chat', 'model_not_found: There is no model "small:economy"'],
    ['small', 'embedding', 'model_not_found: acme/small-chat is a model for chat, not embedding'],
    ['acme/vectors', 'embedding', 'model_not_found: acme/vectors is coming soon and cannot be called yet'],
  ] as const)('%s for %s: %s', (name, modality, expected) => {
    expect(codeOf(name, modality)).toBe(expected);
  });

  test('has the price of the economy tier under :economy, and is not found if there is none', () => {
    expect(catalog.callable('small:economy', 'chat').pricing).toEqual({
      input_per_1m_tokens_cents: 5,
      output_per_1m_tokens_cents: 20,
    });
    const without = openCatalog(parseModels(chat(), 'models.yaml'));
    expect(() => without.callable('acme/chat:economy', 'chat')).toThrow(/acme\/chat has no economy tier/);
  });
});

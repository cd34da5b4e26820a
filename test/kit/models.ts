// Models as an operator writes them, for tests: those that can be called, at a server of the test's, and some that cannot.
import { type CatalogModel, parseModels } from '../../control-plane/models/catalog/models.ts';

/** 15 and 60 cents for a million tokens; the economy tier costs 5 and 20. */
const CHAT = {
  id: 'acme/small-chat',
  modality: 'chat',
  owned_by: 'acme',
  author: 'Acme Labs',
  created: 1_764_547_200,
  aliases: ['small', 'acme/tiny'],
  pricing: { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 },
  context_length: 8_192,
  max_output_tokens: 1_024,
  supported_parameters: ['top_p', 'stop'],
};

/** 2 cents for a million tokens, three texts at once. */
const EMBEDDER = {
  id: 'acme/embedder',
  modality: 'embedding',
  owned_by: 'acme',
  aliases: ['embedder'],
  pricing: { input_per_1m_tokens_cents: 2 },
  context_length: 512,
  supported_parameters: ['dimensions'],
};

/** 2.500001 cents an image. */
const ARTIST = {
  id: 'acme/artist',
  modality: 'image',
  owned_by: 'acme',
  aliases: ['artist'],
  pricing: { per_image_microcents: 2_500_001 },
  parameters: [{ name: 'size', type: 'enum', default: '512x512', enum: ['512x512', '1024x768'] }],
};

/** The same by the megapixel: 3 cents and a microcent. */
const MURALIST = {
  ...ARTIST,
  id: 'acme/muralist',
  aliases: [],
  pricing: { per_mpxl_microcents: 3_000_001 },
  parameters: [
    { name: 'size', type: 'enum', default: '512x512', enum: ['512x512', '1024x768', '2048x1280', '4096x4096'] },
  ],
};
/** The sizes of this model are not in its parameters: its server decides them. */
const MINIATURIST = { ...ARTIST, id: 'acme/miniaturist', aliases: [], parameters: [] };

const SOON = [
  {
    id: 'acme/painter',
    modality: 'image',
    status: 'coming_soon',
    owned_by: 'acme',
    pricing: { per_image_microcents: 2_500_001 },
    parameters: [{ name: 'size', type: 'enum', default: '512x512', enum: ['512x512', '1024x1024'] }],
  },
  {
    id: 'acme/filmer',
    modality: 'video',
    status: 'coming_soon',
    owned_by: 'acme',
    pricing: { per_video_second_microcents: 999_999 },
  },
  {
    id: 'acme/vectors',
    modality: 'embedding',
    status: 'coming_soon',
    owned_by: 'acme',
    pricing: { input_per_1m_tokens_cents: 2 },
  },
];

/** `changes` are of the chat model; its one server is at `baseUrl`. */
export function someModels(baseUrl = 'http://127.0.0.1:9/v1', changes: object = {}): CatalogModel[] {
  return parseModels(modelsFile(baseUrl, changes), 'models.yaml');
}

/** The same as the text of a file. */
export function modelsFile(baseUrl: string, changes: object = {}): string {
  const upstreams = [{ base_url: baseUrl, model: 'upstream/secret-name' }];
  const economy = { pricing: { input_per_1m_tokens_cents: 5, output_per_1m_tokens_cents: 20 }, upstreams };
  // JSON is YAML.
  const embedder = { ...EMBEDDER, upstreams: [{ ...upstreams[0], max_inputs: 3 }] };
  const images = [ARTIST, MURALIST, MINIATURIST].map((model) => ({ ...model, upstreams }));
  return JSON.stringify({ models: [{ ...CHAT, upstreams, economy, ...changes }, embedder, ...images, ...SOON] });
}

/** Two to twelve seconds, four if the request names none; 0.999999 cents each, so a clip of four costs four cents. */
const DIRECTOR = {
  id: 'acme/director',
  modality: 'video',
  owned_by: 'acme',
  aliases: ['director'],
  pricing: { per_video_second_microcents: 999_999 },
  parameters: [
    { name: 'seconds', type: 'int', default: 4, min: 2, max: 12 },
    { name: 'size', type: 'enum', default: '832x480', enum: ['832x480', '1280x720'] },
    { name: 'seed', type: 'int', min: 0, max: 100 },
    { name: 'generate_sound', type: 'bool' },
    { name: 'negative_prompt', type: 'string' },
  ],
};

/** A video model at these servers, each like `{ base_url, engine }`, and a free one that shows the price of a clip. */
export function videoModels(servers: readonly object[]): CatalogModel[] {
  return parseModels(videoModelsFile(servers), 'models.yaml');
}

/** The same as the text of a file. */
export function videoModelsFile(servers: readonly object[]): string {
  const upstreams = servers.map((server) => ({ model: 'upstream/secret-name', ...server }));
  const director = { ...DIRECTOR, upstreams };
  const clips = {
    pricing: { per_video_second_microcents: 0, per_video_microcents: 25_000_000 },
    parameters: DIRECTOR.parameters.slice(0, 1),
  };
  return JSON.stringify({ models: [director, { ...director, ...clips, id: 'acme/clips', aliases: [] }] });
}

/** What `tunableModels` says about training: a second of one GPU costs one cent. */
const FINE_TUNING = {
  base_model: 'tiny-base',
  image: `registry.test/trainer@sha256:${'a'.repeat(64)}`,
  base_model_path: '/models/tiny',
  gpu_second_microcents: 1_000_000,
  tokens_per_gpu_second: { min: 10, max: 100 },
  epochs: 3,
  budget_minutes_min: 10,
};

/** A model that can be fine-tuned, and one that cannot. Neither can be called. */
export function tunableModels(changes: object = {}): CatalogModel[] {
  return parseModels(JSON.stringify({ models: tunableEntries(changes) }), 'models.yaml');
}

/** The same as entries of a file. */
export function tunableEntries(changes: object = {}): object[] {
  const plain = { ...CHAT, status: 'coming_soon' };
  return [
    { ...plain, id: 'acme/tunable', aliases: ['tunable'], fine_tuning: { ...FINE_TUNING, ...changes } },
    { ...plain, id: 'acme/fixed', aliases: ['fixed'] },
  ];
}

/** The economy tier of a model on the fleet: replicas of the kit's scripted servers. */
const DEPLOYMENT = {
  image: 'ghcr.io/acme/llama:1',
  args: ['--port', '8000'],
  port: 8000,
  model: 'tiny',
  engine: 'vllm',
  gpu_type: 'H100_SXM',
  max_price_per_hour: 5,
  min_replicas: 0,
  max_replicas: 2,
  max_open_requests: 2,
  idle_minutes: 2,
  start_deadline_seconds: 120,
};

/** The serverless tier of `acme/tiny` is at a server elsewhere, and the economy tier on the fleet. */
export function fleetModels(deployment: object = {}): CatalogModel[] {
  const pricing = { input_per_1m_tokens_cents: 15, output_per_1m_tokens_cents: 60 };
  const model = {
    id: 'acme/tiny',
    modality: 'chat',
    owned_by: 'acme',
    pricing,
    context_length: 8_192,
    max_output_tokens: 1_024,
    upstreams: [{ base_url: 'http://127.0.0.1:9/v1', model: 'tiny' }],
    economy: { pricing, deployment: { ...DEPLOYMENT, ...deployment } },
  };
  return parseModels(JSON.stringify({ models: [model] }), 'models.yaml');
}

// The schema of the operator's file of models: names, prices and servers, checked at the start.
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { Modality, ModelParameter, ModelStatus } from '../../../shared/api/model.ts';
import { EMBEDDINGS_INPUTS_MAX } from '../../../shared/limits.ts';
import { wrongImageParameters } from './image-sizes.ts';
import { wrongVideoParameters } from './video-parameters.ts';
import { parseYamlConfig, readNamed } from '../../../shared/yaml-config.ts';

const Milliseconds = z.int().min(1).max(3_600_000);

/** A model server with a chat-completion API or a video API: vLLM, vLLM-Omni, SGLang, llama.cpp, TEI. */
const Upstream = z.strictObject({
  /** Includes `/v1`. It may be private and use plain HTTP. */
  base_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like http://10.0.0.5:8000/v1' })
    .regex(/[^/]$/, 'must not end with /'),
  /** The server's name of the model. Customers never see it. */
  model: z.string().min(1),
  /** A file with the API key of the server. */
  api_key_file: z.string().startsWith('/', 'must be an absolute path').optional(),
  /** A server with twice the weight gets twice the requests. */
  weight: z.int().min(1).max(1_000).default(1),
  /** Requests that it answers at the same time. Further requests go to other servers. */
  max_open_requests: z.int().min(1).max(100_000).default(256),
  /** Limit for DNS, TCP and TLS together. */
  connect_ms: Milliseconds.default(2_000),
  /** For embedding models: texts in one request. */
  max_inputs: z.int().min(1).max(EMBEDDINGS_INPUTS_MAX).default(32),
  /** Limit for a whole answer. Official clients give up after 300 s without headers. */
  answer_ms: Milliseconds.default(280_000),
  /** For a stream: time until it begins. */
  first_byte_ms: Milliseconds.default(60_000),
  /** For a stream: time between two pieces. */
  idle_ms: Milliseconds.default(60_000),
  /** For video models: time from the start of a job until its video is finished. */
  video_ms: Milliseconds.default(1_800_000),
  /**
   * The kind of server. vllm, sglang and llama_cpp count tokens while they stream. vllm, llama_cpp and tei have a tokenizer, each with its own
   * API. vllm_omni and sglang make videos.
   */
  engine: z.enum(['vllm', 'vllm_omni', 'sglang', 'llama_cpp', 'tei', 'other']).default('other'),
});

/** Higher than any real price of a million tokens. With the longest context, the amount is still far below what the ledger can hold. */
const CENTS_MAX = 100_000_000;
const cents = z.int().min(0).max(CENTS_MAX).optional();
const ucents = z
  .int()
  .min(0)
  .max(CENTS_MAX * 1_000_000)
  .optional();

const Pricing = z.strictObject({
  input_per_1m_tokens_cents: cents,
  output_per_1m_tokens_cents: cents,
  per_image_microcents: ucents,
  per_mpxl_microcents: ucents,
  /** The price of a representative clip. It is shown and never billed. */
  per_video_microcents: ucents,
  per_video_second_microcents: ucents,
});
export type Pricing = z.infer<typeof Pricing>;

const Name = /^[A-Za-z0-9][\w.-]{0,95}(\/[A-Za-z0-9][\w.-]{0,95})?$/;
const TokenCount = z.int().min(1).max(100_000_000);

const ModelEntry = z
  .strictObject({
    id: z
      .string()
      .regex(Name, 'must be letters, digits, dots, dashes and underscores')
      .includes('/', 'must be like acme/model-1'),
    modality: Modality,
    status: ModelStatus.default('active'),
    owned_by: z.string().min(1),
    author: z.string().min(1).optional(),
    /** Unix seconds. */
    created: z.int().min(0).optional(),
    aliases: z.array(z.string().regex(Name, 'must be letters, digits, dots, dashes and underscores')).default([]),
    pricing: Pricing,
    /** Tokens of prompt and answer together. */
    context_length: TokenCount.optional(),
    /** For chat models: the longest answer, and the default if the caller sets no limit. */
    max_output_tokens: TokenCount.optional(),
    /** Optional parameters that this model accepts in addition to those of its modality. */
    supported_parameters: z.array(z.string()).default([]),
    /** For image models: `size` with all sizes. For video models: `seconds`, and the other parameters of a request. */
    parameters: z.array(ModelParameter).default([]),
    upstreams: z.array(Upstream).default([]),
    /** For chat models: prices and servers of `<id>:economy`. */
    economy: z.strictObject({ pricing: Pricing, upstreams: z.array(Upstream).min(1) }).optional(),
  })
  .superRefine(refuseInconsistent);
type ModelEntry = z.infer<typeof ModelEntry>;

const ModelsFile = z.strictObject({ models: z.array(ModelEntry).superRefine(refuseSharedNames) });

export interface Upstream extends Omit<z.infer<typeof Upstream>, 'api_key_file'> {
  apiKey: string | undefined;
}

/** A tier of a model: its price and its servers. */
export interface Tier {
  pricing: Pricing;
  upstreams: Upstream[];
}

export interface CatalogModel extends Omit<ModelEntry, 'upstreams' | 'economy'> {
  upstreams: Upstream[];
  economy: Tier | undefined;
}

/** Without a file there are no models. @throws Error that lists every problem of the file with its line */
export function readModels(file: string | undefined): CatalogModel[] {
  if (file === undefined) return [];
  const text = readNamed('models_file', file, (path) => readFileSync(path, 'utf8'));
  return parseModels(text, file);
}

/** Parses the text of such a file, and reads the key files that it names. */
export function parseModels(text: string, fileName: string): CatalogModel[] {
  const { models } = parseYamlConfig(text, ModelsFile, fileName);
  return models.map(({ economy, upstreams, ...model }) => ({
    ...model,
    upstreams: upstreams.map(withKey),
    economy: economy && { pricing: economy.pricing, upstreams: economy.upstreams.map(withKey) },
  }));
}

function withKey({ api_key_file: file, ...upstream }: z.infer<typeof Upstream>): Upstream {
  if (file === undefined) return { ...upstream, apiKey: undefined };
  const apiKey = readNamed('api_key_file', file, (path) => readFileSync(path, 'utf8')).trim();
  if (!/^[\x21-\x7e]+$/.test(apiKey))
    throw new Error(`api_key_file names ${file}, which must hold one key and nothing else`);
  return { ...upstream, apiKey };
}

/** The prices that a model of each modality must have: exactly those of one of these lists. */
const PRICED_BY: Record<Modality, (keyof Pricing)[][]> = {
  chat: [['input_per_1m_tokens_cents', 'output_per_1m_tokens_cents']],
  embedding: [['input_per_1m_tokens_cents']],
  image: [['per_image_microcents'], ['per_mpxl_microcents']],
  video: [['per_video_second_microcents']],
};
/** Additional prices that are shown and never billed. */
const SHOWN_BESIDE: Partial<Record<Modality, keyof Pricing>> = { video: 'per_video_microcents' };

/** Engines that make videos. */
const VIDEO_ENGINES: readonly Upstream['engine'][] = ['vllm_omni', 'sglang'];

const SUPPORTED: Record<Modality, readonly string[]> = {
  chat: ['top_p', 'stop', 'seed', 'presence_penalty', 'frequency_penalty'],
  embedding: ['dimensions'],
  image: [],
  video: [],
};

function refuseInconsistent(model: ModelEntry, context: z.RefinementCtx): void {
  const refuse: Refuse = (path, message) => context.addIssue({ code: 'custom', path, message });
  const { modality, status, economy, context_length: contextLength } = model;
  const priced = wrongPrices(modality, model.pricing);
  if (priced !== undefined) refuse(['pricing'], priced);
  if (status !== 'coming_soon' && model.upstreams.length === 0)
    refuse(['upstreams'], `must have at least 1 entry, as the model is ${status}`);
  if (modality === 'chat') {
    if (contextLength === undefined)
      refuse(['context_length'], 'is required for chat models: it bounds what a call can cost');
    else if ((model.max_output_tokens ?? 0) > contextLength)
      refuse(['max_output_tokens'], 'must not be above context_length');
  } else {
    for (const name of ['max_output_tokens', 'economy'] as const)
      if (model[name] !== undefined) refuse([name], 'is only for chat models');
  }
  model.supported_parameters.forEach((name, i) => {
    if (SUPPORTED[modality].includes(name)) return;
    const known = SUPPORTED[modality].join(', ') || 'nothing';
    refuse(['supported_parameters', i], `must be one of ${known} for ${modality} models`);
  });
  if (model.parameters.length > 0 && modality !== 'image' && modality !== 'video')
    refuse(['parameters'], 'is only for image and video models');
  if (modality === 'image') {
    const wrong = wrongImageParameters(model.parameters, model.pricing.per_mpxl_microcents !== undefined);
    if (wrong !== undefined) refuse(['parameters'], wrong);
  }
  if (modality === 'embedding' && model.supported_parameters.includes('dimensions'))
    model.upstreams.forEach(({ engine }, i) => {
      if (engine !== 'llama_cpp') return;
      refuse(
        ['upstreams', i, 'engine'],
        'must be another where dimensions are supported: llama_cpp makes vectors of one length',
      );
    });
  if (modality === 'video') refuseVideo(model, refuse);
  else refuseVideoServers(model, refuse);
  const economyPriced = economy && wrongPrices(modality, economy.pricing);
  if (economyPriced !== undefined) refuse(['economy', 'pricing'], economyPriced);
  else if (economy !== undefined) refuseDearEconomy(economy.pricing, model.pricing, refuse);
}

type Refuse = (path: (string | number)[], message: string) => void;

/** The economy tier must be the cheaper one (specification 1), because customers choose it without comparing. */
function refuseDearEconomy(economy: Pricing, serverless: Pricing, refuse: Refuse): void {
  for (const name of ['input_per_1m_tokens_cents', 'output_per_1m_tokens_cents'] as const) {
    const [price = 0, most = 0] = [economy[name], serverless[name]];
    if (price > most) refuse(['economy', 'pricing', name], `must be at most ${most}, the price of the serverless tier`);
  }
}

function refuseVideo({ parameters, status, upstreams }: ModelEntry, refuse: Refuse): void {
  // A model that is coming soon may have no parameters yet.
  const wrong = status === 'coming_soon' && parameters.length === 0 ? undefined : wrongVideoParameters(parameters);
  if (wrong !== undefined) refuse(['parameters'], wrong);
  upstreams.forEach(({ engine, base_url: url }, i) => {
    if (!VIDEO_ENGINES.includes(engine))
      refuse(['upstreams', i, 'engine'], `must be ${VIDEO_ENGINES.join(' or ')} for video models`);
    if (upstreams.findIndex((other) => other.base_url === url) < i)
      refuse(['upstreams', i, 'base_url'], 'must be another for each server: a job remembers its server by it');
  });
}

function refuseVideoServers({ upstreams, economy }: ModelEntry, refuse: Refuse): void {
  const ofTier = (path: string[], all: ModelEntry['upstreams']): void =>
    all.forEach(({ engine }, i) => {
      if (engine === 'vllm_omni')
        refuse([...path, 'upstreams', i, 'engine'], 'must be another: vllm_omni makes videos');
    });
  ofTier([], upstreams);
  ofTier(['economy'], economy?.upstreams ?? []);
}

function wrongPrices(modality: Modality, pricing: Pricing): string | undefined {
  const given = Object.keys(pricing)
    .filter((name) => name !== SHOWN_BESIDE[modality])
    .toSorted()
    .join();
  if (PRICED_BY[modality].some((keys) => keys.toSorted().join() === given)) return undefined;
  const ways = PRICED_BY[modality].map((keys) => keys.join(' and '));
  return `must have ${ways.join(', or ')}, and nothing else, for ${modality} models`;
}

function refuseSharedNames(models: readonly ModelEntry[], context: z.RefinementCtx): void {
  const owners = new Set<string>();
  models.forEach(({ id, aliases }, index) => {
    const names: [string, (string | number)[]][] = [
      [id, [index, 'id']],
      ...aliases.map((alias, i): [string, (string | number)[]] => [alias, [index, 'aliases', i]]),
    ];
    for (const [name, path] of names) {
      if (owners.has(name)) context.addIssue({ code: 'custom', path, message: `the name ${name} is used twice` });
      owners.add(name);
    }
  });
}

// The schema of the operator's file of models: names, prices and servers, checked at the start.
import { readFileSync } from 'node:fs';
import { z } from 'zod';
import { Modality, ModelParameter, ModelStatus } from '../../../shared/api/model.ts';
import { Deployment, type Replica, Serving } from './deployments.ts';
import { FineTuning } from './fine-tuning.ts';
import { wrongImageParameters, wrongVideoParameters } from './parameters.ts';
import { parseYamlConfig, readNamed } from '../../../shared/yaml-config.ts';

const Milliseconds = z.int().min(1).max(3_600_000);

/** A model server with a chat-completion API or a video API: vLLM, vLLM-Omni, SGLang, llama.cpp, TEI. */
const Upstream = z.strictObject({
  ...Serving.shape,
  /** Includes `/v1`. It may be private and use plain HTTP. */
  base_url: z
    .url({ protocol: /^https?$/, error: 'must be a URL like http://10.0.0.5:8000/v1' })
    .regex(/[^/]$/, 'must not end with /'),
  /** A file with the API key of the server. */
  api_key_file: z.string().startsWith('/', 'must be an absolute path').optional(),
  /** A server with twice the weight gets twice the requests. */
  weight: z.int().min(1).max(1_000).default(1),
  /** Limit for DNS, TCP and TLS together. */
  connect_ms: Milliseconds.default(2_000),
  /** Time from the start of a job until its video is finished, for video models. */
  video_ms: Milliseconds.default(1_800_000),
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

/** What an embeddings request costs at least, in cents (specification 8). */
export const EMBEDDINGS_CENTS_MIN = 1;

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
    /** The longest answer of a chat model, and the default if the caller sets no limit. */
    max_output_tokens: TokenCount.optional(),
    /** Optional parameters that this model accepts in addition to those of its modality. */
    supported_parameters: z.array(z.string()).default([]),
    /** Image models have `size` with all sizes. Video models have `seconds` and the other parameters of a request. */
    parameters: z.array(ModelParameter).default([]),
    upstreams: z.array(Upstream).default([]),
    /** Servers that the platform runs itself, in place of `upstreams` or beside them. */
    deployment: Deployment.optional(),
    /** Prices and servers of `<id>:economy`, for chat models. */
    economy: z
      .strictObject({
        pricing: Pricing,
        upstreams: z.array(Upstream).default([]),
        deployment: Deployment.optional(),
      })
      .optional(),
    /** The way in which customers fine-tune a chat model. */
    fine_tuning: FineTuning.optional(),
  })
  .superRefine(refuseInconsistent);
type ModelEntry = z.infer<typeof ModelEntry>;

const ModelsFile = z.strictObject({ models: z.array(ModelEntry).superRefine(refuseSharedNames) });

export interface Upstream extends Omit<z.infer<typeof Upstream>, 'api_key_file'> {
  apiKey: string | undefined;
  /** Set if the server is a replica on our own fleet. `base_url` is then only a name, because a replica has no address. */
  replica?: Replica | undefined;
}

/** A tier of a model: its price and its servers. */
export interface Tier {
  pricing: Pricing;
  upstreams: Upstream[];
  deployment?: Deployment | undefined;
}

export interface CatalogModel extends Omit<ModelEntry, 'upstreams' | 'economy'> {
  upstreams: Upstream[];
  economy: Tier | undefined;
}

/** If there is no file, there are no models. @throws Error that lists every problem of the file with its line */
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
    economy: economy && { ...economy, upstreams: economy.upstreams.map(withKey) },
  }));
}

/** The longest answer of a chat model, in tokens. The context bounds it too. */
export function longestAnswer({ max_output_tokens: most, context_length: context = 0 }: CatalogModel): number {
  return most ?? context;
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
  const { modality, economy } = model;
  const priced = wrongPrices(modality, model.pricing);
  if (priced !== undefined) refuse(['pricing'], priced);
  refuseWithoutServers(model, refuse);
  if (modality === 'chat') refuseChat(model, refuse);
  else refuseChatMembers(model, refuse);
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
  if (modality === 'embedding' && model.supported_parameters.includes('dimensions')) refuseOneLength(model, refuse);
  if (modality === 'video') refuseVideo(model, refuse);
  else refuseVideoServers(model, refuse);
  const economyPriced = economy && wrongPrices(modality, economy.pricing);
  if (economyPriced !== undefined) refuse(['economy', 'pricing'], economyPriced);
  else if (economy !== undefined) refuseDearEconomy(economy.pricing, model.pricing, refuse);
}

function refuseChat(model: ModelEntry, refuse: Refuse): void {
  const { context_length: contextLength, max_output_tokens: outputTokens = 0 } = model;
  if (contextLength === undefined)
    refuse(['context_length'], 'is required for chat models: it bounds what a call can cost');
  else if (outputTokens > contextLength) refuse(['max_output_tokens'], 'must not be above context_length');
}

function refuseChatMembers(model: ModelEntry, refuse: Refuse): void {
  for (const name of ['max_output_tokens', 'economy', 'fine_tuning'] as const)
    if (model[name] !== undefined) refuse([name], 'is only for chat models');
}

function refuseOneLength({ upstreams, deployment }: ModelEntry, refuse: Refuse): void {
  const engines = [
    ...upstreams.map(({ engine }, i) => ({ path: ['upstreams', i], engine })),
    { path: ['deployment'], engine: deployment?.engine },
  ];
  for (const { path, engine } of engines)
    if (engine === 'llama_cpp')
      refuse(
        [...path, 'engine'],
        'must be another where dimensions are supported: llama_cpp makes vectors of one length',
      );
}

/** The serverless tier has no cold start, so one of its servers must always run (specification 1). */
function refuseWithoutServers(model: ModelEntry, refuse: Refuse): void {
  const { modality, status, upstreams, deployment, economy } = model;
  const wanted = 'must have at least 1 entry, or the model a deployment';
  if (status !== 'coming_soon' && upstreams.length === 0 && deployment === undefined)
    refuse(['upstreams'], `${wanted}, as the model is ${status}`);
  if (economy !== undefined && economy.upstreams.length === 0 && economy.deployment === undefined)
    refuse(['economy', 'upstreams'], 'must have at least 1 entry, or the tier a deployment');
  if (deployment !== undefined && deployment.min_replicas < 1 && upstreams.length === 0)
    refuse(
      ['deployment', 'min_replicas'],
      'must be at least 1 without upstreams: only the economy tier has cold starts',
    );
  if (modality === 'video' && deployment !== undefined) refuse(['deployment'], 'is not for video models');
}

type Refuse = (path: (string | number)[], message: string) => void;

/** The economy tier must be the cheaper one (specification 1), because customers choose it without comparing. */
function refuseDearEconomy(economy: Pricing, serverless: Pricing, refuse: Refuse): void {
  for (const name of ['input_per_1m_tokens_cents', 'output_per_1m_tokens_cents'] as const) {
    const price = economy[name] ?? 0;
    const most = serverless[name] ?? 0;
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

function refuseVideoServers({ upstreams, economy, deployment }: ModelEntry, refuse: Refuse): void {
  const ofTier = (path: string[], all: ModelEntry['upstreams']): void =>
    all.forEach(({ engine }, i) => {
      if (engine === 'vllm_omni')
        refuse([...path, 'upstreams', i, 'engine'], 'must be another: vllm_omni makes videos');
    });
  ofTier([], upstreams);
  ofTier(['economy'], economy?.upstreams ?? []);
  if (deployment?.engine === 'vllm_omni') refuse(['deployment', 'engine'], 'must be another: vllm_omni makes videos');
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
  models.forEach(({ id, aliases, fine_tuning: tuning }, index) => {
    const names: [string, (string | number)[]][] = [
      [id, [index, 'id']],
      ...aliases.map((alias, i): [string, (string | number)[]] => [alias, [index, 'aliases', i]]),
      ...(tuning === undefined
        ? []
        : [[tuning.base_model, [index, 'fine_tuning', 'base_model']] satisfies [string, (string | number)[]]]),
    ];
    for (const [name, path] of names) {
      if (owners.has(name)) context.addIssue({ code: 'custom', path, message: `the name ${name} is used twice` });
      owners.add(name);
    }
  });
}

// A model as customers see it (specification 2.10), without its servers.
import type { Modality, Model } from '../../../shared/api/model.ts';
import { UCENTS_PER_CENT } from '../../../shared/money.ts';
import { type Callable, ECONOMY } from './catalog.ts';
import { type CatalogModel, EMBEDDINGS_CENTS_MIN, longestAnswer, type Pricing } from './models.ts';

/** The parameters that all models of a modality accept. */
const PARAMETERS: Partial<Record<Modality, readonly string[]>> = {
  chat: ['max_tokens', 'stream', 'stream_options', 'temperature'],
  embedding: ['encoding_format', 'user'],
};

/** How long the replicas of a tier took to be ready; undefined if nobody knows. */
export type WakesOf = (poolId: string) => { p50Ms: number; p95Ms: number } | undefined;

/** A model of the list, with the prices of all its tiers. */
export function modelView(model: CatalogModel, wakes: WakesOf): Model {
  return {
    ...viewOf(model),
    ...wakeTime(`${model.id}${ECONOMY}`, wakes),
    pricing: {
      ...pricingView(model.pricing),
      ...leastCharge(model),
      ...economyPrices(model),
      ...trainingPrices(model),
    },
  };
}

/** A single model, or its economy tier only, with the prices of that tier. */
export function callableView({ model, tier, pricing }: Callable, wakes: WakesOf): Model {
  if (tier === 'serverless') return modelView(model, wakes);
  const { aliases, ...view } = viewOf(model);
  const named = aliases?.map((alias) => `${alias}${ECONOMY}`);
  const id = `${model.id}${ECONOMY}`;
  return {
    ...view,
    id,
    ...(named && { aliases: named }),
    ...wakeTime(id, wakes),
    pricing: pricingView(pricing),
  };
}

function leastCharge({ modality }: CatalogModel): Partial<Model['pricing']> {
  return modality === 'embedding' ? { min_charge_cents: EMBEDDINGS_CENTS_MIN } : {};
}

function economyPrices({ economy }: CatalogModel): Partial<Model['pricing']> {
  if (economy === undefined) return {};
  const { input_per_1m_tokens_cents: input, output_per_1m_tokens_cents: output } = economy.pricing;
  return { economy_input_per_1m_tokens_cents: input, economy_output_per_1m_tokens_cents: output };
}

function trainingPrices({ fine_tuning: tuning }: CatalogModel): Partial<Model['pricing']> {
  if (tuning === undefined) return {};
  return { training_gpu_second_microcents: tuning.gpu_second_microcents, training_gpus: tuning.gpu_count };
}

/** The cold start of the economy tier. */
function wakeTime(poolId: string, wakes: WakesOf): Pick<Model, 'cold_start_seconds'> {
  const found = wakes(poolId);
  if (found === undefined) return {};
  return { cold_start_seconds: { p50: found.p50Ms / 1000, p95: found.p95Ms / 1000 } };
}

function viewOf(model: CatalogModel): Omit<Model, 'pricing'> {
  const { id, owned_by, modality, status, aliases, author, context_length, created, parameters } = model;
  const { fine_tuning: tuning } = model;
  const common = PARAMETERS[modality];
  return {
    id,
    object: 'model',
    owned_by,
    modality,
    status,
    ...(aliases.length === 0 ? {} : { aliases }),
    ...(author === undefined ? {} : { author }),
    category: modality,
    ...(context_length === undefined ? {} : { context_length }),
    ...(modality === 'chat' ? { max_output_tokens: longestAnswer(model) } : {}),
    ...(created === undefined ? {} : { created }),
    fine_tunable: tuning !== undefined,
    ...(tuning === undefined ? {} : { fine_tune_base_model: tuning.base_model }),
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(common === undefined ? {} : { supported_parameters: [...common, ...model.supported_parameters].toSorted() }),
  };
}

function pricingView(pricing: Pricing): Model['pricing'] {
  const { per_image_microcents: image, per_video_second_microcents: second } = pricing;
  return {
    currency: 'USD',
    ...pricing,
    ...(image === undefined ? {} : { per_image_cents: wholeCents(image) }),
    ...(second === undefined ? {} : { per_video_second_cents: wholeCents(second) }),
  };
}

function wholeCents(ucents: number): number {
  return Math.floor(ucents / Number(UCENTS_PER_CENT));
}

// What a training file would cost with each base model: a range, because machines are not equally fast.
import type { TrainingReport } from '../../../shared/api/file.ts';
import type { FineTuningQuote } from '../../../shared/api/fine-tuning.ts';
import { ceilToCents, dollarsFromUcents } from '../../../shared/money.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { FineTuning } from '../catalog/fine-tuning.ts';
import { minBudgetUcents } from './create.ts';

/** Quotes for the file: one for each base model, in the order of the model names. */
export function quotesOf(report: TrainingReport, { models }: Pick<Catalog, 'models'>): FineTuningQuote[] {
  return models
    .flatMap(({ fine_tuning: tuning }) => (tuning === undefined ? [] : [quoteOf(report, tuning)]))
    .toSorted((a, b) => (a.model < b.model ? -1 : 1));
}

function quoteOf({ estimated_tokens: tokens }: TrainingReport, terms: FineTuning): FineTuningQuote {
  const trained = tokens * terms.epochs;
  const { min, max } = terms.tokens_per_gpu_second;
  return {
    object: 'fine_tuning.quote',
    model: terms.base_model,
    estimated_tokens: trained,
    min_usd: dollars(trained, max, terms),
    max_usd: dollars(trained, min, terms),
    min_budget_usd: dollarsFromUcents(minBudgetUcents(terms)),
  };
}

/**
 * The price for this number of tokens at this speed. All GPUs of a job train, and all are paid. Rounded up to whole seconds of one GPU and to
 * whole cents.
 */
function dollars(tokens: number, perGpuSecond: number, terms: FineTuning): number {
  const gpuSeconds = BigInt(Math.ceil(tokens / perGpuSecond));
  return dollarsFromUcents(ceilToCents(gpuSeconds * BigInt(terms.gpu_second_microcents)));
}

// Formats the prices of a model as text.
import type { Model } from '../../../../shared/api/model.ts';
import { cents, dollars, rate } from '../core/format.ts';

const UCENTS_PER_DOLLAR = 100_000_000;

export type Tier = 'serverless' | 'economy';

/** The prices of a model, each like `$0.15 in`; empty if nothing has a price. */
export function pricesOf({ pricing }: Model, tier: Tier = 'serverless'): string[] {
  const input = tier === 'economy' ? pricing.economy_input_per_1m_tokens_cents : pricing.input_per_1m_tokens_cents;
  const output = tier === 'economy' ? pricing.economy_output_per_1m_tokens_cents : pricing.output_per_1m_tokens_cents;
  return [
    ...(input === undefined ? [] : [`${dollars(input / 100)} in`]),
    ...(output === undefined ? [] : [`${dollars(output / 100)} out`]),
    ...(pricing.min_charge_cents === undefined ? [] : [`at least ${cents(pricing.min_charge_cents)} a request`]),
    ...exact(pricing.per_image_microcents, 'an image'),
    ...exact(pricing.per_mpxl_microcents, 'a megapixel'),
    ...exact(pricing.per_video_second_microcents, 'a second'),
  ];
}

export function hasEconomy({ pricing }: Model): boolean {
  return pricing.economy_input_per_1m_tokens_cents !== undefined;
}

/** After few starts both figures are those of the slowest one, and say nothing of most. */
export function wakesIn({ p50, p95 }: NonNullable<Model['cold_start_seconds']>): string {
  const usual = Math.round(p50);
  const most = Math.round(p95);
  const words = `economy wakes in about ${usual} s`;
  return most === usual ? words : `${words}, mostly below ${most} s`;
}

function exact(ucents: number | undefined, of: string): string[] {
  return ucents === undefined ? [] : [`${rate(ucents / UCENTS_PER_DOLLAR)} ${of}`];
}

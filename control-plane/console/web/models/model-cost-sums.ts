// Adds up the totals of receipts by model or by API key. All functions are pure.
import type { ReceiptTotal } from '../../../../shared/api/receipt-totals.ts';
import { nearestUcents } from '../../../../shared/money.ts';

export type GroupBy = 'model' | 'api_key_id';

export interface ModelCost {
  /** The model or the API key. */
  group: string;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  images: number;
  ucents: bigint;
}

/** The groups, the one with the highest cost first. */
export function modelCosts(rows: readonly ReceiptTotal[], groupBy: GroupBy): ModelCost[] {
  const groups = Map.groupBy(rows, (row) => row[groupBy] ?? '');
  return [...groups]
    .map(([group, ofGroup]) => ({ ...sumOfCosts(ofGroup.map(costOf)), group }))
    .toSorted((a, b) => Number(b.ucents - a.ucents) || b.requests - a.requests);
}

export function sumOfCosts(costs: readonly Omit<ModelCost, 'group'>[]): ModelCost {
  const sum = { group: '', requests: 0, promptTokens: 0, completionTokens: 0, images: 0, ucents: 0n };
  for (const cost of costs) {
    sum.requests += cost.requests;
    sum.promptTokens += cost.promptTokens;
    sum.completionTokens += cost.completionTokens;
    sum.images += cost.images;
    sum.ucents += cost.ucents;
  }
  return sum;
}

function costOf(row: ReceiptTotal): Omit<ModelCost, 'group'> {
  return {
    requests: row.requests,
    promptTokens: row.prompt_tokens,
    completionTokens: row.completion_tokens,
    images: row.images,
    ucents: nearestUcents(Number(row.cost)),
  };
}

// A table of quotes: the cost of fine-tuning with one file, for each base model.
import type { FineTuningQuote } from '../../../../shared/api/fine-tuning.ts';
import { count, dollars } from '../core/format.ts';
import { type Column, RowsTable } from '../parts/table.tsx';

const COLUMNS: readonly Column<FineTuningQuote>[] = [
  { title: 'Base model', cell: ({ model }) => model },
  { title: 'Tokens', class: 'num w', cell: ({ estimated_tokens: tokens }) => count(tokens) },
  {
    title: 'Fast to slow machine',
    class: 'num',
    cell: ({ min_usd: min, max_usd: max }) => `${dollars(min)} to ${dollars(max)}`,
  },
  { title: 'Smallest budget', class: 'num', cell: ({ min_budget_usd: usd }) => dollars(usd) },
];

export function Quotes({ quotes }: { quotes: readonly FineTuningQuote[] }) {
  return <RowsTable caption="Quotes" rows={quotes} columns={COLUMNS} />;
}

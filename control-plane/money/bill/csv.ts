// Pure: a bill as the rows of a table. The first row names the columns, and the lines stand between the two balances.
import type { Bill } from '../../../shared/api/bill.ts';

export type Row = readonly (string | number | null)[];

export function* billRows(bill: Bill): Generator<Row> {
  const { month, currency } = bill;
  const balance = (name: string, amount: string): Row => [month, name, null, null, null, null, amount, currency, null];
  yield ['month', 'section', 'subject_id', 'model', 'reason', 'count', 'amount', 'currency', 'posted_at'];
  yield balance('opening_balance', bill.opening_balance);
  for (const line of bill.lines) {
    const { section, subject_id: subject, model, reason, count, amount, posted_at: postedAt } = line;
    yield [month, section, subject, model, reason, count, amount, currency, postedAt];
  }
  yield balance('closing_balance', bill.closing_balance);
}

// The bill of a month as customers see it: everything that changed the prepaid balance.
import { z } from 'zod';

/** The parts of a bill, in its order. */
export const BILL_SECTIONS = [
  'rental',
  'inference',
  'video',
  'fine_tuning',
  'outage_credit',
  'refund',
  'adjustment',
  'deposit',
  'other',
] as const;
export type BillSection = (typeof BILL_SECTIONS)[number];

export const BillQuery = z.strictObject({
  month: z
    .string()
    .regex(/^[1-9]\d{3}-(0[1-9]|1[0-2])$/, 'must be a month like 2026-11')
    .optional()
    .describe('A month in UTC, like 2026-11; default: the present one'),
  format: z.enum(['json', 'csv']).default('json').describe('`csv`: one row for each line, for a spreadsheet'),
});

const section = z.enum(BILL_SECTIONS);
const amount = z.string().describe('The exact amount, in dollars. Negative if it was taken from the balance');

export const BillLine = z
  .strictObject({
    section: z
      .enum(BILL_SECTIONS)
      .describe(
        'rental: time of instances. inference: requests to models. video: videos. fine_tuning: time of training jobs. outage_credit: time that is not charged. refund, adjustment: by the operator. deposit: money that was added. other: none of these',
      ),
    subject_id: z
      .string()
      .nullable()
      .describe('The instance or job of the line. Null if the line sums up several of them'),
    model: z.string().nullable().describe('The model, for inference and videos'),
    reason: z
      .string()
      .nullable()
      .describe('The reason for the line, e.g. the reference of a deposit or the reason for a refund'),
    count: z.int().describe('How many charges or payments the line sums up'),
    amount,
    posted_at: z.iso.datetime().describe('When the last of them was posted'),
  })
  .meta({ id: 'BillLine' });
export type BillLine = z.infer<typeof BillLine>;

export const Bill = z
  .strictObject({
    org_id: z.string().describe('The organisation'),
    month: z.string().describe('The month in UTC, like 2026-11'),
    currency: z.literal('USD').describe('The currency of all amounts'),
    is_complete: z.boolean().describe('False while something may still be added, until a minute after the month'),
    opening_balance: z.string().describe('The balance before the first line, exactly, in dollars'),
    closing_balance: z
      .string()
      .describe('The balance after the last line: the opening balance plus all amounts. The next bill opens with it'),
    totals: z
      .array(z.strictObject({ section: section.describe('A section with lines'), amount }))
      .describe('The sum of each section'),
    lines: z.array(BillLine).describe('Ordered by section, and by time within a section'),
  })
  .meta({ id: 'Bill' });
export type Bill = z.infer<typeof Bill>;

// What suppliers earned and were paid (specification 2.17).
import { z } from 'zod';

export const EarningsEntry = z
  .strictObject({
    ledger_id: z.uuid().describe('Identifies the entry'),
    machine_id: z.uuid().describe('The machine that earned it'),
    instance_id: z.string().describe('The rental that it is about'),
    amount_cents: z
      .int()
      .describe(
        'Negative where earnings were taken back. Fractions of a cent count with a later entry: the sum is exact',
      ),
    amount: z.string().describe('Exactly, in dollars'),
    reason: z
      .string()
      .nullable()
      .describe(
        'Why earnings were taken back (the failed probes of a dead host), or paid for time in which we were away',
      ),
    accrued_at: z.iso.datetime().describe('When it was entered'),
    payable_at: z.iso
      .datetime()
      .nullable()
      .describe('From then on it can be paid out. Null while the customer of the rental disputes it'),
    paid: z
      .boolean()
      .describe(
        'Nothing of it is owed any more: payouts cover it, or it was taken back. Payouts cover the oldest entries first',
      ),
  })
  .meta({ id: 'EarningsEntry' });
export type EarningsEntry = z.infer<typeof EarningsEntry>;

export const CommunityEarnings = z
  .strictObject({
    accrued_cents: z.int().describe('Earned over the whole life of the supplier, less what was taken back'),
    unpaid_cents: z
      .int()
      .describe('Of that, not paid out yet. Negative where earnings were taken back that had been paid'),
    payable_cents: z
      .int()
      .describe('Of what is unpaid, what can be paid out now: old enough, and not disputed by the customer'),
    entries: z
      .array(EarningsEntry)
      .describe('The entries of this page, newest first; all of them add up to accrued_cents'),
    next_cursor: z.string().nullable().describe('Null when no further page exists'),
  })
  .meta({ id: 'CommunityEarnings' });
export type CommunityEarnings = z.infer<typeof CommunityEarnings>;

export const CommunityPayout = z
  .strictObject({
    payout_id: z.uuid().describe('Identifies the payout'),
    amount_cents: z.int().describe('What was paid'),
    reference: z.string().describe('What it is called in the books of the operator, e.g. of a bank transfer'),
    paid_at: z.iso.datetime().describe('When it was entered'),
  })
  .meta({ id: 'CommunityPayout' });
export type CommunityPayout = z.infer<typeof CommunityPayout>;

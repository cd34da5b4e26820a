// Payouts to suppliers: where they go, what was paid, and the statement of a month.
import { z } from 'zod';
import { BillQuery } from './bill.ts';

/** The chains of specification 2.18. */
export const Chain = z.enum(['ethereum', 'base', 'arbitrum', 'polygon', 'solana']);
export type Chain = z.infer<typeof Chain>;

const chain = Chain.describe('The chain of the address. Payouts are sent in USDC on this chain');
const address = z.string().describe('The address. An EVM address is written with its checksum');

/** Body of PUT /v1/community/payout-destination. */
export const ChangeDestination = z
  .strictObject({
    chain: Chain.describe('The chain of the address'),
    address: z
      .string()
      .min(1)
      .max(64)
      .describe('An EVM address (its checksum is verified if it has both cases), or a Solana address in base58'),
  })
  .meta({ id: 'ChangeDestination' });

export const PayoutDestination = z
  .strictObject({
    destination: z
      .strictObject({ chain, address, since: z.iso.datetime().describe('Since when it is in force') })
      .nullable()
      .describe('Where payouts go now; null before the first is named'),
    pending: z
      .strictObject({
        chain,
        address,
        requested_at: z.iso.datetime().describe('When the change was asked for'),
        in_force_at: z.iso
          .datetime()
          .describe('Time from which payouts go to this address. Until then no payout is sent'),
      })
      .nullable()
      .describe('A change that waits; null if there is none'),
    schedule: z
      .strictObject({
        every: z
          .enum(['day', 'week'])
          .describe('You get at most one payout in each UTC day, or in each week from Monday on'),
        minimum_cents: z.int().describe('The least amount of a payout. A smaller amount waits until more is earned'),
        not_before: z.iso
          .datetime()
          .describe(
            'When the next payout can become due: as soon as `minimum_cents` are payable, and not before this time',
          ),
        earnings_delay_hours: z.number().describe('How long after its entry an earning is payable'),
        destination_delay_hours: z
          .number()
          .describe('How long after you have asked for it another destination is in force'),
      })
      .describe('When you are paid'),
  })
  .meta({ id: 'PayoutDestination' });
export type PayoutDestination = z.infer<typeof PayoutDestination>;

export const CommunityPayout = z
  .strictObject({
    payout_id: z.uuid().describe('Identifies the payout'),
    status: z
      .enum(['due', 'in_flight', 'paid', 'failed'])
      .describe(
        'due: the payout will be sent, and its amount may still become smaller. in_flight: the payout was handed over for sending. paid: the payout was sent, see `reference`. failed: nothing was sent, and the money is still owed to you',
      ),
    amount_cents: z.int().describe('Amount of the payout, in cents'),
    destination: z
      .strictObject({ chain, address })
      .nullable()
      .describe('Where it goes; null before it is in flight, and if it was paid in another way'),
    reference: z
      .string()
      .nullable()
      .describe('The transaction on the chain, or the reference of another payment, e.g. of a bank transfer'),
    reason: z.string().nullable().describe('Why it failed, or why one that is due waits'),
    created_at: z.iso.datetime().describe('When it became due'),
    in_flight_at: z.iso.datetime().nullable().describe('When the payout was handed over for sending'),
    paid_at: z.iso.datetime().nullable().describe('When it was entered as paid'),
    failed_at: z.iso.datetime().nullable().describe('When it was entered as failed'),
  })
  .meta({ id: 'CommunityPayout' });
export type CommunityPayout = z.infer<typeof CommunityPayout>;

/** The same parameters as those of a bill. */
export const StatementQuery = BillQuery;

/** The parts of a statement, in its order. */
export const STATEMENT_SECTIONS = ['earning', 'claw_back', 'payout', 'payout_failed'] as const;

const amount = z
  .string()
  .describe('The exact amount, in dollars. Negative if it was taken back from you or paid to you');

export const StatementLine = z
  .strictObject({
    section: z
      .enum(STATEMENT_SECTIONS)
      .describe(
        'earning: earnings from a rental, or for time in which this service was down. claw_back: earnings that were taken back. payout: a payout to you. payout_failed: a payout that was not sent',
      ),
    machine_id: z.uuid().nullable().describe('The machine of the rental; null for payouts'),
    instance_id: z.string().nullable().describe('The rental; null for payouts'),
    payout_id: z.uuid().nullable().describe('The payout; null for rentals'),
    reason: z
      .string()
      .nullable()
      .describe(
        'Why earnings were taken back or a payout failed, or that this service was down. Null for all other lines',
      ),
    count: z.int().describe('How many entries the line sums up'),
    amount,
    posted_at: z.iso.datetime().describe('When the last of them was posted'),
  })
  .meta({ id: 'StatementLine' });
export type StatementLine = z.infer<typeof StatementLine>;

export const CommunityStatement = z
  .strictObject({
    month: z.string().describe('The month in UTC, like 2026-11'),
    currency: z.literal('USD').describe('The currency of all amounts'),
    is_complete: z.boolean().describe('False while something may still be added, until a minute after the month'),
    opening_balance: z.string().describe('What was owed to you before the first line, exactly, in dollars'),
    closing_balance: z
      .string()
      .describe(
        'What is owed after the last line: the opening balance plus all amounts. The next statement opens with it',
      ),
    totals: z
      .array(z.strictObject({ section: z.enum(STATEMENT_SECTIONS).describe('A section with lines'), amount }))
      .describe('The sum of each section'),
    lines: z.array(StatementLine).describe('Ordered by section, by machine, and by time'),
  })
  .meta({ id: 'CommunityStatement' });
export type CommunityStatement = z.infer<typeof CommunityStatement>;

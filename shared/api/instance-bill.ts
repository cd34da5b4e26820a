// The bill of one instance: its metered time, the time that was not charged and why, refunds, and sums that equal the ledger. Also a short
// form of it: the costs of many instances.
import { z } from 'zod';
import { PAGE_MAX } from '../limits.ts';
import { pageParameters } from './page.ts';

const dollars = (what: string) => z.string().describe(`${what}, exactly, in dollars`);
const seconds = z.number().describe('How long it was, in seconds');

const BillSegment = z
  .strictObject({
    from: z.iso.datetime().describe('When charging began'),
    until: z.iso.datetime().nullable().describe('When it ended; null while the instance is charged'),
    seconds,
    price_per_hour: z
      .number()
      .describe('The price of the whole instance for an hour, in dollars. It includes the price of a larger disk'),
    amount: dollars('The price for this time, rounded down to a microcent'),
  })
  .meta({ id: 'BillSegment' });

const BillCredit = z
  .strictObject({
    cause: z
      .enum(['outage', 'gpu_fault', 'own_outage', 'dispute'])
      .describe(
        'outage: the instance could not be reached. gpu_fault: its host reported a broken GPU. own_outage: this service was away. dispute: decided by the operator',
      ),
    from: z.iso.datetime().describe('From then on the time is not charged'),
    until: z.iso.datetime().nullable().describe('End of the time that is not charged. Null while it lasts'),
    seconds,
    amount: dollars(
      'What this time would have cost. No segment contains this time, so the sums do not contain this amount',
    ),
    status: z
      .enum(['open', 'credited', 'held', 'released', 'refused'])
      .describe(
        'open: the time lasts. credited: the time is not charged. held: a part of the amount stays charged until the operator has decided. released: that part was given back. refused: that part stays charged',
      ),
    held_amount: dollars('The part of the amount about which the operator decides or has decided'),
    reason: z.string().describe('The evidence: what the probes or the host reported'),
  })
  .meta({ id: 'BillCredit' });
export type BillCredit = z.infer<typeof BillCredit>;

const BillRefund = z
  .strictObject({
    amount: dollars(
      'What was given back. A negative amount undoes an earlier refund, because the same time was credited later',
    ),
    reason: z.string().describe('The words of the operator'),
    reference: z.string().describe('The reference of the operator'),
    created_at: z.iso.datetime().describe('When it was given'),
  })
  .meta({ id: 'BillRefund' });

export const InstanceBill = z
  .strictObject({
    instance_id: z.string().describe('The instance'),
    currency: z.literal('USD').describe('The currency of all amounts'),
    as_of: z.iso.datetime().describe('The time of this bill: open segments are counted until then'),
    is_complete: z.boolean().describe('False while time or a decision about a credit may still be added'),
    segments: z
      .array(BillSegment)
      .describe('Charged time, oldest first. The amounts of the segments add up to `totals.usage`'),
    credits: z.array(BillCredit).describe('Time that is not charged, oldest first'),
    refunds: z.array(BillRefund).describe('Refunds by the operator, oldest first. They add up to `totals.refunds`'),
    totals: z
      .strictObject({
        usage: dollars('The sum of the segments'),
        held_credits: dollars('The amount that was charged for time whose credit waits for a decision or was refused'),
        uncovered: dollars('The part that your balance did not cover, and that you do not pay'),
        refunds: dollars('The sum of the refunds'),
        cost: dollars('What the instance costs you: usage + held_credits - uncovered - refunds'),
        unposted: dollars('The part of `cost` that the ledger does not have yet: it is posted once an hour'),
        posted: dollars('What the ledger has taken from your balance for this instance: cost - unposted'),
      })
      .describe('The sums'),
  })
  .meta({ id: 'InstanceBill' });
export type InstanceBill = z.infer<typeof InstanceBill>;

const InstanceSpan = z
  .strictObject({
    kind: z
      .enum(['starting', 'charged', 'not_charged'])
      .describe(
        'starting: the instance did not run yet, which is free. charged: the time was charged. not_charged: the time was not charged because of an outage, a broken GPU or a dispute',
      ),
    from: z.iso.datetime().describe('When the span began. It may have begun before the last 24 hours'),
    until: z.iso.datetime().nullable().describe('When it ended; null while it lasts'),
  })
  .meta({ id: 'InstanceSpan' });

/** Maximum number of time spans of one instance in an answer. */
export const SPANS_MAX = 100;

export const InstanceCost = z
  .strictObject({
    instance_id: z.string().describe('The instance'),
    as_of: z.iso.datetime().describe('The time of these figures'),
    cost: dollars('What the instance has cost you until `as_of`. It equals `totals.cost` of its bill'),
    posted: dollars('The part of it that the ledger has taken from your balance'),
    last_24_hours: z
      .array(InstanceSpan)
      .describe(
        `The spans of the last 24 hours, oldest first. If there are more than ${SPANS_MAX} spans, only the newest ${SPANS_MAX} are listed`,
      ),
  })
  .meta({ id: 'InstanceCost' });
export type InstanceCost = z.infer<typeof InstanceCost>;

/** At most PAGE_MAX ids. */
const IDS = /^\s*[^,\s][^,]*(,\s*[^,\s][^,]*){0,199}$/;

export const InstanceCostQuery = z.strictObject({
  ...pageParameters,
  instance_ids: z
    .string()
    .regex(IDS, `must be ids separated by commas, at most ${PAGE_MAX}`)
    .transform((text) => text.split(',').map((id) => id.trim()))
    .optional()
    .describe(`Only these instances, separated by commas, at most ${PAGE_MAX}; those that are not yours are left out`),
});

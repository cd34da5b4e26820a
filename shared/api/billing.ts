// Balance and usage as customers see them (specification 2.8, 4.6; balance: DESIGN section 8).
import { z } from 'zod';
import { isoTimeMs } from '../iso-time.ts';
import { USAGE_DAYS_MAX } from '../limits.ts';

export const Balance = z
  .strictObject({
    balance_cents: z.int().describe('Prepaid and not used yet, whole cents rounded down'),
    held_cents: z.int().describe('Of it, set aside for what runs now and is still to come'),
    available_cents: z.int().describe('What a new launch can use'),
    balance: z.string().describe('The exact balance in dollars'),
    currency: z.literal('USD').describe('The currency of all amounts'),
    available: z.string().describe('The same as available_cents, exactly, in dollars'),
    held: z.string().describe('The same as held_cents, exactly, in dollars'),
    burn_rate_per_hour: z.string().describe('What the instances that run now cost in an hour, exactly, in dollars'),
    hours_left: z
      .number()
      .nullable()
      .describe(
        'How long the balance lasts at that rate, without what is held for jobs and requests; in hundredths, rounded down. Null while no instance costs anything',
      ),
  })
  .meta({ id: 'Balance' });
export type Balance = z.infer<typeof Balance>;

export const moment = z
  .string()
  .refine(
    (text) => isoTimeMs(text) !== undefined,
    'must be an ISO 8601 date or date-time such as 2026-01-31, 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+02:00, with + written as %2B in a URL',
  );

export const UsageQuery = z.strictObject({
  bucket: z
    .enum(['hour', 'day', 'week', 'month'])
    .optional()
    .describe(
      `UTC; weeks start on Monday. Default by the length of the window: hour up to 2 days, day up to 62 days, month beyond. The longest window is ${USAGE_DAYS_MAX.hour} days by hour, ${USAGE_DAYS_MAX.day} by day, ${USAGE_DAYS_MAX.week} by week or month`,
    ),
  group_by: z
    .enum(['instance_id', 'gpu_type'])
    .default('instance_id')
    .describe('What the rows of a bucket are told apart by'),
  start: moment
    .optional()
    .describe('ISO 8601 date or date-time, UTC unless it has an offset; inclusive; default 30 days before end'),
  end: moment.optional().describe('The same; exclusive, so that a date ends before its day; default now'),
});

export const UsageRow = z
  .strictObject({
    bucket_start: z.iso.datetime().describe('Start of the time bucket; that of the first row may lie before start'),
    instance_id: z.string().optional().describe('Present where rows are grouped by it'),
    gpu_type: z.string().optional().describe('Present where rows are grouped by it'),
    gpu_seconds: z.int().describe('Seconds times GPUs'),
    cost_cents: z
      .int()
      .describe(
        'In whole cents; the rows of an instance add up to its charge, rounded down once. 0 for reserved instances',
      ),
    cost: z.string().describe('Exactly, in dollars; rows add up to what the balance was charged'),
  })
  .meta({ id: 'UsageRow' });
export type UsageRow = z.infer<typeof UsageRow>;

// Balance and usage as customers see them (specification 2.8, 4.6; balance: DESIGN section 8).
import { z } from 'zod';
import { isoTimeMs } from '../iso-time.ts';
import { USAGE_DAYS_MAX } from '../limits.ts';

export const Balance = z
  .strictObject({
    balance_cents: z.int().describe('The prepaid balance that is not used yet, in cents, rounded down'),
    held_cents: z
      .int()
      .describe('The part of the balance that is set aside for future costs of what runs now, in cents, rounded down'),
    available_cents: z.int().describe('The part of the balance that a new launch can use, in cents, rounded down'),
    balance: z.string().describe('The exact balance in dollars'),
    currency: z.literal('USD').describe('The currency of all amounts'),
    available: z.string().describe('The same as available_cents, exactly, in dollars'),
    held: z.string().describe('The same as held_cents, exactly, in dollars'),
    burn_rate_per_hour: z.string().describe('What the instances that run now cost in an hour, exactly, in dollars'),
    hours_left: z
      .number()
      .nullable()
      .describe(
        'How many hours the balance lasts at the rate of `burn_rate_per_hour`, rounded down to hundredths. What is held for jobs and requests does not count. Null while no instance costs anything',
      ),
  })
  .meta({ id: 'Balance' });
export type Balance = z.infer<typeof Balance>;

export const moment = z
  .string()
  .refine(
    (text) => isoTimeMs(text) !== undefined,
    'must be an ISO 8601 date or date-time of the years 1 to 9999, such as 2026-01-31, 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+02:00, with + written as %2B in a URL',
  );

export const UsageQuery = z.strictObject({
  bucket: z
    .enum(['hour', 'day', 'week', 'month'])
    .optional()
    .describe(
      `Length of a time bucket. Buckets are in UTC, and weeks start on Monday. The default depends on the length of the window: hour up to 2 days, day up to 62 days, month for longer windows. The longest window is ${USAGE_DAYS_MAX.hour} days by hour, ${USAGE_DAYS_MAX.day} by day, ${USAGE_DAYS_MAX.week} by week or month`,
    ),
  group_by: z
    .enum(['instance_id', 'gpu_type'])
    .default('instance_id')
    .describe('Whether each row is for one instance or for one GPU type'),
  start: moment
    .optional()
    .describe(
      'Start of the window, inclusive: an ISO 8601 date or date-time, in UTC unless it has an offset. The default is 30 days before `end`',
    ),
  end: moment
    .optional()
    .describe(
      'End of the window, exclusive: an ISO 8601 date or date-time, in UTC unless it has an offset. A date means the start of that day, so the day itself is not included. The default is now',
    ),
});

export const UsageRow = z
  .strictObject({
    bucket_start: z.iso.datetime().describe('Start of the time bucket. The first bucket may start before `start`'),
    instance_id: z.string().optional().describe('The instance; present only if rows are grouped by `instance_id`'),
    gpu_type: z.string().optional().describe('The GPU type; present only if rows are grouped by `gpu_type`'),
    gpu_seconds: z.int().describe('GPU seconds: the seconds multiplied by the number of GPUs'),
    cost_cents: z
      .int()
      .describe(
        'Cost in whole cents. The rows of an instance add up to its charge, which is rounded down only once. 0 for reserved instances',
      ),
    cost: z.string().describe('The exact cost, in dollars. The rows add up to what the balance was charged'),
  })
  .meta({ id: 'UsageRow' });
export type UsageRow = z.infer<typeof UsageRow>;

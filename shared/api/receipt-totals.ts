// Totals of receipts: what requests to models used and cost, by time and by model or API key.
import { z } from 'zod';
import { USAGE_DAYS_MAX } from '../limits.ts';
import { moment } from './billing.ts';

export const ReceiptTotalsQuery = z.strictObject({
  bucket: z
    .enum(['hour', 'day', 'month'])
    .default('day')
    .describe(
      `Length of a time bucket, in UTC. The longest window is ${USAGE_DAYS_MAX.hour} days by hour, ${USAGE_DAYS_MAX.day} by day, ${USAGE_DAYS_MAX.month} by month`,
    ),
  group_by: z
    .enum(['model', 'api_key_id', 'none'])
    .default('model')
    .describe('Whether each row is for one model, for one API key or session, or for all requests'),
  start: moment
    .optional()
    .describe(
      'Start of the window, inclusive: an ISO 8601 date or date-time at which a bucket starts, in UTC unless it has an offset. The default is the bucket that is 30 days before `end`',
    ),
  end: moment
    .optional()
    .describe(
      'End of the window, exclusive: an ISO 8601 date or date-time at which a bucket starts, in UTC unless it has an offset. The default is the end of the present bucket',
    ),
});

export const ReceiptTotal = z
  .strictObject({
    bucket_start: z.iso.datetime().describe('Start of the time bucket'),
    model: z.string().optional().describe('Canonical id of the model; present only if rows are grouped by `model`'),
    api_key_id: z
      .string()
      .optional()
      .describe('The API key or the session; present only if rows are grouped by `api_key_id`'),
    requests: z.int().describe('Number of requests that ended in the bucket, with those that cost nothing'),
    prompt_tokens: z.int().describe('Charged tokens of their prompts'),
    completion_tokens: z.int().describe('Charged tokens of their answers'),
    images: z.int().describe('Number of charged images'),
    cost: z.string().describe('The exact cost, in dollars: the sum of the `cost` of the receipts'),
  })
  .meta({ id: 'ReceiptTotal' });
export type ReceiptTotal = z.infer<typeof ReceiptTotal>;

export const ReceiptTotals = z.strictObject({
  data: z.array(ReceiptTotal).describe('The entries of this page'),
  next_cursor: z.string().nullable().describe('Null when no further page exists'),
  complete_until: z.iso
    .datetime()
    .describe('All requests that ended before this time are counted. Some that ended later may be counted too'),
});
export type ReceiptTotals = z.infer<typeof ReceiptTotals>;

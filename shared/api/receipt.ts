// Receipts: the result and the charge of each accepted request to a model.
import { z } from 'zod';

/** A text of the caller's choice, which is stored on the receipt of the request. */
export const User = z
  .string()
  .max(512)
  .describe('Whatever the caller likes, for example whom it asks for. It is kept on the receipt');
export const Metadata = z
  .record(z.string().max(64), z.string().max(512))
  .refine((metadata) => Object.keys(metadata).length <= 16, 'must have at most 16 entries')
  .describe('Up to 16 names with texts. They are kept on the receipt');
export type Metadata = z.infer<typeof Metadata>;

const tokens = z.int().nullable();

export const ReceiptAttempt = z.strictObject({
  server: z.int().describe('Number of the server in the list that the operator has for the model; the first is 1'),
  outcome: z
    .enum(['answered', 'refused', 'busy', 'unavailable', 'unreachable', 'timed_out', 'failed', 'cancelled'])
    .describe(
      '`answered`: it began to answer. `refused`: it does not take this request. `busy`, `unavailable`, `unreachable`: the next server was asked. `timed_out`, `failed`: it gave no whole answer. `cancelled`: the caller left, or the service restarted',
    ),
  ms: z.int().describe('Milliseconds until that'),
});

export const Receipt = z
  .strictObject({
    id: z.string().describe('Also in the X-Receipt-Id header of the answer'),
    request_id: z.string().describe('Of the request, as in its X-Request-Id header'),
    api_key_id: z.string().describe('The API key or the session that it came with'),
    model: z.string().describe('Canonical id of the model'),
    tier: z.enum(['serverless', 'economy']).describe('Whose price was charged'),
    user: z.string().nullable().describe('The `user` of the request'),
    metadata: z.record(z.string(), z.string()).describe('The `metadata` of the request; empty if it had none'),
    state: z
      .enum(['open', 'settled', 'released'])
      .describe('`open` while it is answered, `settled` if something was charged, `released` if nothing was'),
    ending: z
      .enum(['completed', 'client_left', 'too_long', 'upstream_failed', 'refused', 'process_ended'])
      .nullable()
      .describe('How it ended; null while it is open'),
    prompt_tokens: tokens.describe('Null if no tokens were charged'),
    completion_tokens: tokens.describe('The same'),
    images: z.int().nullable().describe('Null if no images were charged'),
    counted_by: z
      .enum(['upstream', 'running', 'tokenizer', 'estimate'])
      .nullable()
      .describe('By the server at the end, on the way, or by its tokenizer afterwards, or by us from the text'),
    attempts: z
      .array(ReceiptAttempt)
      .describe('The servers that were asked, in order, the last 64 of them; empty while it is open'),
    cost: z.string().describe('Exactly, in dollars'),
    held: z.string().describe('The most that it could have cost, in dollars: set aside while it was open'),
    created_at: z.iso.datetime().describe('When it was let in'),
    closed_at: z.iso.datetime().nullable().describe('When it was settled or released'),
  })
  .meta({ id: 'Receipt' });
export type Receipt = z.infer<typeof Receipt>;

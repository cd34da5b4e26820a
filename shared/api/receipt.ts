// Receipts: the result and the charge of each accepted request to a model.
import { z } from 'zod';

/** A text of the caller's choice, which is stored on the receipt of the request. */
export const User = z
  .string()
  .max(512)
  .describe('A text of your choice, for example the user for whom you send the request. It is kept on the receipt');
export const Metadata = z
  .record(z.string().max(64), z.string().max(512))
  .refine((metadata) => Object.keys(metadata).length <= 16, 'must have at most 16 entries')
  .describe('Up to 16 names with texts. They are kept on the receipt');
export type Metadata = z.infer<typeof Metadata>;

const tokens = z.int().nullable();

export const ReceiptAttempt = z.strictObject({
  server: z
    .int()
    .describe('Number of the server in the list of servers that the operator has for the model. The first server is 1'),
  outcome: z
    .enum(['answered', 'refused', 'busy', 'unavailable', 'unreachable', 'timed_out', 'failed', 'cancelled'])
    .describe(
      '`answered`: the server began to answer. `refused`: the server does not accept this request. `busy`, `unavailable`, `unreachable`: the next server was asked. `timed_out`, `failed`: the server gave no complete answer. `cancelled`: the caller disconnected, or this service restarted',
    ),
  ms: z.int().describe('Milliseconds until this outcome'),
});

export const Receipt = z
  .strictObject({
    id: z.string().describe('Id of the receipt, also in the X-Receipt-Id header of the answer'),
    request_id: z.string().describe('Id of the request, also in the X-Request-Id header of the answer'),
    api_key_id: z.string().describe('The API key or the session that it came with'),
    model: z.string().describe('Canonical id of the model'),
    tier: z.enum(['serverless', 'economy']).describe('Whose price was charged'),
    user: z
      .string()
      .nullable()
      .describe('The `user` of the request, or else its `safety_identifier`. Null if it had neither'),
    metadata: z.record(z.string(), z.string()).describe('The `metadata` of the request; empty if it had none'),
    state: z
      .enum(['open', 'settled', 'released'])
      .describe('`open` while it is answered, `settled` if something was charged, `released` if nothing was'),
    ending: z
      .enum(['completed', 'client_left', 'too_long', 'upstream_failed', 'refused', 'process_ended'])
      .nullable()
      .describe(
        'How it ended; null while it is open. completed, and client_left and too_long up to what was sent, are charged. upstream_failed (the model server), refused (the request) and process_ended (our process) cost nothing',
      ),
    prompt_tokens: tokens.describe('Charged tokens of the prompt. Null if no tokens were charged'),
    completion_tokens: tokens.describe('Charged tokens of the answer. Null if no tokens were charged'),
    images: z.int().nullable().describe('Number of charged images. Null if no images were charged'),
    counted_by: z
      .enum(['upstream', 'running', 'tokenizer', 'estimate'])
      .nullable()
      .describe(
        'Who counted what was charged. `upstream`: the server, at the end of its answer. `running`: the server, before the end of its answer. `tokenizer`: the tokenizer of the server, afterwards. `estimate`: this service, from the text. Null if nothing was counted',
      ),
    attempts: z
      .array(ReceiptAttempt)
      .describe('The last 64 servers that were asked, in the order of the attempts. Empty while the state is `open`'),
    cost: z.string().describe('The exact cost of the request, in dollars'),
    held: z
      .string()
      .describe('The highest possible cost of the request, in dollars. It was set aside while the state was `open`'),
    created_at: z.iso.datetime().describe('When the request was accepted'),
    closed_at: z.iso.datetime().nullable().describe('When it was settled or released'),
  })
  .meta({ id: 'Receipt' });
export type Receipt = z.infer<typeof Receipt>;

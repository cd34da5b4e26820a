// Chat completions (specification 2.11, 4.8): the request, the answer, and members of a request that have no effect.
import { z } from 'zod';
import { CHAT_MESSAGES_MAX } from '../limits.ts';
import { CHAT_NOTHINGS, withoutNothings } from './nothings.ts';
import { Metadata, User } from './receipt.ts';

const TextPart = z.strictObject({
  type: z.literal('text').describe('Always `text`'),
  text: z.string().describe('A part of what is said'),
});

export const ChatMessage = z
  .strictObject({
    role: z
      .enum(['system', 'developer', 'user', 'assistant'])
      .transform((role) => (role === 'developer' ? 'system' : role))
      .describe('Who says it. `developer` is read as `system`'),
    content: z
      .union([
        z.string(),
        // Model servers join text parts in the same way if the model accepts only one text.
        z
          .array(TextPart)
          .min(1)
          .transform((parts) => parts.map(({ text }) => text).join('\n')),
      ])
      .describe('What is said. Text parts are joined by line feeds'),
    name: z.string().min(1).max(256).optional().describe('Tells speakers of one role apart, if the model knows names'),
  })
  .meta({ id: 'ChatMessage' });
export type ChatMessage = z.infer<typeof ChatMessage>;

const few = z.number().min(-2).max(2);

const ChatFields = z.strictObject({
  model: z.string().min(1).max(256).describe('Id or alias of a chat model; `:economy` behind it selects that tier'),
  messages: z.array(ChatMessage).min(1).max(CHAT_MESSAGES_MAX).describe('The conversation so far'),
  stream: z.boolean().optional().describe('Send the answer as server-sent events, as it comes into being'),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional().describe('A last chunk without choices tells the usage'),
    })
    .optional()
    .describe('Only with `stream`'),
  temperature: z.number().min(0).max(2).nullish().describe('How random the answer is'),
  max_tokens: z.int().min(1).nullish().describe('The longest answer, in tokens; at most what the model allows'),
  max_completion_tokens: z.int().min(1).nullish().describe('The same. If both are set, the smaller one counts'),
  top_p: z.number().gt(0).max(1).optional().describe('Where the model supports it'),
  stop: z
    .union([z.string().min(1).max(256), z.array(z.string().min(1).max(256)).min(1).max(4)])
    .optional()
    .describe('Texts that end the answer; if the model supports it'),
  seed: z.int().optional().describe('Where the model supports it'),
  presence_penalty: few.optional().describe('Where the model supports it'),
  frequency_penalty: few.optional().describe('Where the model supports it'),
  user: User.optional(),
  metadata: Metadata.optional(),
});
export type ChatRequest = z.infer<typeof ChatFields>;

export const ChatRequest = z.preprocess((body) => withoutNothings(body, CHAT_NOTHINGS), ChatFields);

const PLAIN_MEMBERS = new Set(['model', 'messages', 'stream', 'stream_options', 'temperature', 'max_tokens']);

/**
 * True for a request of the most common form, which `ChatRequest` would accept and leave unchanged. This check takes a tenth of the time of
 * the schema. If it is false, the schema decides.
 */
export function isPlainChat(body: unknown): body is ChatRequest {
  if (!isObject(body)) return false;
  for (const name in body) if (!PLAIN_MEMBERS.has(name)) return false;
  const { model, messages, stream, stream_options: options, temperature, max_tokens: maxTokens } = body;
  if (typeof model !== 'string' || model.length === 0 || model.length > 256) return false;
  if (!Array.isArray(messages) || messages.length === 0 || messages.length > CHAT_MESSAGES_MAX) return false;
  return (
    messages.every(isPlainMessage) &&
    (stream === undefined || typeof stream === 'boolean') &&
    (options === undefined || isPlainStreamOptions(options)) &&
    (temperature === undefined || (typeof temperature === 'number' && temperature >= 0 && temperature <= 2)) &&
    (maxTokens === undefined || (Number.isSafeInteger(maxTokens) && Number(maxTokens) >= 1))
  );
}

function isPlainMessage(message: unknown): boolean {
  if (!isObject(message)) return false;
  for (const name in message) if (name !== 'role' && name !== 'content') return false;
  const { role, content } = message;
  return typeof content === 'string' && (role === 'user' || role === 'assistant' || role === 'system');
}

function isPlainStreamOptions(options: unknown): boolean {
  if (!isObject(options)) return false;
  for (const name in options) if (name !== 'include_usage') return false;
  const { include_usage: wanted } = options;
  return wanted === undefined || typeof wanted === 'boolean';
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const TokenUsage = z.strictObject({
  prompt_tokens: z.int().describe('Tokens of the conversation'),
  completion_tokens: z.int().describe('Tokens of the answer'),
  total_tokens: z.int().describe('Both together'),
  completion_tokens_details: z
    .strictObject({ reasoning_tokens: z.int().optional().describe('Spent on what is not shown') })
    .optional()
    .describe('Where the model tells'),
});
export type TokenUsage = z.infer<typeof TokenUsage>;

export const FinishReason = z.enum(['stop', 'length', 'content_filter', 'tool_calls']);

export const ChatCompletion = z
  .strictObject({
    id: z.string().describe('Of this completion'),
    object: z.literal('chat.completion').describe('Always `chat.completion`'),
    created: z.int().describe('Unix seconds'),
    model: z.string().describe('Canonical id of the model'),
    choices: z
      .array(
        z.strictObject({
          index: z.int().describe('Always 0'),
          message: z
            .strictObject({
              role: z.literal('assistant').describe('Always `assistant`'),
              content: z.string().describe('What is said'),
              refusal: z.null().describe('Always null: a model that does not want to answer says so in its text'),
            })
            .describe('The answer'),
          logprobs: z.null().describe('Always null'),
          finish_reason: FinishReason.describe('Why the answer ends'),
        }),
      )
      .describe('One'),
    usage: TokenUsage.describe('What is billed'),
  })
  .meta({ id: 'ChatCompletion' });
export type ChatCompletion = z.infer<typeof ChatCompletion>;

const chunkChoice = z.strictObject({
  index: z.int().describe('Always 0'),
  delta: z
    .strictObject({
      role: z.literal('assistant').optional().describe('In the first chunk'),
      content: z.string().optional().describe('What comes behind the text so far'),
      refusal: z.null().optional().describe('In the first chunk, always null'),
    })
    .describe('What is new'),
  logprobs: z.null().describe('Always null'),
  finish_reason: FinishReason.nullable().describe('Why the answer ends, in the last chunk with a choice'),
});

export const ChatCompletionChunk = z
  .strictObject({
    id: z.string().describe('Of this completion; the same in all chunks'),
    object: z.literal('chat.completion.chunk').describe('Always `chat.completion.chunk`'),
    created: z.int().describe('Unix seconds; the same in all chunks'),
    model: z.string().describe('Canonical id of the model'),
    choices: z.array(chunkChoice).describe('One; none in the chunk that tells the usage'),
    usage: TokenUsage.nullable()
      .optional()
      .describe('Where `include_usage` was asked for: what is billed, in a last chunk without choices'),
  })
  .meta({ id: 'ChatCompletionChunk' });
export type ChatCompletionChunk = z.infer<typeof ChatCompletionChunk>;

// Chat completions (specification 2.11, 4.8): the request, the answer, and members of a request that have no effect.
import { z } from 'zod';
import { CHAT_MESSAGES_MAX } from '../limits.ts';
import { CHAT_NOTHINGS, withoutNothings } from './nothings.ts';
import { Metadata, User } from './receipt.ts';

const TextPart = z.strictObject({
  type: z.literal('text').describe('Always `text`'),
  text: z.string().describe('Text of this part'),
});

export const ChatMessage = z
  .strictObject({
    role: z
      .enum(['system', 'developer', 'user', 'assistant'])
      .transform((role) => (role === 'developer' ? 'system' : role))
      .describe('Who wrote the message. `developer` is treated as `system`'),
    content: z
      .union([
        z.string(),
        // Model servers join text parts in the same way if the model accepts only one text.
        z
          .array(TextPart)
          .min(1)
          .transform((parts) => parts.map(({ text }) => text).join('\n')),
      ])
      .describe('Text of the message. Text parts are joined with line feeds'),
    name: z
      .string()
      .min(1)
      .max(256)
      .optional()
      .describe('Name of the writer. It distinguishes several writers of the same role, if the model supports names'),
  })
  .meta({ id: 'ChatMessage' });
export type ChatMessage = z.infer<typeof ChatMessage>;

const few = z.number().min(-2).max(2);

const ChatFields = z.strictObject({
  model: z
    .string()
    .min(1)
    .max(256)
    .describe('Id or alias of a chat model. Append `:economy` to select the economy tier'),
  messages: z.array(ChatMessage).min(1).max(CHAT_MESSAGES_MAX).describe('The conversation so far'),
  stream: z.boolean().optional().describe('If true, the answer is sent as server-sent events while it is generated'),
  stream_options: z
    .strictObject({
      include_usage: z.boolean().optional().describe('If true, a last chunk without choices has the usage'),
    })
    .optional()
    .describe('Options of the stream. Allowed only with `stream`'),
  temperature: z.number().min(0).max(2).nullish().describe('How random the answer is'),
  max_tokens: z
    .int()
    .min(1)
    .nullish()
    .describe('Maximum length of the answer, in tokens. It cannot be more than the model allows'),
  max_completion_tokens: z
    .int()
    .min(1)
    .nullish()
    .describe('Maximum length of the answer, like `max_tokens`. If both are set, the smaller one counts'),
  top_p: z
    .number()
    .gt(0)
    .max(1)
    .optional()
    .describe(
      'Nucleus sampling: the share of the probability from which tokens are chosen. Only if the model supports it',
    ),
  stop: z
    .union([z.string().min(1).max(256), z.array(z.string().min(1).max(256)).min(1).max(4)])
    .optional()
    .describe('Texts that end the answer; if the model supports it'),
  seed: z.int().optional().describe('Seed of the sampling. Only if the model supports it'),
  presence_penalty: few
    .optional()
    .describe('Penalty for tokens that the text already has. Only if the model supports it'),
  frequency_penalty: few
    .optional()
    .describe('Penalty for tokens, growing with how often the text already has them. Only if the model supports it'),
  user: User.optional(),
  safety_identifier: User.optional().describe(
    'Official clients send it in place of `user`. It is kept on the receipt if there is no `user`',
  ),
  prompt_cache_key: z
    .string()
    .max(512)
    .optional()
    .describe('It changes nothing: conversations with the same beginning go to the same server anyway'),
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
  total_tokens: z.int().describe('Sum of `prompt_tokens` and `completion_tokens`'),
  completion_tokens_details: z
    .strictObject({
      reasoning_tokens: z.int().optional().describe('Tokens of reasoning that the answer does not show'),
    })
    .optional()
    .describe('Details of the tokens of the answer; absent if the model server does not report them'),
});
export type TokenUsage = z.infer<typeof TokenUsage>;

export const FinishReason = z.enum(['stop', 'length', 'content_filter', 'tool_calls']);

export const ChatCompletion = z
  .strictObject({
    id: z.string().describe('Id of this completion'),
    object: z.literal('chat.completion').describe('Always `chat.completion`'),
    created: z.int().describe('When the completion was created, in Unix seconds'),
    model: z.string().describe('Canonical id of the model'),
    choices: z
      .array(
        z.strictObject({
          index: z.int().describe('Always 0'),
          message: z
            .strictObject({
              role: z.literal('assistant').describe('Always `assistant`'),
              content: z.string().describe('Text of the answer'),
              refusal: z.null().describe('Always null: a model that does not want to answer says so in its text'),
            })
            .describe('The answer'),
          logprobs: z.null().describe('Always null'),
          finish_reason: FinishReason.describe('Why the answer ends'),
        }),
      )
      .describe('Always one choice'),
    usage: TokenUsage.describe('What is billed'),
  })
  .meta({ id: 'ChatCompletion' });
export type ChatCompletion = z.infer<typeof ChatCompletion>;

const chunkChoice = z.strictObject({
  index: z.int().describe('Always 0'),
  delta: z
    .strictObject({
      role: z.literal('assistant').optional().describe('Present only in the first chunk'),
      content: z.string().optional().describe('Text that follows the text of the chunks before'),
      refusal: z.null().optional().describe('Always null. Present only in the first chunk'),
    })
    .describe('What this chunk adds to the answer'),
  logprobs: z.null().describe('Always null'),
  finish_reason: FinishReason.nullable().describe('Why the answer ends. Null except in the last chunk with a choice'),
});

export const ChatCompletionChunk = z
  .strictObject({
    id: z.string().describe('Id of this completion, the same in all chunks'),
    object: z.literal('chat.completion.chunk').describe('Always `chat.completion.chunk`'),
    created: z.int().describe('When the completion was created, in Unix seconds; the same in all chunks'),
    model: z.string().describe('Canonical id of the model'),
    choices: z.array(chunkChoice).describe('One choice. Empty in the chunk that has the usage'),
    usage: TokenUsage.nullable()
      .optional()
      .describe(
        'What is billed. Present only with `include_usage`: the last chunk has it and no choices, and it is null in all other chunks',
      ),
  })
  .meta({ id: 'ChatCompletionChunk' });
export type ChatCompletionChunk = z.infer<typeof ChatCompletionChunk>;

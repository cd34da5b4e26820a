// Pure: what a chat costs at most, and what it has cost. A price of a million tokens in cents is that of one token in microcents.
import type { ChatMessage, TokenUsage } from '../../../shared/api/chat.ts';
import type { Pricing } from '../catalog/models.ts';

/** Tokens that a template puts before and behind the conversation, a system prompt of its own included. */
const TEMPLATE_TOKENS = 256;
/** And around each message. */
const MESSAGE_TOKENS = 16;
/** Bytes of a token in almost every text; only for how long an answer may be where the caller does not say. */
const BYTES_PER_TOKEN_LOW = 2;
/** Of a usual text; only where a server does not count. */
const BYTES_PER_TOKEN = 4;

export interface ChatBound {
  /** No tokenizer makes more tokens than there are bytes. */
  promptTokens: number;
  /** What is sent to the server, so an answer cannot be longer. */
  maxTokens: number;
}

export interface ChatLimits {
  contextLength: number;
  maxOutputTokens: number;
}

/** `maxTokens`: as the caller has asked, within the limits. */
export function chatBound(
  messages: readonly ChatMessage[],
  maxTokens: number | undefined,
  limits: ChatLimits,
): ChatBound {
  const { contextLength, maxOutputTokens } = limits;
  const bytes = bytesOf(messages);
  const most = TEMPLATE_TOKENS + messages.length * MESSAGE_TOKENS + bytes;
  // A server refuses what does not fit into the context with the answer, so a long prompt leaves less for that.
  const room = Math.max(contextLength - Math.ceil(bytes / BYTES_PER_TOKEN_LOW), Math.ceil(contextLength / 4));
  return {
    promptTokens: Math.min(most, contextLength),
    maxTokens: maxTokens ?? Math.min(maxOutputTokens, room),
  };
}

/** In microcents. */
export function chatUcents(tokens: { prompt: number; completion: number }, pricing: Pricing): bigint {
  const { input_per_1m_tokens_cents: input = 0, output_per_1m_tokens_cents: output = 0 } = pricing;
  return BigInt(tokens.prompt) * BigInt(input) + BigInt(tokens.completion) * BigInt(output);
}

/** For servers that do not count: of the text alone, so rather too little than too much. */
export function estimatedUsage(messages: readonly ChatMessage[], answer: string): TokenUsage {
  const prompt = Math.ceil(bytesOf(messages) / BYTES_PER_TOKEN);
  const completion = Math.ceil(Buffer.byteLength(answer) / BYTES_PER_TOKEN);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

function bytesOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
}

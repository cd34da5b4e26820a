// Pure: what a request costs at most, and what it has cost. A price of a million tokens in cents is that of one token in microcents.
import type { ChatMessage, TokenUsage } from '../../../shared/api/chat.ts';
import { ceilToCents, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { pixelsOf } from '../catalog/image-sizes.ts';
import type { Pricing } from '../catalog/models.ts';

/** Tokens that a template puts before and behind the conversation, a system prompt of its own included. */
const TEMPLATE_TOKENS = 256;
/** And around each message. */
const MESSAGE_TOKENS = 16;
const PIXELS_PER_MEGAPIXEL = 1_000_000n;
/** Around each text that is embedded. */
const TEXT_TOKENS = 16;
/** Bytes of a token in almost every text; only for how long an answer may be where the caller does not say. */
const BYTES_PER_TOKEN_LOW = 2;
/** Of a usual text; only where a server does not count. */
const BYTES_PER_TOKEN = 4;

export interface ChatBound {
  /** No tokenizer makes more tokens than there are bytes. */
  promptTokens: number;
  /** What is sent to the server, so an answer cannot be longer. */
  maxTokens: number;
  /** The context has room for both, however the prompt is counted. */
  isSureToFit: boolean;
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
  const longest = maxTokens ?? Math.min(maxOutputTokens, room);
  return {
    promptTokens: Math.min(most, contextLength),
    maxTokens: longest,
    isSureToFit: most + longest <= contextLength,
  };
}

/** In microcents. */
export function chatUcents(usage: Pick<TokenUsage, 'prompt_tokens' | 'completion_tokens'>, pricing: Pricing): bigint {
  const { input_per_1m_tokens_cents: input = 0, output_per_1m_tokens_cents: output = 0 } = pricing;
  return BigInt(usage.prompt_tokens) * BigInt(input) + BigInt(usage.completion_tokens) * BigInt(output);
}

/** No tokenizer makes more tokens than there are bytes, and those around each text. */
export function embeddingsBound(inputs: readonly string[]): number {
  return inputs.reduce((sum, input) => sum + Buffer.byteLength(input) + TEXT_TOKENS, 0);
}

/** For servers that do not count. */
export function estimatedTokens(inputs: readonly string[]): number {
  return inputs.reduce((sum, input) => sum + Math.ceil(Buffer.byteLength(input) / BYTES_PER_TOKEN), 0);
}

/** In microcents: up to the next whole cent, and never less than one (specification 4.8). */
export function embeddingsUcents(tokens: number, { input_per_1m_tokens_cents: input = 0 }: Pricing): bigint {
  const charge = ceilToCents(BigInt(tokens) * BigInt(input));
  return charge > UCENTS_PER_CENT ? charge : UCENTS_PER_CENT;
}

/** For servers that do not count: of the text alone, so rather too little than too much. */
export function estimatedUsage(messages: readonly ChatMessage[], answer: string): TokenUsage {
  const prompt = Math.ceil(bytesOf(messages) / BYTES_PER_TOKEN);
  const completion = Math.ceil(Buffer.byteLength(answer) / BYTES_PER_TOKEN);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** In microcents, exact by the image; by the megapixel up to the next microcent. */
export function imagesUcents({ count, size }: { count: number; size: string | undefined }, pricing: Pricing): bigint {
  const { per_image_microcents: perImage = 0, per_mpxl_microcents: perMegapixel } = pricing;
  if (perMegapixel === undefined) return BigInt(count) * BigInt(perImage);
  const pixels = BigInt(count) * pixelsOf(size ?? '');
  return (pixels * BigInt(perMegapixel) + PIXELS_PER_MEGAPIXEL - 1n) / PIXELS_PER_MEGAPIXEL;
}

function bytesOf(messages: readonly ChatMessage[]): number {
  return messages.reduce((sum, { content }) => sum + Buffer.byteLength(content), 0);
}

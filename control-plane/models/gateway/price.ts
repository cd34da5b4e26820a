// Computes the most that a request can cost, and its real cost. Pure. A price in cents for a million tokens is the same number in
// microcents for one token.
import type { ChatMessage, TokenUsage } from '../../../shared/api/chat.ts';
import { ceilToCents, UCENTS_PER_CENT } from '../../../shared/money.ts';
import { pixelsOf } from '../catalog/parameters.ts';
import { EMBEDDINGS_CENTS_MIN, type Pricing } from '../catalog/models.ts';

/** Tokens that a chat template adds around the conversation, with a system prompt of its own. */
const TEMPLATE_TOKENS = 256;
/** Tokens that a chat template adds around each message. */
const MESSAGE_TOKENS = 16;
const PIXELS_PER_MEGAPIXEL = 1_000_000n;
/** Tokens that are added around each text that is embedded. */
const TEXT_TOKENS = 16;
/** A low estimate of bytes per token. Used only for the length of an answer if the caller sets no limit. */
const BYTES_PER_TOKEN_LOW = 2;
/** The usual number of bytes per token. Used only if a server does not count. */
const BYTES_PER_TOKEN = 4;

export interface ChatBound {
  /** The largest number of tokens that the prompt can have. It is the number of bytes, because no tokenizer makes more tokens than that. */
  promptTokens: number;
  /** The largest number of tokens of the answer. It is sent to the server, so the answer cannot be longer. */
  maxTokens: number;
  /** True if both fit into the context, however the prompt is counted. */
  isSureToFit: boolean;
}

export interface ChatLimits {
  contextLength: number;
  maxOutputTokens: number;
}

/** `maxTokens` is the caller's limit, already checked. */
export function chatBound(
  messages: readonly ChatMessage[],
  maxTokens: number | undefined,
  limits: ChatLimits,
): ChatBound {
  const { contextLength, maxOutputTokens } = limits;
  const bytes = bytesOf(messages);
  const most = TEMPLATE_TOKENS + messages.length * MESSAGE_TOKENS + bytes;
  // A server refuses a request if prompt and answer together do not fit into the context, so a long prompt leaves less for the answer.
  const room = Math.max(contextLength - Math.ceil(bytes / BYTES_PER_TOKEN_LOW), Math.ceil(contextLength / 4));
  const longest = maxTokens ?? Math.min(maxOutputTokens, room);
  return {
    promptTokens: Math.min(most, contextLength),
    maxTokens: longest,
    isSureToFit: most + longest <= contextLength,
  };
}

/** The price in microcents. */
export function chatUcents(usage: Pick<TokenUsage, 'prompt_tokens' | 'completion_tokens'>, pricing: Pricing): bigint {
  const { input_per_1m_tokens_cents: input = 0, output_per_1m_tokens_cents: output = 0 } = pricing;
  return BigInt(usage.prompt_tokens) * BigInt(input) + BigInt(usage.completion_tokens) * BigInt(output);
}

/** The upper bound: the bytes, and the tokens around each text. */
export function embeddingsBound(inputs: readonly string[]): number {
  return inputs.reduce((sum, input) => sum + Buffer.byteLength(input) + TEXT_TOKENS, 0);
}

/** An estimate, for servers that do not count. */
export function estimatedTokens(inputs: readonly string[]): number {
  return inputs.reduce((sum, input) => sum + Math.ceil(Buffer.byteLength(input) / BYTES_PER_TOKEN), 0);
}

const LEAST_UCENTS = BigInt(EMBEDDINGS_CENTS_MIN) * UCENTS_PER_CENT;

/** The price in microcents, rounded up to the next whole cent, and at least one cent (specification 4.8). */
export function embeddingsUcents(tokens: number, { input_per_1m_tokens_cents: input = 0 }: Pricing): bigint {
  const charge = ceilToCents(BigInt(tokens) * BigInt(input));
  return charge > LEAST_UCENTS ? charge : LEAST_UCENTS;
}

/** An estimate from the text alone, for servers that do not count. It is rather too low than too high. */
export function estimatedUsage(messages: readonly ChatMessage[], answer: string): TokenUsage {
  const prompt = Math.ceil(bytesOf(messages) / BYTES_PER_TOKEN);
  const completion = Math.ceil(Buffer.byteLength(answer) / BYTES_PER_TOKEN);
  return { prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/** The price in microcents: exact for a price per image, rounded up to the next microcent for a price per megapixel. */
export function imagesUcents({ count, size }: { count: number; size: string | undefined }, pricing: Pricing): bigint {
  const { per_image_microcents: perImage = 0, per_mpxl_microcents: perMegapixel } = pricing;
  if (perMegapixel === undefined) return BigInt(count) * BigInt(perImage);
  const pixels = BigInt(count) * pixelsOf(size ?? '');
  return (pixels * BigInt(perMegapixel) + PIXELS_PER_MEGAPIXEL - 1n) / PIXELS_PER_MEGAPIXEL;
}

function bytesOf(messages: readonly ChatMessage[]): number {
  return messages.reduce(
    (sum, { content, name = '' }) => sum + Buffer.byteLength(content) + Buffer.byteLength(name),
    0,
  );
}

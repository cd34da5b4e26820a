// The chat-completion wire format: builds requests to servers and reads their answers, whole or as a stream of server-sent events. Unknown fields
// are dropped.
import { z } from 'zod';
import { type ChatCompletion, type ChatRequest, FinishReason, type TokenUsage } from '../../../shared/api/chat.ts';
import type { PlannedChat } from './chat-plan.ts';
import { parseJson } from '../../../shared/json.ts';
import { STREAM_EVENT_BYTES_MAX, UPSTREAM_JSON_VALUES_MAX } from '../../../shared/limits.ts';

/** The last event of a stream. */
export const DONE = '[DONE]';

const count = z.int().min(0);

/** Leaves out the number of cached tokens. The cache is shared, so the number would reveal what other organisations have sent. */
const UpstreamUsage = z
  .object({
    prompt_tokens: count,
    completion_tokens: count.optional(),
    completion_tokens_details: z.object({ reasoning_tokens: count.nullish() }).nullish(),
  })
  .transform((usage): TokenUsage => {
    const { prompt_tokens, completion_tokens = 0 } = usage;
    const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? undefined;
    return {
      prompt_tokens,
      completion_tokens,
      total_tokens: prompt_tokens + completion_tokens,
      ...(reasoning === undefined ? {} : { completion_tokens_details: { reasoning_tokens: reasoning } }),
    };
  });

/** The servers name the text of a model that thinks first in two ways. */
const said = z.string().nullish().catch(undefined);

const UpstreamCompletion = z.object({
  choices: z
    .array(
      z.object({
        message: z.object({ content: z.string().nullish(), reasoning_content: said, reasoning: said }),
        finish_reason: FinishReason,
      }),
    )
    .min(1),
  usage: UpstreamUsage.nullish(),
});

export interface Completion {
  content: string;
  /** What the model has thought, as in `Chunk`. */
  thought: string;
  finishReason: z.infer<typeof FinishReason>;
  usage: TokenUsage | undefined;
}

/** Reads both kinds of usage: at the end, as every engine sends it, and during the stream, as two engines do. */
const UpstreamChunk = z.object({
  error: z.unknown().optional(),
  choices: z
    .array(
      z.object({
        delta: z.object({ content: z.string().nullish(), reasoning_content: said, reasoning: said }).nullish(),
        finish_reason: FinishReason.nullish(),
      }),
    )
    .default([]),
  usage: UpstreamUsage.nullish().catch(undefined),
  timings: z
    .object({ prompt_n: count, cache_n: count.default(0), predicted_n: count })
    .optional()
    .catch(undefined),
});

export interface Chunk {
  content: string;
  /** What the model has thought. Callers do not see it, but it is counted. */
  thought: string;
  finishReason: z.infer<typeof FinishReason> | undefined;
  usage: TokenUsage | undefined;
}

/** Undefined if the data is not a chunk, for example an error. */
export function readChunk(data: string): Chunk | undefined {
  try {
    const parsed = parseJson(data, UPSTREAM_JSON_VALUES_MAX);
    return plainChunk(parsed) ?? checkedChunk(parsed);
  } catch {
    return undefined;
  }
}

/** A chunk of the most common form. The schema would take several times as long. */
function plainChunk(parsed: unknown): Chunk | undefined {
  const chunk = parsed as { choices?: unknown; usage?: unknown; timings?: unknown; error?: unknown } | null;
  const choices = chunk?.choices;
  if (!Array.isArray(choices) || choices.length > 1 || chunk?.timings !== undefined || chunk?.error !== undefined)
    return undefined;
  const usage = plainUsage(chunk?.usage);
  if (usage === 'other') return undefined;
  if (choices.length === 0) return { content: '', thought: '', finishReason: undefined, usage };
  const choice = choices[0] as { delta?: PlainDelta | null; finish_reason?: unknown } | null;
  const content = choice?.delta?.content ?? '';
  const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? '';
  const finishReason = choice?.finish_reason ?? undefined;
  if (typeof choice?.delta !== 'object' || typeof content !== 'string' || typeof thought !== 'string') return undefined;
  if (finishReason !== undefined && !isFinishReason(finishReason)) return undefined;
  return { content, thought, finishReason, usage };
}

/** The texts of a chunk or of an answer, unchecked. */
interface PlainDelta {
  content?: unknown;
  reasoning_content?: unknown;
  reasoning?: unknown;
}

/** Usage of the most common form, or none. */
function plainUsage(usage: unknown): TokenUsage | undefined | 'other' {
  if (usage === undefined || usage === null) return undefined;
  const {
    prompt_tokens,
    completion_tokens,
    completion_tokens_details: details,
  } = usage as Partial<Record<string, unknown>>;
  if (!isCount(prompt_tokens) || !isCount(completion_tokens) || (details !== undefined && details !== null))
    return 'other';
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}

function isFinishReason(value: unknown): value is Completion['finishReason'] {
  return (FinishReason.options as readonly unknown[]).includes(value);
}

/** Undefined for an error. Throws if it is not a chunk. */
function checkedChunk(parsed: unknown): Chunk | undefined {
  const { error, choices, usage, timings } = UpstreamChunk.parse(parsed);
  if (error !== undefined) return undefined;
  const [choice] = choices;
  return {
    content: choice?.delta?.content ?? '',
    thought: choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? '',
    finishReason: choice?.finish_reason ?? undefined,
    usage: usage ?? timedUsage(timings),
  };
}

/** The body without the model's name. */
export function upstreamBody({ messages }: ChatRequest, { parameters }: PlannedChat, maxTokens: number): object {
  return { messages, max_tokens: maxTokens, ...parameters };
}

/** Undefined if the text is not a chat completion. */
export function readCompletion(text: string): Completion | undefined {
  try {
    const parsed = parseJson(text, UPSTREAM_JSON_VALUES_MAX);
    const plain = plainCompletion(parsed);
    if (plain !== undefined) return plain;
    const { choices, usage } = UpstreamCompletion.parse(parsed);
    const [choice] = choices;
    if (choice === undefined) return undefined;
    const { message, finish_reason: finishReason } = choice;
    const thought = message.reasoning_content ?? message.reasoning ?? '';
    return { content: message.content ?? '', thought, finishReason, usage: usage ?? undefined };
  } catch {
    return undefined;
  }
}

/** An answer of the most common form. */
function plainCompletion(parsed: unknown): Completion | undefined {
  const { choices, usage: reported } = parsed as { choices?: unknown; usage?: unknown };
  if (!Array.isArray(choices) || choices.length !== 1) return undefined;
  const usage = plainUsage(reported);
  const choice = choices[0] as { message?: PlainDelta | null; finish_reason?: unknown } | null;
  const content = choice?.message?.content;
  const thought = choice?.message?.reasoning_content ?? choice?.message?.reasoning ?? '';
  const finishReason = choice?.finish_reason;
  if (usage === 'other' || typeof content !== 'string' || typeof thought !== 'string') return undefined;
  return isFinishReason(finishReason) ? { content, thought, finishReason, usage } : undefined;
}

export function completionView(
  { content, finishReason }: Completion,
  facts: { id: string; created: number; model: string; usage: TokenUsage },
): ChatCompletion {
  return {
    id: facts.id,
    object: 'chat.completion',
    created: facts.created,
    model: facts.model,
    choices: [
      { index: 0, message: { role: 'assistant', content, refusal: null }, logprobs: null, finish_reason: finishReason },
    ],
    usage: facts.usage,
  };
}

/** The body is not a stream of events that we can read. */
export class BadEvents extends Error {}

/** The line end of an event and the empty line after it. The line end of Windows has one more character before it. */
const EVENT_END = /\n\r?\n/;

/** Yields, for each piece that ends at least one event, the data of those events. Throws BadEvents, and what `body` throws. */
export async function* eventData(body: AsyncIterable<Buffer>): AsyncGenerator<string[]> {
  const decoder = new TextDecoder();
  // The pieces of an event that has no end yet. Only the newest is searched, with the last characters before it: to search all of them for each
  // new one would take the square of their length.
  const rest: string[] = [];
  let restChars = 0;
  let lastChars = '';
  for await (const piece of body) {
    const added = decoder.decode(piece, { stream: true });
    if (restChars > 0 && !EVENT_END.test(lastChars + added)) {
      rest.push(added);
      restChars += added.length;
      if (restChars > STREAM_EVENT_BYTES_MAX) throw new BadEvents('an event is too large');
      lastChars = (lastChars + added).slice(-2);
      continue;
    }
    const text = restChars > 0 ? rest.join('') + added : added;
    // A piece may end between the two characters of a line end.
    const whole = text.endsWith('\r') ? text.slice(0, -1) : text;
    const blocks = whole.includes('\r') ? whole.split(/\r?\n\r?\n/) : whole.split('\n\n');
    const left = (blocks.pop() ?? '') + text.slice(whole.length);
    rest.length = 0;
    if (left !== '') rest.push(left);
    restChars = left.length;
    lastChars = left.slice(-2);
    if (restChars > STREAM_EVENT_BYTES_MAX) throw new BadEvents('an event is too large');
    const events = blocks.map(dataOf).filter((data) => data !== '');
    if (events.length > 0) yield events;
  }
}

function timedUsage(timings: z.infer<typeof UpstreamChunk>['timings']): TokenUsage | undefined {
  if (timings === undefined) return undefined;
  const prompt = timings.prompt_n + timings.cache_n;
  return { prompt_tokens: prompt, completion_tokens: timings.predicted_n, total_tokens: prompt + timings.predicted_n };
}

function dataOf(block: string): string {
  // Nearly every event is one line of data.
  if (block.startsWith('data: ') && !block.includes('\n')) return block.slice(6);
  const lines = block.split(/\r?\n/).filter((line) => line.startsWith('data:'));
  return lines.map((line) => line.slice(5).replace(/^ /, '')).join('\n');
}

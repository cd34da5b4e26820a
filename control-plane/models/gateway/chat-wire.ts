// The chat-completion wire: what a server is sent, and what of its answer reaches the caller. Everything else of it is dropped.
import { z } from 'zod';
import { type ChatCompletion, type ChatRequest, FinishReason, type TokenUsage } from '../../../shared/api/chat.ts';

/** What a caller may set, as it is. */
const PASSED_ON = ['temperature', 'top_p', 'stop', 'seed', 'presence_penalty', 'frequency_penalty'] as const;

const count = z.int().min(0);

const UpstreamUsage = z
  .object({
    prompt_tokens: count,
    completion_tokens: count.optional(),
    prompt_tokens_details: z.object({ cached_tokens: count.nullish() }).nullish(),
    completion_tokens_details: z.object({ reasoning_tokens: count.nullish() }).nullish(),
  })
  .transform((usage): TokenUsage => {
    const { prompt_tokens, completion_tokens = 0 } = usage;
    const cached = usage.prompt_tokens_details?.cached_tokens ?? undefined;
    const reasoning = usage.completion_tokens_details?.reasoning_tokens ?? undefined;
    return {
      prompt_tokens,
      completion_tokens,
      total_tokens: prompt_tokens + completion_tokens,
      ...(cached === undefined ? {} : { prompt_tokens_details: { cached_tokens: cached } }),
      ...(reasoning === undefined ? {} : { completion_tokens_details: { reasoning_tokens: reasoning } }),
    };
  });

const UpstreamCompletion = z.object({
  choices: z
    .array(z.object({ message: z.object({ content: z.string().nullish() }), finish_reason: FinishReason }))
    .min(1),
  usage: UpstreamUsage.nullish(),
});

export interface Completion {
  content: string;
  finishReason: z.infer<typeof FinishReason>;
  usage: TokenUsage | undefined;
}

/** Without the model. */
export function upstreamBody(request: ChatRequest, maxTokens: number): object {
  const set = PASSED_ON.filter((name) => request[name] !== undefined && request[name] !== null);
  return {
    messages: request.messages,
    max_tokens: maxTokens,
    ...Object.fromEntries(set.map((name) => [name, request[name]])),
  };
}

/** Undefined for what is no chat completion. */
export function readCompletion(text: string): Completion | undefined {
  try {
    const { choices, usage } = UpstreamCompletion.parse(JSON.parse(text));
    const [choice] = choices;
    if (choice === undefined) return undefined;
    return { content: choice.message.content ?? '', finishReason: choice.finish_reason, usage: usage ?? undefined };
  } catch {
    return undefined;
  }
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
    choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason: finishReason }],
    usage: facts.usage,
  };
}

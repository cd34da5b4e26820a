// One streamed answer of a chat model, and what was measured while it came.
import type { ChatCompletionChunk, ChatRequest, TokenUsage } from '../../../../shared/api/chat.ts';
import { ApiError, eventsIn, send } from '../core/api.ts';

export interface Answer {
  text: string;
  /** Milliseconds from the request to the first text, measured in the browser; undefined before the first text. */
  firstMs: number | undefined;
  /** Milliseconds from the first text to the last one. */
  textMs: number;
  /** Counts of tokens by the model server; undefined before the end of the answer. */
  usage: TokenUsage | undefined;
  /** Id of the receipt, which has the charge. */
  receiptId: string | undefined;
  /** Why the answer ended; undefined while it arrives, or if the person has stopped it. */
  finish: string | undefined;
}

interface Listeners {
  begin(receiptId: string | undefined): void;
  tell(soFar: Answer): void;
}

export type Question = Pick<ChatRequest, 'model' | 'messages' | 'temperature' | 'max_tokens'>;

/**
 * Calls `begin` with the id of the receipt, and `tell` after each piece. Resolves with the whole answer.
 * @throws ApiError, also during the answer; DOMException if `signal` aborts
 */
export async function ask(question: Question, signal: AbortSignal, { begin, tell }: Listeners): Promise<Answer> {
  const body = { ...question, stream: true, stream_options: { include_usage: true } };
  const beganMs = performance.now();
  const response = await send('POST', '/v1/chat/completions', body, { signal });
  const receiptId = response.headers.get('x-receipt-id') ?? undefined;
  begin(receiptId);
  let answer: Answer = { text: '', firstMs: undefined, textMs: 0, usage: undefined, receiptId, finish: undefined };
  for await (const { data } of eventsIn(response)) {
    answer = after(answer, data, performance.now() - beganMs);
    tell(answer);
  }
  return answer;
}

/** Tokens of the answer in a second, without the wait for the first one. */
export function tokensPerSecond({ usage, textMs }: Answer): number | undefined {
  if (usage === undefined || usage.completion_tokens < 2 || textMs <= 0) return undefined;
  return ((usage.completion_tokens - 1) * 1_000) / textMs;
}

function after(answer: Answer, data: unknown, atMs: number): Answer {
  // The last event is `[DONE]`, which is not JSON.
  if (data === undefined) return answer;
  const chunk = data as Partial<ChatCompletionChunk> & { error?: { code?: string; message?: string } };
  if (chunk.error !== undefined)
    throw new ApiError(0, chunk.error.code ?? 'upstream_error', chunk.error.message ?? 'The answer broke off.');
  const [choice] = chunk.choices ?? [];
  const text = choice?.delta.content ?? '';
  const firstMs = answer.firstMs ?? (text === '' ? undefined : atMs);
  return {
    ...answer,
    text: answer.text + text,
    firstMs,
    textMs: text === '' || firstMs === undefined ? answer.textMs : atMs - firstMs,
    usage: chunk.usage ?? answer.usage,
    finish: choice?.finish_reason ?? answer.finish,
  };
}

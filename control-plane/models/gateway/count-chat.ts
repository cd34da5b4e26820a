// Counts the tokens of a chat: by the server, otherwise by its tokenizer, otherwise estimated from the text.
import type { ChatRequest, TokenUsage } from '../../../shared/api/chat.ts';
import type { Log } from '../../../shared/log.ts';
import type { Upstream } from '../catalog/models.ts';
import type { PlannedChat } from './chat-plan.ts';
import type { Counts } from './counts.ts';
import { estimatedUsage } from './price.ts';
import type { Receipt } from './store.ts';
import { tokenizedChat, type TokenizerDeps } from './tokenize.ts';

export interface CountedChat {
  usage: TokenUsage;
  countedBy: Receipt['counted_by'];
}

/** `told` is the server's own count. */
export async function countChat(
  upstream: Upstream,
  { messages, answer, told }: Pick<ChatRequest, 'messages'> & { answer: string; told: TokenUsage | undefined },
  deps: TokenizerDeps,
): Promise<CountedChat> {
  if (told !== undefined) return { usage: told, countedBy: 'upstream' };
  const usage = await tokenizedChat(upstream, { messages, answer }, deps);
  if (usage !== undefined) return { usage, countedBy: 'tokenizer' };
  return { usage: estimatedUsage(messages, answer), countedBy: 'estimate' };
}

/** Logs a server whose context is longer than the catalog states. `told` is the server's own count. */
export function noteContext(
  told: TokenUsage | undefined,
  { planned, upstream }: { planned: PlannedChat; upstream: Upstream },
  { counts, log }: { counts: Counts; log: Log },
): void {
  const tokens = (told?.prompt_tokens ?? 0) + (told?.completion_tokens ?? 0);
  const { contextLength, callable } = planned;
  if (tokens <= contextLength) return;
  counts.beyondContext(callable.model.id);
  log.warn(
    { model: callable.model.id, upstream: upstream.base_url, tokens, context_length: contextLength },
    'a model server has used more context than the catalogue gives its model: start it with that length',
  );
}

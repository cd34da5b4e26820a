// How the tokens of a chat are counted: by the server, else by its tokenizer, else by us from the text.
import type { ChatRequest, TokenUsage } from '../../../shared/api/chat.ts';
import type { Upstream } from '../catalog/models.ts';
import { estimatedUsage } from './price.ts';
import type { Receipt } from './store.ts';
import { tokenizedChat, type TokenizerDeps } from './tokenize.ts';

export interface CountedChat {
  usage: TokenUsage;
  countedBy: Receipt['counted_by'];
}

/** `told`: by the server itself. */
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

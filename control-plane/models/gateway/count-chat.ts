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

/** Of an answer for which its server has not told the tokens. */
export async function countChat(
  upstream: Upstream,
  { messages, answer }: Pick<ChatRequest, 'messages'> & { answer: string },
  deps: TokenizerDeps,
): Promise<CountedChat> {
  const usage = await tokenizedChat(upstream, { messages, answer }, deps);
  if (usage !== undefined) return { usage, countedBy: 'tokenizer' };
  return { usage: estimatedUsage(messages, answer), countedBy: 'estimate' };
}

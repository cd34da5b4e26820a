// A chat completion that is sent whole: what it costs at most is set aside, a server answers, what is owed is charged.
import type { ChatRequest } from '../../../shared/api/chat.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import { affinityOf } from './affinity.ts';
import { type PlannedChat, planChat } from './chat-plan.ts';
import { countChat } from './count-chat.ts';
import { completionView, readCompletion, upstreamBody } from './chat-wire.ts';
import { usedOutcome } from './outcome.ts';
import { chatUcents } from './price.ts';
import { type OpenRequest, receiptHeader } from './requests.ts';
import { askWhole, type CallDeps } from './whole-answer.ts';

export type ChatCall = Pick<Call<undefined, undefined, ChatRequest>, 'caller' | 'requestId' | 'gone' | 'body'>;

/** @throws ServiceError for what is refused before or instead of an answer */
export async function completeChat(call: ChatCall, deps: CallDeps): Promise<Reply> {
  const { body } = call;
  const planned = planChat(body, deps.catalog);
  return deps.requests.serve({ ...call, ...planned }, async (open) => {
    const question = {
      callable: planned.callable,
      path: '/chat/completions',
      body: () => upstreamBody(body, planned.maxTokens),
      startedMs: deps.clock.monotonicMs(),
      affinity: chatAffinity(call, planned),
      signal: open.signal,
    };
    const reading = { bytesMax: CHAT_ANSWER_BYTES_MAX, read: readCompletion };
    const { answer: completion, upstream } = await askWhole(question, reading, deps);
    const { usage, countedBy } =
      completion.usage === undefined
        ? await countChat(upstream, { messages: body.messages, answer: completion.content }, deps)
        : ({ usage: completion.usage, countedBy: 'upstream' } as const);
    const ucents = chatUcents(usage, planned.callable.pricing);
    await open.close(usedOutcome('completed', { ucents, usage, countedBy, upstream: upstream.base_url }));
    const facts = { ...completionFacts(open, planned, deps), usage };
    return { status: 200, headers: receiptHeader(open), body: completionView(completion, facts) };
  });
}

/** Conversations that begin alike are asked of the same server. */
export function chatAffinity({ caller, body }: ChatCall, { callable }: PlannedChat): string | undefined {
  return affinityOf(caller.orgId, callable.model.id, body.messages);
}

/** What every answer says of itself. */
export function completionFacts(
  { id }: OpenRequest,
  { callable }: PlannedChat,
  { clock }: CallDeps,
): { id: string; created: number; model: string } {
  return {
    id: id.replace(/^rcp_/, 'chatcmpl-'),
    created: Math.floor(clock.now() / 1000),
    model: callable.model.id,
  };
}

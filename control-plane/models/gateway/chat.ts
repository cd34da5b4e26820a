// Answers a chat completion as a whole: holds the most that it can cost, asks a server, and charges the usage.
import type { ChatRequest, TokenUsage } from '../../../shared/api/chat.ts';
import { fail } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import type { Upstream } from '../catalog/models.ts';
import { affinityOf } from './upstreams.ts';
import { assertFits, boundedUsage, type PlannedChat, planChat } from './chat-plan.ts';
import { countChat, noteContext, tokenizedPrompt } from './tokenize.ts';
import { isGathered, streamMembers } from '../catalog/model-servers.ts';
import { completionView, readCompletion, upstreamBody } from './chat-wire.ts';
import { gather, type Said, askForWhole, type CallDeps, readWhole } from './whole-answer.ts';
import { type Used, usedOutcome } from './states.ts';
import { chatUcents } from './price.ts';
import { type OpenRequest, receiptHeader } from './requests.ts';
import { contextExceeded } from './upstream-refusals.ts';

export type ChatCall = Pick<Call<undefined, undefined, ChatRequest>, 'caller' | 'requestId' | 'gone' | 'body'>;

/** @throws ServiceError if the request is refused or fails */
export async function completeChat(call: ChatCall, deps: CallDeps): Promise<Reply> {
  const { body } = call;
  const planned = planChat(body, deps.catalog);
  return deps.requests.serve({ ...call, ...planned }, async (open) => {
    const upstreamRequest = {
      callable: planned.callable,
      path: '/chat/completions',
      body: async (upstream: Upstream) => ({
        ...upstreamBody(body, planned, await roomFor(upstream, { body, planned }, deps)),
        ...(isGathered(upstream) ? streamMembers(upstream) : {}),
      }),
      attempts: open.attempts,
      orgId: call.caller.orgId,
      startedMs: deps.clock.monotonicMs(),
      affinity: chatAffinity(call, planned),
      signal: open.signal,
    };
    const answering = await askForWhole(upstreamRequest, deps);
    const { upstream } = answering;
    const used = async (said: Said): Promise<Used & { usage: TokenUsage }> => {
      noteContext(said.usage, { planned, upstream }, deps);
      assertFits(said.usage?.prompt_tokens ?? 0, planned);
      const counted = await countChat(
        upstream,
        { messages: body.messages, answer: said.thought + said.content, reported: said.usage },
        deps,
      );
      const usage = boundedUsage(counted.usage, planned);
      const ucents = chatUcents(usage, planned.callable.pricing);
      return { ucents, usage, countedBy: counted.countedBy, upstream: upstream.base_url };
    };
    const gathered = isGathered(upstream)
      ? await gather(answering, upstreamRequest, deps)
      : { completion: (await readWhole(answering, READING, open.signal)).answer };
    if ('left' in gathered) {
      const left = await used(gathered.left);
      const countedBy = gathered.left.usage === undefined ? left.countedBy : 'running';
      await open.close(usedOutcome('client_left', { ...left, countedBy }));
      return fail('invalid_request', 'The connection ended before the answer was there.');
    }
    const { completion } = gathered;
    const { usage, ...rest } = await used(completion);
    await open.close(usedOutcome('completed', { usage, ...rest }));
    const facts = { ...completionFacts(open, planned, deps), usage };
    return { status: 200, headers: receiptHeader(open), body: completionView(completion, facts) };
  });
}

const READING = { bytesMax: CHAT_ANSWER_BYTES_MAX, read: readCompletion };

/**
 * The longest answer that fits into the context. The server's own tokenizer counts the prompt; without a tokenizer the plan is used.
 * @throws ServiceError `context_length_exceeded` if the requested answer does not fit
 */
export async function roomFor(
  upstream: Upstream,
  { body, planned }: { body: ChatRequest; planned: PlannedChat },
  deps: CallDeps,
): Promise<number> {
  const { maxTokens, limitTokens = 1, contextLength, callable, isSureToFit } = planned;
  const prompt = isSureToFit ? undefined : await tokenizedPrompt(upstream, body.messages, deps);
  if (prompt === undefined) return maxTokens;
  const room = contextLength - prompt;
  if (room < limitTokens) throw contextExceeded(callable.model, prompt);
  return Math.min(maxTokens, room);
}

/** The affinity key, so that conversations with the same beginning go to the same server. */
export function chatAffinity({ caller, body }: ChatCall, { callable }: PlannedChat): string | undefined {
  return affinityOf(caller.orgId, callable.model.id, body.messages);
}

/** The fields that every answer has, whole or streamed. */
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

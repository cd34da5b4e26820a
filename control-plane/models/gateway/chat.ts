// A chat completion that is sent whole: what it costs at most is set aside, a server answers, what is owed is charged.
import type { ChatRequest } from '../../../shared/api/chat.ts';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import type { Catalog } from '../catalog/catalog.ts';
import { ask, type AskDeps, type Answering, brokenAnswer } from './ask.ts';
import { type PlannedChat, planChat } from './chat-plan.ts';
import { type Completion, completionView, readCompletion, upstreamBody } from './chat-wire.ts';
import { failedOutcome, usedOutcome } from './outcome.ts';
import { estimatedUsage } from './price.ts';
import { readText } from './read-text.ts';
import type { OpenRequest, Requests } from './requests.ts';

export interface ChatDeps extends AskDeps {
  clock: Clock;
  catalog: Catalog;
  requests: Requests;
}

export type ChatCall = Pick<Call<undefined, undefined, ChatRequest>, 'caller' | 'requestId' | 'gone' | 'body'>;

/** @throws ServiceError for what is refused before or instead of an answer */
export async function completeChat(call: ChatCall, deps: ChatDeps): Promise<Reply> {
  const { body } = call;
  const planned = planChat(body, deps.catalog);
  const open = await deps.requests.begin({ ...call, ...planned });
  try {
    const { completion, upstream } = await askWhole({ body, planned, open }, deps);
    const usage = completion.usage ?? estimatedUsage(body.messages, completion.content);
    const countedBy = completion.usage === undefined ? 'estimate' : 'upstream';
    const { pricing } = planned.callable;
    await open.close(usedOutcome('completed', { usage, countedBy, pricing, upstream }));
    const facts = { ...completionFacts(open, planned, deps), usage };
    return { status: 200, headers: receiptHeader(open), body: completionView(completion, facts) };
  } catch (error) {
    await open.close(failedOutcome(error, open.signal));
    throw error;
  }
}

/** What every answer says of itself. */
export function completionFacts(
  { id }: OpenRequest,
  { callable }: PlannedChat,
  { clock }: ChatDeps,
): { id: string; created: number; model: string } {
  return {
    id: id.replace(/^rcp_/, 'chatcmpl-'),
    created: Math.floor(clock.now() / 1000),
    model: callable.model.id,
  };
}

export function receiptHeader({ id }: OpenRequest): Record<string, string> {
  return { 'x-receipt-id': id };
}

interface WholeQuestion {
  body: ChatRequest;
  planned: PlannedChat;
  open: OpenRequest;
}

async function askWhole(
  { body, planned, open }: WholeQuestion,
  deps: ChatDeps,
): Promise<{ completion: Completion; upstream: string }> {
  const { signal } = open;
  const answering = await ask(
    {
      callable: planned.callable,
      path: '/chat/completions',
      body: () => upstreamBody(body, planned.maxTokens),
      answerMs: (upstream) => upstream.answer_ms,
      idleMs: (upstream) => upstream.answer_ms,
      signal,
    },
    deps,
  );
  const text = await readWhole(answering, signal);
  return {
    completion:
      readCompletion(text) ??
      fail('upstream_error', 'The model gave no answer that can be used. Send the request again.'),
    upstream: answering.upstream.base_url,
  };
}

/** @throws ServiceError `upstream_response_too_large`, and those of a broken answer */
async function readWhole({ exchange, end }: Answering, signal: AbortSignal): Promise<string> {
  try {
    const text = await readText(exchange.body, CHAT_ANSWER_BYTES_MAX + 1);
    if (Buffer.byteLength(text) <= CHAT_ANSWER_BYTES_MAX) return text;
  } catch (error) {
    throw brokenAnswer(error, signal);
  } finally {
    end();
  }
  return fail('upstream_response_too_large', `The answer has more than ${CHAT_ANSWER_BYTES_MAX} bytes. Ask for less.`);
}

// A chat completion from the request to the charge: what it may ask, what is set aside, who answers, what is owed.
import type { ChatRequest } from '../../../shared/api/chat.ts';
import type { Clock } from '../../../shared/clock.ts';
import { ERRORS, fail, failField, ServiceError } from '../../../shared/errors.ts';
import { CHAT_ANSWER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Call, Reply } from '../../base/http/route.ts';
import type { Callable, Catalog } from '../catalog/catalog.ts';
import type { CatalogModel } from '../catalog/models.ts';
import { ask, type AskDeps, type Answering, brokenAnswer } from './ask.ts';
import { type Completion, completionView, readCompletion, upstreamBody } from './chat-wire.ts';
import { chatBound, chatUcents, estimatedUsage } from './price.ts';
import { readText } from './read-text.ts';
import { NOT_CHARGED, type OpenRequest, type Requests } from './requests.ts';
import type { Outcome } from './states.ts';
import type { Ending } from './store.ts';

export interface ChatDeps extends AskDeps {
  clock: Clock;
  catalog: Catalog;
  requests: Requests;
}

type ChatCall = Pick<Call<undefined, undefined, ChatRequest>, 'caller' | 'requestId' | 'gone' | 'body'>;

/** @throws ServiceError for what is refused before or instead of an answer */
export async function completeChat(call: ChatCall, deps: ChatDeps): Promise<Reply> {
  const { body } = call;
  const callable = deps.catalog.callable(body.model, 'chat');
  assertSupported(body, callable.model);
  const limits = limitsOf(callable.model);
  const bound = chatBound(body.messages, body.max_tokens ?? undefined, limits);
  const boundUcents = chatUcents({ prompt: bound.promptTokens, completion: bound.maxTokens }, callable.pricing);
  const open = await deps.requests.begin({ ...call, callable, boundUcents });
  try {
    const { completion, upstream } = await askWhole({ body, callable, maxTokens: bound.maxTokens, open }, deps);
    const usage = completion.usage ?? estimatedUsage(body.messages, completion.content);
    await open.close({
      charged_ucents: chatUcents(
        { prompt: usage.prompt_tokens, completion: usage.completion_tokens },
        callable.pricing,
      ),
      ending: 'completed',
      prompt_tokens: usage.prompt_tokens,
      completion_tokens: usage.completion_tokens,
      counted_by: completion.usage === undefined ? 'estimate' : 'upstream',
      upstream,
    });
    const facts = {
      id: completionId(open),
      created: Math.floor(deps.clock.now() / 1000),
      model: callable.model.id,
      usage,
    };
    return { status: 200, headers: receiptHeader(open), body: completionView(completion, facts) };
  } catch (error) {
    await open.close(failedOutcome(error, open.signal));
    throw error;
  }
}

interface WholeQuestion {
  body: ChatRequest;
  callable: Callable;
  maxTokens: number;
  open: OpenRequest;
}

async function askWhole(
  { body, callable, maxTokens, open }: WholeQuestion,
  deps: ChatDeps,
): Promise<{ completion: Completion; upstream: string }> {
  const { signal } = open;
  const answering = await ask(
    {
      callable,
      path: '/chat/completions',
      body: () => upstreamBody(body, maxTokens),
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

/** @throws ServiceError `unsupported_parameter`, `validation_failed` */
function assertSupported(body: ChatRequest, model: CatalogModel): void {
  if (body.stream === true) unsupported('stream', model);
  for (const name of ['top_p', 'stop', 'seed', 'presence_penalty', 'frequency_penalty'] as const) {
    if (body[name] !== undefined && !model.supported_parameters.includes(name)) unsupported(name, model);
  }
  if (body.stream_options !== undefined) {
    fail('invalid_request', {
      detail: 'stream_options is only for requests with stream: true.',
      errors: [{ field: 'stream_options', rule: 'needs stream' }],
    });
  }
  const { maxOutputTokens } = limitsOf(model);
  if ((body.max_tokens ?? 1) > maxOutputTokens)
    failField('max_tokens', `must be at most ${maxOutputTokens} for ${model.id}`);
}

function unsupported(field: string, model: CatalogModel): never {
  return fail('unsupported_parameter', {
    detail: `${model.id} does not support ${field}. GET /v1/models/${model.id} lists supported_parameters.`,
    errors: [{ field, rule: 'is not supported' }],
  });
}

function limitsOf(model: CatalogModel): { contextLength: number; maxOutputTokens: number } {
  const { context_length: contextLength, max_output_tokens: maxOutputTokens } = model;
  if (contextLength === undefined)
    throw new Error(`the catalogue lets no chat model in without context_length: ${model.id}`);
  return { contextLength, maxOutputTokens: maxOutputTokens ?? contextLength };
}

function failedOutcome(error: unknown, signal: AbortSignal): Outcome {
  const isRefusal = error instanceof ServiceError && ERRORS[error.code].status < 500;
  const ending: Ending = signal.aborted ? 'client_left' : isRefusal ? 'refused' : 'upstream_failed';
  return { ...NOT_CHARGED, ending };
}

function completionId({ id }: OpenRequest): string {
  return id.replace(/^rcp_/, 'chatcmpl-');
}

function receiptHeader({ id }: OpenRequest): Record<string, string> {
  return { 'x-receipt-id': id };
}

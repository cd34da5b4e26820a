// Checks a chat request against its model and computes the most that it can cost, before a server is asked.
import type { ChatRequest, TokenUsage } from '../../../shared/api/chat.ts';
import { CHAT_DEFAULTS, isNothing } from '../../../shared/api/nothings.ts';
import { fail, failField } from '../../../shared/errors.ts';
import type { Callable, Catalog } from '../catalog/catalog.ts';
import { type CatalogModel, longestAnswer } from '../catalog/models.ts';
import { type ChatBound, chatBound, chatUcents } from './price.ts';
import { assertSupported } from '../catalog/parameters.ts';
import { contextExceeded } from './upstream-refusals.ts';

export interface PlannedChat extends ChatBound {
  callable: Callable;
  contextLength: number;
  /** The caller's limit of the answer, if there is one. */
  limitTokens: number | undefined;
  /** The parameters that are passed on to the server. */
  parameters: object;
  boundUcents: bigint;
}

/** @throws ServiceError `model_not_found`, `unsupported_parameter`, `validation_failed`, `invalid_request` */
export function planChat(body: ChatRequest, catalog: Catalog): PlannedChat {
  const callable = catalog.callable(body.model, 'chat');
  const limits = limitsOf(callable.model);
  assertTakes(body, callable.model);
  const limitTokens = limitOf(body, limits.maxOutputTokens, callable.model);
  const bound = chatBound(body.messages, limitTokens, limits);
  const boundUcents = chatUcents(
    { prompt_tokens: bound.promptTokens, completion_tokens: bound.maxTokens },
    callable.pricing,
  );
  const parameters = parametersOf(body, callable.model);
  return { ...bound, callable, contextLength: limits.contextLength, limitTokens, parameters, boundUcents };
}

/** Limits the counted tokens to what was held and requested, so that the tokens of a receipt match its charge. */
export function boundedUsage(usage: TokenUsage, { promptTokens, maxTokens }: PlannedChat): TokenUsage {
  const prompt = Math.min(usage.prompt_tokens, promptTokens);
  const completion = Math.min(usage.completion_tokens, maxTokens);
  return { ...usage, prompt_tokens: prompt, completion_tokens: completion, total_tokens: prompt + completion };
}

/**
 * Refuses a prompt that does not fit. The server may accept it, because its context may be longer than the catalog states.
 * @throws ServiceError `context_length_exceeded`
 */
export function assertFits(promptTokens: number, { callable, contextLength }: PlannedChat): void {
  if (promptTokens > contextLength) throw contextExceeded(callable.model, promptTokens);
}

/** Optional parameters that only some chat models accept. */
const SOME_TAKE = ['top_p', 'stop', 'seed', 'presence_penalty', 'frequency_penalty'] as const;

function assertTakes(body: ChatRequest, model: CatalogModel): void {
  assertSupported(
    SOME_TAKE.filter((name) => body[name] !== undefined && !isNothing(name, body[name], CHAT_DEFAULTS)),
    model,
  );
  if (body.stream !== true && body.stream_options !== undefined) {
    fail('invalid_request', {
      detail: 'stream_options is only for requests with stream: true.',
      errors: [{ field: 'stream_options', rule: 'needs stream' }],
    });
  }
}

function parametersOf(body: ChatRequest, { supported_parameters: supported }: CatalogModel): object {
  const passedOn = ['temperature', ...SOME_TAKE.filter((name) => supported.includes(name))] as const;
  const set = passedOn.filter((name) => body[name] !== undefined && body[name] !== null);
  return Object.fromEntries(set.map((name) => [name, body[name]]));
}

/**
 * The caller's limit for the answer; undefined if there is none. The fields `max_tokens` and `max_completion_tokens` mean the same, so the
 * smaller one counts.
 * @throws ServiceError `validation_failed`
 */
function limitOf(body: ChatRequest, most: number, { id }: CatalogModel): number | undefined {
  const members = ['max_tokens', 'max_completion_tokens'] as const;
  const [smallest] = members
    .map((field) => ({ field, tokens: body[field] ?? Infinity }))
    .toSorted((a, b) => a.tokens - b.tokens)
    .filter(({ tokens }) => tokens < Infinity);
  if (smallest !== undefined && smallest.tokens > most) failField(smallest.field, `must be at most ${most} for ${id}`);
  return smallest?.tokens;
}

function limitsOf(model: CatalogModel): { contextLength: number; maxOutputTokens: number } {
  const { context_length: contextLength } = model;
  if (contextLength === undefined)
    throw new Error(`the catalogue lets no chat model in without context_length: ${model.id}`);
  return { contextLength, maxOutputTokens: longestAnswer(model) };
}

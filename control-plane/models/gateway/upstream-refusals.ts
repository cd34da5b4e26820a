// Turns a model server's answer with a status other than 200 into an error for the caller, without any text of the server.
import { z } from 'zod';
import { ServiceError } from '../../../shared/errors.ts';
import { UPSTREAM_JSON_VALUES_MAX } from '../../../shared/limits.ts';
import type { Log } from '../../../shared/log.ts';
import type { Exchange } from '../../base/outbound/exchange.ts';
import type { CatalogModel, Upstream } from '../catalog/models.ts';
import { jsonOf, readText } from '../../base/outbound/outbound.ts';

const REFUSAL_BYTES_MAX = 64 * 1024;
/** Length of an error name in the log. The error message may quote the customer's text, so it is not logged. */
const NAME_CHARS_MAX = 64;

/** llama.cpp reports a prompt that is too long as a field; the other engines report it as text. */
const Refusal = z.object({
  error: z
    .object({ type: z.unknown(), code: z.unknown(), message: z.unknown(), n_prompt_tokens: z.int().optional() })
    .partial(),
});

const TOO_LONG_WORDS = [
  /\bmax(imum)? (model |context )?len(gth)?\b/i,
  /context (length|size|window)/i,
  /must have less than \d{1,9} tokens/i,
];
/** llama.cpp's message for a text that is longer than its batch. Its status looks like a failure of the server. */
const TOO_LARGE = /too large to process/i;

/** The server refuses our key, our path or the name of the model. */
const SET_UP_WRONGLY: readonly number[] = [401, 403, 404, 405];
const WRONG =
  'a model server refuses our path, model or key: correct its base_url, model or api_key_file in the file of models';

/** Whether a server answers 503 because it is loading its model. That is no failure. */
export async function isLoading(exchange: Exchange): Promise<boolean> {
  if (exchange.status !== 503) return false;
  const text = await readText(exchange.body, REFUSAL_BYTES_MAX).catch(() => '');
  return Refusal.safeParse(jsonOf(text, UPSTREAM_JSON_VALUES_MAX)).data?.error.type === 'unavailable_error';
}

/** Reads the rest of the answer. */
export async function refusalOf(
  exchange: Exchange,
  { upstream, model, log }: { upstream: Upstream; model: CatalogModel; log: Log },
): Promise<ServiceError> {
  const { status } = exchange;
  const text = await readText(exchange.body, REFUSAL_BYTES_MAX);
  const fields = { upstream: upstream.base_url, status, answer_chars: text.length, ...kindOf(text) };
  const isBadInput = [400, 413, 422].includes(status) || (status === 500 && TOO_LARGE.test(text));
  if (!isBadInput) {
    log.error(fields, SET_UP_WRONGLY.includes(status) ? WRONG : 'a model server fails: its own log says why');
    return new ServiceError('upstream_error', {
      detail:
        'The model failed to answer. Send the request again; if it stays, ask for help and quote the X-Request-Id.',
    });
  }
  log.info(fields, 'a model server refuses a request');
  const promptTokens = tooLong(text);
  if (promptTokens !== undefined) return contextExceeded(model, promptTokens);
  return new ServiceError('invalid_request', {
    detail: `${model.id} does not take this request. Check its texts, the order of messages, and the parameters.`,
  });
}

/** The error for a prompt that, with the requested answer, does not fit into the context. */
export function contextExceeded(model: CatalogModel, promptTokens: number | 'unknown'): ServiceError {
  const isChat = model.modality === 'chat';
  const what = isChat ? 'Messages and answer do' : 'A text does';
  const room = model.context_length === undefined ? 'the context' : `the ${model.context_length} tokens`;
  const counted = promptTokens === 'unknown' ? '' : ` What was sent has ${promptTokens} tokens.`;
  const advice = isChat ? 'Shorten the messages or lower max_tokens.' : 'Shorten it, or send it in parts.';
  return new ServiceError('context_length_exceeded', {
    detail: `${what} not fit into ${room} of ${model.id}.${counted} ${advice}`,
    errors: [{ field: isChat ? 'messages' : 'input', rule: 'must fit into the context of the model' }],
  });
}

/** The server's names for the error, if it has any. */
function kindOf(text: string): { error_type?: string; error_code?: string } {
  const { error = {} } = Refusal.safeParse(jsonOf(text, UPSTREAM_JSON_VALUES_MAX)).data ?? {};
  const isName = (value: unknown): value is string =>
    typeof value === 'string' && value.length <= NAME_CHARS_MAX && /^[\w.-]+$/.test(value);
  return {
    ...(isName(error.type) ? { error_type: error.type } : {}),
    ...(isName(error.code) ? { error_code: error.code } : {}),
  };
}

function tooLong(text: string): number | 'unknown' | undefined {
  const { error = {} } = Refusal.safeParse(jsonOf(text, UPSTREAM_JSON_VALUES_MAX)).data ?? {};
  const isSaid =
    error.type === 'exceed_context_size_error' ||
    error.code === 'context_length_exceeded' ||
    TOO_LARGE.test(text) ||
    TOO_LONG_WORDS.some((words) => words.test(text));
  return isSaid ? (error.n_prompt_tokens ?? 'unknown') : undefined;
}

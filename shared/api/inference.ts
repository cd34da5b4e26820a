// Inference endpoints: their paths, and the envelope that clients of the chat-completion wire format expect (specification 7.1).
import { z } from 'zod';
import type { ErrorCode } from '../errors.ts';

const InferenceErrorType = z.enum([
  'invalid_request_error',
  'permission_error',
  'insufficient_quota',
  'rate_limit_error',
  'server_error',
]);
export type InferenceErrorType = z.infer<typeof InferenceErrorType>;

export const InferenceError = z
  .strictObject({
    error: z
      .strictObject({
        message: z.string().describe('What went wrong here and what to do about it'),
        type: InferenceErrorType.describe('The kind of error, as clients of this wire format know it'),
        param: z
          .string()
          .nullable()
          .describe('Path of the field that caused the error, like `messages[2].content`. Null if no field caused it'),
        code: z.string().describe('Stable identifier of the error; branch on this one'),
      })
      .describe('The refusal'),
  })
  .meta({ id: 'InferenceError' });
export type InferenceError = z.infer<typeof InferenceError>;

const INFERENCE_PATHS = /^\/v1\/(models|chat|embeddings|images|videos|files|uploads|fine_tuning)(\/|$)/;

/** Path that clients of this wire format call and that this service does not have -> text that says what to use instead. */
export const INSTEAD: Readonly<Record<string, string>> = {
  '/v1/responses':
    'Use POST /v1/chat/completions and send all messages each time: no conversation is stored. Official clients have chat.completions.create',
  '/v1/completions': 'Use POST /v1/chat/completions with the prompt as the message of a user',
  '/v1/moderations': 'Use POST /v1/chat/completions with a model that judges texts. GET /v1/models lists the models',
  '/v1/batches':
    'Send the requests one by one, side by side: no batches are kept. POST /v1/embeddings takes many texts at once',
  '/v1/assistants': 'Use POST /v1/chat/completions with the instructions as a system message: no assistants are stored',
  '/v1/threads': 'Use POST /v1/chat/completions and send all messages each time: no conversation is stored',
  '/v1/vector_stores': 'Use POST /v1/embeddings and keep the vectors in a database of your own',
  '/v1/rerank': 'Use POST /v1/embeddings and compare the vectors yourself: this service has no models for reranking',
  '/v1/audio': 'This service has no models for sound. GET /v1/models lists the models that it has',
  '/v1/realtime': 'Use POST /v1/chat/completions with stream: true, which sends the answer as it comes into being',
};

/** The text that says what to use instead of this path; undefined if the path is not in `INSTEAD`. */
export function insteadOf(path: string): string | undefined {
  return INSTEAD[/^\/v1\/[^/]*/.exec(path)?.[0] ?? ''];
}

/**
 * Whether a refusal on this path is an envelope. On all other paths it is a problem document. The paths of `INSTEAD` count as inference
 * paths.
 */
export function isInferencePath(path: string): boolean {
  return INFERENCE_PATHS.test(path) || insteadOf(path) !== undefined;
}

const RENAMED: Partial<Record<ErrorCode, string>> = {
  unauthorized: 'invalid_api_key',
  body_too_large: 'request_too_large',
  invalid_request: 'invalid_request_error',
};

/** The error code in an envelope. If clients of this wire format know another word for a code, the envelope has their word. */
export function inferenceCode(code: ErrorCode): string {
  return RENAMED[code] ?? code;
}

// The registry of every error code that a caller can receive, and the one class that carries them.

export interface ErrorEntry {
  /** HTTP status of the response (0 = never a response, only an operation's `error.code` or a link's reason). */
  status: number;
  title: string;
}

/** Error code -> status and title. The code that throws an error adds `detail`, which says what the caller can do. */
export const ERRORS = {
  // The caller's request
  malformed_json: { status: 400, title: 'The body is not valid JSON' },
  invalid_request: { status: 400, title: 'The request could not be understood' },
  image_reference_invalid: { status: 400, title: 'The image reference is not valid' },
  idempotency_key_required: { status: 400, title: 'The Idempotency-Key header is required' },
  idempotency_key_invalid: { status: 400, title: 'The Idempotency-Key header is not valid' },
  'reservation/gpu_type_mismatch': { status: 400, title: 'No reservation contract covers this' },
  unsupported_parameter: { status: 400, title: 'A member of the body is not supported' },
  context_length_exceeded: { status: 400, title: 'Prompt and answer are longer than the context of the model' },
  // The login of a program (RFC 8628, section 3.5); a single sign-on that was refused is `access_denied` too
  authorization_pending: { status: 400, title: 'The person has not decided yet' },
  slow_down: { status: 400, title: 'The program asks too often' },
  access_denied: { status: 400, title: 'The login was denied' },
  expired_token: { status: 400, title: 'The login has ended' },
  unauthorized: { status: 401, title: 'Missing or invalid API key' },
  sign_in_failed: { status: 401, title: 'E-mail address, password or code are not right' },
  insufficient_balance: { status: 402, title: 'The balance does not cover this' },
  insufficient_scope: { status: 403, title: 'The API key lacks a scope' },
  session_required: { status: 403, title: 'Only a signed-in person may do this' },
  step_up_required: { status: 403, title: 'Confirm first that it is you' },
  second_factor_required: { status: 403, title: 'A second factor is needed' },
  origin_refused: { status: 403, title: 'The request does not come from our own pages' },
  sign_up_closed: { status: 403, title: 'Nobody can sign up here without an invitation' },
  org_suspended: { status: 403, title: 'The organisation is suspended' },
  org_unfunded: { status: 403, title: 'The organisation has never had a balance' },
  'reservation/no_contract': { status: 403, title: 'The organisation holds no reservation contract' },
  'reservation/contract_inactive': { status: 403, title: 'No reservation contract is active' },
  'ssh_keys/org_mismatch': { status: 403, title: 'An SSH key belongs to another organisation' },
  url_invalid: { status: 403, title: 'The presigned URL does not allow this' },
  not_found: { status: 404, title: 'Not found' },
  model_not_found: { status: 404, title: 'There is no such model to call' },
  method_not_allowed: { status: 405, title: 'Method not allowed' },
  request_timeout: { status: 408, title: 'The request took too long to arrive' },
  idempotency_key_in_use: { status: 409, title: 'A request with this Idempotency-Key is still in progress' },
  price_changed: { status: 409, title: 'The price has changed' },
  logs_unavailable: { status: 409, title: 'There is no log to read' },
  conflict: { status: 409, title: 'The resource is in a state that does not allow this' },
  expired: { status: 410, title: 'The file has expired' },
  body_too_large: { status: 413, title: 'The body is too large' },
  unsupported_media_type: { status: 415, title: 'A body of this media type is not taken' },
  validation_failed: { status: 422, title: 'The request is not valid' },
  idempotency_key_reused: { status: 422, title: 'The Idempotency-Key was used for another request' },
  offering_unavailable: { status: 422, title: 'The pinned offering is gone' },
  disk_unavailable: { status: 422, title: 'No offering honours this disk size' },
  disk_exceeds_offering: { status: 422, title: 'The pinned offering has less storage' },
  environment_unavailable: { status: 422, title: 'This environment cannot be served' },
  gpu_vram_too_small: { status: 422, title: 'The GPU has too little memory for the template' },
  model_too_large: { status: 422, title: 'The model does not fit into the memory of the GPUs' },
  image_unavailable: { status: 422, title: 'The image cannot be used, or no host can run it' },
  'reservation/no_capacity': { status: 429, title: 'All slots of the reservation are allocated' },
  rate_limit_exceeded: { status: 429, title: 'Too many requests' },
  stream_limit_exceeded: { status: 429, title: 'Too many requests or streams are open' },
  range_not_satisfiable: { status: 416, title: 'The range of bytes is outside of what there is' },
  headers_too_large: { status: 431, title: 'The headers are too large' },
  // Enrolment of hosts
  enrollment_token_invalid: { status: 401, title: 'Unknown enrolment token' },
  enrollment_token_expired: { status: 410, title: 'The enrolment token has expired' },
  enrollment_token_used: { status: 409, title: 'The enrolment token was used by another host' },
  // Outcomes of an operation
  no_capacity: { status: 0, title: 'No offering fits' },
  operation_failed: { status: 0, title: 'The operation failed' },
  // Outcomes of a fine-tuning job
  budget_exceeded: { status: 0, title: 'The budget was used up' },
  training_failed: { status: 0, title: 'The training failed' },
  result_invalid: { status: 0, title: 'The result was not what the trainer said' },
  // Our own
  internal_error: { status: 500, title: 'Internal error' },
  registry_unreachable: { status: 502, title: 'The image registry could not be asked' },
  upstream_error: { status: 502, title: 'The model gave no answer that can be used' },
  upstream_response_too_large: { status: 502, title: 'The answer of the model is too large' },
  upstream_unavailable: { status: 503, title: 'Serving capacity is degraded' },
  upstream_timeout: { status: 504, title: 'The model did not answer in time' },
  deposits_unavailable: { status: 503, title: 'Deposits cannot be taken now' },
  deposit_addresses_exhausted: { status: 503, title: 'There is no address left for a deposit' },
  storage_full: { status: 507, title: 'There is no room to store this' },
  unavailable: { status: 503, title: 'Temporarily unavailable' },
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof ERRORS;

/** One broken rule of the request: `field` is a path like `ports[2].port`, or a header or query parameter name. */
export interface FieldError {
  field: string;
  rule: string;
}

export interface ErrorDetails {
  detail: string;
  errors?: FieldError[];
  /** Further members of the problem document, e.g. `current_price_per_hour`. */
  extra?: Record<string, string | number | boolean | null>;
  retryAfterSeconds?: number;
  cause?: unknown;
}

/** An expected refusal or failure with a registered code. Anything else that is thrown is a bug and becomes `internal_error`. */
export class ServiceError extends Error {
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, details: ErrorDetails) {
    super(`${code}: ${details.detail}`, { cause: details.cause });
    this.name = 'ServiceError';
    this.code = code;
    this.details = details;
  }
}

/** Throws a registered error. */
export function fail(code: ErrorCode, details: ErrorDetails | string): never {
  throw new ServiceError(code, typeof details === 'string' ? { detail: details } : details);
}

/** Refuses the request because of one field (specification 7.2 `validation_failed`). The rule continues the name of the field. */
export function failField(field: string, rule: string): never {
  return failFields([{ field, rule }]);
}

/** Refuses the request because of several fields. */
export function failFields(errors: FieldError[]): never {
  const detail = `${errors.map(({ field, rule }) => `${field} ${rule}`).join('; ')}.`;
  throw new ServiceError('validation_failed', { detail, errors });
}

/** The message of anything that was thrown, for a log line or a reason. Node joins errors without a message of their own. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return messagesOf(error.errors);
  return error instanceof Error ? error.message : String(error);
}

/** The code of an error of Node or of a library, like ENOENT; undefined if it has none. */
export function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}

/** Throws what several pieces of work have thrown: one error as it is, several as an AggregateError, and nothing if there is none. */
export function throwAll(failures: readonly unknown[]): void {
  if (failures.length === 0) return;
  throw failures.length === 1 ? failures[0] : new AggregateError(failures, messagesOf(failures));
}

/** Many failures often have one cause, so each message is there once. */
function messagesOf(errors: readonly unknown[]): string {
  return [...new Set(errors.map(messageOf))].join('; ');
}

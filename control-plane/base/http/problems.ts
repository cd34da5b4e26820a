// Turns thrown errors into known refusals, and a refusal into its problem document.
import { codeOf, type ErrorCode, ERRORS, ServiceError } from '../../../shared/errors.ts';
import { HEADER_BYTES_MAX } from '../../../shared/limits.ts';
import type { Problem } from '../../../shared/api/problem.ts';
import { DbError } from '../db/db.ts';
import type { WireReply } from './route.ts';

/** A database server that restarts is back within this time. */
const LOST_DATABASE_RETRY_SECONDS = 5;
/** A full disk takes longer: somebody must free space. */
const FULL_DISK_RETRY_SECONDS = 30;
const PROBLEM_TYPE = 'application/problem+json';

/** What a refusal contains about its request. */
export interface RefusalContext {
  requestId: string;
  /** The path of the request without the query. */
  path: string;
}

/** Returns a refusal of ours unchanged, and a refusal of fastify as ours with the same meaning. Undefined for a bug, which the caller logs. */
export function knownError(error: unknown): ServiceError | undefined {
  if (error instanceof ServiceError) return error;
  if (error instanceof DbError && error.code === 'disk_full') return fullDisk(error);
  if (error instanceof DbError && (error.code === 'unavailable' || error.code === 'lease_lost'))
    return lostDatabase(error);
  switch (codeOf(error)) {
    case 'FST_ERR_CTP_INVALID_MEDIA_TYPE':
    case 'FST_ERR_CTP_EMPTY_TYPE':
      return unsupportedMediaType();
    case 'FST_ERR_BAD_URL':
      return new ServiceError('invalid_request', { detail: 'The path is not valid percent-encoding.' });
    case 'FST_ERR_MAX_PARAM_LENGTH':
      return new ServiceError('not_found', { detail: 'No id is that long.' });
    default:
      return undefined;
  }
}

/** Reads still work, and everything that was accepted is kept. */
function fullDisk(cause: DbError): ServiceError {
  return new ServiceError('unavailable', {
    detail:
      'Nothing can be stored at the moment. Nothing was changed: send the same request again later. The operator has been told.',
    retryAfterSeconds: FULL_DISK_RETRY_SECONDS,
    cause,
  });
}

/** The request may have had its effect if the server failed while it answered. A repeat with the same Idempotency-Key clarifies that. */
function lostDatabase(cause: DbError): ServiceError {
  return new ServiceError('unavailable', {
    detail:
      'The database does not answer at the moment. Send the same request again in a few seconds, with the same Idempotency-Key if it has one.',
    retryAfterSeconds: LOST_DATABASE_RETRY_SECONDS,
    cause,
  });
}

export function unsupportedMediaType(): ServiceError {
  return new ServiceError('unsupported_media_type', {
    detail: 'Send the body as JSON with Content-Type: application/json.',
  });
}

export function headersTooLarge(): ServiceError {
  return new ServiceError('headers_too_large', {
    detail: `Path, query and headers may have at most ${HEADER_BYTES_MAX} bytes together.`,
  });
}

/** The refusal of a request whose connection has ended. Nobody receives it, but without it the request would be logged as a bug of ours. */
export function abandonedRequest(): ServiceError {
  return new ServiceError('invalid_request', { detail: 'The connection ended before the body did.' });
}

export function internalError(): ServiceError {
  return new ServiceError('internal_error', {
    detail: 'Something went wrong on our side. Try again; if it stays, ask for help and quote the request_id.',
  });
}

/** The problem document of a refusal, with the headers of its code. */
export function problemReply({ code, details }: ServiceError, context: RefusalContext): WireReply {
  const { title } = ERRORS[code];
  const status = shownStatus(code);
  const problem: Problem = {
    type: `urn:svc:error:${code}`,
    title,
    status,
    detail: details.detail,
    instance: context.path,
    code,
    request_id: context.requestId,
    errors: details.errors ?? [],
    ...details.extra,
  };
  return {
    status,
    headers: { 'content-type': PROBLEM_TYPE, ...refusalHeaders(code, details.retryAfterSeconds) },
    body: JSON.stringify(problem),
  };
}

/** The HTTP status of a code. Codes that only operations have get the status of an internal error. */
export function shownStatus(code: ErrorCode): number {
  const { status } = ERRORS[code];
  return status === 0 ? 500 : status;
}

/** The headers of a code, for both forms of a refusal. */
export function refusalHeaders(code: ErrorCode, retryAfterSeconds: number | undefined): Record<string, string> {
  const headers: Record<string, string> = {};
  if (code === 'unauthorized') headers['www-authenticate'] = 'Bearer';
  if (code === 'insufficient_scope') headers['www-authenticate'] = 'Bearer error="insufficient_scope"';
  // Specification 7.1: whole seconds, at least one.
  if (retryAfterSeconds !== undefined) headers['retry-after'] = String(Math.max(1, Math.ceil(retryAfterSeconds)));
  return headers;
}

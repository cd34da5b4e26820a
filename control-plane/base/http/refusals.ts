// The form of a refusal: an envelope on inference paths, that of OAuth where programs fetch a key, a problem document on all others
// (specification 7.1).
import {
  inferenceCode,
  type InferenceError,
  type InferenceErrorType,
  isInferencePath,
} from '../../../shared/api/inference.ts';
import { isOauthPath, type OauthError } from '../../../shared/api/device-login.ts';
import type { ErrorCode, ServiceError } from '../../../shared/errors.ts';
import { problemReply, type RefusalContext, refusalHeaders, shownStatus } from './problems.ts';
import type { WireReply } from './route.ts';

/** Uses the form that the path of the request needs, with the headers of the code. */
export function refusalReply(error: ServiceError, context: RefusalContext): WireReply {
  if (isOauthPath(context.path)) return oauthReply(error);
  return isInferencePath(context.path) ? envelopeReply(error, context.requestId) : problemReply(error, context);
}

/** The form that clients of OAuth know (RFC 6749, section 5.2). */
function oauthReply({ code, details }: ServiceError): WireReply {
  const error: OauthError = { error: code, error_description: details.detail };
  return {
    status: shownStatus(code),
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'no-store',
      ...refusalHeaders(code, details.retryAfterSeconds),
    },
    body: JSON.stringify(error),
  };
}

/** Official clients retry by status alone. For these codes a retry would change nothing or cost twice. */
const FINAL_CODES: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'insufficient_balance',
  'conflict',
  'storage_full',
  'upstream_response_too_large',
  'upstream_timeout',
]);

function envelopeReply(error: ServiceError, requestId: string): WireReply {
  const { code, details } = error;
  return {
    status: shownStatus(code),
    headers: {
      'content-type': 'application/json; charset=utf-8',
      ...refusalHeaders(code, details.retryAfterSeconds),
      ...(FINAL_CODES.has(code) ? { 'x-should-retry': 'false' } : {}),
    },
    body: JSON.stringify(envelopeOf(error, requestId)),
  };
}

/** The envelope alone, for a refusal inside an event stream. */
export function envelopeOf({ code, details }: ServiceError, requestId: string): InferenceError {
  const isOurs = code === 'internal_error';
  return {
    error: {
      // The envelope has no field for the request id.
      message: isOurs ? `${details.detail} The request_id is ${requestId}.` : details.detail,
      type: typeOf(shownStatus(code)),
      param: details.errors?.[0]?.field ?? null,
      code: inferenceCode(code),
    },
  };
}

function typeOf(status: number): InferenceErrorType {
  if (status === 402) return 'insufficient_quota';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status >= 500 ? 'server_error' : 'invalid_request_error';
}

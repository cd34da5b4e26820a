// Which error codes a route may answer with: its own, and those of the checks that it has asked for.
import type { ErrorCode, ServiceError } from '../../../shared/errors.ts';
import { isInferencePath } from '../../../shared/api/inference.ts';
import type { Route } from './route.ts';

/** Without repetition, the route's own first. The OpenAPI document lists these; strict servers refuse to send others. */
export function errorsOf(route: Route): ErrorCode[] {
  const { scope, method, idempotency, path, body, upload } = route;
  const codes: ErrorCode[] = [...route.errors, 'invalid_request', 'validation_failed', 'rate_limit_exceeded'];
  if (scope !== 'none' && scope !== 'operator') codes.push('unauthorized', 'insufficient_scope');
  // A body is read, and so can be wrong, wherever the method allows one.
  if (method !== 'GET') codes.push('body_too_large', 'unsupported_media_type');
  if (method !== 'GET' && upload === undefined) codes.push('malformed_json');
  if (body !== undefined && isInferencePath(path)) codes.push('unsupported_parameter');
  if (idempotency === 'required') codes.push('idempotency_key_required');
  if (idempotency !== 'none') {
    codes.push('idempotency_key_invalid', 'idempotency_key_in_use', 'idempotency_key_reused');
  }
  codes.push('internal_error', 'unavailable');
  return [...new Set(codes)];
}

/** The introduction of the document says these for all routes. */
const ANY_REQUEST: readonly ErrorCode[] = ['headers_too_large', 'request_timeout'];

/** The complaint that the route's document does not know this error; undefined where it does. */
export function undeclared(route: Route, error: ServiceError): Error | undefined {
  if (errorsOf(route).includes(error.code) || ANY_REQUEST.includes(error.code)) return undefined;
  return new Error(`${route.operationId} failed with ${error.code}, which it does not declare`, { cause: error });
}

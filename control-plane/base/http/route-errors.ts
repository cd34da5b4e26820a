// The error codes of a route: its own, and those of the checks that it uses.
import type { ErrorCode, ServiceError } from '../../../shared/errors.ts';
import { isInferencePath } from '../../../shared/api/inference.ts';
import type { Route } from './route.ts';

/** The codes without duplicates, the route's own first. The OpenAPI document lists them. Strict servers refuse to send others. */
export function errorsOf(route: Route): ErrorCode[] {
  const { scope, method, idempotency, path, body, upload } = route;
  const codes: ErrorCode[] = [...route.errors, 'invalid_request', 'validation_failed', 'rate_limit_exceeded'];
  if (scope !== 'none' && scope !== 'operator') codes.push('unauthorized', 'insufficient_scope');
  // Every method except GET may have a body, which may be wrong.
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

/** The introduction of the document names these for all routes. */
const ANY_REQUEST: readonly ErrorCode[] = ['headers_too_large', 'request_timeout'];

/** An error that reports an undeclared code of the route; undefined if the code is declared. */
export function undeclared(route: Route, error: ServiceError): Error | undefined {
  if (errorsOf(route).includes(error.code) || ANY_REQUEST.includes(error.code)) return undefined;
  return new Error(`${route.operationId} failed with ${error.code}, which it does not declare`, { cause: error });
}

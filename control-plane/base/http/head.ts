// Checks the head of a request before anything else happens with it.
import type { IncomingMessage } from 'node:http';
import { fail } from '../../../shared/errors.ts';
import { HEADER_BYTES_MAX } from '../../../shared/limits.ts';
import { headersTooLarge } from './problems.ts';

/**
 * `close` marks the connection to be closed after the refusal. @throws ServiceError `invalid_request` (RFC 9112, section 3.2),
 * `headers_too_large`
 */
export function assertHead({ httpVersion, headers, rawHeaders, url = '' }: IncomingMessage, close: () => void): void {
  if (httpVersion === '1.1' && headers.host === undefined) fail('invalid_request', 'The Host header is missing.');
  const bytes = rawHeaders.reduce((sum, text) => sum + text.length, url.length);
  if (bytes < HEADER_BYTES_MAX) return;
  close();
  throw headersTooLarge();
}

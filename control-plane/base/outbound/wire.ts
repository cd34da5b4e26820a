// Translates what undici returns into our own terms: response headers and errors.
import { errors } from 'undici';
import { messageOf } from '../../../shared/errors.ts';
import type { Line } from './lines.ts';
import { OutboundError } from './outbound-error.ts';

/** Repeated headers are joined with a comma. */
export function joined(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name, Array.isArray(value) ? value.join(', ') : (value ?? '')]),
  );
}

/** An error that no check has named: the open connection broke, or the response was not HTTP. */
export function outboundError(error: unknown, line: Line): OutboundError {
  if (error instanceof OutboundError) return error;
  const broke = error instanceof errors.SocketError || (error instanceof Error && 'syscall' in error);
  const what = broke ? 'the connection ended before the answer was whole' : 'the answer is not valid HTTP';
  return new OutboundError('protocol', `${what}: ${messageOf(error)}`, {
    remoteAddress: line.remoteAddress,
    cause: error,
  });
}

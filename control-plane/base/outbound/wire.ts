// What comes back over the wire, in our words: the headers of an answer, and what broke.
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

/** What the guard did not name happened on an open connection: it broke, or what came was not HTTP. */
export function outboundError(error: unknown, line: Line): OutboundError {
  if (error instanceof OutboundError) return error;
  const broke = error instanceof errors.SocketError || (error instanceof Error && 'syscall' in error);
  const what = broke ? 'the connection ended before the answer was whole' : 'the answer is not valid HTTP';
  return new OutboundError('protocol', `${what}: ${messageOf(error)}`, {
    remoteAddress: line.remoteAddress,
    cause: error,
  });
}

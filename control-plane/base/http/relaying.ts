// What relaying for others needs: the proxy for applications, the public ports, and what passes on to the primary share it.
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import type { RawHeaders } from './hop-headers.ts';
import { hasBody } from './uploads.ts';

/** True if the request has no body and may be sent twice (RFC 9110, section 9.2.2). */
export function isRepeatable(request: IncomingMessage): boolean {
  return !hasBody(request) && ['GET', 'HEAD', 'OPTIONS'].includes(request.method ?? '');
}

/**
 * A server may answer before it has read the whole body, and a client may read the answer only after it has sent the whole body. So the request can
 * still be read when the server is done with it. A pipeline of Node would destroy it.
 */
export function sendBody(request: IncomingMessage, outgoing: ClientRequest): void {
  // Sends the head now, because the client may wait for a refusal before it sends the body.
  outgoing.write('', 'latin1');
  request.pipe(outgoing);
  outgoing.once('close', () => request.unpipe(outgoing).resume());
}

/** Aborts when the connection has closed. */
export function closeSignal(socket: Duplex): AbortSignal {
  const closing = new AbortController();
  // An abort without a reason would create an error with a stack.
  socket.once('close', () => closing.abort('closed'));
  return closing.signal;
}

/** Writes the head of an answer in latin1, because Node reads heads in latin1. `first` is the status line. */
export function writeHead(socket: Duplex, first: string, headers: RawHeaders): void {
  const lines = Array.from({ length: headers.length / 2 }, (_, i) => `${headers[2 * i]}: ${headers[2 * i + 1]}`);
  socket.write(`${[first, ...lines].join('\r\n')}\r\n\r\n`, 'latin1');
}

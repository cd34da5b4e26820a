// Answers connections on which Node's HTTP parser fails before there is a request, in the form that the path needs, and closes them.
import { STATUS_CODES, type Server } from 'node:http';
import type { Duplex } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import { headersTooLarge } from './problems.ts';
import { refusalReply } from './refusals.ts';

/** After the answer, incoming data is read and dropped for this long. Closing at once would make the network discard the answer. */
const LINGER_MS = 1_000;

interface Deps {
  clock: Clock;
  ids: Ids;
  /** The path of the last request on this connection, or of the request whose body is late. */
  path?: string | undefined;
}

/** The path is searched in this many characters of the unparsed data. */
const REQUEST_LINE_CHARS_MAX = 1_024;
const REQUEST_LINE = /^[A-Z]{1,16} (\/[^ ?\r\n]*)/;

/** Handles the event `clientError`. */
export function refuseUnread(error: Error, socket: Duplex, { clock, ids, path }: Deps): void {
  // After an error, the parser reports another one for each further chunk.
  if (socket.writableEnded) return;
  if (!socket.writable || codeOf(error) === 'ECONNRESET') {
    socket.destroy();
    return;
  }
  endWith(meaningOf(error), socket, { clock, ids, path: pathOf(error) ?? path });
}

/** Node passes the packet that it could not parse. It usually begins with the request line. */
function pathOf(error: Error): string | undefined {
  if (!('rawPacket' in error) || !(error.rawPacket instanceof Uint8Array)) return undefined;
  return REQUEST_LINE.exec(Buffer.from(error.rawPacket.subarray(0, REQUEST_LINE_CHARS_MAX)).toString('latin1'))?.[1];
}

/** Answers requests that Node would handle without a response or with an empty one. */
export function answerUnusual(server: Server, deps: Deps): void {
  // RFC 9110 allows a server to ignore unknown expectations.
  server.on('checkExpectation', (request, response) => void server.emit('request', request, response));
  server.on('connect', (_request, socket) => {
    const detail = 'This server is no proxy: it does not take CONNECT.';
    endWith(new ServiceError('method_not_allowed', { detail }), socket, deps);
  });
}

/** Sends a refusal on a connection that is not HTTP, or no longer HTTP, and closes it. */
export function endWith(refusal: ServiceError, socket: Duplex, { clock, ids, path = '/' }: Deps): void {
  const requestId = ids.prefixed('req');
  const { status, headers, body } = refusalReply(refusal, { requestId, path });
  const lines = Object.entries({
    ...headers,
    'x-request-id': requestId,
    'content-length': String(Buffer.byteLength(body)),
    connection: 'close',
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  socket.on('error', () => socket.destroy());
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join('')}\r\n${body}`);
  socket.resume();
  const cancel = clock.after(LINGER_MS, () => socket.destroy());
  socket.once('close', cancel);
}

function meaningOf(error: Error): ServiceError {
  switch (codeOf(error)) {
    case 'HPE_HEADER_OVERFLOW':
      return headersTooLarge();
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new ServiceError('request_timeout', { detail: 'The request did not arrive in time.' });
    default: {
      const reason = 'reason' in error && typeof error.reason === 'string' ? ` (${error.reason})` : '';
      return new ServiceError('invalid_request', { detail: `This is not HTTP as we can read it${reason}.` });
    }
  }
}

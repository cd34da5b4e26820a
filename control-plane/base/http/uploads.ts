// Bodies that the handler of a route reads itself, and the time limit for the arrival of any body.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Route, Upload } from './route.ts';

/** A body must arrive within this time, so that slow senders cannot hold connections. An upload must send a part of its body in it. */
export const REQUEST_MS_MAX = 60_000;
/** Time for the largest upload on a slow line. This is Node's own limit, which applies to all routes. */
export const UPLOAD_MS_MAX = 6 * 3_600_000;
/** After a refusal, incoming data is read and dropped for this long. A client that receives the refusal stops by itself. */
const LINGER_MS = 5_000;
/** How long the rest of a body is read before the response to a caller that closes its connection. */
const REST_MS_MAX = 1_000;

/** Bodies of the routes in `scope` are left unread. */
export function leaveUnread(scope: FastifyInstance): void {
  scope.removeAllContentTypeParsers();
  scope.addContentTypeParser('*', (_request, _payload, done) => done(null));
}

/** @throws ServiceError `unsupported_media_type` */
export function assertMediaType({ upload }: Route, { headers }: IncomingMessage): void {
  if (upload?.mediaTypes === undefined) return;
  const taken = Object.keys(upload.mediaTypes);
  const given = headers['content-type']?.split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (!taken.includes(given)) fail('unsupported_media_type', `Send the body with Content-Type: ${taken.join(' or ')}.`);
}

export function uploadOf(request: IncomingMessage): Upload {
  const { 'content-type': contentType = '', 'content-length': length } = request.headers;
  return { contentType, bytes: length === undefined ? undefined : Number(length), stream: request };
}

interface Arrival {
  request: IncomingMessage;
  response: ServerResponse;
  isUpload: boolean;
}

/** Calls `late` if the body does not arrive in time. Closes the connection if the body still arrives long after the response. */
export function limitArrival({ request, response, isUpload }: Arrival, clock: Clock, late: () => void): void {
  const { socket } = request;
  if (!hasBody(request)) return;
  const isComing = (): boolean => isIncomplete(request);
  let cancel = (): void => undefined;
  const look = (before: number): void => {
    cancel = clock.after(REQUEST_MS_MAX, () => {
      if (!isComing()) return;
      if (isUpload && socket.bytesRead > before) look(socket.bytesRead);
      else late();
    });
  };
  look(socket.bytesRead);
  request.once('close', () => cancel());
  response.once('finish', () => cancel());
  dropRest({ request, response }, clock);
}

export function hasBody({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return headers['content-length'] !== undefined || headers['transfer-encoding'] !== undefined;
}

/** Reads and drops what still arrives of a body after its response. Closes the connection if that takes long. */
export function dropRest({ request, response }: Pick<Arrival, 'request' | 'response'>, clock: Clock): void {
  const { socket } = request;
  response.once('finish', () => {
    // Node drops a body by itself only if nobody began to read it. A rest that is left would block the connection's next request.
    request.resume();
    if (!isIncomplete(request)) return;
    const cancel = clock.after(LINGER_MS, () => void (isIncomplete(request) && socket.destroy()));
    request.once('close', cancel);
  });
}

/**
 * Calls `send` when the response may be sent. A caller that closes its connection after the response, and that has not sent its whole body, reads
 * the response only if the rest was read first: Node would close at once, and the network would discard the response.
 */
export function afterRest(
  { request, response }: Pick<Arrival, 'request' | 'response'>,
  clock: Clock,
  send: () => void,
): void {
  if (response.shouldKeepAlive || !hasBody(request) || !isIncomplete(request)) return send();
  const cancel = clock.after(REST_MS_MAX, () => over());
  const over = (): void => {
    cancel();
    request.off('end', over).off('close', over);
    send();
  };
  request.once('end', over).once('close', over);
  request.resume();
}

/** False for a request of `inject`, which has no network, so that nothing of it can be late. */
function isIncomplete(request: IncomingMessage): boolean {
  return request.complete === false;
}

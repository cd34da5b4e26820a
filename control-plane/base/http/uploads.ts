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
  const { headers, socket } = request;
  if (headers['transfer-encoding'] === undefined && headers['content-length'] === undefined) return;
  // `inject` has no network, so nothing can be late.
  const isComing = (): boolean => request.complete === false;
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
  response.once('finish', () => {
    // Node drops a body by itself only if nobody began to read it. A rest that is left would block the connection's next request.
    request.resume();
    if (!isComing()) return;
    cancel();
    cancel = clock.after(LINGER_MS, () => void (isComing() && socket.destroy()));
  });
}

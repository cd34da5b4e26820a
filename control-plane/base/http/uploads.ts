// Bodies that the handler of a route reads itself, and how long any body may take to arrive.
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Route, Upload } from './route.ts';

/** A body must have arrived whole by then, so that slow senders cannot hold connections for ever; of an upload, a part of it. */
export const REQUEST_MS_MAX = 60_000;
/** The largest upload on a slow line. Node's own limit, which knows no routes. */
export const UPLOAD_MS_MAX = 6 * 3_600_000;
/** What still arrives after a refusal is read and dropped for so long: clients that hear of it stop by themselves. */
const LINGER_MS = 5_000;

/** Nothing reads the bodies of the routes that are added to `scope`. */
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

/** Calls `late` where the body does not arrive in time, and ends the connection of one that still comes long after its answer. */
export function limitArrival({ request, response, isUpload }: Arrival, clock: Clock, late: () => void): void {
  const { headers, socket } = request;
  if (headers['transfer-encoding'] === undefined && headers['content-length'] === undefined) return;
  // Without a network there is nothing that could be late.
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
    if (!isComing()) return;
    cancel();
    cancel = clock.after(LINGER_MS, () => void (isComing() && socket.destroy()));
  });
}

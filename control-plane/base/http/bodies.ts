// Bodies that are read whole before their handler runs: JSON, and forms with text fields.
//
// A refused body is no error for fastify, because fastify would close the connection at once. If a part of the body is unread then, the network
// discards the answer, and the sender sees a broken connection in place of the reason. So the refusal takes the place of the body, and the handler
// throws it. `limitArrival` reads and drops the rest.
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import { fail, ServiceError } from '../../../shared/errors.ts';
import { parseJson, TooManyValues } from '../../../shared/json.ts';
import { JSON_VALUES_MAX } from '../../../shared/limits.ts';
import { openPieces } from '../../../shared/pieces.ts';
import { FORM, readFields } from './multipart.ts';
import { unsupportedMediaType } from './problems.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    takesForm?: boolean;
  }
}

/** Reads JSON for all routes, and forms for routes with `takesForm`. Other routes refuse a form like any other body that is not JSON. */
export function takeBodies(app: FastifyInstance): void {
  app.addContentTypeParser('application/json', (request: FastifyRequest, payload: Readable) =>
    readOrRefuse(async () => jsonOf((await collect(request, payload)).toString())),
  );
  app.addContentTypeParser(FORM, (request: FastifyRequest, payload: Readable) =>
    readOrRefuse(async () => {
      if (request.routeOptions.config.takesForm !== true) throw unsupportedMediaType();
      return readFields(request.headers['content-type'] ?? '', await collect(request, payload));
    }),
  );
}

/** The body of a request. @throws ServiceError if it was refused */
export function wholeBody({ body }: FastifyRequest): unknown {
  if (body instanceof RefusedBody) throw body.refusal;
  return body;
}

class RefusedBody {
  readonly refusal: ServiceError;

  constructor(refusal: ServiceError) {
    this.refusal = refusal;
  }
}

async function readOrRefuse(read: () => Promise<unknown>): Promise<unknown> {
  try {
    return await read();
  } catch (error) {
    if (error instanceof ServiceError) return new RefusedBody(error);
    throw error;
  }
}

/** Rejects with `body_too_large`, or with the error of a connection that breaks. */
function collect({ headers, routeOptions }: FastifyRequest, payload: Readable): Promise<Buffer> {
  const { bodyLimit: bytesMax } = routeOptions;
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  if (Number(headers['content-length']) > bytesMax) {
    reject(bodyTooLarge(bytesMax));
    return promise;
  }
  const pieces = openPieces();
  const onData = (piece: Buffer): void => {
    if (pieces.bytes + piece.length <= bytesMax) return pieces.add(piece);
    payload.off('data', onData);
    reject(bodyTooLarge(bytesMax));
  };
  payload.on('data', onData);
  payload.once('end', () => resolve(Buffer.concat(pieces.list())));
  payload.once('error', reject);
  return promise;
}

function bodyTooLarge(bytesMax: number): ServiceError {
  return new ServiceError('body_too_large', { detail: `The body may have at most ${bytesMax} bytes.` });
}

function jsonOf(text: string): unknown {
  // Clients that always send a content type also send it with an empty body.
  if (text === '') return undefined;
  try {
    return parseJson(text, JSON_VALUES_MAX);
  } catch (error) {
    if (error instanceof TooManyValues)
      return fail('invalid_request', `The body has ${error.message}; send less in one request.`);
    return fail('malformed_json', {
      detail: `The body is not valid JSON: ${error instanceof Error ? error.message : ''}.`,
      cause: error,
    });
  }
}

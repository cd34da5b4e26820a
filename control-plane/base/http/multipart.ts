// Reads multipart/form-data as a stream (RFC 7578): fields as text, files as streams. No file is held in memory. Forms with text fields only are
// bodies for routes whose clients send a form instead of JSON.
import { Readable, Transform } from 'node:stream';
import { Busboy, type BusboyInstance } from '@fastify/busboy';
import { messageOf, ServiceError, failField } from '../../../shared/errors.ts';
import { BODY_BYTES_MAX, FORM_PARTS_MAX } from '../../../shared/limits.ts';
import { abandonedRequest } from './problems.ts';
import type { Upload } from './route.ts';
import { finished } from 'node:stream/promises';
import type { FastifyRequest } from 'fastify';

export interface FormFile {
  /** The name of the form field. */
  name: string;
  /** The file name that the sender gives, without a path; empty if there is none. */
  filename: string;
  stream: Readable;
}

/** Handles the parts in the order in which they arrive. Both functions may throw; then nothing more is read. */
interface FormReader {
  field(name: string, value: string): void;
  /** Must read the stream to its end, or throw. */
  file(file: FormFile): Promise<void>;
}

/**
 * The parser gets a body in slices, because it parses what it gets to the end. A body may have tens of thousands of empty parts, which it would go
 * through long after it has found too many of them.
 */
const SLICE_BYTES = 8 * 1024;

/**
 * Resolves when every part was read. Throws after every reader has ended. The rest of an aborted body stays unread.
 * @throws ServiceError `invalid_request` if the body is not a valid form, or its sender has left; and the errors of the reader
 */
export async function readForm(body: Upload, reader: FormReader): Promise<void> {
  // The sender may have left before, and the `error` of its body does not come again.
  if (body.stream.destroyed) throw abandonedRequest();
  const parser = openParser(body.contentType);
  const slices = openSlices();
  const over = Promise.withResolvers<void>();
  const stop = (error: unknown): void => {
    body.stream.unpipe(slices);
    slices.unpipe(parser);
    over.reject(error);
  };
  const files: { stream: Readable; work: Promise<void> }[] = [];
  parser.on('field', (name: string | undefined, value, _nameCut, valueCut) => {
    try {
      if (valueCut) throw formError(`the field ${name} is longer than ${BODY_BYTES_MAX} bytes`);
      reader.field(name ?? '', value);
    } catch (error) {
      stop(error);
    }
  });
  parser.on('file', (name: string | undefined, stream: Readable, filename: string | undefined) => {
    // If the body ends inside a file, the parser and the file's reader both throw. The parser's error is reported.
    stream.on('error', () => undefined);
    const work = reader.file({ name: name ?? '', filename: filename ?? '', stream });
    work.catch(stop);
    files.push({ stream, work });
  });
  parser.once('partsLimit', () => stop(formError(`it has more than ${FORM_PARTS_MAX} parts`)));
  parser.once('error', (error) => stop(formError(messageOf(error))));
  parser.once('finish', over.resolve);
  body.stream.once('error', stop);
  body.stream.pipe(slices).pipe(parser);
  try {
    await over.promise;
    await Promise.all(files.map(({ work }) => work));
  } catch (error) {
    for (const { stream } of files) stream.destroy(error instanceof Error ? error : undefined);
    await Promise.allSettled(files.map(({ work }) => work));
    throw error;
  }
}

type Fields = Record<string, string | null>;

export const FORM = 'multipart/form-data';
/** The value of a file in a form. No schema accepts it, so the refusal names the field. */
const FILE = null;

/** The fields of a form that has arrived whole. @throws ServiceError `invalid_request`, `validation_failed` for a field that comes twice */
export async function readFields(contentType: string, body: Buffer): Promise<Fields> {
  const fields = new Map<string, string | null>();
  const add = (name: string, value: string | null): void => {
    if (fields.has(name)) failField(name, 'must be sent once');
    fields.set(name, value);
  };
  const stream = Readable.from([body], { objectMode: false });
  await readForm(
    { contentType, bytes: body.length, stream },
    {
      field: add,
      file: async ({ name, stream: file }) => {
        add(name, FILE);
        await finished(file.resume());
      },
    },
  );
  return Object.fromEntries(fields);
}

/** Whether the body was sent as a form. */
export function isForm({ headers }: FastifyRequest): boolean {
  return headers['content-type']?.toLowerCase().startsWith(FORM) === true;
}

/** Passes a body on in pieces of at most SLICE_BYTES. */
function openSlices(): Transform {
  const slices = new Transform({
    transform: (piece: Buffer, _encoding, done) => {
      for (let from = 0; from < piece.length; from += SLICE_BYTES)
        slices.push(piece.subarray(from, from + SLICE_BYTES));
      done();
    },
  });
  return slices;
}

/** @throws ServiceError `invalid_request` if the header has no boundary */
function openParser(contentType: string): BusboyInstance {
  const limits = { fieldSize: BODY_BYTES_MAX, parts: FORM_PARTS_MAX, headerPairs: 16, headerSize: 8 * 1024 };
  try {
    return new Busboy({ headers: { 'content-type': contentType }, limits });
  } catch (error) {
    throw formError(messageOf(error));
  }
}

function formError(why: string): ServiceError {
  return new ServiceError('invalid_request', {
    detail: `The body is no multipart/form-data that can be read: ${why}.`,
  });
}

// Writes one blob to a store that speaks S3: a small one in one request, a larger one in parts, of which two at most are in memory.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import type { Log } from '../../../shared/log.ts';
import { openPieces } from '../../../shared/pieces.ts';
import { failTooLarge, failWritten, type StoredBlob, type WriteOptions } from './blobs.ts';
import { S3Refusal, type S3Requests } from './s3-requests.ts';

/** S3 takes no smaller parts, except for the last one. */
const PART_BYTES_MIN = 8 * 1024 ** 2;
const PARTS_MAX = 10_000;
/** The store keeps it with the object, so that a repeated write recognises its own object. */
const WRITE_ID = 'x-amz-meta-write';

export interface Target {
  object: string;
  /** Unique for this write. */
  writeId: string;
}

interface WriteDeps {
  requests: S3Requests;
  log: Log;
}

/**
 * Stores the whole source, or nothing.
 * @throws ServiceError `body_too_large`, `conflict`; S3Refusal, S3Silence; and the errors of `source`
 */
export async function writeObject(
  target: Target,
  source: AsyncIterable<Uint8Array>,
  { bytesMax, signal }: WriteOptions,
  deps: WriteDeps,
): Promise<Omit<StoredBlob, 'key'>> {
  const parts = openParts(target, Math.max(PART_BYTES_MIN, Math.ceil(bytesMax / PARTS_MAX)), signal, deps);
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    for await (const piece of source) {
      signal.throwIfAborted();
      bytes += piece.length;
      if (bytes > bytesMax) failTooLarge(bytesMax);
      hash.update(piece);
      await parts.take(piece);
    }
    signal.throwIfAborted();
    await parts.end();
  } catch (error) {
    await parts.abandon();
    throw error;
  }
  return { bytes, sha256: hash.digest('hex') };
}

interface Parts {
  take(piece: Uint8Array): Promise<void>;
  /** Makes the object from its parts. Before this, no reader can see any of it. */
  end(): Promise<void>;
  /** Removes the parts that the store has of an object that was not made. */
  abandon(): Promise<void>;
}

/** All parts but the last have the same size, because some stores demand it. */
function openParts(target: Target, partBytes: number, signal: AbortSignal, { requests, log }: WriteDeps): Parts {
  const { object, writeId } = target;
  const etags: string[] = [];
  let uploadId: string | undefined;
  let filling = openPieces();
  let onItsWay: Promise<void> = Promise.resolve();

  const sendPart = async (id: string, number: number, body: readonly Uint8Array[]): Promise<void> => {
    const query = { partNumber: String(number), uploadId: id };
    const { headers } = await requests.send({ method: 'PUT', object, query, body, signal });
    etags[number - 1] = headers.etag ?? '';
  };
  /** Waits for the part before, so that the source is read only as fast as the store takes it. */
  const flush = async (): Promise<void> => {
    const body = filling.list();
    const number = etags.length + 1;
    filling = openPieces();
    await onItsWay;
    uploadId ??= await beginParts(target, signal, requests);
    etags.push('');
    onItsWay = sendPart(uploadId, number, body);
    // This line only prevents an unhandled rejection. A failure of the part is reported when the next flush, or the end, awaits it.
    onItsWay.catch(() => undefined);
  };

  return {
    take: async (piece) => {
      for (let rest = piece; rest.length > 0;) {
        const taken = rest.subarray(0, partBytes - filling.bytes);
        filling.add(taken);
        rest = rest.subarray(taken.length);
        if (filling.bytes === partBytes) await flush();
      }
    },
    end: async () => {
      if (uploadId === undefined) {
        const headers = { ...ONCE, [WRITE_ID]: writeId };
        const body = filling.list();
        return make(target, requests, () => requests.send({ method: 'PUT', object, headers, body, signal }));
      }
      if (filling.bytes > 0) await flush();
      await onItsWay;
      const whole = { query: { uploadId }, headers: ONCE, body: [Buffer.from(completion(etags))] };
      await make(target, requests, () => requests.send({ method: 'POST', object, ...whole, signal }));
    },
    abandon: async () => {
      await onItsWay.catch(() => undefined);
      if (uploadId === undefined) return;
      await requests.send({ method: 'DELETE', object, query: { uploadId } }).catch((error: unknown) => {
        log.info({ object, err: error }, 'parts of a blob stay in the store until the sweep, which removes them');
      });
    },
  };
}

/** The store refuses to replace an object if the request has this header. */
const ONCE = { 'if-none-match': '*' };

async function beginParts({ object, writeId }: Target, signal: AbortSignal, requests: S3Requests): Promise<string> {
  const headers = { [WRITE_ID]: writeId };
  const { xml } = await requests.send({ method: 'POST', object, query: { uploads: '' }, headers, signal });
  return z.object({ UploadId: z.string() }).parse(xml).UploadId;
}

/**
 * Sends the request that makes the object. If its answer was lost, the repeated request is refused, although the object is there.
 * @throws ServiceError `conflict` if another write has made the object
 */
async function make({ object, writeId }: Target, requests: S3Requests, send: () => Promise<unknown>): Promise<void> {
  try {
    await send();
  } catch (error) {
    if (!(error instanceof S3Refusal) || ![404, 409, 412].includes(error.status)) throw error;
    const found = await requests.send({ method: 'HEAD', object }).catch(() => undefined);
    if (found?.headers[WRITE_ID] === writeId) return;
    if (found !== undefined) failWritten();
    throw error;
  }
}

/** The request body that names the parts of the whole object. */
function completion(etags: readonly string[]): string {
  const parts = etags.map((etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${etag}</ETag></Part>`);
  return `<CompleteMultipartUpload xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${parts.join('')}</CompleteMultipartUpload>`;
}

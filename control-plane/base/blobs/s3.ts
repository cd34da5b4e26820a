// The blob store in a store that speaks S3. Several control planes may share it: nothing about a blob is kept in the process.
import { Readable } from 'node:stream';
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import {
  type Blobs,
  type ByteRange,
  failFull,
  type OpenBlob,
  type Permission,
  type PresignedRequest,
  secondsUntil,
} from './blobs.ts';
import { attachment } from './content.ts';
import { newKey, ownerOf } from './keys.ts';
import {
  openS3Requests,
  S3Refusal,
  type S3Request,
  type S3Requests,
  type S3Settings,
  S3Silence,
} from './s3-requests.ts';
import { openObjectSweep } from './s3-sweep.ts';
import { writeObject } from './s3-writes.ts';

interface S3BlobsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
}

export function openS3Blobs(settings: S3Settings, deps: S3BlobsDeps): Blobs {
  const requests = openS3Requests(settings, deps.clock);
  const sweep = openObjectSweep({ ...deps, requests });
  const { endpoint, bucket } = settings;
  const explained: Explained = (work) =>
    work.catch((error: unknown) => explain(error, { endpoint, bucket, log: deps.log }));
  return {
    place: `${endpoint}/${bucket}`,
    newKey: (owner) => newKey(owner, deps.ids),
    write: async (key, source, options) => {
      const target = { object: objectOf(key), writeId: deps.ids.secret(16) };
      return { key, ...(await explained(writeObject(target, source, options, { requests, log: deps.log }))) };
    },
    open: (key) => explained(openObject(objectOf(key), requests, explained)),
    remove: async (key) => void (await explained(requests.send({ method: 'DELETE', object: objectOf(key) }))),
    disk: async () => undefined,
    presign: (permission) => presign(permission, requests, deps.clock.now()),
    presignAll: (permissions) =>
      Promise.all(permissions.map((permission) => presign(permission, requests, deps.clock.now()))),
    sweep: (claims, signal) => explained(sweep(claims, signal)),
  };
}

function objectOf(key: string): string {
  return `${ownerOf(key)}/${key}`;
}

type Explained = <T>(work: Promise<T>) => Promise<T>;

async function openObject(object: string, requests: S3Requests, explained: Explained): Promise<OpenBlob | undefined> {
  const found = await requests.send({ method: 'HEAD', object }).catch(async (error: unknown) => {
    if (!(error instanceof S3Refusal) || error.status >= 500) throw error;
    await assertAbsent(object, requests, error);
    return undefined;
  });
  if (found === undefined) return undefined;
  const { 'content-length': length, etag = '' } = found.headers;
  const bytes = z.coerce.number().int().parse(length);
  return {
    bytes,
    stream: (range = { first: 0, last: bytes - 1 }) =>
      Readable.from(explainedBytes(bytesOf({ object, etag }, range, requests), explained), { objectMode: false }),
    close: async () => undefined,
  };
}

/**
 * An answer to HEAD has no body. So the answer to GET tells whether only the object is missing, or whether the store refuses for another reason,
 * such as a missing bucket.
 */
async function assertAbsent(object: string, requests: S3Requests, refusal: S3Refusal): Promise<void> {
  try {
    (await requests.begin({ method: 'GET', object })).destroy();
  } catch (error) {
    if (error instanceof S3Refusal && error.code === 'NoSuchKey') return;
    throw error;
  }
  // The object was written between the two requests.
  if (refusal.status !== 404) throw refusal;
}

async function* explainedBytes(bytes: AsyncGenerator<Buffer>, explained: Explained): AsyncGenerator<Buffer> {
  try {
    for (;;) {
      const next = await explained(bytes.next());
      if (next.done === true) return;
      yield next.value;
    }
  } finally {
    // If the reader stops early, the connection to the store is closed too.
    await bytes.return(undefined);
  }
}

/** If an answer breaks off, the rest of the range is requested again. After this number of attempts without a new byte, the read fails. */
const BROKEN_MAX = 3;

/** Reads the bytes of one version of an object. */
async function* bytesOf(
  { object, etag }: { object: string; etag: string },
  { first, last }: ByteRange,
  requests: S3Requests,
): AsyncGenerator<Buffer> {
  let broken = 0;
  for (let next = first; next <= last;) {
    const range: S3Request = {
      method: 'GET',
      object,
      headers: { range: `bytes=${next}-${last}`, 'if-match': etag },
    };
    const answer: IncomingMessage = await requests.begin(range);
    try {
      for await (const piece of requests.bytesOf(answer)) {
        next += piece.length;
        broken = 0;
        yield piece;
      }
      if (next <= last) throw new S3Silence('the answer of the store is shorter than it should be');
    } catch (error) {
      broken += 1;
      if (!(error instanceof S3Silence) || broken === BROKEN_MAX) throw error;
    }
  }
}

async function presign(
  { method, key, expiresS, bytes, filename }: Permission,
  requests: S3Requests,
  nowMs: number,
): Promise<PresignedRequest> {
  const seconds = secondsUntil(expiresS, nowMs);
  const object = objectOf(key);
  if (method === 'GET') {
    const query = {
      'response-content-type': 'application/octet-stream',
      'response-cache-control': 'private, no-store',
      ...(filename === undefined ? {} : { 'response-content-disposition': attachment(filename) }),
    };
    return { method, url: await requests.presign({ method, object, query }, seconds), headers: {} };
  }
  if (bytes === undefined) throw new Error('a URL to write needs the length of the body');
  const headers = { 'if-none-match': '*' };
  const signed = { ...headers, 'content-length': String(bytes) };
  return { method, url: await requests.presign({ method, object, headers: signed }, seconds), headers };
}

/** Error codes of stores that have no space left. */
const FULL = ['QuotaExceeded', 'XMinioStorageFull', 'XMinioAdminBucketQuotaExceeded', 'InsufficientStorage'];

/** Code of the store -> what the operator can do. */
const REMEDIES: Record<string, string> = {
  InvalidAccessKeyId: 'the store does not know the key in access_key_file of blobs_s3',
  SignatureDoesNotMatch: 'secret_key_file of blobs_s3 does not belong to access_key_file',
  AccessDenied: 'the key of blobs_s3 needs the permissions to read, write, delete and list in this bucket',
  NoSuchBucket: 'make this bucket, or correct bucket and path_style of blobs_s3',
  AuthorizationHeaderMalformed: 'correct region of blobs_s3',
  PermanentRedirect: 'correct endpoint and region of blobs_s3',
  TemporaryRedirect: 'correct endpoint and region of blobs_s3',
  NotImplemented: 'use a store that knows conditional writes (If-None-Match: *)',
  RequestTimeTooSkewed: 'set the clock of this machine',
};

interface Store {
  endpoint: string;
  bucket: string;
  log: Log;
}

/** Logs what the operator can do, and tells the caller when to try again. Other errors are thrown unchanged. */
function explain(error: unknown, { endpoint, bucket, log }: Store): never {
  if (error instanceof ServiceError || !(error instanceof S3Refusal || error instanceof S3Silence)) throw error;
  const facts = { endpoint, bucket, err: error };
  if (error instanceof S3Refusal && (error.status === 507 || FULL.includes(error.code))) {
    log.error(
      { ...facts, remedy: 'make room in the store, or raise the quota of the bucket' },
      'the S3 store is full: uploads and videos are refused',
    );
    return failFull(error);
  }
  const code = error instanceof S3Refusal ? error.code : '';
  const remedy = REMEDIES[code] ?? 'check that the store runs and that this machine reaches endpoint of blobs_s3';
  log.error({ ...facts, remedy }, 'the S3 store did not do what was asked: files and videos are not available');
  return fail('unavailable', {
    detail: 'Files cannot be stored or read at the moment. Send the request again; the operator has been told.',
    retryAfterSeconds: RETRY_S,
    cause: error,
  });
}

const RETRY_S = 5;

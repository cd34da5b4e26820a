// The blob store: files of any size. Each is written once, completely or not at all, and is never held in memory. The files are on the local disk
// (`local-disk.ts`) or in a store that speaks S3 (`s3.ts`).
import type { Readable } from 'node:stream';
import { fail, ServiceError } from '../../../shared/errors.ts';
import type { BlobOwner } from './keys.ts';
import type { Claims } from './sweep.ts';

/** The longest life of a presigned URL. S3 allows no more. */
export const PRESIGNED_MS_MAX = 7 * 86_400_000;

export interface StoredBlob {
  key: string;
  bytes: number;
  /** SHA-256 of the content in hex. */
  sha256: string;
}

export interface WriteOptions {
  /** A write with more bytes is refused. */
  bytesMax: number;
  /** Aborts the write. */
  signal: AbortSignal;
}

export interface ByteRange {
  first: number;
  last: number;
}

export interface OpenBlob {
  /** The size of the whole blob. */
  bytes: number;
  /** Streams the bytes from `first` to `last`, both included, or the whole blob. Closes the blob at the end. */
  stream(range?: ByteRange): Readable;
  /** Closes the blob if nothing is to be read. */
  close(): Promise<void>;
}

/** One request that is allowed to anyone who has its URL. */
export interface Permission {
  method: 'GET' | 'PUT';
  key: string;
  /** Epoch seconds. The URL is invalid from this time on. */
  expiresS: number;
  /** Only for PUT: the exact length of the body. S3 can enforce an exact length, but no maximum. */
  bytes?: number;
  /** Only for GET: the name under which a browser saves the blob. */
  filename?: string;
}

export interface PresignedRequest {
  method: Permission['method'];
  url: string;
  /** The request must have these headers, beside its Content-Length. */
  headers: Record<string, string>;
}

export interface Blobs {
  /** The folder or the bucket of the blobs, in words for people. */
  readonly place: string;
  /** A new, unique key. The `owner` must store a row with the key soon after the write. */
  newKey(owner: BlobOwner): string;
  /**
   * Stores a blob durably, or throws and leaves nothing behind. A blob is written once.
   * @throws ServiceError `body_too_large`, `conflict` if the key exists, `storage_full`, `unavailable`; and the errors of `source`
   */
  write(key: string, source: AsyncIterable<Uint8Array>, options: WriteOptions): Promise<StoredBlob>;
  /** Undefined if the blob does not exist. */
  open(key: string): Promise<OpenBlob | undefined>;
  /** Does nothing if the blob does not exist. */
  remove(key: string): Promise<void>;
  /** Size and free space of the disk, and what blobs must leave free of it; undefined if there is no disk. */
  disk(): Promise<{ bytes: number; freeBytes: number; reserveBytes: number } | undefined>;
  /** Makes a URL for one request without an API key. @throws Error if it would be valid for longer than `PRESIGNED_MS_MAX` */
  presign(permission: Permission): Promise<PresignedRequest>;
  /** The same for many requests, in their order. This costs much less than one at a time. */
  presignAll(permissions: readonly Permission[]): Promise<PresignedRequest[]>;
  /** Removes leftovers of dead processes: incomplete blobs, and old blobs without a row. Returns their number. */
  sweep(claims: Claims, signal: AbortSignal): Promise<number>;
}

/**
 * Writes a blob while a caller waits, as `write` does.
 * @throws ServiceError `invalid_request` if the caller has left, because that is no error of ours
 */
export async function writeForCaller(
  blobs: Pick<Blobs, 'write'>,
  key: string,
  source: AsyncIterable<Uint8Array>,
  { bytesMax, gone }: { bytesMax: number; gone: AbortSignal },
): Promise<StoredBlob> {
  try {
    return await blobs.write(key, source, { bytesMax, signal: gone });
  } catch (error) {
    if (gone.aborted) fail('invalid_request', 'The connection ended before all of it was stored.');
    throw error;
  }
}

/**
 * Removes a blob that no row names. If the store is away, it has logged that, and the sweep removes the blob later: what the caller answers does not
 * depend on it.
 */
export async function removeUnnamed(blobs: Pick<Blobs, 'remove'>, key: string): Promise<void> {
  await blobs.remove(key).catch((error: unknown) => {
    if (!(error instanceof ServiceError)) throw error;
  });
}

/** How long a presigned URL is valid. @throws Error if that is less than a second, or longer than `PRESIGNED_MS_MAX` */
export function secondsUntil(expiresS: number, nowMs: number): number {
  const seconds = expiresS - Math.floor(nowMs / 1000);
  if (seconds < 1 || seconds > PRESIGNED_MS_MAX / 1000) throw new Error(`a URL cannot be valid for ${seconds} seconds`);
  return seconds;
}

export function failTooLarge(bytesMax: number): never {
  return fail('body_too_large', `What is stored may have at most ${bytesMax} bytes.`);
}

export function failWritten(): never {
  return fail('conflict', 'There is something under this key already, and it stays as it is.');
}

export function failFull(cause: unknown): never {
  const detail = 'There is no room to store this at the moment. Try again later; the operator has been told.';
  return fail('storage_full', { detail, cause });
}

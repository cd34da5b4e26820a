// The blob store: files of any size on the local disk. Each is written once, completely or not at all, and is never held in memory.
import { createHash } from 'node:crypto';
import { link, mkdir, open, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import {
  type DiskReserve,
  isCode,
  leavesReserve,
  measureDisk,
  syncDirectory,
  type BlobOwner,
  type Claims,
  sweepBlobs,
} from './sweep.ts';

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

export interface OpenBlob {
  /** The size of the whole blob. */
  bytes: number;
  /** Streams the bytes from `first` to `last`, both included, or the whole blob. Closes the file at the end. */
  stream(range?: { first: number; last: number }): Readable;
  /** Closes the file if nothing is to be read. */
  close(): Promise<void>;
}

export interface Blobs {
  /** A new, unique key. The `owner` must store a row with the key soon after the write. */
  newKey(owner: BlobOwner): string;
  /**
   * Stores a blob durably, or throws and leaves nothing behind. A blob is written once.
   * @throws ServiceError `body_too_large`, `conflict` if the key exists, `storage_full`; and the errors of `source`
   */
  write(key: string, source: AsyncIterable<Uint8Array>, options: WriteOptions): Promise<StoredBlob>;
  /** Undefined if the blob does not exist. A blob that is removed while it is read can be read to its end. */
  open(key: string): Promise<OpenBlob | undefined>;
  /** Does nothing if the blob does not exist. */
  remove(key: string): Promise<void>;
  /** Size and free space of the disk; undefined if the directory does not exist yet. */
  disk(): Promise<{ bytes: number; freeBytes: number } | undefined>;
  /** Removes leftovers of dead processes: incomplete files, and blobs older than an hour without a row. Returns their number. */
  sweep(claims: Claims, signal: AbortSignal): Promise<number>;
}

interface BlobsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** A write that would leave less free space is refused. */
  reserve: DiskReserve;
}

/** The free space is measured before each piece of this size. Parallel uploads can exceed the reserve by one piece each. */
const MEASURED_BYTES = 8 * 1024 ** 2;

/** The first write creates `directory`, readable for this user only. Only one process may use it at a time. */
export function openBlobs(directory: string, deps: BlobsDeps): Blobs {
  const halves = join(directory, 'halves');
  const whole = join(directory, 'whole');
  const writing = new Set<string>();
  const pathOf = (key: string): string => join(whole, ...placeOf(key));

  const write: Blobs['write'] = async (key, source, options) => {
    const name = deps.ids.secret(16);
    const half = join(halves, name);
    writing.add(name);
    try {
      await mkdir(halves, { recursive: true, mode: 0o700 });
      const guarded = guard(source, halves, deps.reserve);
      const stored = await writeHalf(half, guarded, { ...options, nowMs: deps.clock.now() });
      await keep(half, pathOf(key));
      return { key, ...stored };
    } catch (error) {
      if (isCode(error, 'EEXIST'))
        fail('conflict', 'There is something under this key already, and it stays as it is.');
      if (!isCode(error, 'ENOSPC') && !isCode(error, 'EDQUOT')) throw error;
      const told = 'the disk of the blobs is full up to its reserve: uploads and videos are refused';
      deps.log.error({ key, directory, err: error }, told);
      return fail('storage_full', {
        detail: 'There is no room to store this at the moment. Try again later; the operator has been told.',
        cause: error,
      });
    } finally {
      await rm(half, { force: true });
      writing.delete(name);
    }
  };

  return {
    newKey: (owner) => `${owner}-${deps.ids.prefixed('blob')}`,
    write,
    open: (key) => openBlob(pathOf(key)),
    remove: (key) => rm(pathOf(key), { force: true }),
    disk: () => measureDisk(directory),
    sweep: (claims, signal) => sweepBlobs({ ...deps, halves, whole, writing, pathOf }, claims, signal),
  };
}

/** The place is `<owner>/<two hex digits>/<key>`: no directory grows without bound, and no path contains a name from a caller. */
function placeOf(key: string): [string, string, string] {
  const owner = /^([a-z]+)-blob_[a-z0-9]+$/.exec(key)?.[1];
  if (owner === undefined) throw new Error(`${key} is not the key of a blob`);
  return [owner, createHash('sha256').update(key).digest('hex').slice(0, 2), key];
}

/** Passes `source` on, and throws ENOSPC if the next piece would use up the reserve. */
async function* guard(
  source: AsyncIterable<Uint8Array>,
  directory: string,
  reserve: DiskReserve,
): AsyncGenerator<Uint8Array> {
  let allowedBytes = 0;
  for await (const piece of source) {
    if (piece.length > allowedBytes) {
      const nextBytes = Math.max(piece.length, MEASURED_BYTES);
      if (await leavesReserve(directory, reserve, nextBytes)) allowedBytes = nextBytes;
      else if (await leavesReserve(directory, reserve, piece.length)) allowedBytes = piece.length;
      else throw Object.assign(new Error('the reserve of the disk begins here'), { code: 'ENOSPC' });
    }
    allowedBytes -= piece.length;
    yield piece;
  }
}

async function writeHalf(
  path: string,
  source: AsyncIterable<Uint8Array>,
  { bytesMax, signal, nowMs }: WriteOptions & { nowMs: number },
): Promise<Omit<StoredBlob, 'key'>> {
  const hash = createHash('sha256');
  let bytes = 0;
  const file = await open(path, 'wx', 0o600);
  try {
    for await (const piece of source) {
      signal.throwIfAborted();
      bytes += piece.length;
      if (bytes > bytesMax) fail('body_too_large', `What is stored may have at most ${bytesMax} bytes.`);
      hash.update(piece);
      await file.writeFile(piece);
    }
    signal.throwIfAborted();
    // The sweep uses this time as the age of the blob.
    await file.utimes(nowMs / 1000, nowMs / 1000);
    await file.sync();
  } finally {
    await file.close();
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** Moves a complete file to its place. It uses a link, because a rename would replace an existing file. */
async function keep(half: string, path: string): Promise<void> {
  const place = dirname(path);
  const made = await mkdir(place, { recursive: true, mode: 0o700 });
  await link(half, path);
  const above = made === undefined ? place : dirname(made);
  for (let each = place; each.length >= above.length; each = dirname(each)) await syncDirectory(each);
}

async function openBlob(path: string): Promise<OpenBlob | undefined> {
  const file = await open(path, 'r').catch((error: unknown) => {
    if (isCode(error, 'ENOENT')) return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  const { size } = await file.stat();
  return {
    bytes: size,
    stream: (range) => file.createReadStream(range === undefined ? {} : { start: range.first, end: range.last }),
    close: () => file.close(),
  };
}

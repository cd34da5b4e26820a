// The blob store: files of any size on the local disk, each written once, whole or not at all, and never held in memory.
import { createHash } from 'node:crypto';
import { link, mkdir, open, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock } from '../../../shared/clock.ts';
import { fail } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import { type DiskReserve, isCode, leavesReserve, measureDisk, syncDirectory } from './disk.ts';
import { type BlobOwner, type Claims, sweepBlobs } from './sweep.ts';

export interface StoredBlob {
  key: string;
  bytes: number;
  /** Of its content, in hex. */
  sha256: string;
}

export interface WriteOptions {
  /** One byte more is refused. */
  bytesMax: number;
  /** Gives the write up. */
  signal: AbortSignal;
}

export interface OpenBlob {
  /** Of the whole blob. */
  bytes: number;
  /** From `first` to `last` including both; without them all of it. Ends the use of the file. */
  stream(range?: { first: number; last: number }): Readable;
  /** Where nothing is to be read. */
  close(): Promise<void>;
}

export interface Blobs {
  /** A key that nobody has had. What is kept under it is the `owner`'s, who names it in a row of its own before long. */
  newKey(owner: BlobOwner): string;
  /**
   * Durable once it resolves; where it throws, nothing stays. A blob is written once.
   * @throws ServiceError `body_too_large`, `conflict` where there is a blob of this key, `storage_full`; and what `source` throws
   */
  write(key: string, source: AsyncIterable<Uint8Array>, options: WriteOptions): Promise<StoredBlob>;
  /** Undefined where there is no such blob. A blob that is removed while it is read is read to its end. */
  open(key: string): Promise<OpenBlob | undefined>;
  /** Nothing where there is no such blob. */
  remove(key: string): Promise<void>;
  /** Of the disk that blobs are on; undefined where there is none yet. */
  disk(): Promise<{ bytes: number; freeBytes: number } | undefined>;
  /** Removes what processes that died have left: halves, and blobs older than an hour that no row names. Returns how many. */
  sweep(claims: Claims, signal: AbortSignal): Promise<number>;
}

interface BlobsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** A write that would leave less free is refused. */
  reserve: DiskReserve;
}

/** The disk is measured before each of these: uploads that run side by side overshoot the reserve by no more. */
const MEASURED_BYTES = 8 * 1024 ** 2;

/** `directory` is made by the first write, for this user alone. One process uses it at a time. */
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

/** `<owner>/<two hex digits>/<key>`: no directory grows without bound, and no name of a caller is part of a path. */
function placeOf(key: string): [string, string, string] {
  const owner = /^([a-z]+)-blob_[a-z0-9]+$/.exec(key)?.[1];
  if (owner === undefined) throw new Error(`${key} is not the key of a blob`);
  return [owner, createHash('sha256').update(key).digest('hex').slice(0, 2), key];
}

/** Passes on what `source` gives, and ends with ENOSPC if the next piece would use up the reserve. */
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
    // The sweep goes by this age.
    await file.utimes(nowMs / 1000, nowMs / 1000);
    await file.sync();
  } finally {
    await file.close();
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** Gives a half its place. A link, because a rename would replace what is there. */
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

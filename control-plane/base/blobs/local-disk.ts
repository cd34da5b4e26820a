// The blob store on the local disk. A blob is written to `halves`, counted and hashed on the way, and linked to its place when it is whole.
import { createHash } from 'node:crypto';
import { link, mkdir, open, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../../shared/clock.ts';
import { codeOf } from '../../../shared/errors.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import {
  type Blobs,
  failFull,
  failTooLarge,
  failWritten,
  type OpenBlob,
  type Permission,
  type PresignedRequest,
  secondsUntil,
  type StoredBlob,
  type WriteOptions,
} from './blobs.ts';
import { newKey, ownerOf } from './keys.ts';
import type { PresignedUrls } from './presigned-urls.ts';
import { type DiskReserve, leavesReserve, measureDisk, reserveOf, sweepBlobs, syncDirectory } from './sweep.ts';

interface DiskBlobsDeps {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** A write that would leave less free space is refused. */
  reserve: DiskReserve;
  /** Makes the URLs that `routes.ts` serves. */
  presignedUrls: Pick<PresignedUrls, 'signer'>;
}

/** The free space is measured before each piece of this size. Parallel uploads can exceed the reserve by one piece each. */
const MEASURED_BYTES = 8 * 1024 ** 2;

/** A file is read in pieces of this size. Smaller ones take more time, because each waits for another thread. */
const READ_BYTES = 512 * 1024;

/** The first write creates `directory`, readable for this user only. Only one process may use it at a time. */
export function openDiskBlobs(directory: string, deps: DiskBlobsDeps): Blobs {
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
      const takeRoom = openRoom(halves, deps.reserve);
      const stored = await writeHalf(half, source, { ...options, takeRoom, now: deps.clock.now });
      await keep(half, pathOf(key));
      return { key, ...stored };
    } catch (error) {
      if (codeOf(error) === 'EEXIST') failWritten();
      if (!['ENOSPC', 'EDQUOT'].includes(codeOf(error) ?? '')) throw error;
      const remedy = 'free disk space, or lower disk_reserve';
      deps.log.error(
        { key, directory, remedy, err: error },
        'the disk of the blobs is full up to its reserve: uploads and videos are refused',
      );
      return failFull(error);
    } finally {
      await rm(half, { force: true });
      writing.delete(name);
    }
  };

  const allowed = (permission: Permission, urlOf: (permission: Permission) => string): PresignedRequest => {
    secondsUntil(permission.expiresS, deps.clock.now());
    return { method: permission.method, url: urlOf(permission), headers: {} };
  };

  return {
    place: directory,
    newKey: (owner) => newKey(owner, deps.ids),
    write,
    open: (key) => openBlob(pathOf(key)),
    remove: (key) => rm(pathOf(key), { force: true }),
    disk: async () => {
      const disk = await measureDisk(directory);
      return { ...disk, reserveBytes: reserveOf(disk, deps.reserve) };
    },
    presign: async (permission) => allowed(permission, await deps.presignedUrls.signer()),
    presignAll: async (permissions) => {
      const urlOf = await deps.presignedUrls.signer();
      return permissions.map((permission) => allowed(permission, urlOf));
    },
    sweep: (claims, signal) => sweepBlobs({ ...deps, halves, whole, writing }, claims, signal),
  };
}

/** The place is `<owner>/<two hex digits>/<key>`, so that no directory grows without bound. */
function placeOf(key: string): [string, string, string] {
  return [ownerOf(key), createHash('sha256').update(key).digest('hex').slice(0, 2), key];
}

/** Called before each piece of a write, when the piece before it is on the disk. Throws ENOSPC if the piece would use up the reserve. */
type TakeRoom = (bytes: number) => Promise<void>;

function openRoom(directory: string, reserve: DiskReserve): TakeRoom {
  let allowedBytes = 0;
  return async (bytes) => {
    if (bytes > allowedBytes) {
      const nextBytes = Math.max(bytes, MEASURED_BYTES);
      if (await leavesReserve(directory, reserve, nextBytes)) allowedBytes = nextBytes;
      else if (await leavesReserve(directory, reserve, bytes)) allowedBytes = bytes;
      else throw Object.assign(new Error('the reserve of the disk begins here'), { code: 'ENOSPC' });
    }
    allowedBytes -= bytes;
  };
}

async function writeHalf(
  path: string,
  source: AsyncIterable<Uint8Array>,
  { bytesMax, signal, takeRoom, now }: WriteOptions & { takeRoom: TakeRoom; now: () => number },
): Promise<Omit<StoredBlob, 'key'>> {
  const hash = createHash('sha256');
  let bytes = 0;
  let written: Promise<void> = Promise.resolve();
  const file = await open(path, 'wx', 0o600);
  try {
    for await (const piece of source) {
      signal.throwIfAborted();
      bytes += piece.length;
      if (bytes > bytesMax) failTooLarge(bytesMax);
      await written;
      await takeRoom(piece.length);
      written = file.writeFile(piece);
      // This line only prevents an unhandled rejection. A failure of the write is reported when the next piece, or the end, awaits it.
      written.catch(() => undefined);
      // The piece is hashed while another thread writes it.
      hash.update(piece);
    }
    await written;
    signal.throwIfAborted();
    // The sweep reads the age of the blob from this time. An upload may take hours, and its row is written after it.
    const seconds = now() / 1000;
    await file.utimes(seconds, seconds);
    await file.sync();
  } finally {
    await written.catch(() => undefined);
    await file.close();
  }
  return { bytes, sha256: hash.digest('hex') };
}

/** Moves a complete file to its place. It uses a link, because a rename would replace an existing file. */
async function keep(half: string, path: string): Promise<void> {
  const place = dirname(path);
  const firstMade = await mkdir(place, { recursive: true, mode: 0o700 });
  await link(half, path);
  // A new name survives a crash only if its directory is flushed. So each directory is flushed up to the one that existed before.
  const above = firstMade === undefined ? place : dirname(firstMade);
  for (let each = place; each.length >= above.length; each = dirname(each)) await syncDirectory(each);
}

async function openBlob(path: string): Promise<OpenBlob | undefined> {
  const file = await open(path, 'r').catch((error: unknown) => {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  });
  if (file === undefined) return undefined;
  const { size } = await file.stat();
  return {
    bytes: size,
    stream: (range) =>
      file.createReadStream({
        highWaterMark: READ_BYTES,
        ...(range === undefined ? {} : { start: range.first, end: range.last }),
      }),
    close: () => file.close(),
  };
}

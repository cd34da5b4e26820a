// A blob store of its own on a virtual clock, on the local disk or in S3, for the tests of base/blobs.
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import type { Blobs, WriteOptions } from '../../../../control-plane/base/blobs/blobs.ts';
import { openDiskBlobs } from '../../../../control-plane/base/blobs/local-disk.ts';
import { type PresignedUrls } from '../../../../control-plane/base/blobs/presigned-urls.ts';
import { openUrlKeys, type UrlKeys } from '../../../../control-plane/base/blobs/url-keys.ts';
import { openS3Blobs } from '../../../../control-plane/base/blobs/s3.ts';
import type { Db } from '../../../../control-plane/base/db/db.ts';
import { ServiceError } from '../../../../shared/errors.ts';
import { createIds } from '../../../../shared/ids.ts';
import { createLog } from '../../../../shared/log.ts';
import { systemRng } from '../../../../shared/rng.ts';
import { openTestDb } from '../../../kit/databases.ts';
import { type S3Server, startS3Server } from '../../../kit/s3-server.ts';
import { type VirtualClock, virtualClock, whileTimePasses } from '../../../kit/virtual-clock.ts';

export const BACKENDS = ['local disk', 'S3'] as const;
export type Backend = (typeof BACKENDS)[number];

/** The folder of the local disk. */
export let directory: string;
export let s3: S3Server;
export let clock: VirtualClock;
export let blobs: Blobs;
let current: Backend;

const HOUR_MS = 3_600_000;
/** The sweep removes a blob without a row if it is this old. */
export const ORPHAN_MS: Record<Backend, number> = { 'local disk': HOUR_MS, S3: 24 * HOUR_MS };

/** Closes the store after each test. */
export function openStoreForEachTest(backend: Backend = 'local disk'): void {
  beforeEach(async () => {
    current = backend;
    clock = virtualClock();
    directory = mkdtempSync(join(tmpdir(), 'blobs-'));
    if (backend === 'S3') s3 = await startS3Server(clock, { pageMax: 2 });
    blobs = reopened();
  });
  afterEach(async () => {
    rmSync(directory, { recursive: true });
    if (backend === 'S3') await s3.close();
  });
}

/** Tests that ask for no URL use it. */
export const NO_URLS = { signer: () => Promise.reject(new Error('nobody asks for a URL here')) };

/** The store of the next process on the same files. Those of the local disk make their URLs with `presignedUrls`. */
export function reopened(presignedUrls: Pick<PresignedUrls, 'signer'> = NO_URLS): Blobs {
  const core = { clock, ids: createIds(clock, systemRng()), log: createLog('test', 'silent') };
  if (current === 'S3') return openS3Blobs(s3.settings, core);
  return openDiskBlobs(directory, { ...core, presignedUrls, reserve: { share: 0, bytes: 0 } });
}

/** Paths of all files below the folder. */
export function filesOnDisk(): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(directory.length + 1));
}

/** Everything that the store holds, with what is not complete. */
export function everything(): string[] {
  return current === 'S3' ? [...s3.objects.keys(), ...s3.uploads.keys()] : filesOnDisk();
}

export const AMPLE: WriteOptions = { bytesMax: 100_000_000, signal: new AbortController().signal };

export async function* pieces(...texts: string[]): AsyncGenerator<Uint8Array> {
  for (const text of texts) yield Buffer.from(text);
}

/** The content of a blob; undefined if it does not exist. */
export async function contentOf(key: string): Promise<string | undefined> {
  const blob = await blobs.open(key);
  return blob === undefined ? undefined : (await readAll(blob.stream())).toString();
}

export async function readAll(stream: Iterable<unknown> | AsyncIterable<unknown>): Promise<Buffer> {
  const read: Buffer[] = [];
  for await (const piece of stream) read.push(piece as Buffer);
  return Buffer.concat(read);
}

/** The code with which `work` was refused. */
export const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'done',
    (error: unknown) => (error instanceof ServiceError ? error.code : String(error)),
  );

/** Moves the clock on until `work` is over, because a repeated request waits. */
export function waitedFor<T>(work: Promise<T>): Promise<T> {
  // The steps are small: the work also waits for real input, and a signature of the store is valid for minutes.
  return whileTimePasses(clock, work, 20);
}

const ROOM = [
  { room: 'base/blobs', directory: new URL('../../../../control-plane/base/blobs/migrations/', import.meta.url) },
];

/** The keys of URLs in a database of their own. */
export async function openKeys(): Promise<{ db: Db; keys: UrlKeys }> {
  const db = await openTestDb(ROOM, clock);
  return { db, keys: openUrlKeys({ db, clock, ids: createIds(clock, systemRng()) }) };
}

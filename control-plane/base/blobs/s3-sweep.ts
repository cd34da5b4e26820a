// Removes from a store that speaks S3 what dead processes left: parts of blobs that were never made, and blobs without a row.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { isKeyOf } from './keys.ts';
import type { S3Request, S3Requests } from './s3-requests.ts';
import type { Claims } from './sweep.ts';

/**
 * S3 counts the age of a blob from the beginning of its upload, so this is far longer than the longest upload. The clock of S3 may differ from
 * ours by minutes.
 */
const LEFT_MS = 24 * 3_600_000;

/** A sweep ends long before its loop counts as hanging, also if the store is slow or much is to be removed. The next sweep goes on from there. */
const SWEEP_MS_MAX = 30_000;
const REMOVED_AT_ONCE = 16;

interface SweepDeps {
  clock: Clock;
  log: Log;
  requests: S3Requests;
}

/** The returned function sweeps for a limited time, and returns the number of removed things. */
export function openObjectSweep(deps: SweepDeps): (claims: Claims, signal: AbortSignal) => Promise<number> {
  const { clock, log } = deps;
  let walk: AsyncGenerator<number> | undefined;
  return async (claims, signal) => {
    const untilMs = clock.monotonicMs() + SWEEP_MS_MAX;
    let removed = 0;
    while (!signal.aborted && clock.monotonicMs() < untilMs) {
      // A walk keeps the claims and the signal with which it began. Those of a process never change.
      walk ??= walkOver(claims, deps, signal);
      // A walk that has failed is over, so the next sweep begins another one.
      const step = await walk.next().catch((error: unknown) => {
        walk = undefined;
        throw error;
      });
      if (step.done === true) {
        walk = undefined;
        break;
      }
      removed += step.value;
    }
    if (removed > 0) log.info({ removed }, 'blobs and parts that dead processes left in the S3 store were removed');
    return removed;
  };
}

/** Goes once through the whole store in short steps. Yields the number of things that a step removed. */
async function* walkOver(claims: Claims, deps: SweepDeps, signal: AbortSignal): AsyncGenerator<number> {
  const { requests } = deps;
  for (const [owner, claimed] of Object.entries(claims)) {
    for await (const old of oldObjects(owner, deps, signal)) {
      const named = new Set(old.length === 0 ? [] : await claimed(old));
      const orphans = old.filter((key) => !named.has(key)).map((key) => ({ object: `${owner}/${key}` }));
      yield* removeAll(orphans, requests, signal);
    }
  }
  for await (const parts of oldParts(deps, signal)) yield* removeAll(parts, requests, signal);
}

type Leftover = Pick<S3Request, 'object' | 'query'>;

async function* removeAll(all: Leftover[], requests: S3Requests, signal: AbortSignal): AsyncGenerator<number> {
  for (let i = 0; i < all.length; i += REMOVED_AT_ONCE) {
    const some = all.slice(i, i + REMOVED_AT_ONCE);
    await Promise.all(some.map((each) => requests.send({ method: 'DELETE', ...each, signal })));
    yield some.length;
  }
  // A page without leftovers is a step too, because listing takes time.
  yield 0;
}

const ObjectPage = z.object({
  Contents: z.array(z.object({ Key: z.string(), LastModified: z.coerce.date() })).default([]),
  NextContinuationToken: z.string().optional(),
});

/** The keys of an owner's old blobs, page by page. */
async function* oldObjects(
  owner: string,
  { clock, requests }: SweepDeps,
  signal: AbortSignal,
): AsyncGenerator<string[]> {
  const prefix = `${owner}/`;
  let from: Record<string, string> | undefined = {};
  while (from !== undefined && !signal.aborted) {
    const query: Record<string, string> = { 'list-type': '2', prefix, ...from };
    const page = ObjectPage.parse((await requests.send({ method: 'GET', query, signal })).xml);
    const isOld = ({ LastModified: at }: { LastModified: Date }): boolean => at.getTime() <= clock.now() - LEFT_MS;
    const keys = page.Contents.filter(isOld).map(({ Key: object }) => object.slice(prefix.length));
    yield keys.filter((key) => isKeyOf(owner, key));
    const next = page.NextContinuationToken;
    from = next === undefined ? undefined : { 'continuation-token': next };
  }
}

const PartsPage = z.object({
  Upload: z.array(z.object({ Key: z.string(), UploadId: z.string(), Initiated: z.coerce.date() })).default([]),
  IsTruncated: z.string().optional(),
  NextKeyMarker: z.string().optional(),
  NextUploadIdMarker: z.string().optional(),
});

/** The old parts of blobs that were never made, page by page. */
async function* oldParts({ clock, requests }: SweepDeps, signal: AbortSignal): AsyncGenerator<Leftover[]> {
  let from: Record<string, string> | undefined = {};
  while (from !== undefined && !signal.aborted) {
    const query: Record<string, string> = { uploads: '', ...from };
    const page = PartsPage.parse((await requests.send({ method: 'GET', query, signal })).xml);
    yield page.Upload.filter(({ Key: object, Initiated: begun }) => {
      const [owner = '', key = ''] = object.split('/', 2);
      return isKeyOf(owner, key) && begun.getTime() <= clock.now() - LEFT_MS;
    }).map(({ Key: object, UploadId: uploadId }) => ({ object, query: { uploadId } }));
    const { NextKeyMarker: keyMarker, NextUploadIdMarker: idMarker } = page;
    const hasNext = page.IsTruncated === 'true' && keyMarker !== undefined && idMarker !== undefined;
    from = hasNext ? { 'key-marker': keyMarker, 'upload-id-marker': idMarker } : undefined;
  }
}

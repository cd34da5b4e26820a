// Removes from a store that speaks S3 what dead processes left: parts of blobs that were never made, and blobs without a row.
import { z } from 'zod';
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import { ownerOf } from './blobs.ts';
import type { S3Requests } from './s3-requests.ts';
import type { Claims } from './sweep.ts';

/**
 * S3 counts the age of a blob from the beginning of its upload, so this is far longer than the longest upload. The clock of S3 may differ from
 * ours by minutes.
 */
const LEFT_MS = 24 * 3_600_000;

interface Ground {
  clock: Clock;
  log: Log;
  requests: S3Requests;
}

/** Returns the number of removed things. */
export async function sweepObjects(ground: Ground, claims: Claims, signal: AbortSignal): Promise<number> {
  let removed = 0;
  for (const [owner, claimed] of Object.entries(claims)) {
    for await (const old of oldObjects(owner, ground, signal)) {
      const named = new Set(old.length === 0 ? [] : await claimed(old));
      for (const key of old.filter((each) => !named.has(each))) {
        await ground.requests.send({ method: 'DELETE', object: `${owner}/${key}`, signal });
        removed += 1;
      }
    }
  }
  removed += await sweepParts(ground, signal);
  if (removed > 0)
    ground.log.info({ removed }, 'blobs and parts that dead processes left in the S3 store were removed');
  return removed;
}

const ObjectPage = z.object({
  Contents: z.array(z.object({ Key: z.string(), LastModified: z.coerce.date() })).default([]),
  NextContinuationToken: z.string().optional(),
});

/** The keys of an owner's old blobs, page by page. */
async function* oldObjects(owner: string, { clock, requests }: Ground, signal: AbortSignal): AsyncGenerator<string[]> {
  const prefix = `${owner}/`;
  let from: Record<string, string> | undefined = {};
  while (from !== undefined && !signal.aborted) {
    const query: Record<string, string> = { 'list-type': '2', prefix, ...from };
    const page = ObjectPage.parse((await requests.send({ method: 'GET', query, signal })).xml);
    const isOld = ({ LastModified: at }: { LastModified: Date }): boolean => at.getTime() <= clock.now() - LEFT_MS;
    const keys = page.Contents.filter(isOld).map(({ Key: object }) => object.slice(prefix.length));
    yield keys.filter((key) => isOurs(key, owner));
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

async function sweepParts({ clock, requests }: Ground, signal: AbortSignal): Promise<number> {
  let removed = 0;
  let from: Record<string, string> | undefined = {};
  while (from !== undefined && !signal.aborted) {
    const query: Record<string, string> = { uploads: '', ...from };
    const page = PartsPage.parse((await requests.send({ method: 'GET', query, signal })).xml);
    for (const { Key: object, UploadId: uploadId, Initiated: begun } of page.Upload) {
      const [owner = '', key = ''] = object.split('/', 2);
      if (!isOurs(key, owner) || begun.getTime() > clock.now() - LEFT_MS) continue;
      await requests.send({ method: 'DELETE', object, query: { uploadId }, signal });
      removed += 1;
    }
    const { NextKeyMarker: keyMarker, NextUploadIdMarker: idMarker } = page;
    const hasNext = page.IsTruncated === 'true' && keyMarker !== undefined && idMarker !== undefined;
    from = hasNext ? { 'key-marker': keyMarker, 'upload-id-marker': idMarker } : undefined;
  }
  return removed;
}

/** Whether the key is one of this owner. The bucket may also hold objects of others. */
function isOurs(key: string, owner: string): boolean {
  try {
    return ownerOf(key) === owner;
  } catch {
    return false;
  }
}

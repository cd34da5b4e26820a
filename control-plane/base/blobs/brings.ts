// What this room adds to the house: routes, the sweep loop, disk metrics and the keys of URLs.
import type { Clock } from '../../../shared/clock.ts';
import type { Log } from '../../../shared/log.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import { type Measure, one } from '../http/metrics.ts';
import type { Blobs } from './blobs.ts';
import type { PresignedUrls } from './presigned-urls.ts';
import type { UrlKeys } from './url-keys.ts';
import { blobRoutes } from './routes.ts';
import { tellMissing } from './missing.ts';
import type { Claims } from './sweep.ts';
import { urlKeyRoutes } from './operator-routes.ts';
import { type Forgets, inPieces } from '../db/pieces.ts';

/** Nothing depends on this loop. Its first run is at the start and removes incomplete files of a dead process. */
const SWEEP_PERIOD_MS = 600_000;

interface Deps {
  clock: Clock;
  log: Log;
  blobs: Blobs;
  presignedUrls: PresignedUrls;
  urlKeys: UrlKeys;
  /** One function for each owner returns those of the keys that have a row. A blob without a row is removed. */
  namedBy: Claims;
}

export function blobsBrings({ clock, log, blobs, presignedUrls, urlKeys, namedBy }: Deps) {
  const sweep: LoopOptions = {
    name: 'blobs',
    periodMs: SWEEP_PERIOD_MS,
    run: async (signal) => void (await blobs.sweep(namedBy, signal)),
  };
  const forgets: Forgets = {
    what: 'url_keys',
    run: (signal) => inPieces(clock.now(), (piece) => urlKeys.forget(piece), signal),
  };
  return {
    routes: blobRoutes({ blobs: tellMissing(blobs, namedBy, log), presignedUrls, clock }),
    operatorRoutes: urlKeyRoutes(urlKeys),
    loops: [sweep],
    measures: diskMeasures(blobs),
    forgets: [forgets],
  };
}

/** The metrics are 0 if the blobs are in S3. */
function diskMeasures(blobs: Blobs): Measure[] {
  const measure = (name: string, help: string, of: 'bytes' | 'freeBytes' | 'reserveBytes'): Measure => ({
    name,
    help,
    kind: 'gauge',
    read: async () => one((await blobs.disk())?.[of] ?? 0),
  });
  return [
    measure('svc_blobs_disk_bytes', 'Size of the disk under `blobs_dir`', 'bytes'),
    measure('svc_blobs_disk_free_bytes', 'Free bytes of that disk', 'freeBytes'),
    measure(
      'svc_blobs_disk_reserve_bytes',
      'Bytes of that disk that uploads and videos must leave free',
      'reserveBytes',
    ),
  ];
}

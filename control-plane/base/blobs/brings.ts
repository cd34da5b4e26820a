// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { LoopOptions } from '../../../shared/loop.ts';
import { type Measure, one } from '../http/metrics.ts';
import type { Blobs } from './blobs.ts';
import type { PresignedUrls } from './presigned-urls.ts';
import { blobRoutes } from './routes.ts';
import type { Claims } from './sweep.ts';

/** Nothing waits for it. The first run is at the start, and removes the halves of a process that died. */
const SWEEP_PERIOD_MS = 600_000;

interface Deps {
  clock: Clock;
  blobs: Blobs;
  presignedUrls: PresignedUrls;
  /** By owner: of these keys, those that a row of the room names. A blob that none of them names is removed. */
  namedBy: Claims;
}

export function blobsBrings({ clock, blobs, presignedUrls, namedBy }: Deps) {
  const sweep: LoopOptions = {
    name: 'blobs',
    periodMs: SWEEP_PERIOD_MS,
    run: async (signal) => void (await blobs.sweep(namedBy, signal)),
  };
  return { routes: blobRoutes({ blobs, presignedUrls, clock }), loops: [sweep], measures: diskMeasures(blobs) };
}

/** 0 before the first blob. */
function diskMeasures(blobs: Blobs): Measure[] {
  const measure = (name: string, help: string, of: 'bytes' | 'freeBytes'): Measure => ({
    name,
    help,
    kind: 'gauge',
    read: async () => one((await blobs.disk())?.[of] ?? 0),
  });
  return [
    measure('svc_blobs_disk_bytes', 'Size of the disk under `blobs_dir`', 'bytes'),
    measure('svc_blobs_disk_free_bytes', 'Free bytes of that disk', 'freeBytes'),
  ];
}

// What this room brings to the house.
import type { Clock } from '../../../shared/clock.ts';
import type { Blobs } from '../../base/blobs/blobs.ts';
import { type Db, sql } from '../../base/db/db.ts';
import { type Forgets, inPieces } from '../../base/db/pieces.ts';
import type { Feed } from '../../base/events/events.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { countDue, type DueRows } from '../../base/http/overview.ts';
import type { Billed } from '../../money/ledger/wallets.ts';
import { videoRoutes } from './routes.ts';
import { CHARGE_KIND } from './states.ts';
import { countByStatus, forgetDeleted } from './store.ts';
import { videoHoldFaults, videoProof } from './verify.ts';
import type { Videos } from './videos.ts';

/** A client that lists its videos or asks about one has noticed by then that it is gone. */
const DELETED_KEEP_MS = 24 * 3_600_000;

interface Deps {
  db: Db;
  clock: Clock;
  cursors: Cursors;
  blobs: Blobs;
  videos: Videos;
}

export function videosBrings({ db, clock, cursors, blobs, videos }: Deps) {
  const forgets: Forgets = {
    what: 'deleted_videos',
    run: (signal) =>
      inPieces(
        clock.now() - DELETED_KEEP_MS,
        (piece) => db.tx('videos.forget', (tx) => forgetDeleted(tx, piece)),
        signal,
      ),
  };
  return {
    routes: videoRoutes({ videos, cursors, blobs }),
    drivers: [videos.driver],
    dueRows: [DUE_JOBS],
    measures: measures(db, videos),
    forgets: [forgets],
    charges: videoProof,
    billed: { [CHARGE_KIND]: { section: 'video', by: 'model' } } satisfies Billed,
    invariants: [videoHoldFaults],
    feeds: [{ of: 'video', scope: 'serverless:write', describe: videos.describe } satisfies Feed],
    close: () => videos.close(),
  };
}

const DUE_JOBS: DueRows = {
  kind: 'video_jobs',
  done: { driver: 'videos' },
  count: (query, nowMs) => countDue(query, sql`select due_ms from video_jobs where due_ms <= ${nowMs}`),
};

function measures(db: Db, { counts }: Videos): Measure[] {
  return [
    {
      name: 'svc_videos',
      help: 'Video jobs that have not ended, by status',
      kind: 'gauge',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
    {
      name: 'svc_videos_total',
      help: 'Video jobs by how they ended',
      kind: 'counter',
      labels: ['model', 'status'],
      read: () => counts.endings().map(({ model, status, count }) => ({ labels: { model, status }, value: count })),
    },
    {
      name: 'svc_inference_upstream_failures_total',
      help: 'Requests that a model server refused or failed to answer',
      kind: 'counter',
      everywhere: true,
      labels: ['upstream'],
      read: () => counts.failures().map(({ upstream, count }) => ({ labels: { upstream }, value: count })),
    },
  ];
}

// What this room brings to the house.
import type { Blobs } from '../../base/blobs/blobs.ts';
import { type Db, sql } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/events.ts';
import type { Cursors } from '../../base/http/cursors.ts';
import type { Measure } from '../../base/http/metrics.ts';
import { countDue, type DueRows } from '../../base/http/overview.ts';
import type { Billed } from '../../money/ledger/wallets.ts';
import { videoRoutes } from './routes.ts';
import { CHARGE_KIND } from './states.ts';
import { countByStatus } from './store.ts';
import { videoHoldFaults, videoProof } from './verify.ts';
import type { Videos } from './videos.ts';

interface Deps {
  db: Db;
  cursors: Cursors;
  blobs: Blobs;
  videos: Videos;
}

export function videosBrings({ db, cursors, blobs, videos }: Deps) {
  return {
    routes: videoRoutes({ videos, cursors, blobs }),
    drivers: [videos.driver],
    dueRows: [DUE_JOBS],
    measures: measures(db, videos),
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
      labels: ['upstream'],
      read: () => counts.failures().map(({ upstream, count }) => ({ labels: { upstream }, value: count })),
    },
  ];
}

// The dependencies of the files of this room, and the counters among them.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Blobs } from '../../base/blobs/blobs.ts';
import type { Db } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Places } from './places.ts';
import type { Servers } from './servers.ts';
import type { Job } from './store.ts';
import type { VideoState } from '../../../shared/states.ts';

export interface VideosDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  events: Pick<Events, 'append'>;
  ledger: Ledger;
  catalog: Catalog;
  blobs: Blobs;
  /** Jobs of one organisation that may be open at once. */
  openPerOrgMax(): number;
  /** The largest file. */
  bytesMax: number;
  /** Called after a commit that made a job due. */
  nudge(): void;
}

export interface StepDeps extends VideosDeps {
  servers: Servers;
  counts: Counts;
  places: Places;
  /** When a server did not take a submission last, by its URL; monotonic. */
  skippedMs: Map<string, number>;
  /** The servers of the job's model; empty if the model is not in the catalog any more. */
  upstreamsOf(job: Job): readonly Upstream[];
}

/** Endings of jobs and failures of servers since this process started, for the operator's metrics. */
export interface Counts {
  ended(model: string, status: VideoState): void;
  /** Counts a server that has not accepted a job, or has not answered about one. */
  failed(upstream: string): void;
  /** Unordered. */
  endings(): { model: string; status: VideoState; count: number }[];
  failures(): { upstream: string; count: number }[];
}

export function openCounts(): Counts {
  const endings = new Map<string, { model: string; status: VideoState; count: number }>();
  const failures = new Map<string, number>();
  return {
    ended: (model, status) => {
      const key = `${status} ${model}`;
      endings.set(key, { model, status, count: (endings.get(key)?.count ?? 0) + 1 });
    },
    failed: (upstream) => void failures.set(upstream, (failures.get(upstream) ?? 0) + 1),
    endings: () => [...endings.values()],
    failures: () => [...failures].map(([upstream, count]) => ({ upstream, count })),
  };
}

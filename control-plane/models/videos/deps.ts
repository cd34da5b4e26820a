// The dependencies of the files of this room.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Blobs } from '../../base/blobs/blobs.ts';
import type { Db } from '../../base/db/db.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Upstream } from '../catalog/models.ts';
import type { Counts } from './counts.ts';
import type { Servers } from './servers.ts';
import type { Job } from './store.ts';

export interface VideosDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
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
  /** The servers of the job's model; empty if the model is not in the catalog any more. */
  upstreamsOf(job: Job): readonly Upstream[];
}

// What the files of this room are given.
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
  /** Of a file. */
  bytesMax: number;
  /** There is something due. */
  nudge(): void;
}

export interface StepDeps extends VideosDeps {
  servers: Servers;
  counts: Counts;
  /** Those of the job's model; none where that is not in the catalog any more. */
  upstreamsOf(job: Job): readonly Upstream[];
}

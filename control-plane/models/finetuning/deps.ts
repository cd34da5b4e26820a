// The dependencies of the files of this room.
import type { Clock } from '../../../shared/clock.ts';
import type { Ids } from '../../../shared/ids.ts';
import type { Log } from '../../../shared/log.ts';
import type { Blobs } from '../../base/blobs/blobs.ts';
import type { Db } from '../../base/db/db.ts';
import type { Events } from '../../base/events/events.ts';
import type { Supply } from '../../fleet/supply/supply.ts';
import type { Workloads } from '../../fleet/workloads/workloads.ts';
import type { Ledger } from '../../money/ledger/ledger.ts';
import type { Quiet } from '../../rental/instances/quiet.ts';
import type { Catalog } from '../catalog/catalog.ts';

export interface FineTuningDeps {
  db: Db;
  clock: Clock;
  ids: Ids;
  log: Log;
  events: Pick<Events, 'append'>;
  ledger: Ledger;
  supply: Pick<Supply, 'hold' | 'release'>;
  workloads: Pick<Workloads, 'want' | 'remove' | 'stopJob' | 'sealEnv'>;
  catalog: Catalog;
  blobs: Blobs;
  quiet: Quiet;
  platformFeeBps: number;
  /** GPU hours that launches and jobs of one organisation may hold without paying, in any 24 hours. */
  unpaidGpuHoursMax: number;
  /** Called after a commit: sends the machine its desired state. */
  push(machineId: string): void;
  /** Called after a commit that made a job due. */
  nudge(): void;
}

// What this room brings to the house.
import type { Db } from '../../base/db/db.ts';
import type { Feed } from '../../base/events/feeds.ts';
import type { Measure } from '../../base/http/metrics.ts';
import type { Billed } from '../../money/ledger/billed.ts';
import type { FineTuningRoom } from './finetuning.ts';
import { KINDS } from './money.ts';
import { fineTuningRoutes } from './routes.ts';
import { countByStatus } from './store.ts';
import { fineTuningHoldFaults, fineTuningProof } from './verify.ts';

interface Deps {
  db: Db;
  fineTuning: FineTuningRoom;
}

export function fineTuningBrings({ db, fineTuning }: Deps) {
  return {
    routes: fineTuningRoutes({ db, fineTuning }),
    drivers: [fineTuning.driver],
    measures: measures(db),
    charges: fineTuningProof,
    billed: { [KINDS.charge]: { section: 'fine_tuning', by: 'subject' } } satisfies Billed,
    invariants: [fineTuningHoldFaults],
    feeds: [{ of: 'fine_tuning_job', scope: 'finetuning:read', describe: fineTuning.describe } satisfies Feed],
  };
}

function measures(db: Db): Measure[] {
  return [
    {
      name: 'svc_finetuning_jobs',
      help: 'Fine-tuning jobs that have not ended, by status',
      kind: 'gauge',
      labels: ['status'],
      read: async () =>
        (await countByStatus(db.read)).map(({ status, count }) => ({ labels: { status }, value: count })),
    },
  ];
}
